"""Words to token ids and back: the one place where tokens are aligned to words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import InputError
from ..tokenization import WordPreparation

# Texts in one call of a tokenizer: a balance of call overhead and memory.
_BLOCK = 1000


class Encoding(NamedTuple):
    """A text's token ids; which word each belongs to (-1: none); and how many special tokens are at the end."""

    ids: list[int]
    word_of: np.ndarray
    n_end: int


class SentenceEncoder:
    """Encodes sentences of words with a fast tokenizer, many in a call.

    Attributes:
        tokenizer: the tokenizer.
        begin: ids of the special tokens that it adds before each text.
        end: ids of the special tokens that it adds after each text.

    Raises:
        InputError: if the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer: it cannot align tokens to words")
        self.tokenizer = tokenizer
        self._prepare = WordPreparation(tokenizer)
        bare = tokenizer("a", add_special_tokens=False).input_ids
        full = tokenizer("a").input_ids
        place = next((k for k in range(len(full)) if full[k : k + len(bare)] == bare), 0)
        self.begin: list[int] = full[:place]
        self.end: list[int] = full[place + len(bare) :]

    @property
    def is_word_level(self) -> bool:
        """Whether texts are split at white space alone, so that "dogs." is one word."""
        splits = self.tokenizer.backend_tokenizer.pre_tokenizer
        return type(splits).__name__ == "WhitespaceSplit"

    def knows(self, text: str) -> bool:
        """Whether no token of a text, inside a sentence, is the unknown token."""
        _, *words = self._prepare(["a", *text.split()])
        ids = self.tokenizer(" ".join(words), add_special_tokens=False).input_ids
        return self.tokenizer.unk_token_id is None or self.tokenizer.unk_token_id not in ids

    def encode_texts(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Token ids of sentences or their beginnings, without any special tokens around them."""
        texts = [" ".join(self._prepare(words)) for words in sentences]
        # Call the backend itself: the tokenizer's wrapper objects cost more than tokenizing.
        return [
            encoding.ids
            for encoding in self.tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ]

    def encode(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]] | None) -> Iterator[Encoding]:
        """Whole sentences, with their tokens aligned to their words.

        Args:
            sentences: each a sequence of words.
            tags: their part-of-speech tags, for tokenizers that replace rare words by tags.

        Raises:
            InputError: for a sentence without words, or a word that the tokenizer makes no token of.
        """
        for i, words in enumerate(sentences, start=1):
            if not words:
                raise InputError(f"sentence {i} has no words")
        every_tags = tags if tags is not None else [None] * len(sentences)
        prepared = [self._prepare(*pair) for pair in zip(sentences, every_tags, strict=True)]
        for start in range(0, len(prepared), _BLOCK):
            block = prepared[start : start + _BLOCK]
            encoded = self.tokenizer(
                [" ".join(words) for words in block],
                return_offsets_mapping=True,
                return_special_tokens_mask=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            for words, ids, offsets, special in zip(
                block, encoded.input_ids, encoded.offset_mapping, encoded.special_tokens_mask, strict=True
            ):
                word_of = words_of_tokens(words, offsets)
                outside = np.array([a == b for a, b in offsets], dtype=bool) & np.array(special, dtype=bool)
                word_of[outside] = -1
                inside = np.flatnonzero(~outside)
                n_end = len(ids) - 1 - int(inside[-1]) if len(inside) else 0
                missing = sorted(set(range(len(words))) - set(word_of.tolist()))
                if missing:
                    raise InputError(
                        f"the tokenizer makes no token of the word {words[missing[0]]!r} in {' '.join(words)!r}"
                    )
                yield Encoding(ids, word_of, n_end)


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
