"""Sentences in their context: the token sequences that a model reads, in windows if they are too long for it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .encoding import Encoding, SentenceEncoder, Sentences
from .punctuation import Punctuation


class Placed(NamedTuple):
    """A sentence's encoding, the number of the sequence that it is in, and the place of its first token there."""

    encoding: Encoding
    sequence: int
    start: int


class Window(NamedTuple):
    """Tokens `start` to `stop` of a sequence; those before `keep` are only context."""

    sequence: int
    start: int
    stop: int
    keep: int


def place(
    encoder: SentenceEncoder,
    sentences: Sentences,
    tags: Sentences | None,
    contexts: Sequence[Hashable] | None,
    *,
    punctuation: Punctuation,
    numbers: Sequence[int],
) -> tuple[list[list[int]], list[Placed]]:
    """The sequences of tokens that hold sentences, and the place of each sentence.

    Sentences of one context follow each other. If the model marks the ends of sentences, each keeps the special tokens
    around it; otherwise they are one running text, with its beginning token.

    Args:
        encoder: encodes sentences.
        sentences: see `SentenceEncoder.encode`.
        tags: likewise.
        punctuation: likewise.
        numbers: likewise.
        contexts: the context of each sentence; None reads each in isolation.

    Raises:
        InputError: as `SentenceEncoder.encode`.
    """
    members: dict[Hashable, list[int]] = {}
    for i, context in enumerate(range(len(sentences)) if contexts is None else contexts):
        members.setdefault(context, []).append(i)
    placed: dict[int, Placed] = {}
    sequences: list[list[int]] = []
    if encoder.end or contexts is None:
        encodings = list(encoder.encode(sentences, tags, punctuation=punctuation, numbers=numbers))
        for number, group in enumerate(members.values()):
            sequences.append([])
            for i in group:
                placed[i] = Placed(encodings[i], number, len(sequences[-1]))
                sequences[-1] += encodings[i].ids
    else:
        texts = [[word for i in group for word in sentences[i]] for group in members.values()]
        joined = None if tags is None else [[tag for i in group for tag in tags[i]] for group in members.values()]
        whole = encoder.encode(
            texts, joined, punctuation=punctuation, numbers=[numbers[g[0]] for g in members.values()]
        )
        for number, (group, encoding) in enumerate(zip(members.values(), whole, strict=True)):
            sequences.append(encoding.ids)
            parts = _parts(encoding, [sum(map(len, sentences[i])) for i in group])
            placed |= {i: Placed(part, number, start) for i, (part, start) in zip(group, parts, strict=True)}
    return sequences, [placed[i] for i in range(len(sentences))]


def _parts(encoding: Encoding, lengths: Sequence[int]) -> Iterator[tuple[Encoding, int]]:
    """The encodings of a text's sentences, each with the place of its first token, by their numbers of characters."""
    ends = np.searchsorted(np.cumsum([len(word) for word in encoding.words]), np.cumsum(lengths)) + 1
    for first, end in zip([0, *ends.tolist()], ends.tolist(), strict=False):
        inside = np.flatnonzero((encoding.word_of >= first) & (encoding.word_of < end))
        tokens = slice(0 if first == 0 else int(inside[0]), int(inside[-1]) + 1)
        word_of, core_of = (
            np.where(of[tokens] < 0, -1, of[tokens] - first) for of in (encoding.word_of, encoding.core_of)
        )
        yield Encoding(encoding.ids[tokens], word_of, 0, encoding.words[first:end], core_of), tokens.start


def windows(lengths: Sequence[int], size: int | None) -> list[Window]:
    """The windows over sequences: each but the last has `size` tokens, and half of it is context of the one before.

    Args:
        lengths: the lengths of the sequences.
        size: at least 2; None takes each sequence as a whole.
    """
    found = []
    for number, length in enumerate(lengths):
        stop = length if size is None else min(size, length)
        found.append(Window(number, 0, stop, 0))
        while size is not None and stop < length:
            keep, stop = stop, min(stop + size // 2, length)
            found.append(Window(number, max(0, stop - size), stop, keep))
    return found
