"""Which backend runs, who says so, and that nothing of it stays in a model."""

import json

import pytest
import torch
from conftest import CONTROLLERS, MEMORIES, tiny_config
from kernels.comparison import compare, make_cell, threads

import stack_lm
from stack_lm import MemoryLayer, StackRNN, StackRNNForCausalLM
from stack_lm.cli.main import main
from stack_lm.core.errors import InputError
from stack_lm.kernels import dispatch as kernels
from stack_lm.memory import NeuralStack, StackState
from stack_lm.memory.emission import Fixed
from stack_lm.nn.controlled import explain_backend, set_scan_backend
from stack_lm.nn.controllers import LSTMController


def make_model(**fields):
    return StackRNNForCausalLM(tiny_config(**fields)).eval()


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
    monkeypatch.delenv(kernels.VARIABLE, raising=False)


@pytest.mark.parametrize(
    "fields", [each for each in MEMORIES if not {"num_heads", "none", "deltastack"} & {*each, each["memory"]}], ids=str
)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_numba_is_the_default_on_a_cpu(fields, controller):
    assert stack_lm.explain_backend(make_model(controller=controller, **fields)) == "numba: the fastest on cpu"


def chosen(cell, device, dtype, **request):
    return cell.choose_backend(cell.reference_tensor, device=device, dtype=dtype, **request)


class OwnStack(NeuralStack):
    """A memory of a user's own."""


class OwnController(LSTMController):
    """A controller of a user's own."""


class OwnControl(Fixed):
    """A control of a user's own."""


def own_control(cell):
    cell.controls.stateless["pop_strength"] = OwnControl(1.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda cell: setattr(cell.memory, "__class__", OwnStack), "the memory is a OwnStack"),
        (lambda cell: setattr(cell.controller, "__class__", OwnController), "the controller is a OwnController"),
        (own_control, "the control of pop_strength is a OwnControl"),
    ],
)
def test_what_it_cannot_run_the_reference_runs_and_a_named_backend_refuses(change, reason):
    model = make_model()
    change(model.model.cell)
    explained = explain_backend(model)
    assert explained.startswith("reference: numba cannot run this: ")
    assert reason in explained
    model.set_scan_backend("numba")
    with pytest.raises(ValueError, match="scan_backend='numba', as set, cannot run this: .*" + reason):
        model(torch.ones(1, 2, dtype=torch.long))
    model.set_scan_backend("auto")
    model(torch.ones(1, 2, dtype=torch.long))


def test_single_steps_of_generation_are_the_references():
    cell = make_model().model.cell
    where = torch.device("cpu"), torch.float32
    assert chosen(cell, *where).name == "numba"
    assert chosen(cell, *where, single_step=True).name == "reference"
    cell.scan_backend = "numba"
    assert chosen(cell, *where, single_step=True) == ("numba", "as set")


def test_a_plain_lstm_is_torchs_own_on_one_thread_and_trained_without_threads_that_wait_for_each_other():
    cell = make_model(memory="none").model.cell
    with threads(1):
        assert explain_backend(cell) == "reference: without a memory it is torch's own lstm"
        assert chosen(cell, torch.device("cpu"), torch.float32, n_steps=10**9).name == "reference"
    least = -(-100_000_000 // sum(parameter.numel() for parameter in cell.controller.parameters()))
    own = "without a memory it is torch's own lstm"
    told = f"{own}; with 2 threads, training on {least:,} or more steps of a batch is numba's"
    where = torch.device("cpu"), torch.float32
    with threads(2):
        assert explain_backend(cell) == f"reference: {told}"
        assert chosen(cell, *where, n_steps=least - 1) == ("reference", told)
        name, reason = chosen(cell, *where, n_steps=least)
        assert (name, reason[:33]) == ("numba", "as fast as torch's own lstm, whos")
        with torch.no_grad():
            assert chosen(cell, *where, n_steps=least) == ("reference", own)
        assert chosen(cell, torch.device("meta"), torch.float32, n_steps=least) == ("reference", own)


@pytest.mark.parametrize(("controller", "fused"), [("rnn", "rnn_tanh"), ("gru", "gru")])
def test_other_networks_without_a_memory_are_faster_compiled(controller, fused):
    model = make_model(memory="none", controller=controller)
    assert explain_backend(model) == f"numba: faster than torch's own {fused}"
    assert explain_backend(model.to(torch.bfloat16)) == f"reference: without a memory it is torch's own {fused}"


@pytest.mark.parametrize("controller", ["rnn", "gru", "lstm"])
def test_without_a_memory_all_backends_agree(controller, monkeypatch):
    monkeypatch.setattr(kernels, "_WORK_OF_THREADS", 1)
    cell = make_cell(controller=controller, memory="none", num_layers=2)
    with threads(2):
        assert chosen(cell, torch.device("cpu"), torch.float64, n_steps=1).name == "numba"
        assert max(compare(cell, torch.randn(3, 7, 5, dtype=torch.float64), None)) < 1e-10


def test_bfloat16_and_another_device_go_to_the_reference():
    model = make_model().to(torch.bfloat16)
    assert "all float32 or all float64; the inputs are bfloat16" in explain_backend(model)
    model(torch.ones(1, 2, dtype=torch.long))
    layer = MemoryLayer(8, memory="superposition", memory_size=4, dtype=torch.bfloat16)
    assert "numba cannot run this: numbers must be all float32" in explain_backend(layer)
    assert explain_backend(make_model().to("meta")) == "reference: no compiled scan runs on meta"


def test_a_backend_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(kernels, "_installed", lambda name: False)
    model = make_model()
    assert "numba is not installed (pip install numba)" in explain_backend(model)
    model.set_scan_backend("triton")
    with pytest.raises(ValueError, match="triton is not installed"):
        explain_backend(model)


def test_the_environment_names_one(monkeypatch):
    model = make_model()
    monkeypatch.setenv(kernels.VARIABLE, "reference")
    assert explain_backend(model) == f"reference: as set by {kernels.VARIABLE}"
    model.set_scan_backend("numba")
    assert explain_backend(model) == "numba: as set"
    monkeypatch.setenv(kernels.VARIABLE, "fast")
    with pytest.raises(InputError, match="STACK_LM_SCAN_BACKEND must be one of auto, reference, .*; got 'fast'"):
        explain_backend(make_model())


def test_a_model_without_a_cell_has_no_backend():
    with pytest.raises(ValueError, match="a Linear has no memory layer or StackRNNCell"):
        explain_backend(torch.nn.Linear(2, 2))


def test_outputs_of_all_layers_come_from_the_reference():
    model = make_model(num_layers=2)
    ids = torch.ones(1, 4, dtype=torch.long)
    assert len(model(ids, output_hidden_states=True).hidden_states) == 3
    model.set_scan_backend("numba")
    with pytest.raises(ValueError, match="those of all layers were requested"):
        model(ids, output_hidden_states=True)


def test_from_pretrained_takes_it_and_nothing_keeps_it(tmp_path):
    make_model().save_pretrained(tmp_path)
    saved = (tmp_path / "config.json").read_text()
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tmp_path, scan_backend="reference")
    assert explain_backend(model) == "reference: as set"
    model.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_text() == saved
    assert explain_backend(AutoModelForCausalLM.from_pretrained(tmp_path / "again")) == "numba: the fastest on cpu"
    with pytest.raises(ValueError, match="must be one of auto, reference, numba, triton, parallel; got 'fast'"):
        StackRNNForCausalLM.from_pretrained(tmp_path, scan_backend="fast")
    _, info = StackRNNForCausalLM.from_pretrained(tmp_path, scan_backend="reference", output_loading_info=True)
    assert not info["missing_keys"]


@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
@pytest.mark.parametrize("backend", ["reference", "numba"])
def test_single_steps_keep_living_elements_only(memory, backend):
    cell = make_cell(memory=memory, push_control=1.0, pop_control=1.25, spread=1.0)
    cell.scan_backend = backend
    inputs = torch.randn(3, 150, 5, dtype=torch.float64)
    with torch.no_grad():
        whole = cell.scan(inputs)
        state, outputs = None, []
        for step in inputs.split(1, dim=1):
            scan = cell.scan(step, state)
            state = scan.state
            outputs.append(scan.outputs)
    assert torch.allclose(torch.cat(outputs, dim=1), whole.outputs, atol=1e-10)
    assert state.memory.strengths.shape[1] < 40 < whole.state.memory.strengths.shape[1]


def test_compacting_keeps_the_order_and_leaves_gradients_alone():
    memory = make_cell(torch.float32).memory
    strengths = torch.zeros(2, 40)
    strengths[0, [3, 20, 39]] = torch.tensor([1.0, 2.0, 3.0])
    strengths[1, 7] = 4.0
    values = torch.arange(40.0).view(1, 40, 1).expand(2, 40, 3)
    state = memory.compact(StackState(values, strengths), 5)
    assert state.strengths.tolist() == [[1, 2, 3], [0, 0, 4]]
    assert state.values[0, :, 0].tolist() == [3, 20, 39]
    assert state.values[1, -1, 0] == 7
    held = StackState(values, strengths.requires_grad_())
    assert memory.compact(held, 5) is held


@pytest.mark.parametrize("arguments", [[], ["--backend", "reference"]])
def test_warmup(arguments, capsys, monkeypatch):
    choose, chosen = kernels.choose, []
    monkeypatch.setattr(kernels, "choose", lambda *given: chosen.append(choose(*given)) or chosen[-1])
    assert main(["warmup", "--json", *arguments]) == 0
    assert {choice.name for choice in chosen} == {"reference" if arguments else "numba"}  # for all memories
    result = json.loads(capsys.readouterr().out)
    assert result["backend"] == ("reference" if arguments else "numba")
    assert set(result["seconds"]) == {"float32", "float64"}


def test_a_module_that_must_run_on_the_reference_says_so_once(caplog):
    """In half precision, with hooks or after quantisation; not where it is set, nor for single steps."""
    kernels._warn.cache_clear()
    network, inputs = StackRNN(4, 8), torch.randn(5, 2, 4)
    network(inputs)
    with torch.no_grad():
        network.bfloat16()(inputs[:1].bfloat16())
    assert not caplog.messages
    for _ in range(2):
        network(inputs.bfloat16())
    (message,) = caplog.messages
    about = "numbers must be all float32 or all float64; the inputs are bfloat16"
    assert (
        message == f"a NeuralStack runs step by step on the reference, which is slower: numba cannot run this: {about}"
    )
    network.float().layers[0].controls.register_forward_hook(lambda *_: None)
    network(inputs)
    assert "controls has hooks" in caplog.messages[1]
    set_scan_backend(network, "reference")
    network(inputs)
    assert len(caplog.messages) == 2


@pytest.mark.filterwarnings("ignore:`torch.jit", "ignore::torch.jit.TracerWarning")
def test_torch_jit_is_refused_in_one_line():
    with pytest.raises(InputError, match="cannot be traced by torch.jit.trace, .* use torch.export$"):
        torch.jit.trace(StackRNN(4, 8), (torch.randn(5, 2, 4),))
