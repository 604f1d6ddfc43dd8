"""The base of all tokenizers made here: splitting text into words, typographic marks, and the case rule."""
# ruff: noqa: RUF001

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from string import ascii_uppercase
from typing import TYPE_CHECKING, Literal, get_args

from tokenizers import Regex, models, normalizers, pre_tokenizers

from ...core.errors import InputError
from ...core.messages import check_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Lowercase = Literal["none", "first_word", "all"]
TaggedSentence = tuple[Sequence[str], Sequence[str] | None]

# What is a token of its own where it touches a word. In text of the Penn Treebank's form nothing touches a word, so
# such text stays as it is. Each alternative begins with one character and a test that refuses most others: the matcher
# tries all of them at each character that may begin one.
_CLOSED = r"(?=[\"'”\u2019“\u2018«»)\],;:.?!]*(?:\s|\z))"
_AFTER_WORD = "|".join(
    (
        r"(?<=[\"”»)\]}])",
        r"(?<=[“\u2018«‹›])(?=[,;:.?!]*(?:\s|\z))",  # which close quotations in German and other languages
        # One token of several marks ("?!"), before white space, the end, or what closes a quotation.
        rf"(?<=[,;:?!])(?<![?!]{{2}})[?!]*{_CLOSED}",
        # The text's last period, except that of an initial or an acronym (Plan B., the U.S.).
        r"(?<=\.)(?<=[\p{L}\p{N}%\"'”\u2019)\]].)(?=[\"'”\u2019“\u2018«»)\]]*\s*\z)(?<![^\p{L}]\p{L}.)(?<!\A\p{L}.)",
        r"(?<=\.)\.\.(?!\.)(?<!\....)",
        r"(?<=['\u2019])(?<=[\p{L}\p{N}].)(?:[smdSMD]|[rR][eE]|[vV][eE]|[lL][lL])(?![\p{L}\p{N}])",
        r"(?<=')'(?!')(?<=[^\s'`]..)",
        # After a word or a mark, but for runnin', o', l' and 3'.
        rf"(?<=['\u2019])(?<=[\p{{L}}\p{{P}}].)(?<!['\u2019`].)(?<!\p{{L}}{{2}}[iI][nN].)(?<![^\p{{L}}]\p{{L}}.)"
        rf"(?<!\A\p{{L}}.){_CLOSED}",
        rf"(?<=%)(?<=\d.){_CLOSED}",
    )
)
_BEFORE_WORD = "|".join(
    (
        r"(?<=[\"“„«‚(\[{$£€])",
        r"(?<=[»›‹\u2018‛])(?<![\p{L}\p{N}].)(?=[\p{L}\p{N}])",
        # Before a word, but for 's, 'em, '90s and the like.
        r"(?<=['\u2019])(?<![^\s(\[{\"“„«\u2018—―].)(?=[\p{L}\p{N}])(?!(?:"
        r"[sdmtSDMT]|[rR][eE]|[vV][eE]|[lL][lL]|[eE][mMrR]|[tT](?:is|was|were|will|il|ill)|[nN]|[cC](?:ause|os)|[bB]out|"
        r"[rR]ound|[nN]uff|\d\ds?)(?![\p{L}\p{N}]))",
        r"(?<=`)`(?=\S)",
        r"(?<=\.)\.\.(?=[\p{L}\p{N}])(?<!\....)",
        r"(?<=-)-++(?=\S|(?<=\S--))",
    )
)
WORD_PARTS = "|".join(
    (
        rf"[\"'\u2019”»“\u2018«‹›)\]}},;:?!.%](?<=\S.)(?:{_AFTER_WORD})",
        rf"[\"'\u2019“„«»‹›\u2018‚‛(\[{{$£€`.\-](?=\S)(?:{_BEFORE_WORD})",
        "[—―]+|…+",
        r"[nN]['\u2019][tT](?<=\p{L}...)(?!\p{L})",
        r"[cC]an(?=not(?!\p{L}))(?<!\p{L}...)",
    )
)
_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
# For a corpus with the Penn Treebank's quotation marks: text has others.
_TREEBANK_QUOTES: tuple[normalizers.Normalizer, ...] = (
    normalizers.Replace(Regex(r'(?<![^\s(\[{])"(?=\S)'), "``"),
    normalizers.Replace('"', "''"),
)
# Marks, their context, and what replaces them where a vocabulary lacks them: the first that it knows. These are the
# marks of sacremoses' normalization, but a dash stays a dash, as in the Penn Treebank.
_MARKS: tuple[tuple[Sequence[str], str, Sequence[str]], ...] = (
    ("“„‟«", "{}", ("``", '"')),
    ("”»", "{}", ("''", '"')),
    # At the ends of a word these are words of their own.
    ("‘‚‛‹", r"(?<![\p{{L}}\p{{N}}]){}", ("` ", "' ")),
    ("’›", r"(?<=\S){}(?![\p{{L}}\p{{N}}])", (" '",)),
    ("‘‚‛‹’›′´", "{}", ("'",)),
    ("–", r"(?<!\S){}(?!\S)", ("--",)),
    ("—―", "{}", ("--",)),
    ("–‒−‐‑", "{}", ("-",)),
    ("…", "{}", ("...",)),
)


def mark_rules(vocabulary: Iterable[str], *, bytewise: bool = False) -> list[normalizers.Normalizer]:
    """Replace the marks that a vocabulary lacks, such as typographic quotation marks, by those that it has.

    Args:
        vocabulary: its tokens.
        bytewise: whether they are written as bytes. Each byte is a token, so only longer ones show what the corpus had.
    """
    entries = "\n".join(token for token in vocabulary if len(token) > 1 or not bytewise)

    def knows(mark: str) -> bool:
        if bytewise:
            ((mark, _),) = _BYTES.pre_tokenize_str(mark)
        return mark in entries

    rules: list[normalizers.Normalizer] = []
    for marks, context, substitutes in _MARKS:
        unknown = [mark for mark in marks if not knows(mark)]
        known = [substitute for substitute in substitutes if knows(substitute.strip())]
        if unknown and known:
            pattern = context.format(f"(?:{'|'.join(map(re.escape, unknown))})")
            rules.append(normalizers.Replace(Regex(pattern), known[0]))
    return [*rules, *(_TREEBANK_QUOTES if knows("``") and not knows('"') else ())]


_EXAMPLE = ["They", "are", "n't", "low", "."]
_ATTACHED_EXAMPLE = ["They", "\u0120are", "n't", "\u0120low", "."]


class CaseRules:
    """The case rule of a tokenizer in training: its effect on a corpus, and then its normalizers.

    Args:
        lowercase: "none", "first_word" (of each text, see `case_rule`) or "all".

    Raises:
        InputError: for another value.
    """

    def __init__(self, lowercase: Lowercase) -> None:
        check_name("lowercase", lowercase, get_args(Lowercase))
        self._lowercase = lowercase
        self._capitals = set(ascii_uppercase)

    @property
    def training_normalizer(self) -> normalizers.Normalizer | None:
        """The normalizer that the tokenizer applies to the texts that `first_word` returns."""
        return normalizers.Lowercase() if self._lowercase == "all" else None

    def first_word(self, text: str) -> str:
        """A text of the corpus, with its first word in lower case if the rule applies to it."""
        if self._lowercase == "first_word" and text[:1].isupper():
            self._capitals.add(text[0])
            return case_rule(text[0]).normalize_str(text)
        return text

    def normalizers(self, initials: Collection[str] | None = None) -> list[normalizers.Normalizer]:
        """The rule as normalizers, one for each capital with which the corpus begins a text.

        Args:
            initials: first letters of the vocabulary's words. If no word begins with the small letter, the rule could
                only make words unknown. None: every word is known.
        """
        if self._lowercase == "all":
            return [normalizers.Lowercase()]
        if self._lowercase == "none":
            return []
        useful = [letter for letter in sorted(self._capitals) if initials is None or letter.lower()[0] in initials]
        # Other programs put a space before a continuation.
        return [normalizers.Strip(right=False), *map(case_rule, useful)]


@cache
def case_rule(capital: str) -> normalizers.Normalizer:
    """Lower-case one capital letter that begins a text's first word.

    The rest of the word must be lower case ("The", not "NASA", "McDonald" or "U.S."), or the word must be "A". "I"
    stays. Only the first letter of the text counts, so nothing changes after a quotation mark.

    NOTE: Merrill et al. (2019) lower-case the whole first word, whatever it is.
    """
    word = r"\p{Ll}[^\s\p{Lu}]*(?:\s|\z)"
    alone = r"|\s+[\p{L}\p{N}]" if capital == "A" else ""
    return normalizers.Replace(Regex(rf"\A{capital}(?={word}{alone})"), capital.lower())


def word_splitter() -> pre_tokenizers.PreTokenizer:
    """Split text into words as in the Penn Treebank; text in its form stays unchanged, word for word."""
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORD_PARTS), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )


def word_splitter_of(tokenizer: PreTrainedTokenizerBase) -> pre_tokenizers.PreTokenizer | None:
    """The part of a tokenizer's pre-tokenizer that separates words; None if it separates them in another way.

    It ends with the splitting at white space: later parts concern the tokens of a word.
    """
    backend = tokenizer.backend_tokenizer
    if _knows_words(tokenizer):
        return backend.pre_tokenizer
    if backend.pre_tokenizer is not None and _parts(backend.pre_tokenizer) == _ATTACHED_EXAMPLE:
        return word_splitter()
    parts = _flat(backend.pre_tokenizer)
    kinds = [type(part).__name__ for part in parts]
    if "WhitespaceSplit" not in kinds:
        return None
    return pre_tokenizers.Sequence(parts[: kinds.index("WhitespaceSplit") + 1])


def splits_words(tokenizer: PreTrainedTokenizerBase) -> bool:
    """True if a tokenizer is for text split into words: it splits like `word_splitter`, or knows whole words."""
    if _knows_words(tokenizer):
        return True
    splitter = word_splitter_of(tokenizer)
    return splitter is not None and _parts(splitter) == _EXAMPLE


def _parts(splitter: pre_tokenizers.PreTokenizer) -> list[str]:
    """The parts of an example."""
    return [part for part, _ in splitter.pre_tokenize_str("They aren't low.")]


def _knows_words(tokenizer: PreTrainedTokenizerBase) -> bool:
    """True if its vocabulary contains words: that of characters is also a mapping from strings to numbers."""
    backend = tokenizer.backend_tokenizer
    if not isinstance(backend.model, models.WordLevel):
        return False
    splitter = backend.pre_tokenizer
    return splitter is None or [part for part, _ in splitter.pre_tokenize_str("They low")] == ["They", "low"]


def _flat(splitter: pre_tokenizers.PreTokenizer) -> list[pre_tokenizers.PreTokenizer]:
    if not isinstance(splitter, pre_tokenizers.Sequence):
        return [splitter]
    parts = []
    with suppress(IndexError):  # it has no length
        for i in count():
            parts += _flat(splitter[i])
    return parts


def tagged_sentences(sentences: Iterable[TaggedSentence]) -> Iterator[TaggedSentence]:
    """The sentences of a corpus, checked to be pairs of words and tags.

    Raises:
        InputError: for another kind of sentence.
    """
    for sentence in sentences:
        if not isinstance(sentence, tuple) or len(sentence) != 2 or isinstance(sentence[0], str):
            raise InputError(f"a sentence must be (words, tags or None), as (['dogs', 'bark'], None); got {sentence!r}")
        yield sentence
