"""The compiled scan of memories in superposition equals the reference: outputs, actions, states and every gradient."""

import pytest
import torch
from conftest import thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.comparison import check, leaves, make_cell, random_state, some_mask

from stack_lm.memory import map_tensors

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
CONTROLLERS = ("direct", "linear", "sigmoid", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm")
STRENGTHS = ("stack", "queue", "deque")
FUZZED = ("none", *STRENGTHS, "superposition", "multipop_superposition", "baby_ntm")
MEMORIES = {
    "superposition": {"memory": "superposition"},
    "several, with all settings": {
        "memory": "superposition",
        "num_stacks": 3,
        "read_depth": 2,
        "empty_value": -1.0,
        "no_op": True,
    },
    "full": {"memory": "superposition", "memory_depth": 3, "memory_overflow": "truncate", "read_depth": 2},
    "of one cell": {"memory": "superposition", "memory_depth": 1, "memory_overflow": "truncate", "no_op": True},
    "multipop": {"memory": "multipop_superposition", "max_pop": 3, "empty_value": 0.5},
    "multipop, full": {
        "memory": "multipop_superposition",
        "max_pop": 5,
        "memory_depth": 4,
        "memory_overflow": "truncate",
        "num_stacks": 2,
    },
    "tape": {"memory": "baby_ntm", "memory_depth": 40},
    "tape that is full": {"memory": "baby_ntm", "memory_depth": 4},
    "tape of two": {"memory": "baby_ntm", "memory_depth": 2},
    "tape of one": {"memory": "baby_ntm", "memory_depth": 1},
}
CHOICES = {
    "softmax": {},
    "temperature": {"operation_control": "softmax_temperature", "temperature": 0.6},
    "gumbel": {"operation_control": "gumbel_softmax", "temperature": 0.8},
}


@pytest.mark.parametrize(
    ("memory", "controller", "sequences", "begin"),
    thinned(MEMORIES, ["direct", "rnn", "gru"], ["full", "padded"], ["empty", "carried", "carried without gradients"]),
)
def test_every_memory(memory, controller, sequences, begin):
    """Of a carried state without gradients only the cells that are other than zero are gone through."""
    cell = make_cell(controller=controller, **MEMORIES[memory])
    state = None if begin == "empty" else random_state(cell, 3, torch.float64)
    if begin == "carried without gradients":
        state = map_tensors(torch.Tensor.detach, state)
    check(cell, state=state, mask=some_mask(3, 7) if sequences == "padded" else None)


@pytest.mark.parametrize(
    ("memory", "controller", "layers"),
    thinned(["several, with all settings", "multipop", "tape"], CONTROLLERS[3:], [1, 3]),
)
def test_readings_into_the_hidden_state(memory, controller, layers):
    cell = make_cell(controller=controller, reading_entry="hidden_state", num_layers=layers, **MEMORIES[memory])
    check(cell, mask=some_mask(3, 7), state=random_state(cell, 3, torch.float64))
    check(make_cell(controller=controller, reading_entry="hidden_state", bias=False, **MEMORIES[memory]))


@pytest.mark.parametrize(("controller", "memory"), thinned(CONTROLLERS, ["superposition", "tape", "stack"]))
@pytest.mark.parametrize("masked", [False, True], ids=["full", "padded"])
def test_one_hot_inputs(memory, controller, masked):
    fields = MEMORIES.get(memory, {"memory": memory})
    for more in ({}, {"num_layers": 2, "input_skip_connections": True}, {"reading_entry": "hidden_state"}):
        if more and controller in ("direct", "linear", "sigmoid"):
            continue
        check(
            make_cell(controller=controller, **fields, **more), mask=some_mask(3, 7) if masked else None, one_hot=True
        )


def test_one_hot_inputs_that_are_none_of_the_symbols():
    cell = make_cell(memory="superposition")
    cell.scan_backend = "numba"
    for wrong in (-1, 5):
        with pytest.raises(IndexError, match=f"one-hot inputs must be in \\[0, 5\\); got {wrong}"):
            cell.scan(torch.tensor([[0, wrong]]))


@pytest.mark.parametrize(
    ("memory", "choice", "evaluating"),
    thinned(
        ["several, with all settings", "multipop, full", "tape that is full"],
        CHOICES,
        [{}, {"evaluation_argmax": True}, {"evaluation_noise": True}],
    ),
    ids=str,
)
def test_every_choice(memory, choice, evaluating):
    if "evaluation_noise" in evaluating and choice != "gumbel":
        evaluating = {}
    cell = make_cell(**MEMORIES[memory], **CHOICES[choice], **evaluating)
    check(cell, mask=some_mask(3, 7))
    check(cell.eval(), mask=some_mask(3, 7), state=random_state(cell, 3, torch.float64))


@pytest.mark.parametrize("memory", ["superposition", "tape"])
def test_noise_is_of_the_generator_alone(memory):
    cell = make_cell(**MEMORIES[memory], **CHOICES["gumbel"])
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    found = []
    for seed, backend in ((1, "numba"), (1, "reference"), (1, "numba"), (2, "numba")):
        torch.manual_seed(seed)
        cell.scan_backend = backend
        found.append(cell.scan(inputs).outputs)
    torch.testing.assert_close(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert not torch.allclose(found[0], found[3])


@pytest.mark.parametrize("memory", ["superposition", "multipop_superposition"])
@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_a_full_stack_is_refused(memory, backend):
    cell = make_cell(memory=memory, memory_depth=4)
    cell.scan_backend = backend
    inputs = torch.randn(2, 9, 5, dtype=torch.float64)
    cell.scan(inputs[:, :4])
    with pytest.raises(ValueError, match="a stack of memory_depth=4 was full and has lost"):
        cell.scan(inputs)


@pytest.mark.parametrize("memory", MEMORIES)
def test_in_pieces_and_without_gradients_it_is_the_same(memory):
    cell = make_cell(**MEMORIES[memory])
    cell.scan_backend = "numba"
    inputs, mask = torch.randn(3, 9, 5, dtype=torch.float64), some_mask(3, 9)
    whole = cell.scan(inputs, None, mask, output_actions=True)
    with torch.no_grad():
        first = cell.scan(inputs[:, :4], None, mask[:, :4], output_actions=True)
        second = cell.scan(inputs[:, 4:], first.state, mask[:, 4:], output_actions=True)
    torch.testing.assert_close(torch.cat((first.outputs, second.outputs), dim=1), whole.outputs)
    for found, expected in zip(leaves(second.state), leaves(whole.state), strict=True):
        torch.testing.assert_close(found, expected)
    for name, expected in whole.actions.items():
        torch.testing.assert_close(torch.cat((first.actions[name], second.actions[name]), dim=1), expected)


@pytest.mark.parametrize("memory", ["superposition", "tape"])
def test_what_is_changed_behind_its_back_is_noticed(memory):
    cell = make_cell(**MEMORIES[memory])
    cell.scan_backend = "numba"
    outputs = cell.scan(torch.randn(2, 6, 5, dtype=torch.float64)).outputs
    with torch.no_grad():
        cell.controls.projection.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@st.composite
def cases(draw, memories=FUZZED, controllers=CONTROLLERS):
    """A cell's fields with any memory of elements or cells, the shape of inputs, flags, a seed and a spread."""
    memory = draw(st.sampled_from(memories))
    controller = draw(st.sampled_from(controllers[memory == "none" and controllers[0] == "direct" :]))
    fields = {
        "memory": memory,
        "controller": controller,
        "embedding_size": draw(st.integers(1, 9)),
        "bias": draw(st.booleans()),
    }
    if controller != "direct":
        fields |= {"hidden_size": draw(st.integers(1, 40)), "num_layers": draw(st.integers(1, 3))}
        fields["input_skip_connections"] = draw(st.booleans())
    if controller not in ("direct", "linear", "sigmoid"):
        fields["learn_initial_state"] = draw(st.booleans())
        if memory != "none":
            fields["reading_entry"] = draw(st.sampled_from(["input", "hidden_state"]))
    if memory != "none":
        fields["memory_size"] = draw(st.integers(1, 9))
        fields["push_value_activation"] = draw(st.sampled_from(["tanh", "sigmoid"]))
    if memory in STRENGTHS:
        control = st.sampled_from(["sigmoid", "expected_value", 0.0, 0.5, 1.0, 2.0])
        fields |= {f"{action}_control": draw(control) for action in ("push", "pop", "read")}
        fields["max_push"] = draw(st.integers(1, 4))
    elif memory != "none":
        fields["operation_control"] = draw(st.sampled_from(["softmax", "softmax_temperature", "gumbel_softmax"]))
        if fields["operation_control"] != "softmax":
            fields["temperature"] = draw(st.floats(0.3, 2.0))
    if memory == "baby_ntm":
        fields["memory_depth"] = draw(st.integers(1, 30))
    elif "superposition" in memory:
        fields |= {"num_stacks": draw(st.integers(1, 3)), "read_depth": draw(st.integers(1, 3))}
        fields["empty_value"] = draw(st.sampled_from([0.0, -1.0, 0.5]))
        depth = draw(st.one_of(st.none(), st.integers(fields["read_depth"], 8)))
        if depth is not None:
            fields |= {"memory_depth": depth, "memory_overflow": "truncate"}
        fields |= {"no_op": draw(st.booleans())} if memory == "superposition" else {"max_pop": draw(st.integers(1, 5))}
    shape = draw(st.integers(1, 11)), draw(st.integers(1, 12))
    flags = {name: draw(st.booleans()) for name in ("masked", "carried", "detached", "one_hot", "training")}
    return fields, shape, flags, draw(st.integers(0, 2**31)), draw(st.floats(0.1, 2.5))


def fuzz(case):
    # Weights are not larger: a chaotic network makes any rounding large, the reference's own too.
    fields, (batch_size, length), flags, seed, spread = case
    cell = make_cell(seed=seed, spread=spread, **fields).train(flags["training"])
    state = random_state(cell, batch_size, torch.float64) if flags["carried"] else None
    if state is not None and flags["detached"]:
        state = map_tensors(torch.Tensor.detach, state)
    mask = some_mask(batch_size, length, seed) if flags["masked"] else None
    check(cell, length, batch_size, state=state, mask=mask, one_hot=flags["one_hot"])


@pytest.mark.parametrize("examples", [120, pytest.param(5500, marks=pytest.mark.slow)])
def test_random_configurations(examples):
    settings(max_examples=examples, deadline=None)(given(case=cases())(fuzz))()
