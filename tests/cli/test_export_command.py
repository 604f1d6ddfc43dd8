"""Models in half precision: smaller files, the same scores."""

import json
from pathlib import Path

import pytest
import torch
from conftest import run, run_json
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def trained(small_run):
    return Path(small_run)


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    from stack_lm.hub.export import export_model

    directory = tmp_path_factory.mktemp("exported") / "half"
    return directory, export_model(trained, directory)


def test_half_the_size_and_complete(trained, exported):
    directory, report = exported
    names = {path.name for path in directory.iterdir()}
    assert any(path.suffix == ".py" for path in trained.iterdir())  # a copy does without: the package has the code
    assert "auto_map" not in json.loads((directory / "config.json").read_text())
    assert names == {
        "README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    }  # fmt: skip
    assert set(report.files) == names
    card = (directory / "README.md").read_text()
    assert "\n# half\n" in card
    assert "Run `import stack_lm` first." in card
    assert "trust_remote_code" not in card
    assert "\n- perplexity: " in card
    whole, half = (load_file(path / "model.safetensors") for path in (trained, directory))
    assert {weight.dtype for weight in half.values()} == {torch.float16}
    assert report.bytes == sum(path.stat().st_size for path in directory.iterdir())
    assert report.parameters == sum(weight.numel() for weight in whole.values())
    errors = []
    for name, weight in whole.items():
        error = (weight - half[name].float()).abs()
        assert (error <= weight.abs() * 2**-11 + 2**-25).all()  # half a unit in the last place; of the smallest numbers
        errors.append(error.max().item())
    assert report.largest_error == pytest.approx(max(errors))


def test_it_loads_and_computes_in_float32(exported):
    model = AutoModelForCausalLM.from_pretrained(exported[0])
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.config.dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(exported[0])
    logits = model(**tokenizer("the dog sleeps", return_tensors="pt")).logits
    assert logits.dtype == torch.float32


def test_the_command(capsys, trained, tmp_path):
    result = run_json(capsys, "export", trained, tmp_path / "a", "--dtype", "bfloat16")
    assert (result["dtype"], result["largest_error"] > 0) == ("bfloat16", True)
    checkpoint = next((trained / "checkpoints").iterdir())
    status, out, _ = run(capsys, "export", checkpoint, tmp_path / "b")
    assert status == 0
    assert "stored in float16" in out
    assert "Trained on generated:1500, sentence by sentence" in (tmp_path / "b" / "README.md").read_text()
    assert not (tmp_path / "b" / "trainer_state.json").exists()
    AutoModelForCausalLM.from_pretrained(tmp_path / "b")
    status, _, err = run(capsys, "export", trained, tmp_path / "a")
    assert (status, "exists and is not empty" in err) == (2, True)
    status, _, err = run(capsys, "export", tmp_path, tmp_path / "c")
    assert (status, "is not a model directory: it has no config.json" in err) == (2, True)


def test_a_weight_that_does_not_fit(capsys, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"model_type": "stack_rnn"}))
    save_file({"w": torch.tensor([1.0, -7e4])}, tmp_path / "m" / "model.safetensors")
    status, out, err = run(capsys, "export", tmp_path / "m", tmp_path / "out")
    assert (status, out) == (2, "")
    assert "float16 cannot store w: it has 70000, and 65504 is the most" in err
    assert not (tmp_path / "out").exists()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"no")
    status, _, err = run(capsys, "export", tmp_path / "m", tmp_path / "out")
    assert (status, "cannot read the model in" in err) == (2, True)
