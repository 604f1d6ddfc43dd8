"""The notebooks of examples/ are valid, are committed with small outputs, and run."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from stack_lm import StackRNNConfig, StackRNNForCausalLM
from stack_lm.cli.main import main as stack_lm

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

# In a process of its own: the kernel's client has warnings of its own, and here warnings are errors.
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "run.ipynb")
"""


def printed(notebook):
    """The text that each code cell printed, in order."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(o.text for o in cell.outputs if o.get("name") == "stdout") for cell in cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_has_small_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 300_000
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))  # run once, from top to bottom
    for output in (output for cell in code for output in cell.outputs):
        assert output.get("name", "stdout") == "stdout"
        assert output.output_type != "error"


def execute(name, folder):
    (folder.parent / "models").unlink(missing_ok=True)
    (folder.parent / "models").symlink_to(EXAMPLES.parent / "models")  # where it is beside examples/
    command = [sys.executable, "-c", RUN, str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(folder / "run.ipynb", as_version=4)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if output.get("name") == "stderr":  # no bars, and no warning about them
            assert not re.search(r"IProgress|\d+%\|", output.text), output.text
    return notebook


@pytest.mark.slow
def test_parse_and_inspect_runs(tmp_path):
    notebook = execute("parse_and_inspect.ipynb", tmp_path)
    training, signals, tree, *_ = printed(notebook)
    assert 20 < float(training.split()[2]) < 60  # a uniform model scores several hundred
    assert len(signals.splitlines()) == 1 + 14
    assert "rabbit" in tree
    shown = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert {"image/png", "text/html"} <= shown
    page = (tmp_path / "runs" / "parse_and_inspect" / "sentence.html").read_text()
    assert "rabbit" in page
    assert printed(notebook)[-1].splitlines()[-1].startswith("F1 ")


@pytest.mark.slow
def test_compare_memories_runs(tmp_path):
    _, perplexities, scores, bootstrap, agreement, mcnemar = printed(execute("compare_memories.ipynb", tmp_path))
    found = {line.split()[0]: float(line.split()[1]) for line in perplexities.splitlines()}
    assert set(found) == {"stack", "queue"}
    assert all(20 < value < 60 for value in found.values())
    assert [line[:17].strip() for line in scores.splitlines()][:3] == ["stack", "queue", "left branching"]
    assert bootstrap.startswith("stack - queue: ")
    rows = [line.split() for line in agreement.splitlines()]
    assert rows[0] == ["attractors", "all", "0", "1", "2", "3"]
    assert all(float(row[2]) > 80 for row in rows[1:3])  # without attractors, even small models agree
    assert mcnemar.startswith("only stack right: ")


@pytest.mark.slow
def test_surprisal_and_reading_times_runs(tmp_path):
    _, words, _, fits = printed(execute("surprisal_and_reading_times.ipynb", tmp_path))
    assert "by         reduced" in words
    without, with_spillover = fits.splitlines()
    assert without.startswith("surprisal ")
    found = [float(number) for number in re.findall(r"[\d.]+(?=[,:])", with_spillover)]
    for value, put_in in zip(found, (6, 3, 4), strict=True):
        assert abs(value - put_in) < 1


@pytest.mark.slow
def test_a_stack_in_your_model_runs(tmp_path):
    *_, accuracies, actions = printed(execute("stack_in_your_model.ipynb", tmp_path))
    lstm, stack = ([float(score) for score in re.findall(r": +([\d.]+)", line)] for line in accuracies.splitlines())
    assert stack[1] > 95
    assert stack[2] > lstm[2]
    assert len(actions.splitlines()) == 1 + 10


@pytest.mark.slow
def test_a_formal_language_in_three_networks_runs(tmp_path):
    _, _, scores, _ = printed(execute("formal_language_in_three_networks.ipynb", tmp_path))
    rows = {line[:20].strip(): [float(score) for score in line[20:].split()] for line in scores.splitlines()[1:]}
    assert all(score == 100 for score in rows["linear with a stack"])
    assert all(score < 60 for score in rows["linear"])
    assert all(50 < score < 90 for score in rows["LSTM"][3:])


def test_the_shortcut_control_begins_as_the_plain_model(tmp_path):
    assert stack_lm(["presets", "--import", str(EXAMPLES / "shortcut_control.py")]) == 0
    sizes = {"vocab_size": 20, "embedding_size": 4, "hidden_size": 6, "memory": "none", "controller": "lstm"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("shortcut_rnn", **sizes)).eval()
    plain = StackRNNForCausalLM(StackRNNConfig(**sizes)).eval()
    plain.load_state_dict({name: model.state_dict()[name] for name in plain.state_dict()})
    ids = torch.arange(12).view(2, 6)
    assert torch.equal(model(ids).logits, plain(ids).logits)
    torch.nn.init.ones_(model.model.shortcut_out.weight)
    assert not torch.equal(model(ids).logits, plain(ids).logits)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits, model(ids).logits)
