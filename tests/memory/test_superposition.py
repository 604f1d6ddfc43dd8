"""Superposition stacks and the Baby-NTM's tape against Python lists, their plain definition, and worked examples."""

import pytest
import torch
from conftest import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.memory import BabyNTM, ChoiceActions, MultipopSuperpositionStack, SuperpositionStack, make_memory
from stack_lm.memory.mixing import Mixture, mix, mix_reference


def actions(value, *weights, stacks=1):
    """Actions of a batch of one."""
    weights = torch.tensor(weights, dtype=torch.float64).reshape(1, stacks, -1)
    return ChoiceActions(torch.tensor(value, dtype=torch.float64).reshape(1, -1), weights)


def one_hot(choice, n):
    return [float(i == choice) for i in range(n)]


def cells_of(state):
    """The values of the only stack, from the top down."""
    return state.cells[0, 0, :, 0].tolist()


# --- against Python lists


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_hard_actions_make_a_python_list(operations, read_depth):
    memory, expected = SuperpositionStack(1, no_op=True, read_depth=read_depth, empty_value=-1.0), []
    state = memory.initial_state(1, dtype=torch.float64)
    for number, operation in enumerate(operations, start=1):
        if operation == 0:
            expected.append(float(number))
        elif operation == 1 and expected:
            expected.pop()
        state, reading = memory.step(state, actions([number], *one_hot(operation, 3)))
        assert reading[0].tolist() == (expected[::-1] + [-1.0] * read_depth)[:read_depth]
        assert cells_of(state)[: len(expected)] == expected[::-1]
        assert not state.cells[0, 0, len(expected) :].any()
        assert memory.measure(state)["depth"].item() == len(expected)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_hard_multipop_makes_a_python_list(pops):
    memory, expected = MultipopSuperpositionStack(1, max_pop=3), []
    state = memory.initial_state(1, dtype=torch.float64)
    for number, pop in enumerate(pops, start=1):
        expected = [*expected[: max(0, len(expected) - pop)], float(number)]
        state, reading = memory.step(state, actions([number], *one_hot(pop, 4)))
        assert reading.item() == expected[-1]
        assert cells_of(state)[: len(expected)] == expected[::-1]
        assert memory.measure(state)["depth"].item() == len(expected)


def move(tape, operation):
    """Suzgun et al. (2019), section 3.3."""
    return {
        "rotate_left": lambda: tape[1:] + tape[:1],
        "rotate_right": lambda: tape[-1:] + tape[:-1],
        "no_op": lambda: tape,
        "pop_right": lambda: [0.0, *tape[:-1]],
        "pop_left": lambda: [*tape[1:], 0.0],
    }[operation]()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20), st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_hard_operations_make_a_python_tape(operations, n_cells):
    memory, expected = BabyNTM(1, n_cells), [0.0] * n_cells
    state = memory.initial_state(1, dtype=torch.float64)
    for number, operation in enumerate(operations, start=1):
        expected = move(expected, memory.operations[operation])
        expected[0] += number
        state, reading = memory.step(state, actions([number], *one_hot(operation, 5)))
        assert state.cells[0, :, 0].tolist() == expected
        assert reading.item() == expected[0]


@given(st.lists(st.sampled_from(["push", "pop"]), min_size=1, max_size=15), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_full_stack_loses_its_bottom_and_counts_it(operations, depth):
    memory, expected, lost = SuperpositionStack(1, depth=depth, overflow="truncate"), [], 0
    strict = SuperpositionStack(1, depth=depth)
    state = memory.initial_state(1, dtype=torch.float64)
    for number, operation in enumerate(operations, start=1):
        step = actions([number], *one_hot(["push", "pop"].index(operation), 2))
        before = state
        state, _ = memory.step(state, step)
        if operation == "push":
            expected.append(float(number))
        elif expected:
            expected.pop()
        overflows = len(expected) > depth
        lost += overflows
        expected = expected[-depth:]
        assert cells_of(state)[: len(expected)] == expected[::-1]
        assert memory.measure(state)["lost"].item() == lost
        if lost == 0:
            strict.step(before, step)
        elif overflows:
            with pytest.raises(ValueError, match=f"a stack of memory_depth={depth} was full and has lost {lost} elem"):
                strict.step(before, step)


# --- by hand


def test_a_superposition_stack_by_hand():
    """Suzgun et al. (2019), section 3.1: s(0) = a0 n + a1 s(1) and s(i) = a0 s(i - 1) + a1 s(i + 1)."""
    memory = SuperpositionStack(1)
    state = memory.initial_state(1, dtype=torch.float64)
    steps = [
        (4.0, (0.75, 0.25), [3.0]),  # 0.75 * 4
        (8.0, (0.5, 0.5), [4.0, 1.5]),  # 0.5 * 8 + 0.5 * 0; 0.5 * 3
        (2.0, (0.25, 0.75), [1.625, 1.0, 0.375]),  # 0.25 * 2 + 0.75 * 1.5; 0.25 * 4 + 0.75 * 0; 0.25 * 1.5
    ]
    for value, weights, expected in steps:
        state, reading = memory.step(state, actions([value], *weights))
        assert cells_of(state)[: len(expected)] == expected
        assert reading.item() == expected[0]


def test_joulin_and_mikolov_by_hand():
    """Their section 3.2 with no-op and an empty value of -1: s_0 = (-1, -1, ...), and the top two are read."""
    memory = SuperpositionStack(1, no_op=True, read_depth=2, empty_value=-1.0)
    state = memory.initial_state(1, dtype=torch.float64)
    assert memory.initial_reading(state).tolist() == [[-1.0, -1.0]]
    state, reading = memory.step(state, actions([1.0], 0.5, 0.25, 0.25))  # push, pop, no-op
    assert reading.tolist() == [[0.5 * 1 + 0.25 * -1 + 0.25 * -1, -1.0]]
    state, reading = memory.step(state, actions([0.5], 0.5, 0.25, 0.25))
    # s(0) = 0.5 * 0.5 + 0.25 * s(1) + 0.25 * s(0) and s(1) = 0.5 * s(0) + 0.25 * s(2) + 0.25 * s(1), before s = (0, -1)
    assert reading.tolist() == [[0.25 - 0.25 + 0.0, 0.0 - 0.25 - 0.25]]


def test_a_multipop_stack_by_hand():
    """The mean over u of "pop u, then push"."""
    memory = MultipopSuperpositionStack(1, max_pop=2)
    state = memory.initial_state(1, dtype=torch.float64)
    for value in (1.0, 2.0, 4.0):
        state, _ = memory.step(state, actions([value], 1.0, 0.0, 0.0))
    state, _ = memory.step(state, actions([8.0], 0.5, 0.25, 0.25))
    # Under the new 8: 0.5 * (4, 2, 1) + 0.25 * (2, 1, 0) + 0.25 * (1, 0, 0)
    assert cells_of(state)[:4] == [8.0, 2.75, 1.25, 0.5]
    assert memory.measure(state)["depth"].item() == 1 + 0.5 * 3 + 0.25 * 2 + 0.25 * 1


def test_a_baby_ntm_by_hand():
    """Suzgun et al. (2019), section 3.3, on the configuration [a, b, c, d, e] of the paper."""
    memory = BabyNTM(1, 5)
    a, b, c, d, e = tape = [1.0, 2.0, 4.0, 8.0, 16.0]
    state = memory.initial_state(1, dtype=torch.float64)._replace(
        cells=torch.tensor(tape, dtype=torch.float64).view(1, 5, 1)
    )
    paper = {
        "rotate_right": [e, a, b, c, d],
        "rotate_left": [b, c, d, e, a],
        "no_op": [a, b, c, d, e],
        "pop_right": [0.0, a, b, c, d],
        "pop_left": [b, c, d, e, 0.0],
    }
    for name, expected in paper.items():
        new, _ = memory.step(state, actions([0.0], *one_hot(memory.operations.index(name), 5)))
        assert new.cells[0, :, 0].tolist() == expected
    new, reading = memory.step(state, actions([0.5], 0.0, 0.5, 0.0, 0.5, 0.0))  # rotate_right and pop_right
    assert new.cells[0, :, 0].tolist() == [0.5 * e + 0.5, a, b, c, d]
    assert reading.item() == 8.5


# --- the arithmetic


MIXTURES = {
    "stack": SuperpositionStack(2, no_op=True, read_depth=2, empty_value=-1.0),
    "full stack": SuperpositionStack(2, depth=4, overflow="truncate"),
    "multipop": MultipopSuperpositionStack(2, max_pop=6, empty_value=0.5),
    "tape": BabyNTM(2, cells=4),
    "tape of one": BabyNTM(2, cells=1),
}


def example(name):
    """A mixture, and cells, weights and elements for it."""
    memory = MIXTURES[name]
    n_cells = 1 if name == "tape of one" else 4
    if isinstance(memory, BabyNTM):
        mixture, width = memory._mixture, 2
    else:
        length = min(n_cells + 1, memory.depth or 9)
        mixture = Mixture(
            memory._moves(n_cells, length), length, memory._prepend, memory.read_depth, memory.empty_value
        )
        width = 3
    shape = (3, n_cells, width) if isinstance(memory, BabyNTM) else (3, 2, n_cells, width)
    stacks = 1 if isinstance(memory, BabyNTM) else 2
    cells = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(3, stacks, len(mixture.operations), dtype=torch.float64, requires_grad=True)
    elements = torch.randn(3, stacks * 2, dtype=torch.float64, requires_grad=True)
    return mixture, (cells, weights, elements)


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("used", ["both", "cells", "reading"])
def test_mix_equals_its_reference(name, used):
    mixture, arguments = example(name)
    ours, plain = (f(*arguments, mixture) for f in (mix, mix_reference))
    torch.testing.assert_close(ours, plain)
    kept = {"both": (0, 1), "cells": (0,), "reading": (1,)}[used]
    upstream = [torch.randn_like(ours[i]) for i in kept]
    actual, expected = (
        torch.autograd.grad([results[i] for i in kept], arguments, upstream) for results in (ours, plain)
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", MIXTURES)
def test_mix_can_be_differentiated_twice(name):
    mixture, arguments = example(name)
    assert torch.autograd.gradgradcheck(lambda *args: mix(*args, mixture), arguments)
    # Where nothing but the sum is asked for, no gradient that the function is given needs one.
    cells, weights, elements = arguments
    found, expected = (
        torch.autograd.functional.hessian(lambda w, f=f: f(w.sum() * cells, w, elements, mixture)[0].sum(), weights)
        for f in (mix, mix_reference)
    )
    torch.testing.assert_close(found, expected)
    assert found.abs().max() > 0.1


def test_stacks_side_by_side_are_independent():
    both, one = SuperpositionStack(2, stacks=2), SuperpositionStack(2)
    state = both.initial_state(1, dtype=torch.float64)
    alone = [one.initial_state(1, dtype=torch.float64) for _ in range(2)]
    for _ in range(5):
        values = torch.randn(1, 4, dtype=torch.float64)
        weights = torch.rand(1, 2, 2, dtype=torch.float64).softmax(-1)
        state, reading = both.step(state, ChoiceActions(values, weights))
        readings = []
        for i in range(2):
            step = ChoiceActions(values[:, 2 * i : 2 * i + 2], weights[:, i : i + 1])
            alone[i], single = one.step(alone[i], step)
            readings.append(single)
        torch.testing.assert_close(reading, torch.cat(readings, dim=1))


def test_settings_reach_the_memory():
    memory = make_memory(tiny_config(memory="superposition", num_stacks=2, read_depth=2, no_op=True, memory_depth=9))
    assert (memory.reading_size, memory.depth) == (2 * 2 * 3, 9)
    assert memory.actions[1].operations == ("push", "pop", "no_op")
    assert make_memory(tiny_config(memory="baby_ntm")).cells == 104
