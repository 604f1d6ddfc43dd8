"""The neural stack, queue and deque against their definition, Python lists, and worked examples."""

from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stack_lm.memory import DequeActions, NeuralDeque, NeuralQueue, NeuralStack, StackActions

STRENGTHS = st.floats(0, 3, width=32).map(lambda x: round(x, 3))
STEPS = st.lists(st.tuples(STRENGTHS, STRENGTHS, STRENGTHS), min_size=1, max_size=12)


def actions(value, push, pop, read, dtype=torch.float64):
    """Actions of a batch of one."""
    numbers = [torch.tensor([x], dtype=dtype) for x in (push, pop, read)]
    return StackActions(torch.as_tensor(value, dtype=dtype).reshape(1, -1), *numbers)


def deque_actions(values, push, pop, read):
    """Actions of a batch of one; each argument is that of the top and that of the bottom."""
    numbers = [torch.tensor([x], dtype=torch.float64) for pair in (push, pop, read) for x in pair]
    return DequeActions(*(torch.as_tensor(v, dtype=torch.float64).reshape(1, -1) for v in values), *numbers)


def from_end(elements, end):
    return elements[::-1] if end == "top" else elements


def take(elements, pop, end):
    """Pop element by element. `elements` is a list of [strength, vector], bottom first."""
    for element in from_end(elements, end):
        popped = min(element[0], pop)
        element[0], pop = element[0] - popped, pop - popped


def look(elements, read, end):
    """Read element by element."""
    reading = torch.zeros_like(elements[0][1])
    for strength, vector in from_end(elements, end):
        weight = min(strength, read)
        reading, read = reading + weight * vector, read - weight
    return reading


def strengths_of(elements):
    return torch.tensor([s for s, _ in elements], dtype=torch.float64)


@pytest.mark.parametrize(("memory", "end"), [(NeuralStack(4), "top"), (NeuralQueue(4), "bottom")])
@given(steps=STEPS)
@settings(max_examples=100, deadline=None)
def test_stack_and_queue_equal_the_definition_element_by_element(memory, end, steps):
    """Merrill et al. (2019), section 2.1, and Grefenstette et al. (2015), eqs. 4 and 5."""
    expected = []
    state = memory.initial_state(1, dtype=torch.float64)
    values = torch.randn(len(steps), 4, dtype=torch.float64)
    for value, (push, pop, read) in zip(values, steps, strict=True):
        state, reading = memory.step(state, actions(value, push, pop, read))
        take(expected, pop, end)
        expected.append([push, value])
        torch.testing.assert_close(reading[0], look(expected, read, end))
        torch.testing.assert_close(state.strengths[0], strengths_of(expected))


@given(st.lists(st.tuples(*[st.tuples(STRENGTHS, STRENGTHS)] * 3), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_deque_equals_the_definition_element_by_element(steps):
    """Grefenstette et al. (2015), eqs. 6-11."""
    memory, expected = NeuralDeque(4), []
    state = memory.initial_state(1, dtype=torch.float64)
    for push, pop, read in steps:
        values = torch.randn(2, 4, dtype=torch.float64)
        state, reading = memory.step(state, deque_actions(values, push, pop, read))
        take(expected, pop[0], "top")
        take(expected, pop[1], "bottom")
        expected = [[push[1], values[1]], *expected, [push[0], values[0]]]
        torch.testing.assert_close(reading[0, :4], look(expected, read[0], "top"))
        torch.testing.assert_close(reading[0, 4:], look(expected, read[1], "bottom"))
        torch.testing.assert_close(state.strengths[0], strengths_of(expected))


@pytest.mark.parametrize("memory", [NeuralStack(1), NeuralQueue(1)])
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_hard_actions_make_a_python_list(memory, steps):
    expected = []
    state = memory.initial_state(1, dtype=torch.float64)
    for number, (push, pop, read) in enumerate(steps, start=1):
        if memory.name == "stack":
            expected = expected[: len(expected) - min(pop, len(expected))]
        else:
            expected = expected[pop:]
        if push:
            expected.append(number)
        state, reading = memory.step(state, actions([number], float(push), float(pop), float(read)))
        assert reading.item() == sum(expected[-read:] if memory.name == "stack" else expected[:read])
        assert [int(v) for v, s in zip(state.values[0, :, 0], state.strengths[0], strict=True) if s] == expected


@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_hard_actions_make_a_python_deque(steps):
    memory, expected = NeuralDeque(1), deque()
    state = memory.initial_state(1, dtype=torch.float64)
    for number, (push_top, push_bottom, pop_top, pop_bottom) in enumerate(steps, start=1):
        if pop_top and expected:
            expected.pop()
        if pop_bottom and expected:
            expected.popleft()
        if push_top:
            expected.append(number)
        if push_bottom:
            expected.appendleft(-number)
        pushes, pops = (float(push_top), float(push_bottom)), (float(pop_top), float(pop_bottom))
        state, reading = memory.step(state, deque_actions([[number], [-number]], pushes, pops, (1.0, 1.0)))
        assert reading[0].tolist() == ([expected[-1], expected[0]] if expected else [0, 0])
        assert [int(v) for v, s in zip(state.values[0, :, 0], state.strengths[0], strict=True) if s] == list(expected)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (NeuralStack(3), [([0.8], [0.8, 0, 0]), ([0.7, 0.5], [0.5, 0.5, 0]), ([0.3, 0, 0.9], [0.1, 0, 0.9])]),
        (NeuralQueue(3), [([0.8], [0.8, 0, 0]), ([0.7, 0.5], [0.7, 0.3, 0]), ([0, 0.3, 0.9], [0, 0.3, 0.7])]),
    ],
    ids=["figure 1a", "queue"],
)
def test_worked_example_of_grefenstette_2015(memory, expected):
    """Figure 1a of the paper: strengths and readings over three steps, with v_1, v_2, v_3 orthogonal.

    The same strengths in a queue, by hand (eqs. 4 and 5).
    """
    state = memory.initial_state(1, dtype=torch.float64)
    pushes_and_pops = (0.8, 0.0), (0.5, 0.1), (0.9, 0.9)
    basis = torch.eye(3, dtype=torch.float64)
    for vector, (push, pop), (strengths, reading) in zip(basis, pushes_and_pops, expected, strict=True):
        state, read = memory.step(state, actions(vector, push, pop, 1.0))
        torch.testing.assert_close(state.strengths[0], torch.tensor(strengths, dtype=torch.float64))
        torch.testing.assert_close(read[0], torch.tensor(reading, dtype=torch.float64))


def test_a_deque_by_hand():
    """The strengths of the paper's figure 1a at the top, others at the bottom (eqs. 6-11).

    The elements are a1, a2, a3 pushed at the top and b1, b2, b3 at the bottom, so that the memory is b3 b2 b1 a1 a2 a3.
    """
    memory = NeuralDeque(6)
    state = memory.initial_state(1, dtype=torch.float64)
    a, b = torch.eye(6, dtype=torch.float64).split(3)
    expected = [
        # pushes (top, bottom), pops, strengths, then what is read of a1 a2 a3 b1 b2 b3 at the top and at the bottom
        ((0.8, 0.3), (0.0, 0.0), [0.3, 0.8], [0.8, 0, 0, 0.2, 0, 0], [0.7, 0, 0, 0.3, 0, 0]),
        # The pop at the bottom takes all of b1 and 0.1 of a1.
        ((0.5, 0.2), (0.1, 0.4), [0.2, 0, 0.6, 0.5], [0.5, 0.5, 0, 0, 0, 0], [0.6, 0.2, 0, 0, 0.2, 0]),
        # The pop at the top takes all of a2 and 0.4 of a1.
        ((0.9, 0.0), (0.9, 0.0), [0, 0.2, 0, 0.2, 0, 0.9], [0.1, 0, 0.9, 0, 0, 0], [0.2, 0, 0.6, 0, 0.2, 0]),
    ]
    for vectors, (push, pop, strengths, top, bottom) in zip(zip(a, b, strict=True), expected, strict=True):
        state, read = memory.step(state, deque_actions(vectors, push, pop, (1.0, 1.0)))
        torch.testing.assert_close(state.strengths[0], torch.tensor(strengths, dtype=torch.float64))
        torch.testing.assert_close(read[0], torch.tensor([*top, *bottom], dtype=torch.float64))


@pytest.mark.parametrize("memory", [NeuralStack(1), NeuralQueue(1)])
@given(steps=STEPS)
@settings(max_examples=100, deadline=None)
def test_invariants(memory, steps):
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


def gradients(push, pop, read, n=3, memory=NeuralStack(1)):  # noqa: B008 - a memory has no state of its own
    """Gradients of the reading's sum after `n` pushes of `push` and a final step."""
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


def test_ties_of_a_queue_follow_the_same_rule_from_the_other_end():
    queue = NeuralQueue(1)
    assert gradients(1.0, 0.0, 1.0, memory=queue) == [[1.0, 0.0, 0.0], [0.0], [0.0]]
    assert gradients(1.0, 0.0, 0.75, memory=queue) == [[0.0, 0.0, 0.0], [0.0], [1.0]]
    assert gradients(1.0, 1.0, 3.0, memory=queue)[1] == [0.0]
    assert gradients(1.0, 0.5, 3.0, memory=queue)[1] == [-1.0]


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("cls", [NeuralStack, NeuralQueue, NeuralDeque])
@pytest.mark.parametrize("most", [0.2, 1.0], ids=["growing", "balanced"])
def test_the_measure_of_a_sequence_is_the_sum_of_its_elements(cls, most, heads):
    """At every step of a long one, in float32: a running sum would round at each step what the elements do not.

    Of heads it is the mean, like the strengths that are shown beside it.
    """
    memory = cls(heads, num_heads=heads)
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, 800, *field.shape) for field in memory.actions]
    given = [torch.rand(shape, generator=generator) for shape in shapes]
    sizes = [most if field.name.startswith("pop") else 1.0 for field in memory.actions]
    actions = memory.action_type(*(part * size for part, size in zip(given, sizes, strict=True)))
    state = first = memory.initial_state(2)
    totals = []
    for t in range(800):
        state, _ = memory.update(state, memory.action_type(*(part[:, t] for part in actions)))
        totals.append(state.strengths.double().sum(-1).view(2, heads).mean(1))
    measured = memory.measure_over(first, actions._asdict())["total_strength"]
    assert measured.dtype == torch.float32
    torch.testing.assert_close(measured.double(), torch.stack(totals, 1), rtol=6e-8, atol=3e-6)
    torch.testing.assert_close(memory.measure(state)["total_strength"], measured[:, -1])


@pytest.mark.parametrize("cls", [NeuralStack, NeuralQueue])
@pytest.mark.parametrize("order", ["after_push", "before_push"])
@pytest.mark.parametrize("heads", [1, 2])
def test_the_weights_of_a_reading(cls, order, heads):
    """The values that they weigh make the reading."""
    torch.manual_seed(0)
    memory = cls(4, order, heads)
    state, shape = memory.initial_state(3, dtype=torch.float64), (3, heads) if heads > 1 else (3,)
    for _ in range(5):
        strengths = 2 * torch.rand(3, *shape, dtype=torch.float64)
        taken = StackActions(torch.randn(3, 4, dtype=torch.float64), *strengths)
        state, reading = memory.step(state, taken)
        weights = memory.reading_weights(state, taken.read_strength)
        torch.testing.assert_close((weights.unsqueeze(-2) @ state.values).flatten(1), reading)
