"""Syntactic distances, and the trees decoded from them (Shen et al. 2018; Merrill et al. 2019, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.core.messages import check_name, shortened
from stack_lm.core.trace import Trace

from .trees import ConstituencyTree

# The distance between words t - 1 and t is a signal's value at word t, or at the word before.
SHIFTS = {"push_strength": 0, "pop_strength": 1, "read_strength": 0, "total_strength": 0, "run_depth": 1}
# Signals of closeness: the distance is their negative.
_NEAR = {"run_depth"}


def distances_from_trace(trace: Trace, signal: str) -> np.ndarray:
    """Syntactic distances [n]: element t is the distance between word t - 1 and word t.

    A push strength is that of word t itself: a word that opens a large phrase is far from the word before. A pop
    strength is that of word t - 1: a word that closes large phrases is far from the next word (Merrill et al. 2019,
    section 5). The first element belongs to the boundary before the sentence; for a pop strength it is 0.

    An element of a nondeterministic stack's run spans the words from its push to its pop, inclusive. The run's depth
    after word t - 1 is the number of elements that span the boundary before word t. Its negative is the distance, and
    the decoder "gap" makes a tree that has all these spans.

    NOTE: the released code of Merrill et al. does not shift the pop strength; this follows the paper.

    Args:
        trace: a trace with the signal.
        signal: "push_strength", "pop_strength", "read_strength", "total_strength" or "run_depth".

    Raises:
        InputError: if the trace has no such signal, or it is not finite.
    """
    if signal not in trace.signals or signal not in SHIFTS:
        usable = ", ".join(name for name in trace.signals if name in SHIFTS) or "none, as the model has no memory"
        raise InputError(f"no signal {signal!r} to parse with; there are: {usable}")
    values = np.asarray(trace.signals[signal], dtype=float)
    if not np.isfinite(values).all():
        raise InputError(f"the {signal} of {' '.join(trace.words)!r} is not finite: the model is broken")
    values = -values if signal in _NEAR else values
    return np.concatenate(([0.0], values[:-1])) if SHIFTS[signal] else values


def _reaches(values: Sequence[float]) -> list[tuple[int, int]]:
    """For each value, the widest range [start, stop) around it in which it is the leftmost greatest.

    These are the ranges of splitting at the leftmost greatest value, found in one pass: splitting itself would read
    each value once per level, and a tree can be as deep as its sentence is long.
    """
    starts, stops = [0] * len(values), [len(values)] * len(values)
    falling: list[int] = []  # values whose range has not ended
    for i, value in enumerate(values):
        while falling and values[falling[-1]] < value:
            stops[falling.pop()] = i
        starts[i] = falling[-1] + 1 if falling else 0
        falling.append(i)
    return list(zip(starts, stops, strict=True))


def _algorithm1(distances: Sequence[float]) -> list[tuple[int, int]]:
    """Split at the leftmost greatest distance i into [left, [x_i, right]]."""
    spans = []
    for i, (start, stop) in enumerate(_reaches(distances)):
        spans.append((start, stop))
        if start < i:
            spans.append((i, stop))
    return [(start, stop) for start, stop in spans if stop - start > 1]


def _gap(distances: Sequence[float]) -> list[tuple[int, int]]:
    """Split at the leftmost greatest distance m inside the phrase into [x_<m, x_>=m]."""
    return [(start, stop + 1) for start, stop in _reaches(distances[1:])]


DEFAULT_DECODER = "algorithm1"
DECODERS: dict[str, Callable[[Sequence[float]], list[tuple[int, int]]]] = {"algorithm1": _algorithm1, "gap": _gap}
"""Decoders by name: from distances to the spans of two words or more of a binary tree."""


def default_decoder(signal: str) -> str:
    """The decoder for the distances of a signal: "gap" for `run_depth`, because "algorithm1" can lose its spans."""
    return "gap" if signal in _NEAR else DEFAULT_DECODER


def spans_by_splitting(n: int, split: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """The spans of a binary tree over n words, built from the top down.

    Args:
        n: words.
        split: gives the position at which to split the words [start, stop), at least two.

    Returns:
        The n - 1 spans of two words or more.
    """
    spans = []
    pending = [(0, n)]  # no recursion: a sentence may be long, and its tree as deep
    while pending:
        start, stop = pending.pop()
        if stop - start > 1:
            spans.append((start, stop))
            middle = split(start, stop)
            pending += ((middle, stop), (start, middle))
    return spans


def tree_from_distances(
    words: Sequence[str], distances: Sequence[float] | np.ndarray, decoder: str = DEFAULT_DECODER
) -> ConstituencyTree:
    """Decode syntactic distances into a binary tree, greedily and top-down.

    Args:
        words: n of them.
        distances: [n]; element t is the distance between word t - 1 and word t. Or [n - 1], without the first, which
            belongs to the boundary before the sentence and then counts as the smallest.
        decoder: "algorithm1" (Merrill et al. 2019; PRPN, ON-LSTM) splits at the leftmost greatest distance i into
            [left, [x_i, right]]. It cannot produce every tree (Dyer et al. 2019). "gap" ignores the first distance and
            splits before the leftmost greatest one inside the phrase.

    Raises:
        InputError: if the lengths do not fit, there are no words, a distance is not a number, or the decoder is
            unknown.
    """
    check_name("decoder", decoder, DECODERS)
    n = len(words)
    if not n or len(distances) not in (n, n - 1):
        raise InputError(
            f"there must be one distance a word, or one fewer, and at least one word; got {len(distances)} "
            f"distances and {n} words"
        )
    values = [float(distance) for distance in distances]
    if any(map(math.isnan, values)):
        raise InputError(f"a distance of {shortened(' '.join(words), 80)!r} is not a number")
    if len(values) < n:
        values.insert(0, -math.inf)
    return ConstituencyTree.unlabelled(words, DECODERS[decoder](values))
