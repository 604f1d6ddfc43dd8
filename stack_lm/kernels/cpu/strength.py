"""One step of a stack, queue or deque for one sequence, forwards and backwards, on its living elements only.

An element whose strength has reached zero can never come back, so a list of the living ones is enough: `Line`, at
indices [low, high), from bottom to top. A pop removes whole elements from one end and then shortens one; it logs every
element it touches. The backward pass replays the log from its end. Over a sequence each element is removed once, so
the pops cost O(T) in all, and the log has one entry per element and one per pop; a read costs the elements it covers.

These functions equal the dense definition in memory/strength.py in results and gradients, ties included: an element
whose strength equals the remaining amount of a pop or a read counts as taken whole. An element of strength zero (just
pushed, or from an initial state) is still seen by the next pop and its gradient, and is gone after it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .compilation import compiled
from .rows import add_multiple, clear, dot

TOP, BOTTOM = range(2)


class Line(NamedTuple):
    """The living elements of R sequences, and the log of their pops; the functions here take those of one.

    Attributes:
        elements, strength: the index of each element and its strength, at the places between `ends` [R, N].
        ends: low and high [R, 2].
        log_index, log_strength: each element that a pop touched, and its strength before [R, places].
    """

    elements: np.ndarray
    strength: np.ndarray
    ends: np.ndarray
    log_index: np.ndarray
    log_strength: np.ndarray


def new_line(shape: tuple[int, ...], size: int, places: int, dtype: np.dtype) -> Line:
    """Allocate the lines of sequences [shape], with the given numbers of elements and log entries."""
    elements, log_index = (np.empty((*shape, n), np.int32) for n in (size, places))
    strength, log_strength = (np.empty((*shape, n), dtype) for n in (size, places))
    return Line(elements, strength, np.empty((*shape, 2), np.int64), log_index, log_strength)


def fresh_workspace(line: Line) -> Line:
    """A line for another backward pass, with the same log."""
    return Line(line.elements.copy(), line.strength.copy(), line.ends.copy(), line.log_index, line.log_strength)


@compiled
def line_of(lines: Line, row: int) -> Line:
    """The line of one sequence."""
    return Line(
        lines.elements[row], lines.strength[row], lines.ends[row], lines.log_index[row], lines.log_strength[row]
    )


@compiled
def pop(amount: float, end: int, line: Line, low: int, high: int, logged: int) -> tuple[int, int, int, bool, bool]:
    """Pop `amount` from one end.

    Args:
        amount: the pop strength.
        end: TOP or BOTTOM.
        line: the living elements are at the places [low, high); what is touched is logged from place `logged` on.

    Returns:
        `low` and `high` after it, how many places of the log are filled, whether the last of them is an element that
        was shortened and is still there, and whether the first of them is an element that was dropped at the other end.
    """
    index, strength, log_index, log_strength = line.elements, line.strength, line.log_index, line.log_strength
    dropped = False
    if high - low > 1:
        # Pushed with strength zero at the other end: no part of this pop, and gone behind it.
        other = low if end == TOP else high - 1
        if strength[other] == 0:
            log_index[logged] = index[other]
            log_strength[logged] = strength[other]
            logged += 1
            dropped = True
            if end == TOP:
                low += 1
            else:
                high -= 1
    above = np.float64(0)  # as torch sums
    shortened = False
    while low < high:
        place = high - 1 if end == TOP else low
        nearest = strength[place]
        # In the precision of the strengths, so that a tie is one here too.
        rest = amount - type(amount)(above)
        # Elements with strength zero go even where nothing was popped. NaN goes on to make NaNs.
        if rest <= 0 and nearest != 0:
            break
        log_index[logged] = index[place]
        log_strength[logged] = nearest
        logged += 1
        if nearest <= rest or nearest == 0:
            above += nearest
            if end == TOP:
                high -= 1
            else:
                low += 1
        else:
            strength[place] = nearest - rest
            shortened = True
            break
    return low, high, logged, shortened, dropped


@compiled
def drop_empty(line: Line, low: int, high: int) -> int:
    """Close the gaps that elements of strength zero leave in an initial state; returns `high` after it."""
    kept = low
    for i in range(low, high):
        if line.strength[i] != 0:  # NaN stays
            line.elements[kept] = line.elements[i]
            line.strength[kept] = line.strength[i]
            kept += 1
    return kept


@compiled
def read(amount: float, end: int, line: Line, low: int, high: int, values: np.ndarray, reading: np.ndarray) -> None:
    """Read the elements at one end whose strengths add up to `amount`: reading[:] = sum_i w_i values[i]."""
    index, strength = line.elements, line.strength
    clear(reading)
    above = np.float64(0)
    step = -1 if end == TOP else 1
    place = high - 1 if end == TOP else low
    for _ in range(high - low):
        rest = amount - type(amount)(above)
        if rest <= 0:
            break
        weight = strength[place]
        partly = weight > rest  # False for NaN, which is read
        if partly:
            weight = rest
        add_multiple(reading, values[index[place]], weight)
        if partly:
            break
        above += weight
        place += step


@compiled
def read_backward(
    amount: float,
    end: int,
    line: Line,
    low: int,
    high: int,
    values: np.ndarray,
    grad: np.ndarray,
    grad_strength: np.ndarray,
    grad_values: np.ndarray,
) -> float:
    """Backpropagate through `read`.

    Args:
        grad: of the reading.
        grad_strength, grad_values: of each element by its index; added to.

    Returns:
        The gradient of `amount`.
    """
    index, strength = line.elements, line.strength
    above = np.float64(0)
    step = -1 if end == TOP else 1
    first = high - 1 if end == TOP else low
    taken = 0  # elements taken whole
    boundary = False
    while taken < high - low:
        rest = amount - type(amount)(above)
        place = first + taken * step
        whole = strength[place]
        if not (whole <= rest or (whole == 0 and rest <= 0)):
            boundary = not rest <= 0
            break
        add_multiple(grad_values[index[place]], grad, whole)
        grad_strength[index[place]] += dot(grad, values[index[place]])
        above += whole
        taken += 1
    if high > low:
        # Pushed with strength zero at the other end: the read takes all of it, however much lies before it.
        other = low if end == TOP else high - 1
        if strength[other] == 0 and taken < high - low:
            grad_strength[index[other]] += dot(grad, values[index[other]])
    if not boundary:
        return type(amount)(0)
    rest = amount - type(amount)(above)
    place = first + taken * step
    add_multiple(grad_values[index[place]], grad, rest)
    change = dot(grad, values[index[place]])
    for nearer in range(taken):
        grad_strength[index[first + nearer * step]] -= change
    return change


@compiled
def pop_backward(
    end: int,
    shortened: bool,
    dropped: bool,
    line: Line,
    low: int,
    high: int,
    first: int,
    last: int,
    grad_strength: np.ndarray,
) -> tuple[int, int, float]:
    """Backpropagate through `pop`, restoring the log entries [first, last).

    Returns:
        `low` and `high` before the pop, and the gradient of the popped amount.
    """
    index, strength, log_index, log_strength = line.elements, line.strength, line.log_index, line.log_strength
    shared = grad_strength.dtype.type(0)
    place = last - 1
    if shortened:
        shared = grad_strength[log_index[place]]
        strength[high - 1 if end == TOP else low] = log_strength[place]
        place -= 1
    while place >= first + dropped:
        if end == TOP:
            back = high
            high += 1
        else:
            low -= 1
            back = low
        index[back] = log_index[place]
        strength[back] = log_strength[place]
        # A removed element is gone behind the pop; it counts only in what it left of the pop for the boundary.
        grad_strength[index[back]] = shared
        place -= 1
    if dropped:
        if end == TOP:
            low -= 1
            back = low
        else:
            back = high
            high += 1
        index[back] = log_index[first]
        strength[back] = log_strength[first]
        grad_strength[index[back]] = 0
    return low, high, -shared
