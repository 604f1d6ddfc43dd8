"""Steps of language models in onnxruntime: the same logits, actions and states as in torch."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import MEMORIES, byte_level_tokenizer, run, run_json, tiny_config

from stack_lm import (
    BufferedStackRNNConfig,
    BufferedStackRNNForTransduction,
    DeepStackRNNConfig,
    DeepStackRNNForCausalLM,
    StackRNNForCausalLM,
)
from stack_lm.cache import MemoryCache
from stack_lm.errors import InputError
from stack_lm.hub import onnx_export

STEPS = 50


def write_model(directory, **fields):
    torch.manual_seed(0)
    tokenizer = byte_level_tokenizer()
    model = StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **fields)).eval()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return model


def first_state(description, batch_size):
    state = {}
    for entry in description["inputs"][1:]:
        shape = [batch_size, *entry["initial_shape"][1:]]
        state[entry["name"]] = np.broadcast_to(np.asarray(entry["initial"], entry["dtype"]), shape)
    return state


def steps(directory, ids):
    """The outputs of each step, by name."""
    onnxruntime = pytest.importorskip("onnxruntime")
    description = json.loads((directory / "onnx.json").read_text())
    session = onnxruntime.InferenceSession(directory / description["graph"])
    names = [entry["name"] for entry in description["outputs"]]
    state = first_state(description, len(ids))
    for column in ids.T:
        outputs = dict(zip(names, session.run(names, {"input_ids": column, **state}), strict=True))
        state = {name: outputs[f"next_{name}"] for name in state}
        yield outputs


def check_steps(model, directory, batch_size, with_actions=True):
    ids = torch.randint(0, model.config.vocab_size, (batch_size, STEPS))
    cache = MemoryCache()
    for t, outputs in enumerate(steps(directory, ids.numpy())):
        with torch.no_grad():
            expected = model(ids[:, t : t + 1], past_key_values=cache, output_actions=True)
        found = {"logits": expected.logits} | (expected.actions if with_actions else {})
        for name, tensor in found.items():
            np.testing.assert_allclose(outputs[name], tensor[:, 0].numpy(), atol=1e-5, rtol=1e-5)


def test_actions_and_states_have_the_same_number_of_a_layer():
    """A layer without a memory has a state and no actions."""
    layers = [{"memory": "none", "hidden_size": 5}, {"memory": "stack", "memory_size": 3, "hidden_size": 5}]
    config = DeepStackRNNConfig(vocab_size=11, embedding_size=4, layers=layers)
    step = onnx_export.StepModel(DeepStackRNNForCausalLM(config).eval(), 4)
    state = [part.first.expand(2, *part.first.shape[1:]) for part in step.state]
    names = list(step(torch.zeros(2, dtype=torch.long), *state))
    assert any(name.startswith("next_layer_0_") for name in names)
    assert {name for name in names if name.endswith("strength")} == {
        f"layer_1_{action}_strength" for action in ("push", "pop", "read", "total")
    }
    assert "layer_1_dropped" in names


@pytest.mark.slow
@pytest.mark.parametrize("fields", [each for each in MEMORIES if each["memory"] != "nondeterministic"], ids=str)
def test_a_growing_memory_in_onnxruntime(fields, tmp_path):
    pytest.importorskip("onnxscript")
    model = write_model(tmp_path / "model", **fields)
    exported = onnx_export.export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert {"model.onnx", "onnx.json", "tokenizer.json", "config.json"} <= set(exported.files)
    for batch_size in (1, 3):
        check_steps(model, tmp_path / "onnx", batch_size)


def test_a_memory_that_grows_in_two_dimensions_is_refused(tmp_path):
    pytest.importorskip("onnxscript")
    write_model(tmp_path / "model", memory="nondeterministic", memory_states=1, memory_symbols=2, memory_size=0)
    with pytest.raises(InputError, match="memory='nondeterministic' has no step in ONNX"):
        onnx_export.export_onnx(tmp_path / "model", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["stack", "queue", "deque", "superposition"])
def test_a_memory_of_fixed_size(memory, tmp_path):
    pytest.importorskip("onnxscript")
    model = write_model(tmp_path / "model", memory=memory)
    onnx_export.export_onnx(tmp_path / "model", tmp_path / "onnx", max_elements=2 * STEPS)
    check_steps(model, tmp_path / "onnx", 2, with_actions=False)
    onnx_export.export_onnx(tmp_path / "model", tmp_path / "small", max_elements=4)
    ids = np.zeros((2, 20), dtype=np.int64)
    last = list(steps(tmp_path / "small", ids))[-1]
    values = last.get("next_memory_values", last.get("next_memory_cells"))
    assert values.shape[-2] == 4
    if memory == "queue":  # which pops less than it pushes
        assert (last["dropped"] > 0).all()


@pytest.mark.slow
def test_the_command_and_the_loop_of_the_docs(small_run, tmp_path, capsys, monkeypatch):
    pytest.importorskip("onnxscript")
    report = run_json(capsys, "export", small_run, tmp_path / "onnx", "--format", "onnx")
    assert report["inputs"][0] == {"name": "input_ids", "dtype": "int64", "shape": ["batch"]}
    described = json.loads((tmp_path / "onnx" / "onnx.json").read_text())
    assert described["special_tokens"]["eos_token"]["id"] is not None
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert "from_pretrained" not in card
    assert "## Evaluation" in card
    status, _, err = run(capsys, "export", small_run, tmp_path / "onnx", "--format", "onnx")
    assert (status, err.count("\n")) == (2, 1)
    assert "exists and is not empty" in err
    page = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
    code = page.partition("```python\nimport json")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    exec("import json" + code.replace("ONNX_DIRECTORY", "onnx"), {})
    assert len(capsys.readouterr().out.split()) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "onnx", "--dtype", "float16"], "whose weights are float32"),
        (["--format", "onnx", "--max-elements", "0"], "--max-elements must be from 1 to"),
        (["--max-elements", "3"], "--max-elements 3 needs --format onnx"),
        (["--format", "onnx"], "is not a model directory"),
    ],
)
def test_wrong_options(options, message, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    status, _, err = run(capsys, "export", tmp_path / "none", tmp_path / "onnx", *options)
    assert (status, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "onnx").exists()


def test_missing_packages_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None)
    status, _, err = run(capsys, "export", tmp_path, tmp_path / "onnx", "--format", "onnx")
    assert status == 2
    assert err == "stack-lm: error: an ONNX export needs onnx, which is not installed: pip install 'stack-lm[export]'\n"


def test_what_has_no_step_is_refused(tmp_path, capsys):
    pytest.importorskip("onnxscript")
    sizes = {"vocab_size": 23, "embedding_size": 5, "hidden_size": 7, "memory_size": 3}
    BufferedStackRNNForTransduction(BufferedStackRNNConfig(**sizes)).save_pretrained(tmp_path / "buffered")
    byte_level_tokenizer().save_pretrained(tmp_path / "buffered")
    write_model(tmp_path / "lstm", memory="none")
    for model, options, message in (
        ("buffered", [], "it is a model of type buffered_stack_rnn"),
        ("lstm", ["--max-elements", "5"], "the elements of memory='none' cannot be limited"),
    ):
        arguments = ("export", tmp_path / model, tmp_path / "onnx", "--format", "onnx", *options)
        status, _, err = run(capsys, *arguments)
        assert (status, err.count("\n")) == (2, 1)
        assert message in err
        assert not (tmp_path / "onnx").exists()
