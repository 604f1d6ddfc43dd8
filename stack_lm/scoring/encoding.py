"""Words to token ids and back: the one place where tokens are aligned to words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import InputError
from ..tokenization import RareWordTags, added_tokens, sentence_frame, word_splitter_of

# Texts in one call of a tokenizer: a balance of call overhead and memory.
_BLOCK = 1000
LONGEST = 2**18
"""Words, and tokens, of the longest sentence that is scored. A longer one is a text without line breaks."""


class Encoding(NamedTuple):
    """A text's token ids; which word each belongs to (-1: none); and how many special tokens are at the end."""

    ids: list[int]
    word_of: np.ndarray
    n_end: int


WordStrength = Literal["first", "last", "sum", "max"]
"""How the strengths of a word's tokens become the word's: that of one of them, their sum, or the largest."""


class SentenceEncoder:
    """Encodes sentences of words with a fast tokenizer, many in a call.

    Args:
        tokenizer: any fast tokenizer.
        begin: put its beginning token before each sentence, even if it does not do so itself.
        end: likewise its end token after each whole sentence.

    Attributes:
        tokenizer: the tokenizer.
        begin: ids of the special tokens before each text.
        end: ids of those after a whole sentence.
        own_end: ids of those after a text that the tokenizer itself adds.

    Raises:
        InputError: if the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, begin: bool = True, end: bool = False) -> None:
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer: it cannot align tokens to words")
        self.tokenizer = tokenizer
        self._replace_rare = RareWordTags(tokenizer)
        self.own_end = added_tokens(tokenizer).end
        self.begin, self.end = sentence_frame(tokenizer, begin=begin, end=end)

    @property
    def is_word_level(self) -> bool:
        """Whether texts are split at white space alone, so that "dogs." is one word."""
        splits = self.tokenizer.backend_tokenizer.pre_tokenizer
        return type(splits).__name__ == "WhitespaceSplit"

    def knows(self, text: str) -> bool:
        """Whether no token of a text, inside a sentence, is the unknown token."""
        ids = self.tokenizer(f"a {text}", add_special_tokens=False).input_ids[1:]
        return self.tokenizer.unk_token_id is None or self.tokenizer.unk_token_id not in ids

    def encode_texts(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Token ids of sentences or their beginnings, without any special tokens around them."""
        texts = [" ".join(words) for words in sentences]
        # Call the backend itself: the tokenizer's wrapper objects cost more than tokenizing.
        return [
            encoding.ids
            for encoding in self.tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]

    def split(self, text: str) -> list[str]:
        """The words of a text: what a tokenizer made here separates, or else white space."""
        splitter = word_splitter_of(self.tokenizer)
        if splitter is None:
            return text.split()
        return [text[slice(*place)] for _, place in splitter.pre_tokenize_str(text)]

    def encode(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None) -> Iterator[Encoding]:
        """Whole sentences, with their tokens aligned to their words.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags, for tokenizers that replace rare words by tags.

        Raises:
            InputError: for a sentence without words or with more than 262,144, or a word that the tokenizer makes no
                token of.
        """
        for i, words in enumerate(sentences, start=1):
            if not words:
                raise InputError(f"sentence {i} has no words")
            if len(words) > LONGEST:
                raise InputError(f"sentence {i} has {len(words):,} words; {LONGEST:,} can be read at most")
        every_tags = tags if tags is not None else [None] * len(sentences)
        prepared = [self._replace_rare(*pair) for pair in zip(sentences, every_tags, strict=True)]
        for start in range(0, len(prepared), _BLOCK):
            block = prepared[start : start + _BLOCK]
            encoded = self.tokenizer(
                [" ".join(words) for words in block],
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            for words, text_ids, offsets in zip(block, encoded.input_ids, encoded.offset_mapping, strict=True):
                ids = self.begin + text_ids + self.end
                word_of = np.full(len(ids), -1)
                word_of[len(self.begin) : len(ids) - len(self.end)] = words_of_tokens(words, offsets)
                missing = sorted(set(range(len(words))) - set(word_of.tolist()))
                if missing:
                    raise InputError(
                        f"the tokenizer makes no token of the word {words[missing[0]]!r} in {' '.join(words)!r}"
                    )
                yield Encoding(ids, word_of, len(self.end))


def words_of_tokens(words: Sequence[str], offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """The word that each token comes from, by its place in the words joined by spaces."""
    lengths = np.array([len(word) + 1 for word in words])
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    spaces = set((starts[1:] - 1).tolist())
    # By its last character: in some tokenizers the space before a word is part of its first token. A token that is a
    # space alone belongs to the next word.
    places = [max(stop - 1, start) for start, stop in offsets]
    places = [place + 1 if place in spaces else place for place in places]
    return np.searchsorted(starts, places, side="right") - 1


def strengths_of_words(
    actions: Mapping[str, np.ndarray], word_of: np.ndarray, how: WordStrength
) -> dict[str, np.ndarray]:
    """Actions of words, from those of their tokens.

    Args:
        actions: by name, [T, ...].
        word_of: the word of each token, from 0 in order; -1 for none, [T].
        how: of strengths. A total strength is a state, always that after the last token, and so are distributions and
            weights of operations, but for "first".

    Returns:
        By name, [n, ...].
    """
    (inside,) = np.nonzero(word_of >= 0)
    _, starts = np.unique(word_of[inside], return_index=True)
    first, last = inside[starts], inside[np.append(starts[1:], len(inside)) - 1]
    of_words = {}
    for name, values in actions.items():
        if name == "total_strength" or how == "last" or (how != "first" and values.ndim > 1):
            of_words[name] = values[last]
        elif how == "first":
            of_words[name] = values[first]
        else:
            of_words[name] = (np.add if how == "sum" else np.maximum).reduceat(values[inside], starts)
    return of_words
