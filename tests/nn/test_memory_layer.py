"""A memory in somebody else's network: the same steps as in ours, compiled or not; padding, pieces, clear errors."""

import gc

import pytest
import torch
from conftest import MEMORIES, tiny_config
from kernels.comparison import check_layer, some_mask

from stack_lm import MemoryLayer, StackRNNCell, explain_backend
from stack_lm.memory import map_tensors

WITH_MEMORY = [fields for fields in MEMORIES if fields["memory"] != "none"]
COMPILED = [fields for fields in WITH_MEMORY if fields["memory"] not in ("deltanet", "deltastack")]


def make(fields, input_size=7):
    memory, settings = fields["memory"], {name: value for name, value in fields.items() if name != "memory"}
    papers = {"read_order": "after_push"} if memory in ("stack", "queue", "deque") else {}
    return MemoryLayer(input_size, memory, **{"memory_size": 3} | papers | settings)


@pytest.mark.parametrize("fields", WITH_MEMORY, ids=str)
def test_it_does_what_the_cell_does(fields):
    """Driven by the outputs of our own controller it takes the cell's actions and reads what the cell reads."""
    cell, layer = StackRNNCell(tiny_config(**fields)).eval(), make(fields).eval()
    layer.controls.load_state_dict(cell.controls.state_dict())
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 0, 0]]).bool()
    scan = cell.scan(torch.randn(2, 5, 5), mask=mask, output_actions=True, output_readings=True)
    readings, state, actions = layer(scan.outputs, mask=mask, output_actions=True)
    assert readings.shape == (2, 5, layer.reading_size)
    torch.testing.assert_close(readings, scan.readings)
    torch.testing.assert_close(state.reading, scan.state.reading)
    assert actions.keys() == scan.actions.keys()
    for name, values in actions.items():
        torch.testing.assert_close(values, scan.actions[name])


@pytest.mark.parametrize("fields", COMPILED, ids=str)
def test_compiled_it_equals_the_loop(fields):
    """In readings, actions, states and all gradients, from a state that some steps have led to."""
    layer = make(fields).double()
    assert explain_backend(layer).startswith("numba: ")
    check_layer(layer, length=6)
    check_layer(layer, length=5, mask=some_mask(3, 5))
    check_layer(layer, length=7, batch_size=1, first_steps=4)


@pytest.mark.parametrize("fields", WITH_MEMORY, ids=str)
def test_a_sequence_may_come_in_pieces_and_in_steps(fields):
    layer, hidden = make(fields).eval(), torch.randn(2, 6, 7)
    whole, last, _ = layer(hidden)
    first, state, _ = layer(hidden[:, :2])
    rest, state, _ = layer(hidden[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, rest), dim=1), whole)
    torch.testing.assert_close(state.reading, last.reading)
    state = None
    for t in range(6):
        reading, state, _ = layer.step(hidden[:, t], state)
        torch.testing.assert_close(reading, whole[:, t])


def test_its_parameters_are_one_linear_layer():
    layer = MemoryLayer(10, memory_size=4, push_control="sigmoid", pop_control="sigmoid", read_control=1.0)
    assert [tuple(p.shape) for p in layer.parameters()] == [(6, 10), (6,)]
    layer(torch.randn(2, 5, 10))[0].square().sum().backward()
    assert all(parameter.grad.any() for parameter in layer.parameters())
    assert len(list(MemoryLayer(10, bias=False).parameters())) == 1


@pytest.mark.parametrize("fields", COMPILED, ids=str)
def test_under_autocast_it_equals_the_loop(fields):
    """Only the product is in half precision; the memory is as precise as the vectors that it is given."""
    layer, hidden = make(fields).eval(), torch.randn(2, 5, 7)
    found = []
    for backend in ("reference", "numba"):
        layer.scan_backend = backend
        with torch.autocast("cpu", dtype=torch.bfloat16):
            readings, _, actions = layer(hidden, output_actions=True)
        assert readings.dtype == torch.float32  # the type of the weights
        found.append([readings.float(), *(part.float() for _, part in sorted(actions.items()))])
    for expected, actual in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, atol=0.03, rtol=0.03)


def test_bad_arguments_are_refused():
    for arguments, message in (
        ({"memory": "none"}, "memory='none' reads nothing; a MemoryLayer needs a memory"),
        ({"hidden_size": 2}, "memory='stack' has no setting 'hidden_size'; it has memory_size"),
        ({"pop_control": "hard"}, "pop_control must be one of 'sigmoid', 'expected_value' or .*; got 'hard'"),
    ):
        with pytest.raises(ValueError, match=message):
            MemoryLayer(7, **arguments)
    layer, zeros, additive = MemoryLayer(7), torch.zeros(2, 4, 7), torch.tensor([[0.0, 0, 0, -torch.inf]] * 2)
    for call, message in (
        (lambda: layer(zeros, layer.initial_state(3)), "the same number of sequences; got 3 and 2"),
        (lambda: layer(zeros[:, :0]), r"hidden must be \[B, T, 7\] with T of at least 1; got \[2, 0, 7\]"),
        (lambda: layer(zeros[:, 0]), r"hidden must be \[B, T, 7\] .*; got \[2, 7\]"),
        (lambda: layer(zeros.double()), "hidden must be of the weights' type, torch.float32; got torch.float64"),
        (lambda: layer(zeros, mask=torch.ones(2, 3).bool()), r"mask must be .* \[2, 4\], .*; got torch.bool \[2, 3\]"),
        (lambda: layer(zeros, mask=additive), "mask must be a tensor torch.bool .*; got torch.float32"),
        (lambda: layer(zeros, mask=[[True] * 4] * 2), "mask must be a tensor torch.bool .*; got a list"),
        (lambda: layer.step(zeros[:, 0], None, torch.ones(2)), "active must be a tensor torch.bool"),
        (lambda: layer.step(zeros), r"hidden must be \[B, 7\], of one step; got \[2, 4, 7\]"),
        (lambda: layer.step(zeros[:, 0].long()), "hidden must be of a floating-point type; got torch.int64"),
    ):
        for backend in ("auto", "reference"):
            layer.scan_backend = backend
            with pytest.raises(ValueError, match=message):
                call()
    full = MemoryLayer(7, "superposition", memory_depth=1, memory_overflow="raise")
    with pytest.raises(ValueError, match="memory_depth"):
        full(torch.randn(1, 9, 7))


@pytest.mark.parametrize("memory", ["stack", "superposition"])
@pytest.mark.parametrize("driver", ["given", "controller"])
def test_a_scan_leaves_nothing_for_the_garbage_collector(memory, driver):
    """A circle of references would keep its arrays long after it."""
    layer, cell = MemoryLayer(5, memory), StackRNNCell(tiny_config(memory=memory))
    inputs = torch.randn(3, 6, 5, requires_grad=True)
    gc.disable()
    gc.collect()
    gc.freeze()  # all that is there already, which would take seconds to go through
    try:
        for _ in range(3):
            gc.collect()
            (layer(inputs)[0] if driver == "given" else cell.scan(inputs).outputs).sum().backward()
        assert gc.collect() == 0
    finally:
        gc.unfreeze()
        gc.enable()


@pytest.mark.parametrize("grad", [False, True])
def test_the_state_of_a_loop_of_steps_does_not_grow(grad):
    """Its dead elements are dropped, in training where the state is detached."""
    layer = MemoryLayer(4, memory_size=3, push_control=0.5, pop_control=3.0)
    state = None
    with torch.set_grad_enabled(grad):
        for t in range(200):
            _, state, _ = layer.step(torch.randn(2, 4), state)
            if t % 10 == 9:
                state = map_tensors(torch.Tensor.detach, state)
    assert state.memory.strengths.shape[1] < 50


# --- a state of another layer, which compiled code would read beyond its end


ANOTHER = "the state belongs to another layer: without the batch, its tensors are .*; here "


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        *(
            ({"memory": memory, "memory_size": 5}, {"memory": memory, "memory_size": 4}, ANOTHER)
            for memory in ("stack", "queue", "deque", "superposition", "baby_ntm", "nondeterministic")
        ),
        ({"memory": "nondeterministic", "memory_symbols": 4}, {"memory": "nondeterministic"}, ANOTHER),
        ({"memory": "baby_ntm", "memory_depth": 4}, {"memory": "baby_ntm", "memory_depth": 5}, ANOTHER),
        ({"memory": "stack"}, {"memory": "superposition"}, "state of this layer has a StackState; got a Superposition"),
    ],
    ids=str,
)
def test_the_state_of_another_layer_is_refused(one, other, message):
    layer, another = (MemoryLayer(6, **fields) for fields in (one, other))
    hidden = torch.randn(2, 7, 6)
    state = another(hidden)[1]
    for length in (1, 7):
        another(hidden[:, :length], state)  # its own, of any number of elements
        with pytest.raises(ValueError, match=message):
            layer(hidden[:, :length], state)
    with pytest.raises(ValueError, match=message):
        layer.step(hidden[:, 0], state)
    with pytest.raises(ValueError, match="the state of this layer has a MemoryState; got a Tensor"):
        layer(hidden, torch.zeros(2))


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    ("memory", "change", "message"),
    [
        ("stack", lambda part: part.long(), "must be of floating-point type or not: .*; got .torch.int64"),
        ("stack", lambda part: part[:1], r"the same number of sequences; got \[1, 1, 2\]"),
        ("superposition", lambda part: part[:1], r"the same number of sequences; got \["),
    ],
)
def test_a_changed_state_is_refused(memory, change, message, backend):
    layer, hidden = MemoryLayer(6, memory), torch.randn(2, 3, 6)
    layer.scan_backend = backend
    _, state, _ = layer(hidden)
    changed = state._replace(memory=map_tensors(change, state.memory))
    with pytest.raises(ValueError, match=message):
        layer(hidden, changed)
    with pytest.raises(ValueError, match=message):
        layer.step(hidden[:, 0], changed)


@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
@pytest.mark.parametrize("backend", ["numba", "parallel"])
def test_heads_are_memories_side_by_side(memory, backend):
    """On every backend, and step by step; one head does what a layer of its own does with its part of the vectors."""
    layer = MemoryLayer(5, memory, memory_size=6, num_heads=3, pop_control="sigmoid", read_control=1.0).double()
    check_layer(layer, 7, mask=some_mask(3, 7), first_steps=3, backend=backend)
    layer.scan_backend = backend
    hidden = torch.randn(2, 5, 5, dtype=torch.float64)
    readings, state, actions = layer(hidden, output_actions=True)
    assert actions.total_strength.shape == (2, 5)
    assert tuple(actions.get("push_strength", actions.get("push_strength_top")).shape) == (2, 5, 3)
    stepped = None
    for t in range(5):
        reading, stepped, _ = layer.step(hidden[:, t], stepped)
        torch.testing.assert_close(reading, readings[:, t])
    one = MemoryLayer(5, memory, memory_size=2, pop_control="sigmoid", read_control=1.0).double()
    projection, rows = layer.controls.projection, []
    parts = zip(projection.weight.split(layer.controls.widths), one.controls.widths, strict=True)
    with torch.no_grad():
        for weight, width in parts:
            rows += [weight[width : 2 * width]]  # the second head's
        one.controls.projection.weight.copy_(torch.cat(rows))
        biases = projection.bias.split(layer.controls.widths)
        of_one = [bias[w : 2 * w] for bias, w in zip(biases, one.controls.widths, strict=True)]
        one.controls.projection.bias.copy_(torch.cat(of_one))
    ends = len(layer.memory.ends)
    of_head = readings.unflatten(2, (ends, 3, 2))[:, :, :, 1].flatten(2)
    torch.testing.assert_close(one(hidden)[0], of_head)
    torch.testing.assert_close(one(hidden)[1].memory.strengths, state.memory.strengths[:, 1])


@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
@pytest.mark.parametrize("backend", ["reference", "numba", "parallel"])
def test_by_default_it_reads_before_it_pushes(memory, backend):
    """So the first reading is that of an empty memory; the papers' order is a setting."""
    for settings, empty in (({}, True), ({"read_order": "after_push"}, False)):
        layer = MemoryLayer(6, memory, **settings)
        layer.scan_backend = backend
        readings = layer(torch.randn(2, 3, 6))[0]
        assert readings[:, 0].any() != empty
        assert readings[:, 1:].any(2).all()
    with pytest.raises(ValueError, match="read_order must be one of 'after_push', 'before_push'; got 'first'"):
        MemoryLayer(6, memory, read_order="first")


def test_heads_must_divide_the_element():
    with pytest.raises(ValueError, match="memory_size=16 must be a multiple of num_heads=3"):
        MemoryLayer(5, num_heads=3)
    with pytest.raises(ValueError, match="memory='superposition' has no setting 'num_heads'"):
        MemoryLayer(5, "superposition", num_heads=2)
