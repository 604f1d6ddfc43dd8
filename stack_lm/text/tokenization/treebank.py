"""The Penn Treebank's escapes in the form that a tokenizer's vocabulary has."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..escapes import treebank_word, unescape_word

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Words that may have another form: the second only where a vocabulary has escapes.
_ESCAPED = r"-[LR][RSC]B-|\\[/*]|(?<!\S)(?:``|'')(?!\S)"
_PLAIN = r"(?<!\S)[()\[\]{}](?!\S)|[/*]"
_QUOTES = {"``": '"', "''": '"'}


class TreebankForms:
    """The words of a sentence, in the form that the vocabulary has: "(" or "-LRB-", "1/2" or "1\\/2".

    A word that is a token stays; otherwise a form that is one replaces it. Escapes inside longer words go if the
    vocabulary has brackets or slashes but not their escapes. The first change is a warning.

    Args:
        tokenizer: any fast tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._before = self._cost("")
        self._has_brackets = self._is_token("(") and not self._is_token("-LRB-")
        self._has_slashes = self._is_token("/") and not self._is_token("\\/")
        self._may_change = re.compile(_ESCAPED if self._has_brackets else f"{_ESCAPED}|{_PLAIN}", re.IGNORECASE)
        self._forms: dict[str, str] = {}
        self._warned = False

    def __call__(self, words: Sequence[str]) -> Sequence[str]:
        """The words, each as the vocabulary has it."""
        if self._may_change.search(" ".join(words)) is None:
            return words
        return [self._form(word) if self._may_change.search(word) else word for word in words]

    def _form(self, word: str) -> str:
        if word not in self._forms:
            plain = unescape_word(word)
            forms = (word, plain, treebank_word(word), _QUOTES.get(word, word))
            has_plain = self._has_slashes if "\\" in word else self._has_brackets
            is_known = has_plain and self._cost(plain)[0] == self._before[0]
            self._forms[word] = next(filter(self._is_token, forms), plain if is_known else word)
            if self._forms[word] != word and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{word!r} is read as {self._forms[word]!r}, as the vocabulary has it; so are other escapes of "
                    "treebanks",
                    stacklevel=2,
                )
        return self._forms[word]

    def _is_token(self, word: str) -> bool:
        return self._cost(word) == (self._before[0], self._before[1] + 1)

    def _cost(self, word: str) -> tuple[int, int]:
        """The number of unknown tokens, and of all, with a word before."""
        ids = self._tokenizer.backend_tokenizer.encode(f"a {word}".rstrip(), add_special_tokens=False).ids
        return ids.count(self._tokenizer.unk_token_id), len(ids)
