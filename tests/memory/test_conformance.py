"""What every memory owes its users, over the registry: the rules of `stack_lm.testing`, and clear errors."""

import pytest
import torch
from conftest import MEMORIES, tiny_config

from stack_lm.memory import Choice, Strength, Weights, make_memory, map_tensors, memory_names
from stack_lm.testing import MEMORY_CHECKS
from stack_lm.testing.memories import random_actions, run


def marks(fields, check):
    slow = fields["memory"] == "nondeterministic" and check.__name__ == "gradients"
    return [pytest.mark.slow] if slow else []


def test_every_memory_is_tested():
    assert {fields["memory"] for fields in MEMORIES} == set(memory_names())


@pytest.mark.parametrize(
    ("fields", "check"),
    [
        pytest.param(fields, check, marks=marks(fields, check), id=f"{check.__name__}-{fields}")
        for fields in MEMORIES
        for check in MEMORY_CHECKS
        if not check.__name__.endswith("_of_a_model")  # tests/models/test_model_conformance.py has more models
    ],
)
def test_it_keeps_the_rules(fields, check):
    check(**fields)


@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
def test_a_reset_forgets(memory):
    """Else the check of resets would say nothing."""
    config = tiny_config(memory=memory)
    made = make_memory(config)
    before, after = ([random_actions(made, config, 2) for _ in range(4)] for _ in range(2))
    empty = made.initial_state(2, dtype=torch.float64)
    _, state = run(made, before, empty)
    assert not torch.equal(run(made, after, state)[0], run(made, after, empty)[0])


@pytest.mark.parametrize("fields", MEMORIES[1:], ids=str)
def test_bad_actions_and_states_are_refused(fields):
    config = tiny_config(**fields)
    memory = make_memory(config)
    state, good = memory.initial_state(2, dtype=torch.float64), random_actions(memory, config, 2)
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
    with pytest.raises(ValueError, match="state of .* must be a .*; got a tuple"):
        memory.step(tuple(state), good)
    with pytest.raises(ValueError, match="actions of .* must be a .*; got a dict"):
        memory.step(state, good._asdict())
    _, state = run(memory, [good], state)
    broken = map_tensors(lambda tensor: torch.full_like(tensor, float("inf")), state)
    with pytest.raises(ValueError, match=r"state.* must be finite; got inf"):
        memory.step(broken, good)
