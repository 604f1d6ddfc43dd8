"""Trees of a `SpanParserModel`: sentences in batches, probabilities of spans, and the tree that they vote for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..parsing.ensemble import LONGEST, are_words, elect_tree
from ..parsing.trees import ConstituencyTree
from ..text.escapes import escape_words
from .batches import length_batches
from .encoding import SentenceEncoder, Sentences, last_tokens

Fenced = tuple[list[int], list[int]]
"""The token ids of a sentence, framed, and its fences (see `SpanParserModel.forward`)."""


class SpanScorer:
    """A finder of trees with a parser that scores spans.

    Args:
        model: a `SpanParserModel`.
        tokenizer: its fast tokenizer, with tokens that begin and end sentences.
        batch_tokens: tokens in a batch, padding included.

    Raises:
        InputError: if the tokenizer has no such tokens.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, batch_tokens: int = 2048) -> None:
        self.model, self.tokenizer, self.batch_tokens = model.eval(), tokenizer, batch_tokens
        self._encoder = SentenceEncoder(tokenizer, begin=True, end=True)
        if not (self._encoder.begin and self._encoder.end):
            raise InputError("a span parser's tokenizer must have tokens that begin and end sentences")

    def split(self, text: str) -> list[str]:
        """The words of a text, as the tokenizer separates them."""
        return self._encoder.split(text)

    def encode(self, sentences: Sentences) -> Iterator[Fenced]:
        """The token ids of each sentence, framed, and its fences (see `SpanParserModel.forward`).

        Brackets are read as "-LRB-" and "-RRB-", since a parser learns from files of trees, in which they are escaped.

        Raises:
            InputError: for a sentence without words or with more than 2,000, or a word without tokens.
        """
        for number, words in enumerate(sentences, start=1):
            if len(words) > LONGEST:
                raise InputError(f"sentence {number} has {len(words):,} words; a span parser reads at most {LONGEST:,}")
        for encoding in self._encoder.encode([escape_words(words) for words in sentences], None):
            before = int((encoding.word_of >= 0).argmax()) - 1
            yield encoding.ids, [before, *last_tokens(encoding.word_of).tolist()]

    @torch.inference_mode()
    def probabilities(
        self, encoded: Sequence[Fenced], *, progress: Callable[[int], None] | None = None
    ) -> list[np.ndarray]:
        """The probability that each span [start, stop) of each sentence is in its tree [n + 1, n + 1].

        Args:
            encoded: the sentences, as from `encode`.
            progress: called with the number of sentences done, batch by batch.
        """
        probabilities: list[np.ndarray] = [np.zeros(0)] * len(encoded)
        for batch in length_batches([len(ids) for ids, _ in encoded], self.batch_tokens):
            inputs = collate_spans([encoded[i] for i in batch], self.model.device)
            spans = torch.sigmoid(self.model(**inputs).logits.float()).cpu().numpy()
            for row, i in enumerate(batch):
                n = len(encoded[i][1])
                probabilities[i] = np.triu(spans[row, :n, :n], k=1)
            if progress is not None:
                progress(len(batch))
        return probabilities

    def parse(
        self, sentences: Sentences, *, progress: Callable[[int], None] | None = None
    ) -> list[tuple[ConstituencyTree, np.ndarray]]:
        """The binary tree of each sentence, as `tree_of_spans` finds it, and its unknown words.

        Args:
            sentences: each a sequence of words.
            progress: see `probabilities`.

        Raises:
            InputError: as `encode`.

        Returns:
            For each sentence its tree, and whether each word has the unknown token among its own [n], bool.
        """
        encoded = list(self.encode(sentences))
        probabilities = self.probabilities(encoded, progress=progress)
        return [
            (tree_of_spans(words, spans), self._unknown(*ids_and_fences))
            for words, spans, ids_and_fences in zip(sentences, probabilities, encoded, strict=True)
        ]

    def _unknown(self, ids: Sequence[int], fences: Sequence[int]) -> np.ndarray:
        missing = self.tokenizer.unk_token_id
        return np.array([missing in ids[before + 1 : last + 1] for before, last in pairwise(fences)])


def tree_of_spans(words: Sequence[str], spans: np.ndarray) -> ConstituencyTree:
    """The binary tree whose spans have the largest sum, as `stack_lm.parsing.ensemble.elect_tree` elects it.

    The values of spans of the same words, with and without punctuation, are added up, to 1 at most.

    Args:
        words: n of them.
        spans: the value of each span [start, stop), in [0, 1], at least [n + 1, n + 1]; further entries are ignored.
    """
    places = np.triu_indices(len(words) + 1, k=2)
    values = spans[places].astype(float)
    before = np.cumsum([0, *are_words(words)])
    word_values = np.zeros((before[-1] + 1,) * 2)
    np.add.at(word_values, tuple(before[axis] for axis in places), values)
    pooled = np.nonzero(word_values)
    return elect_tree(words, _votes(places, values), _votes(pooled, np.minimum(word_values[pooled], 1)))


def _votes(places: tuple[np.ndarray, ...], values: np.ndarray) -> dict[tuple[int, int], float]:
    starts, stops = (axis.tolist() for axis in places)
    return dict(zip(zip(starts, stops, strict=True), values.tolist(), strict=True))


def collate_spans(encoded: Sequence[Fenced], device: torch.device) -> dict[str, Tensor]:
    """Collate sentences from `SpanScorer.encode` into arguments of the model, padded on the right."""
    ids, fences = (list(map(torch.tensor, part)) for part in zip(*encoded, strict=True))
    padded = {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence(list(map(torch.ones_like, ids)), batch_first=True),
        "fences": pad_sequence(fences, batch_first=True, padding_value=-1),
    }
    return {name: values.to(device) for name, values in padded.items()}
