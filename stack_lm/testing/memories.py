"""The rules of a memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..memory import Choice, Memory, Strength, Value, Weights, leaves, make_memory, map_tensors, memory_class
from ..memory.fields import ActionField
from ..models.configuration_stack_rnn import StackRNNConfig
from ..models.modeling_stack_rnn import StackRNNForCausalLM
from .models import MODEL_CHECKS
from .rules import Check, reproducible, rule

AnyMemory = Memory[Any, Any]
MEMORY_CHECKS: list[Check] = []
"""The checks of `check_memory`, in its order: functions of the memory's name and its settings."""


def check_memory(memory: str, **settings: Any) -> None:
    """Check that a registered memory follows the rules on which models rely, alone and in a language model.

    This takes a few seconds. For a test of each rule, iterate over `MEMORY_CHECKS`. Invalid actions and settings are
    not checked here: `Memory.step` and the configuration reject them.

    Args:
        memory: the name under which it is registered.
        **settings: the settings of `StackRNNConfig`: the memory's own, the controller, sizes; smaller is faster.

    Raises:
        AssertionError: naming the first rule that is broken, and how.
        ValueError: for a memory or a setting that does not exist.

    Example:
        >>> check_memory("stack", push_control="expected_value")
    """
    _small_config(memory, settings)
    for check in MEMORY_CHECKS:
        check(memory, **settings)


def _small_config(memory: str, settings: dict[str, Any]) -> StackRNNConfig:
    """The configuration of a model of a few hundred weights, with every size different."""
    sizes: dict[str, Any] = {"vocab_size": 23, "embedding_size": 5, "hidden_size": 7, "pad_token_id": 0}
    if settings.get("controller") == "direct":
        sizes["hidden_size"] = None  # it decides its own
    if "memory_size" in memory_class(memory).settings:
        sizes["memory_size"] = 3
    return StackRNNConfig(memory=memory, **(sizes | settings))


def _rule(said: str) -> Callable[[Callable[[AnyMemory, StackRNNConfig], None]], Check]:
    """`rule` for a check that takes the memory and its configuration."""

    def decorate(body: Callable[[AnyMemory, StackRNNConfig], None]) -> Check:
        def check(memory: str, **settings: Any) -> None:
            config = _small_config(memory, settings)
            body(make_memory(config), config)

        check.__name__, check.__doc__ = body.__name__, body.__doc__
        return rule(said, MEMORY_CHECKS)(check)

    return decorate


def random_actions(memory: AnyMemory, config: Any, batch_size: int, scale: float = 1.7) -> Any:
    """Draw actions in float64, away from ties; strengths are below `scale`."""
    return memory.action_type(
        **{field.name: _random_action(field, config, batch_size, scale) for field in memory.actions}
    )


def _random_action(field: ActionField, config: Any, batch_size: int, scale: float) -> Tensor:
    uniform = torch.rand(batch_size, *field.shape, dtype=torch.float64)
    if isinstance(field, Strength):
        return scale * uniform
    if isinstance(field, Choice):
        return (4 * uniform).softmax(-1)
    if isinstance(field, Value):
        return 2 * uniform - 1
    if isinstance(field, Weights):
        return 4 * uniform - 2
    emission = field.emission(config)
    return emission.emit(2 * torch.randn(batch_size, emission.width, dtype=torch.float64))[0]


def run(memory: AnyMemory, steps: Sequence[Any], state: Any) -> tuple[Tensor, Any]:
    """Return the readings [B, T, R] of the steps, and the state after them."""
    readings = []
    for step in steps:
        state, reading = memory.step(state, step)
        readings.append(reading)
    return torch.stack(readings, dim=1), state


def _empty(memory: AnyMemory, batch_size: int) -> Any:
    return memory.initial_state(batch_size, dtype=torch.float64)


@_rule("a step returns the next state and the reading")
def state_and_reading(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Check the types of a step's results, and the shape of the reading, [B, reading_size]."""
    result = memory.step(_empty(memory, 3), random_actions(memory, config, 3))
    two = type(result) is tuple and len(result) == 2
    assert two, f"`update` must return the two of them; got a {type(result).__name__}"
    assert isinstance(result[0], memory.state_type), f"the state must be a {memory.state_type.__name__}"
    got, wanted = tuple(result[1].shape), (3, memory.reading_size)
    assert got == wanted, f"the reading must be {wanted}, [B, reading_size]; got {got}"


@_rule("a measure is one number for each sequence, [B], and has a name of its own")
def measures(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Check the names and shapes of the measures of a state, at the beginning and after a step."""
    reported = {name for field in memory.actions for name in (field.name, getattr(field, "distribution", field.name))}
    state = _empty(memory, 3)
    after, _ = memory.update(state, random_actions(memory, config, 3))
    for name, value in {**memory.measure(state), **memory.measure(after)}.items():
        assert tuple(value.shape) == (3,), f"for 3 sequences {name!r} is {tuple(value.shape)}"
        assert name not in reported, f"{name!r} is an action, which the measure would replace in outputs"


@_rule("the batch is the first dimension of all tensors of a state")
def batch_first(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Check the shapes of states, at the beginning and after a step."""
    rows = 13  # no other size here is equal to it
    state = _empty(memory, rows)
    after, _ = memory.update(state, random_actions(memory, config, rows))
    shapes = [tuple(tensor.shape) for each in (state, after) for tensor in leaves(each)]
    assert all(shape[:1] == (rows,) for shape in shapes), f"for {rows} sequences the shapes are {shapes}"


@_rule("an empty memory has the requested dtype, or a more precise one")
def type_asked_for(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Ask for a state in float64."""
    types = {tensor.dtype for tensor in leaves(_empty(memory, 2)) if tensor.is_floating_point()}
    assert types <= {torch.float64}, f"asked for float64, `initial_state` returns {', '.join(map(str, types))}"


@_rule("sequences in a batch are independent")
def independent_sequences(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Compare the readings of a batch with those of each sequence alone."""
    steps = [random_actions(memory, config, 4) for _ in range(6)]
    together, _ = run(memory, steps, _empty(memory, 4))
    for i in range(4):
        own = [map_tensors(lambda tensor, row=i: tensor[row : row + 1], step) for step in steps]
        torch.testing.assert_close(together[i : i + 1], run(memory, own, _empty(memory, 1))[0])


@_rule("a step changes no tensor of the state or the actions in place")
def nothing_in_place(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Compare the arguments before and after a step; beams, chunks and earlier gradients still need them."""
    _, state = run(memory, [random_actions(memory, config, 2)], _empty(memory, 2))
    given = (state, random_actions(memory, config, 2))
    before = map_tensors(torch.clone, given)
    memory.step(*given)
    for old, new in zip(leaves(before), leaves(given), strict=True):
        torch.testing.assert_close(new, old, rtol=0, atol=0)


@_rule("`update` reads no values: that would wait for a GPU, and torch.compile could not trace it")
def no_number_is_looked_at(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Run `update` on tensors without data."""
    state, actions = _empty(memory, 2), random_actions(memory, config, 2)
    for _ in range(2):
        state, _ = memory.update(*map_tensors(lambda tensor: tensor.to("meta"), (state, actions)))


@_rule("a sequence that is held does not take the step")
def held_sequences(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Compare readings and measures after `hold` with those from the states before and after the step."""
    _, state = run(memory, [random_actions(memory, config, 2) for _ in range(3)], _empty(memory, 2))
    new, _ = memory.step(state, random_actions(memory, config, 2))
    held = memory.hold(torch.tensor([True, False]), new, state)
    for name, value in memory.measure(held).items():
        expected = (memory.measure(new)[name][0], memory.measure(state)[name][1])
        torch.testing.assert_close(value, torch.stack(expected))
    probes = [random_actions(memory, config, 2, scale=9.0) for _ in range(4)]
    taken, not_taken, actual = (run(memory, probes, before)[0] for before in (new, state, held))
    torch.testing.assert_close(actual, torch.stack((taken[0], not_taken[1])))


@_rule("a sequence that is reset continues as an empty one, and the others as before")
def reset_sequences(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Compare readings after `reset` with those from an empty memory, and of other sequences with those without it."""
    before, after = ([random_actions(memory, config, 3) for _ in range(4)] for _ in range(2))
    empty = _empty(memory, 3)
    _, state = run(memory, before, empty)
    readings, _ = run(memory, after, memory.reset(state, torch.tensor([False, True, False])))
    going_on, anew = run(memory, after, state)[0], run(memory, after, empty)[0]
    torch.testing.assert_close(readings[[0, 2]], going_on[[0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(readings[1], anew[1])


@_rule("gradients are those of finite differences")
def gradients(memory: AnyMemory, config: StackRNNConfig) -> None:
    """Compare the gradients of readings and states after five steps, with respect to all actions."""
    steps = [random_actions(memory, config, 2) for _ in range(5)]
    actions = [tensor.requires_grad_() for step in steps for tensor in step]

    def outputs(*tensors: Tensor) -> tuple[Tensor, ...]:
        size = len(memory.actions)
        rebuilt = [memory.action_type(*tensors[i : i + size]) for i in range(0, len(tensors), size)]
        readings, state = run(memory, rebuilt, _empty(memory, 2))
        return readings, *(tensor for tensor in leaves(state) if tensor.requires_grad)

    if actions:
        torch.autograd.gradcheck(outputs, actions)


def _in_a_model(check: Check) -> None:
    """Run a check of models on a language model with the memory."""

    def of_memory(memory: str, **settings: Any) -> None:
        with reproducible():
            model = StackRNNForCausalLM(_small_config(memory, settings))
        check(model)

    of_memory.__name__, of_memory.__doc__ = f"{check.__name__}_of_a_model", check.__doc__
    MEMORY_CHECKS.append(of_memory)


for _check in MODEL_CHECKS:
    _in_a_model(_check)
