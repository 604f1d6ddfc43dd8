"""Memories in superposition, a step of one sequence forwards and backwards: stacks of cells, and the Baby-NTM's tape.

Only cells that can be nonzero are touched. A stack's nonzero cells extend by one per step, from the top down; a tape's
extend in both directions from the cell under the head, wrapping around. `history` keeps the cells after every step,
since the gradient of a weight is a product with the cells that it moved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .compilation import compiled
from .emission import choose, choose_backward
from .rows import add, add_multiple, clear, copy, dot, put_multiple, squash, squash_backward

ROTATE_LEFT, ROTATE_RIGHT, NO_OP, POP_RIGHT, POP_LEFT = range(5)
NO_LIMIT = 2**62


class Superposition(NamedTuple):
    """S memories of one kind for each of R sequences.

    Attributes:
        shifts: of a stack's operations [O]: cell i takes that much of cell i + shift; empty for a tape.
        first: the lowest cell that a stack's operations fill: 0 where a push is the first of them (the new element then
            comes with that weight), 1 where there is always a new element on top.
        size, width: of an element D, and of a cell with it: D + 1 where it says how far it is occupied.
        read: how many elements are read from the top.
        limit: most cells N.
        given: cells on entry N_0.
        value_kind: the activation of pushed values.
        hard: give all of the weight to the most probable operation.
        temperature, empty_value: of type and meaning as in `memory.superposition`; [1] each.
        noise: added to the logits [R, T, S * O], or [R, 0, 0].
        kept: whether all cells of all steps are; otherwise those of the last two.
        live: number of cells of each sequence that can be nonzero on entry [R]; written by `begin`.
        steps: number of steps taken by each sequence [R]; zeros on entry, then counted.
        history: [R, S, `history_size`].
        cells: [R, S, N, W]; the first N_0 are those on entry, all are those on return.
        lost: [R], added to.
    """

    shifts: np.ndarray
    first: int
    size: int
    width: int
    read: int
    limit: int
    given: int
    value_kind: int
    hard: bool
    temperature: np.ndarray
    empty_value: np.ndarray
    noise: np.ndarray
    kept: bool
    live: np.ndarray
    steps: np.ndarray
    history: np.ndarray
    cells: np.ndarray
    lost: np.ndarray


class SuperpositionGrad(NamedTuple):
    """Gradients of the memories of R sequences.

    Attributes:
        cells: of the last cells on entry, of the first on return, in the first places [R, S, N, W].
        spare: workspace of the same shape.
        weights: workspace [O].
    """

    cells: np.ndarray
    spare: np.ndarray
    weights: np.ndarray


@compiled
def _cells_before(k: int, given: int, limit: int) -> int:
    """The total number of cells in the memories before each of the first k steps."""
    growing = max(0, min(k, limit - given))
    return growing * given + growing * (growing - 1) // 2 + (k - growing) * min(limit, given + growing)


@compiled(from_python=True)
def history_size(steps: int, given: int, limit: int, width: int, kept: bool) -> int:
    """The size of one memory's history over that many steps."""
    if kept:
        return _cells_before(steps + 1, given, limit) * width
    return 2 * min(given + steps, limit) * width


@compiled
def _place(memory: Superposition, k: int) -> int:
    """The index in the history at which the cells after k steps begin."""
    if memory.kept:
        return _cells_before(k, memory.given, memory.limit) * memory.width
    return (k % 2) * (memory.history.shape[2] // 2)


@compiled
def _living(memory: Superposition, row: int, k: int) -> int:
    """The number of cells of a stack that can be nonzero after k steps."""
    return min(memory.live[row] + k, memory.limit)


@compiled
def _extent(memory: Superposition, row: int, k: int) -> tuple[int, int]:
    """The numbers of cells from the head on, and before it, that can be nonzero after k steps.

    If these are all cells, the counts are all and none."""
    if memory.live[row] == 0 and 2 * k - 1 < memory.limit:
        return k, max(0, k - 1)
    return memory.limit, 0


@compiled
def begin(memory: Superposition, row: int, all_live: bool) -> None:
    """Take over the cells of a sequence on entry.

    Args:
        all_live: also cells that are zero want gradients.
    """
    n_stacks, width, given = memory.cells.shape[1], memory.width, memory.given
    live = given if all_live else 0
    for s in range(n_stacks):
        for i in range(given - 1, live - 1, -1):
            zero = True
            for j in range(width):
                zero = zero and memory.cells[row, s, i, j] == 0
            if not zero:
                live = i + 1
                break
    memory.live[row] = live
    for s in range(n_stacks):
        copy(memory.history[row, s, : given * width], memory.cells[row, s, :given].reshape(given * width))


@compiled
def finish(memory: Superposition, row: int) -> None:
    """Write out a sequence's last cells."""
    n_stacks, width, n_cells = memory.cells.shape[1], memory.width, memory.cells.shape[2]
    k = memory.steps[row]
    place = _place(memory, k)
    for s in range(n_stacks):
        last, cells = memory.history[row, s, place:], memory.cells[row, s].reshape(n_cells * width)
        clear(cells)
        if memory.shifts.shape[0] > 0:
            size = _living(memory, row, k) * width
            copy(cells[:size], last)
        else:
            behind, before = _extent(memory, row, k)
            copy(cells[: behind * width], last)
            start = (n_cells - before) * width
            copy(cells[start:], last[start:])


@compiled
def step(memory: Superposition, t: int, row: int, own: np.ndarray, reading: np.ndarray) -> None:
    """Run one step of one sequence.

    Args:
        own: the logits of its values and operations; they become the values and weights.
        reading: [S * read * D]; written.
    """
    n_stacks, size, width, read = memory.cells.shape[1], memory.size, memory.width, memory.read
    tape = memory.shifts.shape[0] == 0
    n_operations = 5 if tape else memory.shifts.shape[0]
    squash(own[: n_stacks * size], memory.value_kind)
    k = memory.steps[row]
    before, after = _place(memory, k), _place(memory, k + 1)
    for s in range(n_stacks):
        first = n_stacks * size + s * n_operations
        weights, element = own[first : first + n_operations], own[s * size : (s + 1) * size]
        noise = own[:0]
        if memory.noise.shape[1] > 0:
            noise = memory.noise[row, t, s * n_operations : (s + 1) * n_operations]
        choose(weights, noise, memory.temperature[0], memory.hard)
        old, new = memory.history[row, s, before:], memory.history[row, s, after:]
        if tape:
            _turn(memory, row, k, weights, old, new)
            add(new[:size], element)
            copy(reading, new[:size])
            continue
        live, n_cells = _living(memory, row, k), _living(memory, row, k + 1)
        if live == memory.limit:
            memory.lost[row] += weights[0] * old[live * width - 1]
        _shift(memory, weights, live, n_cells, old, new)
        share = type(weights[0])(1) if memory.first > 0 else weights[0]
        add_multiple(new[:size], element, share)
        new[size] += share
        _read(memory, n_cells, new, reading[s * read * size : (s + 1) * read * size])
    memory.steps[row] = k + 1


@compiled
def _read(memory: Superposition, n_cells: int, cells: np.ndarray, reading: np.ndarray) -> None:
    size, width, empty = memory.size, memory.width, memory.empty_value[0]
    one = type(empty)(1)
    for i in range(memory.read):
        if i < n_cells:
            unoccupied = empty * (one - cells[i * width + size])
            for j in range(size):
                reading[i * size + j] = cells[i * width + j] + unoccupied
        else:
            for j in range(size):
                reading[i * size + j] = empty


@compiled
def _moved(memory: Superposition, shift: int, live: int, n_cells: int) -> tuple[int, int]:
    """The cells that an operation with this shift fills: from the first up to the one behind the last."""
    low = max(memory.first, -shift)
    return low, max(low, min(n_cells, live - shift))


@compiled
def _shift(
    memory: Superposition, weights: np.ndarray, live: int, n_cells: int, old: np.ndarray, new: np.ndarray
) -> None:
    """Apply a stack's operations to its cells, without the new element."""
    width = memory.width
    for o in range(weights.shape[0]):
        shift = memory.shifts[o]
        low, high = _moved(memory, shift, live, n_cells)
        if o == 0:  # a clear and a sum would take another pass over the cells
            clear(new[: low * width])
            put_multiple(new[low * width : high * width], old[(low + shift) * width :], weights[o])
            clear(new[high * width : n_cells * width])
        elif high > low:
            add_multiple(new[low * width : high * width], old[(low + shift) * width :], weights[o])


@compiled
def _turn(memory: Superposition, row: int, k: int, weights: np.ndarray, old: np.ndarray, new: np.ndarray) -> None:
    """Apply the operations to a tape, without the new element."""
    size, n = memory.size, memory.limit
    behind, before = _extent(memory, row, k)
    new_behind, new_before = _extent(memory, row, k + 1)
    clear(new[: new_behind * size])
    clear(new[(n - new_before) * size : n * size])
    left, right = weights[ROTATE_LEFT] + weights[POP_LEFT], weights[ROTATE_RIGHT] + weights[POP_RIGHT]
    add_multiple(new[: behind * size], old, weights[NO_OP])
    if behind > 1:
        add_multiple(new[: (behind - 1) * size], old[size:], left)
    if behind > 0:
        moved = min(behind, n - 1)
        add_multiple(new[size : (moved + 1) * size], old, right)
        add_multiple(new[(n - 1) * size : n * size], old, weights[ROTATE_LEFT])  # around the end
    if before > 0:
        start = (n - before) * size
        add_multiple(new[start : n * size], old[start:], weights[NO_OP])
        add_multiple(new[start - size : (n - 1) * size], old[start:], left)
        add_multiple(new[start + size : n * size], old[start:], right)
    if before > 0 or behind == n:
        add_multiple(new[:size], old[(n - 1) * size :], weights[ROTATE_RIGHT])


@compiled
def begin_backward(memory: Superposition, grad: SuperpositionGrad, row: int) -> None:
    """Copy the gradient of the last cells to where the backward pass of the last step reads it."""
    if memory.steps[row] % 2:
        for s in range(memory.cells.shape[1]):
            copy(grad.spare[row, s].reshape(-1), grad.cells[row, s].reshape(-1))


@compiled
def step_backward(
    memory: Superposition,
    grad: SuperpositionGrad,
    t: int,
    row: int,
    own: np.ndarray,
    grad_reading: np.ndarray,
    grad_logits: np.ndarray,
) -> None:
    """Backpropagate through `step`; `memory.steps` is counted back.

    Args:
        own: the values and weights.
        grad_reading: [S * read * D]; of no step before this one on return: zeros.
        grad_logits: of the logits of values and operations; written.
    """
    n_stacks, size = memory.cells.shape[1], memory.size
    tape = memory.shifts.shape[0] == 0
    n_operations = 5 if tape else memory.shifts.shape[0]
    k = memory.steps[row] - 1
    memory.steps[row] = k
    before = _place(memory, k)
    grad_weights = grad.weights
    for s in range(n_stacks):
        of_new = grad.spare[row, s].reshape(-1) if (k + 1) % 2 else grad.cells[row, s].reshape(-1)
        of_old = grad.cells[row, s].reshape(-1) if (k + 1) % 2 else grad.spare[row, s].reshape(-1)
        first = n_stacks * size + s * n_operations
        weights, element = own[first : first + n_operations], own[s * size : (s + 1) * size]
        of_value = slice(s * size, (s + 1) * size)
        old = memory.history[row, s, before:]
        if tape:
            add(of_new[:size], grad_reading)
            _turn_backward(memory, row, k, weights, old, of_new, of_old, grad_weights)
            squash_backward(element, memory.value_kind, of_new[:size], grad_logits[of_value])
        else:
            live, n_cells = _living(memory, row, k), _living(memory, row, k + 1)
            read = memory.read * size
            _read_backward(memory, n_cells, grad_reading[s * read : (s + 1) * read], of_new)
            _shift_backward(memory, weights, live, n_cells, old, of_new, of_old, grad_weights)
            if memory.first == 0:
                grad_weights[0] += dot(element, of_new) + of_new[size]
                for j in range(size):
                    of_new[j] *= weights[0]
            squash_backward(element, memory.value_kind, of_new[:size], grad_logits[of_value])
        choose_backward(weights, memory.temperature[0], memory.hard, grad_weights)
        copy(grad_logits[first : first + n_operations], grad_weights)
    clear(grad_reading)


@compiled
def _read_backward(memory: Superposition, n_cells: int, grad_reading: np.ndarray, of_cells: np.ndarray) -> None:
    size, width, empty = memory.size, memory.width, memory.empty_value[0]
    for i in range(min(memory.read, n_cells)):
        total = type(empty)(0)
        for j in range(size):
            of_cells[i * width + j] += grad_reading[i * size + j]
            total += grad_reading[i * size + j]
        of_cells[i * width + size] -= empty * total


@compiled
def _shift_backward(
    memory: Superposition,
    weights: np.ndarray,
    live: int,
    n_cells: int,
    old: np.ndarray,
    of_new: np.ndarray,
    of_old: np.ndarray,
    grad_weights: np.ndarray,
) -> None:
    width = memory.width
    for o in range(weights.shape[0]):
        shift = memory.shifts[o]
        low, high = _moved(memory, shift, live, n_cells)
        of_moved, moved = of_new[low * width : high * width], slice((low + shift) * width, (high + shift) * width)
        if o == 0:
            clear(of_old[: moved.start])
            put_multiple(of_old[moved], of_moved, weights[o])
            clear(of_old[moved.stop : live * width])
        else:
            add_multiple(of_old[moved], of_moved, weights[o])
        grad_weights[o] = dot(old[moved], of_moved)


@compiled
def _turn_backward(
    memory: Superposition,
    row: int,
    k: int,
    weights: np.ndarray,
    old: np.ndarray,
    of_new: np.ndarray,
    of_old: np.ndarray,
    grad_weights: np.ndarray,
) -> None:
    size, n = memory.size, memory.limit
    behind, before = _extent(memory, row, k)
    left, right = weights[ROTATE_LEFT] + weights[POP_LEFT], weights[ROTATE_RIGHT] + weights[POP_RIGHT]
    zero = type(left)(0)
    of_left = of_right = of_no_op = around_left = around_right = zero
    head, tail = slice(0, behind * size), slice((n - before) * size, n * size)
    clear(of_old[head])
    clear(of_old[tail])
    last = slice((n - 1) * size, n * size)
    if behind > 0:
        moved = min(behind, n - 1)
        add_multiple(of_old[head], of_new, weights[NO_OP])
        of_no_op += dot(old[head], of_new)
        add_multiple(of_old[: moved * size], of_new[size:], right)
        of_right += dot(old[: moved * size], of_new[size:])
        add_multiple(of_old[:size], of_new[last], weights[ROTATE_LEFT])
        around_left = dot(old[:size], of_new[last])
    if behind > 1:
        add_multiple(of_old[size : behind * size], of_new, left)
        of_left += dot(old[size : behind * size], of_new)
    if before > 0:
        start = (n - before) * size
        add_multiple(of_old[tail], of_new[start:], weights[NO_OP])
        of_no_op += dot(old[tail], of_new[start:])
        add_multiple(of_old[tail], of_new[start - size :], left)
        of_left += dot(old[tail], of_new[start - size :])
        add_multiple(of_old[start : (n - 1) * size], of_new[start + size :], right)
        of_right += dot(old[start : (n - 1) * size], of_new[start + size :])
    if before > 0 or behind == n:
        add_multiple(of_old[last], of_new, weights[ROTATE_RIGHT])
        around_right = dot(old[last], of_new)
    grad_weights[ROTATE_LEFT], grad_weights[POP_LEFT] = of_left + around_left, of_left
    grad_weights[ROTATE_RIGHT], grad_weights[POP_RIGHT] = of_right + around_right, of_right
    grad_weights[NO_OP] = of_no_op


@compiled
def skip(memory: Superposition, t: int, row: int) -> None:
    """Skip a step of padding."""
