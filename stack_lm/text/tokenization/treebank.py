"""The Penn Treebank's escapes in the form that a tokenizer's vocabulary has."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..escapes import ESCAPES, treebank_word, unescape_word

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Words that may have another form: the second only where a vocabulary has escapes.
_ESCAPED = r"-[LR][RSC]B-|\\[/*]|(?<!\S)(?:``|'')(?!\S)"
_PLAIN = r"(?<!\S)[()\[\]{}](?!\S)|[/*]"
_QUOTES = {"``": '"', "''": '"'}


class TreebankForms:
    """The words of a sentence, in the form that the vocabulary has: "(" or "-LRB-", "1/2" or "1\\\\/2".

    A vocabulary has the form with fewer unknown tokens, or else with fewer tokens. The first change is a warning.

    Args:
        tokenizer: any fast tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        escaped, plain = (self._cost(" ".join(forms)) for forms in (list(ESCAPES)[:2], "()"))
        self._is_plain, self._is_escaped = plain < escaped, escaped < plain
        self._may_change = re.compile(_ESCAPED if self._is_plain else f"{_ESCAPED}|{_PLAIN}", re.IGNORECASE)
        unknown, tokens = self._cost("")
        self._least = (unknown, tokens + 1)  # the cost of a word that is one token
        self._forms: dict[str, str] = {}
        self._warned = False

    def __call__(self, words: Sequence[str]) -> Sequence[str]:
        """The words, each as the vocabulary has it."""
        if self._may_change.search(" ".join(words)) is None:
            return words
        return [self._form(word) if self._may_change.search(word) else word for word in words]

    def _form(self, word: str) -> str:
        if word not in self._forms:
            plain, escaped = unescape_word(word), treebank_word(word)
            first = word  # of those that cost the same
            if self._is_plain and "\\" in word:
                first = plain
            elif self._is_escaped and escaped in ESCAPES:
                first = escaped
            quote = _QUOTES.get(word, word)
            forms = (first, word, plain, escaped, quote if self._cost(quote) == self._least else word)
            form = min(forms, key=self._cost)
            if self._cost(form)[0] and self._cost(form) == self._cost(word):
                form = word  # as unknown in any form
            self._forms[word] = form
            if form != word and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{word!r} is read as {form!r}, as the vocabulary has it; so are other escapes of treebanks",
                    stacklevel=2,
                )
        return self._forms[word]

    def _cost(self, text: str) -> tuple[int, int]:
        ids = self._tokenizer.backend_tokenizer.encode(f"a {text}".rstrip(), add_special_tokens=False).ids
        return ids.count(self._tokenizer.unk_token_id), len(ids)
