"""Input and output buffers against the neural queue, Python lists, and a worked example."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.memory import NeuralQueue, StackActions, StackState
from stack_lm.memory.buffers import dequeue, input_buffer, read_off

STRENGTHS = st.lists(st.floats(0, 2.5, width=32), min_size=1, max_size=8)


def numbered(strengths):
    """A buffer [1, N, N] whose element i is the unit vector e_i: what is read are the weights."""
    strengths = torch.tensor([strengths], dtype=torch.float64)
    return StackState(torch.eye(strengths.shape[1], dtype=torch.float64).unsqueeze(0), strengths)


@given(STRENGTHS, st.lists(st.floats(0, 2.5, width=32), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_dequeue_is_a_step_of_the_neural_queue(strengths, pops):
    """A queue whose pushes have strength 0 is a buffer that is read-only."""
    buffer = state = numbered(strengths)
    queue = NeuralQueue(len(strengths))
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    for pop in pops:
        pop = torch.tensor([pop], dtype=torch.float64)
        state, expected = queue.step(state, StackActions(torch.zeros_like(buffer.values[:, 0]), zero, pop, one))
        buffer, reading = dequeue(buffer, pop)
        torch.testing.assert_close(reading, expected)
        torch.testing.assert_close(buffer.strengths, state.strengths[:, : len(strengths)])


@given(STRENGTHS, st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_read_off_is_dequeuing_again_and_again(strengths, length):
    buffer = numbered(strengths)
    expected = []
    pop = torch.zeros(1, dtype=torch.float64)
    for _ in range(length):
        buffer, reading = dequeue(buffer, pop)
        expected.append(reading)
        pop = torch.ones(1, dtype=torch.float64)
    torch.testing.assert_close(read_off(numbered(strengths), length), torch.stack(expected, dim=1))


@given(STRENGTHS)
@settings(max_examples=100, deadline=None)
def test_a_read_off_loses_and_invents_nothing(strengths):
    """Laid end to end, element i covers an interval as long as its strength; position j is [j, j + 1)."""
    weights = read_off(numbered(strengths), 20)[0]
    torch.testing.assert_close(weights.sum(0), torch.tensor(strengths, dtype=torch.float64))
    filled = (sum(strengths) - torch.arange(20, dtype=torch.float64)).clamp(0, 1)
    torch.testing.assert_close(weights.sum(1), filled)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_hard_pushes_make_a_python_list(pushes):
    values = torch.arange(1, len(pushes) + 1, dtype=torch.float64).view(1, -1, 1)
    buffer = StackState(values, torch.tensor([pushes], dtype=torch.float64))
    written = [number for number, push in enumerate(pushes, start=1) if push]
    assert read_off(buffer, 15).flatten().tolist() == (written + [0] * 15)[:15]


def test_worked_example():
    """Strengths 0.5, 0.7, 0.8, by hand: position 0 is 0.5 of the first and 0.5 of the second."""
    weights = read_off(numbered([0.5, 0.7, 0.8]), 3)[0]
    expected = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.2, 0.8], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(weights, expected)


def test_padding_is_not_in_the_input_buffer():
    values = torch.tensor([[[9.0], [1.0], [2.0], [9.0]]])
    buffer = input_buffer(values, torch.tensor([[False, True, True, False]]))
    readings = []
    for pop in (0.0, 1.0, 1.0):
        buffer, reading = dequeue(buffer, torch.tensor([pop]))
        readings.append(reading.item())
    assert readings == [1, 2, 0]


def test_gradcheck():
    values = torch.rand(2, 4, 3, dtype=torch.float64, requires_grad=True)
    strengths = torch.rand(2, 4, dtype=torch.float64, requires_grad=True)
    pop = torch.rand(2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v, s: read_off(StackState(v, s), 4), (values, strengths))
    assert torch.autograd.gradcheck(lambda v, s, p: dequeue(StackState(v, s), p)[1], (values, strengths, pop))
