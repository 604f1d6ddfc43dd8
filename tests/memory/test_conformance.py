"""What every memory owes its users, over the registry: independence, holding, gradients, clear errors."""

import pytest
import torch
from conftest import MEMORIES, tiny_config

from stack_lm.memory import Choice, Strength, Value, Weights, make_memory, map_tensors, memory_names


def make(fields):
    return make_memory(tiny_config(**fields))


def random_actions(memory, batch_size, generator=None, scale=1.7):
    """Soft actions, away from ties."""
    emitted = {}
    for field in memory.actions:
        random = torch.rand(batch_size, *field.shape, generator=generator, dtype=torch.float64)
        makers = {
            Strength: lambda x: scale * x,
            Choice: lambda x: (4 * x).softmax(-1),
            Value: lambda x: 2 * x - 1,
            Weights: lambda x: 4 * x - 2,
        }
        emitted[field.name] = makers[type(field)](random)
    return memory.action_type(**emitted)


def run(memory, steps, state):
    readings = []
    for step in steps:
        state, reading = memory.step(state, step)
        readings.append(reading)
    return torch.stack(readings, dim=1), state


def rows(tree, start, stop):
    return map_tensors(lambda tensor: tensor[start:stop], tree)


def test_every_memory_is_tested():
    assert {fields["memory"] for fields in MEMORIES} == set(memory_names())


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_batch_elements_are_independent(fields):
    memory = make(fields)
    steps = [random_actions(memory, 4) for _ in range(6)]
    together, _ = run(memory, steps, memory.initial_state(4, dtype=torch.float64))
    for i in range(4):
        alone, _ = run(memory, [rows(step, i, i + 1) for step in steps], memory.initial_state(1, dtype=torch.float64))
        torch.testing.assert_close(together[i : i + 1], alone)


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_held_sequences_do_not_take_the_step(fields):
    memory = make(fields)
    _, state = run(memory, [random_actions(memory, 2) for _ in range(3)], memory.initial_state(2, dtype=torch.float64))
    new, _ = memory.step(state, random_actions(memory, 2))
    held = memory.hold(torch.tensor([True, False]), new, state)
    for name, value in memory.measure(held).items():
        expected = (memory.measure(new)[name][0], memory.measure(state)[name][1])
        torch.testing.assert_close(value, torch.stack(expected))
    probes = [random_actions(memory, 2, scale=9.0) for _ in range(4)]
    taken, not_taken, actual = (run(memory, probes, before)[0] for before in (new, state, held))
    torch.testing.assert_close(actual, torch.stack((taken[0], not_taken[1])))


@pytest.mark.parametrize("fields", MEMORIES, ids=str)
def test_a_memory_that_was_reset_acts_as_an_empty_one_and_the_others_go_on(fields):
    memory = make(fields)
    before, after = ([random_actions(memory, 3) for _ in range(4)] for _ in range(2))
    empty = memory.initial_state(3, dtype=torch.float64)
    _, state = run(memory, before, empty)
    readings, _ = run(memory, after, memory.reset(state, torch.tensor([False, True, False])))
    going_on, anew = run(memory, after, state)[0], run(memory, after, empty)[0]
    torch.testing.assert_close(readings[[0, 2]], going_on[[0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(readings[1], anew[1])
    if fields["memory"] in ("stack", "queue", "deque"):
        assert not torch.equal(going_on[1], anew[1])


@pytest.mark.parametrize(
    "fields",
    [pytest.param(f, marks=pytest.mark.slow) if f["memory"] == "nondeterministic" else f for f in MEMORIES],
    ids=str,
)
def test_gradcheck(fields):
    memory = make(fields)
    generator = torch.Generator().manual_seed(1)
    steps = [random_actions(memory, 2, generator) for _ in range(5)]
    leaves = [tensor.requires_grad_() for step in steps for tensor in step]
    if not leaves:
        return

    def readings(*tensors):
        size = len(memory.actions)
        rebuilt = [memory.action_type(*tensors[i : i + size]) for i in range(0, len(tensors), size)]
        outputs, state = run(memory, rebuilt, memory.initial_state(2, dtype=torch.float64))
        return outputs, *(tensor for tensor in state if tensor.requires_grad)

    assert torch.autograd.gradcheck(readings, leaves)


@pytest.mark.parametrize("fields", MEMORIES[1:], ids=str)
def test_bad_actions_and_states_are_refused(fields):
    memory = make(fields)
    state, good = memory.initial_state(2, dtype=torch.float64), random_actions(memory, 2)
    for field in memory.actions:
        value = getattr(good, field.name)
        nan = value.clone()
        nan[1] = float("nan")
        kind = "logarithms of weights, below infinity" if isinstance(field, Weights) else "finite"
        with pytest.raises(ValueError, match=rf"{field.name} must be {kind}; got nan"):
            memory.step(state, good._replace(**{field.name: nan}))
        with pytest.raises(ValueError, match=rf"{field.name} must be \[2.*; got \[3"):
            memory.step(state, good._replace(**{field.name: torch.cat((value, value[:1]))}))
        with pytest.raises(ValueError, match=rf"{field.name} is on meta; the state is on cpu"):
            memory.step(state, good._replace(**{field.name: value.to("meta")}))
        with pytest.raises(ValueError, match=rf"{field.name} must be a tensor; got a float"):
            memory.step(state, good._replace(**{field.name: 1.0}))
        if isinstance(field, Choice):
            with pytest.raises(ValueError, match=rf"{field.name} must sum to 1 over .*; got 0.5"):
                memory.step(state, good._replace(**{field.name: value / 2}))
        if isinstance(field, Strength | Choice):
            with pytest.raises(ValueError, match=rf"{field.name} must be at least 0; got -"):
                memory.step(state, good._replace(**{field.name: -value}))
    with pytest.raises(ValueError, match=r"must be \[3.*the state is of 3\); got \[2"):
        memory.step(memory.initial_state(3, dtype=torch.float64), good)
    with pytest.raises(ValueError, match="the state of .* is a .*; got tuple"):
        memory.step(tuple(state), good)
    with pytest.raises(ValueError, match="the actions of .* is a .*; got dict"):
        memory.step(state, good._asdict())
    _, state = run(memory, [good], state)
    broken = map_tensors(lambda tensor: torch.full_like(tensor, float("inf")), state)
    with pytest.raises(ValueError, match=r"state.* must be finite; got inf"):
        memory.step(broken, good)
