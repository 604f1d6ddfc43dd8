"""Syntactic distances, and the trees that they make (Shen et al. 2018; Merrill et al. 2019, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from stack_lm.errors import InputError
from stack_lm.trace import Trace

from .trees import ConstituencyTree

# A signal's value at word t, or at the word before, is the distance between words t - 1 and t.
SHIFTS = {"push_strength": 0, "pop_strength": 1, "read_strength": 0, "total_strength": 0}


def distances_from_trace(trace: Trace, signal: str) -> np.ndarray:
    """Syntactic distances [n]: element t is the distance between word t - 1 and word t.

    A push strength is that of word t itself: a word that opens a large phrase is far from the word before. A pop
    strength is that of word t - 1: a word that closes much is far from the next word (Merrill et al. 2019, section
    5). The first element belongs to the boundary before the sentence; for a pop strength it is 0.

    NOTE: the released code of Merrill et al. does not shift the pop strength; this follows the paper.

    Args:
        trace: with the signal.
        signal: "push_strength", "pop_strength", "read_strength" or "total_strength".

    Raises:
        InputError: if the trace has no such signal, or it is not finite.
    """
    if signal not in trace.signals or signal not in SHIFTS:
        there = ", ".join(name for name in trace.signals if name in SHIFTS) or "none, as the model has no memory"
        raise InputError(f"no signal {signal!r} to parse with; there are: {there}")
    values = np.asarray(trace.signals[signal], dtype=float)
    if not np.isfinite(values).all():
        raise InputError(f"the {signal} of {' '.join(trace.words)!r} is not finite: the model is broken")
    return np.concatenate(([0.0], values[:-1])) if SHIFTS[signal] else values


def _split_algorithm1(distances: Sequence[float], start: int, stop: int) -> int:
    """At the leftmost greatest distance i: [left, [x_i, right]]."""
    split = distances.index(max(distances[start:stop]), start)
    # After `left`, x_i is still the greatest and now comes first, which separates x_i from `right`.
    return split if split > start else start + 1


def _split_gap(distances: Sequence[float], start: int, stop: int) -> int:
    """At the leftmost greatest distance m inside the phrase: [x_<m, x_>=m]."""
    return distances.index(max(distances[start + 1 : stop]), start + 1)


# Where to split the words [start, stop) in two, by name.
DECODERS: dict[str, Callable[[Sequence[float], int, int], int]] = {
    "algorithm1": _split_algorithm1,
    "gap": _split_gap,
}
"""Decoders by name: where each splits the words between two positions, given the distances."""


def spans_by_splitting(n: int, split: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """The spans of a binary tree over n words that is made from the top down.

    Args:
        n: words.
        split: where to split the words [start, stop), at least two, in two.

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
    words: Sequence[str], distances: Sequence[float] | np.ndarray, decoder: str = "algorithm1"
) -> ConstituencyTree:
    """Decode syntactic distances into a binary tree, greedily and top-down.

    Args:
        words: n of them.
        distances: [n]; element t is the distance between word t - 1 and word t. Or [n - 1], without the first, which
            belongs to the boundary before the sentence and then counts as the least.
        decoder: "algorithm1" (Merrill et al. 2019; PRPN, ON-LSTM) splits at the leftmost greatest distance i into
            [left, [x_i, right]]. It cannot make every tree (Dyer et al. 2019). "gap" ignores the first distance and
            splits before the leftmost greatest one inside the phrase.

    Raises:
        InputError: if the lengths do not fit, there are no words, a distance is not a number, or no such decoder.
    """
    if decoder not in DECODERS:
        raise InputError(f"decoder must be one of {', '.join(DECODERS)}; got {decoder!r}")
    n = len(words)
    if not n or len(distances) not in (n, n - 1):
        raise InputError(
            f"there must be one distance a word, or one fewer, and at least one word; got {len(distances)} "
            f"distances and {n} words"
        )
    values = [float(distance) for distance in distances]
    if any(map(math.isnan, values)):
        raise InputError(f"a distance of {' '.join(words)[:80]!r} is not a number")
    if len(values) < n:
        values.insert(0, -math.inf)
    rule = DECODERS[decoder]
    return ConstituencyTree.unlabelled(words, spans_by_splitting(n, lambda start, stop: rule(values, start, stop)))
