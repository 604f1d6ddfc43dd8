"""`stack-lm presets`: its list, and the files it writes."""

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
import yaml
from conftest import run, run_json, thinned

from stack_lm.core.config_files import preset_names, preset_path, read_config, read_yaml, table_names
from stack_lm.models.kinds import TEXT, TREES, class_named
from stack_lm.tasks.kinds import KINDS


def test_list(capsys):
    listed = run_json(capsys, "presets")
    presets = {preset["name"]: preset for preset in listed["presets"]}
    assert list(presets) == preset_names()
    assert all(all(preset.values()) for preset in presets.values())
    free = presets["merrill2019/linzen_free"]
    assert free["parameters"] == 1_584_255  # as Merrill et al. (2019) print it
    assert (free["paper"], free["class"], free["sizes"]) == (
        "Merrill et al. 2019", "StackRNNForCausalLM", {"vocab_size": 10_030},
    )  # fmt: skip
    assert presets["suzgun2019/stack_rnn_softmax"]["parameters"] == 191  # as released
    assert presets["suzgun2019/lstm_d6"]["table"] == "table 4"
    assert presets["merrill2019/numpred_u1"]["class"] == "StackRNNForSequenceClassification"
    assert presets["hao2018/buffered_linear_stack_xor"]["task"] == "cumulative and delayed XOR"
    status, out, _ = run(capsys, "presets")
    assert status == 0
    tables = listed["tables"]
    assert [table["name"] for table in tables] == table_names()
    (table,) = [table for table in tables if table["name"] == "hao2018/table1"]
    assert table["rows"] == 18
    assert table["title"] in out
    for name, preset in presets.items():
        assert re.search(rf"{name}\s.*{preset['table']}.*{preset['class']}\s.*{preset['parameters']:,}\s", out), name


def count_parameters(config):
    """Those of the model with the data's sizes, which is built without allocation."""
    (architecture,) = config["model"]["architectures"]
    model_class = class_named(architecture, TEXT, TREES, *KINDS)
    with torch.device("meta"):
        model = model_class(model_class.config_class(**config["model"] | config["preset"]["sizes"]))
    return model.num_parameters()


def test_the_list_is_light_and_its_numbers_of_parameters_are_those_of_the_models(capsys):
    """They are in a file, because counting them loads torch."""
    counted = {name: count_parameters(read_yaml(preset_path(name))) for name in preset_names()}
    assert {p["name"]: p["parameters"] for p in run_json(capsys, "presets")["presets"]} == counted
    assert set(read_yaml(Path(str(files("stack_lm.configs"))) / "parameters.yaml")) == set(preset_names())
    program = "import sys; from stack_lm.cli.main import main; main(['presets']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("name", thinned(preset_names()))
def test_what_is_shown_is_the_preset_in_one_file(name, capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(run(capsys, "presets", "show", name)[1])
    assert "extends" not in yaml.safe_load(path.read_text())
    assert read_yaml(path) == read_yaml(preset_path(name))
    assert read_config(path) == read_config(name)
    assert path.read_text().startswith(f"# {name}: ")


def test_the_comments_of_the_parts_are_shown(capsys):
    text = run(capsys, "presets", "show", "merrill2019/brown_u1")[1]
    for comment in (
        "# Merrill et al. (2019), section 3.1",
        "# NOTE: the paper prints k = 4",
        "# The Brown corpus as NLTK has it",
        "# The pop strength is fixed to 1",
        "# StackRNNForCausalLM with 1,584,154 parameters for vocab_size 10030.",
    ):
        assert comment in text


def test_a_table_can_be_shown(capsys):
    path = preset_path("hao2018/table1", tables=True)
    assert run(capsys, "presets", "show", "hao2018/table1")[1] == path.read_text()
    shown = run_json(capsys, "presets", "show", "hao2018/table1")
    assert (shown["rows"], shown["config"]) == (len(shown["config"]["rows"]), read_yaml(path))
    status, _, err = run(capsys, "presets", "show", "linear")
    assert (status, "no preset 'linear'; did you mean 'hao2018/" in err) == (2, True)
