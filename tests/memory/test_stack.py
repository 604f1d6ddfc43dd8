"""The neural stack against its definition, against Python lists, and against the paper's worked example."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.memory import NeuralStack, StackActions, StackState

STRENGTHS = st.floats(0, 3, width=32).map(lambda x: round(x, 3))
STEPS = st.lists(st.tuples(STRENGTHS, STRENGTHS, STRENGTHS), min_size=1, max_size=12)


def actions(value, push, pop, read, dtype=torch.float64):
    """Actions of a batch of one."""
    numbers = [torch.tensor([x], dtype=dtype) for x in (push, pop, read)]
    return StackActions(torch.as_tensor(value, dtype=dtype).reshape(1, -1), *numbers)


def brute_force_step(stack, value, push, pop, read):
    """Merrill et al. (2019), section 2.1, element by element. `stack` is a list of [strength, vector], bottom first."""
    for element in reversed(stack):
        popped = min(element[0], pop)
        element[0], pop = element[0] - popped, pop - popped
    stack.append([push, value])
    reading = torch.zeros_like(value)
    for strength, vector in reversed(stack):
        weight = min(strength, read)
        reading, read = reading + weight * vector, read - weight
    return reading


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_equals_the_definition_element_by_element(steps):
    memory, expected = NeuralStack(4), []
    state = memory.initial_state(1, dtype=torch.float64)
    values = torch.randn(len(steps), 4, dtype=torch.float64)
    for value, (push, pop, read) in zip(values, steps, strict=True):
        state, reading = memory.step(state, actions(value, push, pop, read))
        torch.testing.assert_close(reading[0], brute_force_step(expected, value, push, pop, read))
        torch.testing.assert_close(state.strengths[0], torch.tensor([s for s, _ in expected], dtype=torch.float64))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_hard_actions_make_a_python_list(steps):
    memory, expected = NeuralStack(1), []
    state = memory.initial_state(1, dtype=torch.float64)
    for number, (push, pop, read) in enumerate(steps, start=1):
        del expected[len(expected) - min(pop, len(expected)) :]
        if push:
            expected.append(number)
        state, reading = memory.step(state, actions([number], float(push), float(pop), float(read)))
        assert reading.item() == sum(expected[-read:])
        assert [int(v) for v, s in zip(state.values[0, :, 0], state.strengths[0], strict=True) if s] == expected


def test_worked_example_of_grefenstette_2015():
    """Figure 1a of the paper: strengths and readings over three steps, with v_1, v_2, v_3 orthogonal."""
    memory = NeuralStack(3)
    state = memory.initial_state(1, dtype=torch.float64)
    basis = torch.eye(3, dtype=torch.float64)
    expected = [
        ((0.8, 0.0), [0.8], [0.8, 0, 0]),
        ((0.5, 0.1), [0.7, 0.5], [0.5, 0.5, 0]),
        ((0.9, 0.9), [0.3, 0, 0.9], [0.1, 0, 0.9]),
    ]
    for vector, ((push, pop), strengths, reading) in zip(basis, expected, strict=True):
        state, read = memory.step(state, actions(vector, push, pop, 1.0))
        torch.testing.assert_close(state.strengths[0], torch.tensor(strengths, dtype=torch.float64))
        torch.testing.assert_close(read[0], torch.tensor(reading, dtype=torch.float64))


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_invariants(steps):
    memory = NeuralStack(1)
    state = memory.initial_state(1, dtype=torch.float64)
    before = 0.0
    for push, pop, read in steps:
        state, reading = memory.step(state, actions([1.0], push, pop, read))
        total = state.strengths.sum().item()
        assert (state.strengths >= 0).all()
        assert reading.item() <= read + 1e-9  # weights of a reading sum to at most the read strength
        assert reading.item() == pytest.approx(min(read, total), abs=1e-9)
        assert total == pytest.approx(max(before - pop, 0) + push, abs=1e-9)
        assert memory.measure(state)["total_strength"].item() == pytest.approx(total)
        before = total


def test_batch_elements_are_independent():
    memory = NeuralStack(3)
    steps = [StackActions(torch.randn(4, 3), *(3 * torch.rand(3, 4))) for _ in range(6)]
    state = memory.initial_state(4)
    alone = [memory.initial_state(1) for _ in range(4)]
    for step in steps:
        state, reading = memory.step(state, step)
        for i in range(4):
            alone[i], alone_reading = memory.step(alone[i], StackActions(*(part[i : i + 1] for part in step)))
            torch.testing.assert_close(reading[i : i + 1], alone_reading)


def test_held_sequences_do_not_take_the_step():
    memory = NeuralStack(2)
    state = memory.initial_state(2)
    for _ in range(3):
        state, _ = memory.step(state, StackActions(torch.randn(2, 2), *torch.rand(3, 2)))
    new, _ = memory.step(state, StackActions(torch.randn(2, 2), *torch.rand(3, 2)))
    held = memory.hold(torch.tensor([True, False]), new, state)
    probe = StackActions(torch.randn(2, 2), torch.rand(2), torch.rand(2), torch.full((2,), 9.0))
    after_new, after_old = memory.step(new, probe)[1], memory.step(state, probe)[1]
    torch.testing.assert_close(memory.step(held, probe)[1], torch.stack((after_new[0], after_old[1])))


def gradients(push, pop, read, n=3):
    """Gradients of the reading's sum after `n` pushes of `push` and a final step."""
    memory = NeuralStack(1)
    d = torch.full((n,), push, dtype=torch.float64, requires_grad=True)
    u = torch.tensor([pop], dtype=torch.float64, requires_grad=True)
    rho = torch.tensor([read], dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(1, dtype=torch.float64)
    state = memory.initial_state(1, dtype=torch.float64)
    for i in range(n):
        last = i == n - 1
        value = torch.tensor([[2.0**i]], dtype=torch.float64)
        state, reading = memory.step(state, StackActions(value, d[i : i + 1], u if last else zero, rho))
    return [g.tolist() for g in torch.autograd.grad(reading.sum(), (d, u, rho))]


def test_ties_send_the_gradient_to_the_strength():
    # Read 1 with a top element of strength 1: taken whole, so the strength gets the gradient and the read none.
    assert gradients(1.0, 0.0, 1.0) == [[0.0, 0.0, 4.0], [0.0], [0.0]]
    # A little less of the read: the top is only partly taken, and the read gets the gradient.
    assert gradients(1.0, 0.0, 0.75) == [[0.0, 0.0, 0.0], [0.0], [4.0]]
    # Pop 1 of a top element of strength 1: removed whole, no boundary, so the pop gets no gradient.
    assert gradients(1.0, 1.0, 3.0)[1] == [0.0]
    # Pop 0.5 shortens it: then the pop strength has one.
    assert gradients(1.0, 0.5, 3.0)[1] == [-2.0]


def test_an_element_pushed_with_strength_zero_still_gets_a_gradient_from_its_own_reading():
    assert gradients(0.0, 0.0, 1.0) == [[0.0, 0.0, 4.0], [0.0], [0.0]]


def test_gradcheck():
    memory = NeuralStack(2)
    generator = torch.Generator().manual_seed(1)
    numbers = torch.rand(5, 3, 2, generator=generator, dtype=torch.float64) * 1.7  # away from ties
    values = torch.randn(5, 2, 2, generator=generator, dtype=torch.float64)

    def run(values, numbers):
        state = memory.initial_state(2, dtype=torch.float64)
        readings = []
        for value, (push, pop, read) in zip(values, numbers, strict=True):
            state, reading = memory.step(state, StackActions(value, push, pop, read))
            readings.append(reading)
        return torch.stack(readings), state.strengths

    assert torch.autograd.gradcheck(run, (values.requires_grad_(), numbers.requires_grad_()))


def test_strengths_stay_float32_beside_bfloat16_values():
    state = NeuralStack(2).initial_state(1, dtype=torch.bfloat16)
    assert state.values.dtype == torch.bfloat16
    assert state.strengths.dtype == torch.float32


def test_a_value_of_another_size_is_refused():
    memory = NeuralStack(3)
    with pytest.raises(ValueError, match="push_value has size 2; the stack's elements have 3"):
        memory.step(memory.initial_state(1, dtype=torch.float64), actions([1.0, 2.0], 1.0, 0.0, 1.0))


def test_reading_an_empty_stack_gives_zeros():
    memory = NeuralStack(2)
    state, reading = memory.step(memory.initial_state(1, dtype=torch.float64), actions([1, 1], 0.0, 2.0, 2.0))
    assert reading.tolist() == [[0.0, 0.0]]
    assert isinstance(state, StackState)
