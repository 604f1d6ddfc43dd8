"""Words to token ids and back: the one place where tokens are aligned to words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..core.errors import InputError
from ..core.trace import StackRun
from ..text.escapes import ESCAPES
from ..text.tokenization import RareWordTags, TreebankForms, added_tokens, sentence_frame, word_splitter_of
from .punctuation import Punctuation, is_punctuation, split_points

Sentences = Sequence[Sequence[str]]
"""Sentences, or their part-of-speech tags, each a sequence of words."""


class Encoding(NamedTuple):
    """A text's token ids; the word of each (-1: none); the number of special tokens at the end; its words; and the word
    of each token again, -1 also for punctuation that touches its word."""

    ids: list[int]
    word_of: np.ndarray
    n_end: int
    words: Sequence[str]
    core_of: np.ndarray


WordStrength = Literal["first", "last", "sum", "max"]
"""The rule from the strengths of a word's tokens to the word's: that of one token, the sum, or the largest."""


class SentenceEncoder:
    """An encoder of sentences of words with a fast tokenizer, many in a call.

    Args:
        tokenizer: any fast tokenizer.
        begin: put its beginning token before each sentence, even if it does not do so itself.
        end: likewise its end token after each whole sentence.

    Attributes:
        tokenizer: the tokenizer.
        begin: ids of the special tokens before each text.
        end: ids of those after a whole sentence.
        own_end: ids of those that the tokenizer itself adds after a text.

    Raises:
        InputError: if the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, begin: bool = True, end: bool = False) -> None:
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer: it cannot align tokens to words")
        self.tokenizer = tokenizer
        self._adapt = TreebankForms(tokenizer)
        self._replace_rare = RareWordTags(tokenizer)
        self.own_end = added_tokens(tokenizer).end
        self.begin, self.end = sentence_frame(tokenizer, begin=begin, end=end)

    @property
    def is_word_level(self) -> bool:
        """True if texts are split only at white space, so that "dogs." is one word."""
        splits = self.tokenizer.backend_tokenizer.pre_tokenizer
        return type(splits).__name__ == "WhitespaceSplit"

    def knows(self, text: str, *, begins: bool = False) -> bool:
        """True if no token of a text, inside a sentence or at its beginning, is the unknown token."""
        # Case rules may treat the first word differently. "a" may itself be unknown, or several tokens.
        unknown, before = self.tokenizer.unk_token_id, "" if begins else "a "
        if unknown is None:
            return True
        encoding = self.tokenizer.backend_tokenizer.encode(before + text, add_special_tokens=False)
        return not any(
            token == unknown and text[max(0, start - len(before)) : max(0, end - len(before))].strip()
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        )

    def encode_texts(self, sentences: Sentences) -> list[list[int]]:
        """Token ids of sentences or their prefixes, without any special tokens around them."""
        texts = [" ".join(self._adapt(words)) for words in sentences]
        # Call the backend itself: the tokenizer's wrapper objects cost more than tokenizing.
        encoded = self.tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encoded]

    def split(self, text: str) -> list[str]:
        """The words of a text, as split by a tokenizer made here, or else at white space."""
        splitter = word_splitter_of(self.tokenizer)
        if splitter is None:
            return text.split()
        return [text[slice(*place)] for _, place in splitter.pre_tokenize_str(text)]

    def encode(
        self,
        sentences: Sentences,
        tags: Sentences | None,
        *,
        punctuation: Punctuation = "attach",
        numbers: Sequence[int] | None = None,
    ) -> Iterator[Encoding]:
        """Tokenize whole sentences, and align the tokens to the words.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags, for tokenizers that replace rare words by tags.
            punctuation: "split" turns the punctuation at the ends of a word into separate words, unless a token has
                both.
            numbers: the numbers of the sentences, for messages; None counts from 1.

        Raises:
            InputError: for a sentence without words, or a word without tokens.
        """
        numbers = range(1, len(sentences) + 1) if numbers is None else numbers
        for number, words in zip(numbers, sentences, strict=True):
            if not words:
                raise InputError(f"sentence {number} has no words")
        every_tags = tags if tags is not None else [None] * len(sentences)
        adapted = map(self._adapt, sentences)
        prepared = [self._replace_rare(*pair) for pair in zip(adapted, every_tags, strict=True)]
        if not prepared:
            return
        encoded = self.tokenizer(
            [" ".join(words) for words in prepared],
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        of_each = zip(numbers, sentences, prepared, encoded.input_ids, encoded.offset_mapping, strict=True)
        for number, words, read, text_ids, offsets in of_each:
            parts, part_of = _split(read, words, offsets)
            if punctuation == "split":
                words, text_word_of = parts, part_of
            else:
                text_word_of = words_of_tokens(read, offsets)
            ids = self.begin + text_ids + self.end
            inside = slice(len(self.begin), len(ids) - len(self.end))
            word_of, core_of = np.full((2, len(ids)), -1)
            word_of[inside] = core_of[inside] = text_word_of
            if len(parts) > len(words):
                bare = np.array([is_punctuation(part) for part in parts])[part_of]
                of_others = np.isin(text_word_of, text_word_of[~bare])  # a word of nothing else keeps it
                core_of[inside][bare & of_others] = -1
            missing = sorted(set(range(len(words))) - set(word_of.tolist()))
            if missing:
                text, word = " ".join(read), words[missing[0]]
                begin = sum(len(each) + 1 for each in read[: missing[0]])
                wide = next((text[a:b] for a, b in offsets if a <= begin < b and punctuation == "attach"), None)
                problem = f"no token of the word {word!r}" if wide is None else f"one token of {wide.strip()!r}"
                raise InputError(f"sentence {number}: the tokenizer makes {problem} in {' '.join(words)!r}")
            yield Encoding(ids, word_of, len(self.end), words, core_of)


def words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """The word of each token, by its position in the words joined by spaces."""
    starts = _starts(words)
    return np.searchsorted(starts, _places(starts, offsets), side="right") - 1


def _split(
    words: Sequence[str], given: Sequence[str], offsets: Sequence[tuple[int, int]]
) -> tuple[list[str], np.ndarray]:
    """The words and the punctuation split off them, and the one of these to which each token belongs.

    A word that the tokenizer reads in another form than it was given has no parts, and neither has -LRB-.
    """
    parts, points = [], []
    for word, own, word_points in zip(words, given, split_points(words, offsets), strict=True):
        if word != own or own.upper() in ESCAPES:
            word_points = word_points[:1]
        stops = [point - word_points[0] for point in word_points[1:]]
        parts += [own[start:stop] for start, stop in zip([0, *stops], [*stops, len(own)], strict=True)]
        points += word_points
    return parts, np.searchsorted(points, _places(_starts(words), offsets), side="right") - 1


def _starts(words: Sequence[str]) -> np.ndarray:
    """The start of each word in the words joined by spaces."""
    lengths = np.array([len(word) + 1 for word in words])
    return np.concatenate(([0], np.cumsum(lengths)[:-1]))


def _places(starts: np.ndarray, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """A character of each token that belongs to its word.

    This is the last one: in some tokenizers the space before a word is part of its first token. A token that is only a
    space belongs to the next word.
    """
    spaces = set((starts[1:] - 1).tolist())
    places = [max(stop - 1, start) for start, stop in offsets]
    return [place + 1 if place in spaces else place for place in places]


def strengths_of_words(
    actions: Mapping[str, np.ndarray], word_of: np.ndarray, how: WordStrength
) -> dict[str, np.ndarray]:
    """The actions of words, from those of their tokens.

    Args:
        actions: the actions by name, [T, ...].
        word_of: the word of each token, from 0 in order; -1 for none, [T].
        how: the rule for strengths. A total strength is a state, always that after the last token, and so are
            distributions and weights of operations, except with "first".

    Returns:
        By name, [n, ...].
    """
    (inside,) = np.nonzero(word_of >= 0)
    _, starts = np.unique(word_of[inside], return_index=True)
    first, last = inside[starts], last_tokens(word_of)
    word_actions = {}
    for name, values in actions.items():
        if name == "total_strength" or how == "last" or (how != "first" and values.ndim > 1):
            word_actions[name] = values[last]
        elif how == "first":
            word_actions[name] = values[first]
        else:
            word_actions[name] = (np.add if how == "sum" else np.maximum).reduceat(values[inside], starts)
    return word_actions


def last_tokens(word_of: np.ndarray) -> np.ndarray:
    """The last token of each word [n].

    Args:
        word_of: see `strengths_of_words`.
    """
    (inside,) = np.nonzero(word_of >= 0)
    return inside[np.append(np.flatnonzero(np.diff(word_of[inside])), len(inside) - 1)]


def run_of_words(run: StackRun, word_of: np.ndarray) -> StackRun:
    """The state of a run over tokens (or symbols of a task) after the last one of each word.

    Args:
        run: over at least the tokens up to that of the last word.
        word_of: see `strengths_of_words`.
    """
    last = last_tokens(word_of)
    pushed_by = np.append(word_of, -1)[run.elements[last]]
    moves, stacks = tuple(run.moves[step] for step in last), [run.stacks[step] for step in last]
    return StackRun(moves, run.states[last], run.symbols[last], pushed_by, run.depths[last], stacks, run.weight)
