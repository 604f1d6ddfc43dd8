"""The Triton backend against the reference: on a CPU in Triton's interpreter, and on a GPU where there is one."""

import itertools
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import thinned, tiny_config
from hypothesis import HealthCheck, given, settings
from kernels.comparison import compare, spread_out
from kernels.compiling import run_compiling
from kernels.cpu.test_superposition_scan import cases

from stack_lm import MemoryLayer
from stack_lm.kernels.gpu import backend
from stack_lm.kernels.protocol import Inputs
from stack_lm.memory import StackState, map_tensors
from stack_lm.nn.cell import StackRNNCell

ON_GPU = torch.cuda.is_available()
INTERPRETED = not ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"
pytest.importorskip("triton", reason="triton is not installed")
with pytest.MonkeyPatch.context() as patch:  # of these kernels it looks when they are imported; see also conftest.py
    if INTERPRETED:
        patch.setenv("TRITON_INTERPRET", "1")
    from stack_lm.kernels.gpu import graphs

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
CONTROLLERS = ("linear", "sigmoid", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm")
MEMORIES = ("stack", "queue", "deque", "none")
# Pushes are stronger than pops and readings, so that boundaries fall inside elements.
STRENGTHS = {"push_control": "expected_value", "pop_control": "sigmoid", "read_control": "sigmoid"}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    if request.param == "cuda" and (not ON_GPU or INTERPRETED):
        pytest.skip("needs a CUDA device, and kernels that are compiled")
    if request.param == "cpu":
        if not INTERPRETED:
            pytest.skip("kernels are compiled for the GPU here; TRITON_INTERPRET=1 runs them on the CPU")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return torch.device(request.param)


def make_cell(device, dtype=torch.float64, *, scale=3.0, **fields):
    if fields.get("memory") != "none":
        fields = STRENGTHS | fields
    return spread_out(StackRNNCell(tiny_config(**fields)).to(device, dtype), scale)


def a_state(cell, batch_size, strengths):
    """A state in the middle of a sequence, with these strengths of elements [N] in each sequence's memory."""
    state = cell.initial_state(batch_size)
    some = {"dtype": state.reading.dtype, "device": state.reading.device}
    memory = state.memory
    if isinstance(memory, StackState):
        values = torch.randn(batch_size, len(strengths), cell.memory.size, **some)
        memory = StackState(values, torch.tensor(strengths, **some).repeat(batch_size, 1))
    controller = tuple(torch.randn(part.shape, **some) for part in state.controller)
    state = state._replace(controller=controller, memory=memory, reading=torch.randn(state.reading.shape, **some))
    return map_tensors(torch.Tensor.requires_grad_, state)


def scan(cell, inputs, state, mask=None):
    """The backend's scan: outputs, None and the last state."""
    return backend.scan(cell.system, Inputs(inputs, mask, {}, None, inputs.shape[1]), state)


def reference(cell, inputs):
    """The outputs of the definition, from an empty state."""
    cell.scan_backend = "reference"
    return cell.scan(inputs).outputs


def assert_equal_to_reference(cell, inputs, state, mask=None, tolerance=1e-11):
    assert max(compare(cell, inputs, "triton", state, mask)) < tolerance


def some_inputs(cell, batch_size=2, length=3):
    weight = next(cell.parameters())
    return torch.randn(batch_size, length, 5, dtype=weight.dtype, device=weight.device, requires_grad=True)


@pytest.mark.parametrize(
    ("controller", "memory"),
    thinned(
        [("lstm", "stack"), ("gru", "queue"), ("rnn", "deque"), ("linear", "stack"), ("rnn_sigmoid", "none")], every=2
    ),
)
def test_equals_the_reference(device, controller, memory):
    """With padding, a carried state, and elements of strength zero in it."""
    cell = make_cell(device, controller=controller, memory=memory)
    mask = torch.tensor([[True, False, True], [False, True, True]], device=device)
    assert_equal_to_reference(cell, some_inputs(cell), a_state(cell, 2, [0.7, 0.0, 0.4]), mask)


def test_equals_the_reference_in_float32(device):
    cell = make_cell(device, torch.float32, controller="lstm", memory="stack")
    assert_equal_to_reference(cell, some_inputs(cell), cell.initial_state(2), tolerance=1e-5)


def test_layers_with_skips_and_dropout(device, monkeypatch):
    keep = torch.tensor([0.0, 2, 0, 2, 2, 0, 2], dtype=torch.float64, device=device)
    monkeypatch.setattr(F, "dropout", lambda given, *_: given * keep)
    layers = {"num_layers": 3, "hidden_dropout": 0.5, "input_skip_connections": True, "bias": False}
    cell = make_cell(device, controller="gru", memory="stack", **layers)
    mask = torch.tensor([[True, True], [True, False]], device=device)
    assert_equal_to_reference(cell, some_inputs(cell, length=2), a_state(cell, 2, [0.5]), mask)


@pytest.mark.parametrize(
    ("memory", "strengths"),
    thinned(["stack", "queue", "deque"], [[1.0, 0.5, 0.5], [0.0, 1.0, 0.0]], every=2),
    ids=str,
)
def test_exact_ties(device, memory, strengths):
    """What is exactly as strong as what is left of a pop or a read is taken whole."""
    ones = {"push_control": 1.0, "pop_control": 1.0, "read_control": 1.0}
    order = "before_push" if strengths[0] else "after_push"
    cell = make_cell(device, controller="rnn", memory=memory, read_order=order, **ones)
    assert_equal_to_reference(cell, some_inputs(cell, 1), a_state(cell, 1, strengths))


@pytest.mark.parametrize(
    ("memory", "push", "pop", "read"),
    thinned(
        [
            ("stack", "saturated", "saturated", "saturated"),
            ("stack", 1.0, 0.0, 0.0),
            ("queue", 0.0, "sigmoid", "sigmoid"),
            ("deque", 0.0, "sigmoid", "sigmoid"),
            ("deque", "sigmoid", 3.0, "expected_value"),
            ("queue", "sigmoid", 0.0, 2.0),
        ],
        every=2,
    ),
)
def test_strengths_at_their_ends(device, memory, push, pop, read):
    """Nothing pushed, popped or read; more popped than there is; controls that are exact numbers with no gradient."""
    names = {"push_control": push, "pop_control": pop, "read_control": read}
    saturated = "saturated" in names.values()
    fields = {name: "expected_value" if value == "saturated" else value for name, value in names.items()}
    cell = make_cell(device, controller="rnn", memory=memory, scale=300.0 if saturated else 3.0, **fields)
    assert_equal_to_reference(cell, some_inputs(cell, 1), a_state(cell, 1, [0.25, 0.5]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_ends(device, bad):
    cell = make_cell(device, controller="rnn", memory="deque")
    inputs = some_inputs(cell, 2, 2).detach()
    inputs[0, 0, 0] = bad
    inputs.requires_grad_()
    with np.errstate(all="ignore"):  # the interpreter computes in numpy, which warns
        outputs, _, state = scan(cell, inputs, cell.initial_state(2))
        (outputs.sum() + state.reading.sum()).backward()
    assert bool(outputs[0].isnan().any()) == (bad != bad)
    assert outputs[1].isfinite().all()
    assert inputs.grad[1].isfinite().all()


def test_a_second_backward_and_no_second_derivatives(device):
    """Also where the scan is the end of the graph, and nothing that its gradient is given needs one."""
    cell = make_cell(device, controller="lstm", memory="stack")
    inputs = some_inputs(cell, 1, 2)
    for loss in (lambda outputs: outputs.sum(), lambda outputs: outputs.square().sum()):
        outputs, _, _ = scan(cell, inputs, a_state(cell, 1, [0.5]))
        first = torch.autograd.grad(loss(outputs), inputs, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(loss(outputs), inputs, retain_graph=True)[0], first)
        with pytest.raises(RuntimeError, match="the compiled scan cannot be differentiated twice .create_graph=True."):
            torch.autograd.grad(loss(outputs), inputs, create_graph=True)


def test_strengths_stay_exact_under_autocast(device):
    cell = make_cell(device, torch.float32, scale=1.0, controller="lstm", memory="stack")
    inputs = some_inputs(cell, 1, 2)
    exact, _, _ = scan(cell, inputs, cell.initial_state(1))
    with torch.autocast(device.type, torch.bfloat16):
        outputs, _, state = scan(cell, inputs, cell.initial_state(1))
    assert outputs.dtype == state.memory.strengths.dtype == torch.float32
    torch.testing.assert_close(outputs, exact, rtol=0, atol=0.02)
    assert not torch.equal(outputs, exact)
    outputs.sum().backward()
    assert cell.controller.weight_hh_l0.grad.dtype == torch.float32


@pytest.fixture
def captured(device, monkeypatch):
    """Scans are captured, two at most: on a CPU by graphs that only do again what they did."""

    def record(function):
        result = function()
        flat = [t for part in (result[0], *result[1:]) for t in (part if isinstance(part, tuple) else [part])]

        def again():
            new = function()
            for old, t in zip(flat, [t for p in new for t in (p if isinstance(p, tuple) else [p])], strict=True):
                if old is not None:
                    old.copy_(t)

        return again, result

    if device.type == "cpu":
        monkeypatch.setattr(graphs, "wanted", lambda device: True)
        monkeypatch.setattr(graphs, "record", record)
    else:
        monkeypatch.setenv("STACK_LM_CUDA_GRAPHS", "1")
    for name, value in {"_seen": set(), "_held": [], "_cramped": False}.items():
        monkeypatch.setattr(graphs, name, value)
    for name, value in {"CAPACITY": 2, "IDLE": 1, "STEPS": 2}.items():
        monkeypatch.setattr(graphs, name, value)


@pytest.mark.usefixtures("captured")
def test_captured_scans_are_shared_one_at_a_time(device):
    cell = make_cell(device, controller="rnn", memory="stack")

    def grad_of(inputs):
        outputs, _, _ = scan(cell, inputs, cell.initial_state(1))
        return outputs

    batches = [some_inputs(cell, 1, 2) for _ in range(3)]
    expected = [torch.autograd.grad(grad_of(inputs).sum(), inputs)[0] for inputs in batches[:1]]
    assert not graphs._held  # the first of a shape
    for inputs in batches[1:]:
        expected += torch.autograd.grad(reference(cell, inputs).sum(), inputs)
    in_flight = [grad_of(inputs) for inputs in batches]  # the third finds no place
    assert len(graphs._held) == 2
    for outputs, inputs, grad in zip(in_flight, batches, expected, strict=True):
        torch.testing.assert_close(torch.autograd.grad(outputs.sum(), inputs)[0], grad)
    del in_flight, outputs
    torch.testing.assert_close(torch.autograd.grad(grad_of(batches[1]).sum(), batches[1])[0], expected[1])
    assert len(graphs._held) == 2
    with torch.no_grad():  # another key: an old one makes room
        grad_of(batches[0])
        torch.testing.assert_close(grad_of(batches[0]), reference(cell, batches[0]))
    assert len(graphs._held) == 2


@pytest.mark.usefixtures("captured")
def test_without_memory_for_a_capture_scans_go_on(device, monkeypatch):
    def fail(function):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(graphs, "record", fail)
    cell = make_cell(device, controller="rnn", memory="stack")
    for _ in range(3):
        assert_equal_to_reference(cell, some_inputs(cell, 1, 2), cell.initial_state(1))
    assert not graphs._held


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("memory", ["stack", "deque"])
@pytest.mark.parametrize("masked", [False, True])
def test_captured_scans_of_several_lengths_share_a_graph(device, memory, masked):
    """The steps that are added have no effect."""
    cell = make_cell(device, controller="lstm", memory=memory)
    for length in (2, 1, 2):
        mask = torch.tensor([[True, False], [False, True]], device=device)[:, :length] if masked else None
        assert_equal_to_reference(cell, some_inputs(cell, length=length), a_state(cell, 2, [0.7, 0.4]), mask)
    assert len(graphs._held) == 1


@pytest.mark.gpu
def test_nothing_waits_for_the_device():
    cell = make_cell(torch.device("cuda"), torch.float32, controller="lstm", memory="deque")
    inputs, mask = some_inputs(cell), torch.ones(2, 3, dtype=torch.bool, device="cuda")
    for mode in ("default", "error"):  # compiled first
        torch.cuda.set_sync_debug_mode(mode)
        try:
            outputs, _, _ = scan(cell, inputs, cell.initial_state(2), mask)
            outputs.sum().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


COMPILES = """
import torch, triton  # before conftest, which imports it to interpret kernels
from torch._subclasses.fake_tensor import FakeTensorMode
from conftest import tiny_config
from kernels.compiling import Compiled, compiled, pretend_gpu
from stack_lm.nn.cell import StackRNNCell
from stack_lm.kernels.gpu import backend, pointwise, strength
from stack_lm.kernels.protocol import Inputs

pretend_gpu(ARCHITECTURE)
for module in (pointwise, strength):
    for name in ("forward", "backward"):
        setattr(module, name, Compiled(getattr(module, name)))
STRENGTHS = {"pop_control": POP, "read_control": POP}
with FakeTensorMode():  # which fails where a program looks at a number
    inputs, mask = torch.randn(2, 3, 5, requires_grad=True), torch.ones(2, 3, dtype=torch.bool)
    cell = StackRNNCell(tiny_config(controller=CONTROLLER, memory=MEMORY, num_layers=LAYERS, **STRENGTHS))
    with torch.autocast("cpu", torch.bfloat16, enabled=AUTOCAST):
        results = backend.scan(cell.system, Inputs(inputs, mask, {}, None, 3), cell.initial_state(2))
    (results[0].sum() + results[-1].reading.sum()).backward()
# Strengths decide how far loops go: threads must not sum them up together, as each would round in its own way.
assert not any("shfl" in each.asm["ptx"] for each in compiled if each.kernel is strength.forward.kernel)
print(len(compiled), min(len(each.asm["cubin"]) for each in compiled) > 0)
"""


@pytest.mark.parametrize(
    ("controller", "memory", "pop", "layers", "autocast", "architecture"),
    [
        pytest.param("lstm", "stack", "sigmoid", 1, False, 90, marks=pytest.mark.slow),
        pytest.param("lstm", "deque", 0.0, 1, False, 90, marks=pytest.mark.slow),  # nor does it read
        pytest.param("gru", "deque", "sigmoid", 2, True, 80, marks=pytest.mark.slow),
        pytest.param("rnn", "queue", "sigmoid", 2, True, 90, marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_for_gpus(tmp_path, controller, memory, pop, layers, autocast, architecture):
    """To machine code, which needs no GPU, and once for all steps; the program around them never looks at a number that
    is on one."""
    values = {"CONTROLLER": controller, "MEMORY": memory, "POP": pop, "LAYERS": layers, "AUTOCAST": autocast}
    code = COMPILES
    for name, value in (values | {"ARCHITECTURE": architecture}).items():
        code = code.replace(name, repr(value))
    output = run_compiling(code, tmp_path)
    assert output.split() == [str(2 + 2 * layers), "True"]


def test_obstacles(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    cell = StackRNNCell(tiny_config(memory="stack"))
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert backend.obstacle(cell.system, gpu, torch.float32) is None
    assert "CUDA" in backend.obstacle(cell.system, cpu, torch.float32)
    assert "int64" in backend.obstacle(cell.system, gpu, torch.int64)
    for fields, name in (
        ({"controller": "direct"}, "DirectController"),
        ({"reading_entry": "hidden_state", "controller": "rnn"}, "hidden_state"),
    ):
        other = StackRNNCell(tiny_config(**fields))
        assert name in backend.obstacle(other.system, gpu, torch.float32)
    memories = {
        "superposition": "SuperpositionStack",
        "baby_ntm": "BabyNTM",
        "nondeterministic": "NondeterministicStack",
    }
    for memory, name in memories.items():
        other = StackRNNCell(tiny_config(memory=memory))
        assert name in backend.obstacle(other.system, gpu, torch.float32)
    assert "parallel" in backend.obstacle(MemoryLayer(5).system, gpu, torch.float32)
    monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: None)
    assert backend.obstacle(cell.system, gpu, torch.float32) == "triton is not installed"


@pytest.mark.slow
@pytest.mark.parametrize(("controller", "memory"), list(itertools.product(CONTROLLERS, MEMORIES)))
def test_random_configurations(device, controller, memory):
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases((memory,), (controller,)))
    def run(case):
        fields, (batch_size, length), flags, _, spread = case
        fields |= {"reading_entry": "input", "embedding_size": 5}
        # Elman networks with larger weights are chaotic: rounding grows past any tolerance.
        cell = make_cell(device, scale=spread * (3 if controller == "rnn" else 10), **fields)
        mask = torch.rand(batch_size, length, device=device) < 0.7 if flags["masked"] else None
        state = a_state(cell, batch_size, [0.5, 0.0, 1.0, 2.0][: batch_size % 5] if flags["carried"] else [])
        assert_equal_to_reference(cell, some_inputs(cell, batch_size, length), state, mask, tolerance=1e-10)

    run()
