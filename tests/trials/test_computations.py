"""Computations of models of tasks, and figures of their trials."""

import csv
import json
import re
import struct
from collections import Counter

import numpy as np
import pytest
import small_tasks
import torch
from conftest import run, run_json
from small_tasks import TRAIN

from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.core.trace import MOVES
from stack_lm.figures.trials import Curve, plot_curves
from stack_lm.memory import Choice
from stack_lm.tasks import make_task
from stack_lm.training.trials.computation import TaskModel, choose_example, compute, load_task_model
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.results import read_trials
from stack_lm.training.trials.scores import measure_dead_zone
from stack_lm.training.trials.trial import Trial

STACK = {"push_control": "sigmoid", "pop_control": "sigmoid", "read_control": 1.0}
NOISY = {
    "memory": "superposition",
    "hidden_size": 4,
    "memory_size": 1,
    "operation_control": "gumbel_softmax",
    "evaluation_noise": True,
}
CHOICE = {"memory": "superposition", "hidden_size": 4, "memory_size": 1}


def saved(directory, task, architecture=None, **model):
    values = small_tasks.config_values(task, architecture)
    values["model"] |= model
    trial = Trial(build(TaskConfig, values))
    directory.mkdir()
    trial.save(directory)
    return trial


def png_size(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def panel(computation, name):
    return computation.panels[name].numbers


def test_a_computation_is_that_of_the_network(tmp_path):
    saved(tmp_path / "m", "test/per_step", **STACK)
    source = load_task_model(tmp_path / "m")
    example = choose_example(source.task, "a b b a", None, 0)
    computation = compute(source, example)
    ids = torch.tensor([[0, 1, 1, 0]])
    outputs = source.model(ids, output_actions=True, use_cache=True)
    np.testing.assert_allclose(panel(computation, "output"), torch.softmax(outputs.logits[0], -1).T.detach(), rtol=1e-5)
    for name in ("push_strength", "pop_strength"):
        np.testing.assert_allclose(panel(computation, name)[0], outputs.actions[name][0].detach(), rtol=1e-5)
    assert "read_strength" not in computation.panels  # it is fixed
    held = panel(computation, "memory")
    np.testing.assert_allclose(np.nansum(held, axis=0), outputs.actions["total_strength"][0].detach(), rtol=1e-5)
    np.testing.assert_allclose(np.diag(held), outputs.actions["push_strength"][0].detach(), rtol=1e-5)
    assert np.isnan(held[2, 1])  # not pushed yet
    assert computation.inputs == ["a", "b", "b", "a"]
    assert computation.targets == ["", "b", "b", "a"]  # the first is not scored
    best = [source.encoding.answers[k] for k in outputs.logits[0].argmax(-1)]
    assert computation.outputs == best
    assert computation.errors == [t for t in range(1, 4) if best[t] != "abba"[t]]


@pytest.mark.parametrize("memory", ["superposition", "baby_ntm"])
def test_a_memory_in_superposition(tmp_path, memory):
    depth = {"memory_depth": 6} if memory == "baby_ntm" else {}
    saved(tmp_path / "m", "test/sets", memory=memory, memory_size=1, operation_control="softmax", **depth)
    source = load_task_model(tmp_path / "m")
    computation = compute(source, choose_example(source.task, None, 5, 0))
    np.testing.assert_allclose(panel(computation, "operation").sum(0), 1, rtol=1e-5)
    (operations,) = [field.operations for field in source.model.model.cell.memory.actions if isinstance(field, Choice)]
    assert list(computation.panels["operation"].labels) == [name.replace("_", " ") for name in operations]
    state, base = None, source.model.model
    ids = torch.tensor([[source.encoding.symbols.index(symbol) for symbol in computation.inputs]])
    scan = base.cell.scan(base.embed(ids, None), state)
    cells = scan.state.memory.cells[0]
    first = cells[:, 0] if cells.dim() == 2 else cells[0, :, 0]
    shown = panel(computation, "memory")[:, -1]
    np.testing.assert_allclose(shown, first[: len(shown)].detach(), atol=1e-5)


def test_a_computation_with_noise_is_one_draw(tmp_path):
    """The answers and the actions are of the same noise, and each time."""
    saved(tmp_path / "m", "test/per_step", **NOISY)
    source = load_task_model(tmp_path / "m")
    example = choose_example(source.task, "a b b a", None, 0)
    first, second = (compute(source, example) for _ in range(2))
    for name, panel in first.panels.items():
        np.testing.assert_array_equal(panel.numbers, second.panels[name].numbers)
    noise = source.model.base_model.cell.controls.draw_noise(
        (1, 4), source.model.base_model.cell.reference_tensor, torch.Generator().manual_seed(0)
    )
    assert noise
    source.model.base_model.cell.controls.given_noise = noise
    outputs = source.model(torch.tensor([[0, 1, 1, 0]]), use_cache=False, output_actions=True)
    weights = outputs.actions["operation"][0].flatten(1).T.double().detach().numpy()
    np.testing.assert_allclose(first.panels["operation"].numbers, weights, rtol=1e-5)
    shares = torch.softmax(outputs.logits[0].double(), -1).T.detach().numpy()
    np.testing.assert_allclose(first.panels["output"].numbers, shares, rtol=1e-5)


def test_a_network_between_buffers(tmp_path):
    """Its steps are twice the symbols; the actions and the outputs are those of the model."""
    saved(tmp_path / "m", "test/per_step", "BufferedStackRNNForTransduction", **STACK, steps_per_token=2)
    source = load_task_model(tmp_path / "m")
    computation = compute(source, choose_example(source.task, "a b b a", None, 0))
    outputs = source.model(torch.tensor([[0, 1, 1, 0]]), target_length=4, output_actions=True)
    assert computation.steps == ["1", "2", "3", "4", "5", "6", "7", "8"]
    for name in ("input_pop_strength", "output_push_strength", "input_strength", "push_strength", "pop_strength"):
        np.testing.assert_allclose(panel(computation, name)[0], outputs.actions[name][0].detach(), rtol=1e-5)
    total = outputs.actions["total_strength"][0].detach()
    np.testing.assert_allclose(np.nansum(panel(computation, "memory"), 0), total, rtol=1e-5)
    shown = panel(computation, "output")
    np.testing.assert_allclose(shown[:, :4], torch.softmax(outputs.logits[0], -1).T.detach(), rtol=1e-5)
    assert np.isnan(shown[:, 4:]).all()


def test_examples(tmp_path):
    task = make_task("hao2018/reversal")
    assert task.write(choose_example(task, "1 0", None, 0).source) == "1 0 # #"
    assert len(choose_example(task, None, 5, 3).source) == 10
    assert choose_example(task, None, None, 0) == choose_example(task, None, None, 0)
    with pytest.raises(InputError, match="'x' is not a symbol of hao2018/reversal"):
        choose_example(task, "1 x", None, 0)
    with pytest.raises(InputError, match="suzgun2019/dyck2 has no string of a length from 7 to 7"):
        choose_example(make_task("suzgun2019/dyck2"), None, 7, 0)
    with pytest.raises(InputError, match="a figure shows strings of a length from 1 to 120; got 999999999"):
        choose_example(task, None, 999_999_999, 0)


def test_an_example_is_filled_as_in_the_data():
    """A network between buffers has steps for the padding too."""
    task = make_task("hao2018/reversal_buffered")
    assert {len(example.source) for example in task.split("train", 0)} == {24}
    assert len(choose_example(task, "1 0", None, 0).source) == 24
    assert len(choose_example(task, None, 13, 0).source) == 48
    assert len(choose_example(task, "1 " * 30, None, 0).source) == 60


@pytest.mark.parametrize("size", [0, 2])
def test_the_run_of_a_nondeterministic_stack(capsys, tmp_path, size):
    saved(tmp_path / "m", "test/language", memory="nondeterministic", memory_size=size)
    text, figure = "a b b a", tmp_path / "figure.png"
    source = load_task_model(tmp_path / "m")
    computation = compute(source, choose_example(source.task, text, None, 0))
    best = computation.run
    assert ("value" in computation.panels) == bool(size)
    stack = panel(computation, "run_stack")
    np.testing.assert_array_equal(np.isfinite(stack).sum(0) - 1, best.depths)
    np.testing.assert_array_equal(stack[-1 - best.depths, range(5)], best.symbols)
    assert [panel(computation, "run_move")[:, t].argmax() for t in range(5)] == [MOVES.index(m) for m in best.moves]
    if size:
        return
    arguments = ("inspect", tmp_path / "m", text, "--output", tmp_path / "p.html")
    told = run_json(capsys, *arguments, "--figure", figure)  # whose targets have a slash: </s>
    assert told["run"]["moves"] == list(best.moves)
    assert told["run"]["stacks"] == [list(symbols) for symbols in best.stacks]
    assert "move of the most probable run" in (tmp_path / "p.html").read_text()
    status, out, _ = run(capsys, *arguments)
    assert (status, "symbol" in out, "depth" in out) == (0, True, True)
    assert png_size(figure)[1] > 300


@pytest.mark.parametrize("task", ["test/per_step", "test/sets", "test/pair"])
def test_the_dead_zone_of_padded_strings_is_that_of_each(task):
    values = small_tasks.config_values(task)
    values["model"] |= STACK | {"pop_strength_init": 0.1}
    trial = Trial(build(TaskConfig, values))
    model, encoding = trial.model.eval(), trial.encoding
    examples = encoding.task.split("train", 0)
    together = measure_dead_zone(model, encoding, encoding.encode(examples))
    counts = [len(encoding.encode([example]).inputs[0]) - 1 for example in examples]
    alone = [measure_dead_zone(model, encoding, encoding.encode([example])).own_share for example in examples]
    assert together.own_share == pytest.approx(np.average(alone, weights=counts), rel=1e-5)
    assert 0 < together.older_share < 1


@pytest.mark.parametrize("dead", [True, False])
def test_a_note_of_the_dead_zone(tmp_path, capsys, dead):
    model = STACK | {"read_control": 0.1 if dead else 1.0, "pop_strength_init": 0.2}
    table = small_tasks.write_table(
        tmp_path,
        "Strings",
        {("echo",): {"task": "test/per_step", "model": model}},
        columns=["task"],
        measures=["accuracy.median"],
        seeds=2,
    )
    assert TRAIN.main([str(table)]) == 0
    assert capsys.readouterr().err.count("seeds 0 to 1: at the start, 100% of a reading") == dead


def test_a_plot_of_one_string(capsys, tmp_path, monkeypatch):
    saved(tmp_path / "m", "test/per_step", **STACK)
    monkeypatch.chdir(tmp_path)
    told = run_json(capsys, "inspect", "m", "a b b a", "--figure", "figure.svg")
    assert (told["inputs"], len(told["outputs"])) == ("a b b a".split(), 4)
    assert 0 < told["dead_zone"]["own_share"] < 1
    for label in ("pop strength (elements)", "push strength (elements)", "symbol that is read at each step"):
        assert f"<!-- {label} -->" in (tmp_path / "figure.svg").read_text()


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """The trials of a table of two rows."""
    folder = tmp_path_factory.mktemp("trials")
    rows = {
        ("echo", "yes"): {"task": "test/per_step"},
        ("echo", "no"): {"task": "test/per_step", "model": {"memory": "none"}},
    }
    table = small_tasks.write_table(
        folder, "Strings that are echoed", rows, columns=["task", "stack"], measures=["accuracy.median"], seeds=2
    )
    assert TRAIN.main([str(table)]) == 0
    return folder / "runs"


@pytest.mark.parametrize(
    "arguments", [["convergence"], ["convergence", "--score", "loss"], ["lengths"], ["lengths", "--rows", "yes"]]
)
def test_plots_of_trials(capsys, tmp_path, trials, arguments):
    kind, *rest = arguments
    output = tmp_path / "figure.svg"
    status, _, err = run(capsys, "plot", kind, trials, "--output", output, *rest)
    assert status == 0, err
    text = output.read_text()
    x = "strings trained on" if kind == "convergence" else "position in the string (symbols read)"
    assert ("<!-- longest string trained on -->" in text) == (kind == "lengths")
    y = "loss, training" if "loss" in rest else f"accuracy (%), {'validation' if kind == 'convergence' else 'test'}"
    names = ["stack: yes"] if "--rows" in rest else ["stack: yes", "stack: no"]
    for said in (x, y, "Strings that are echoed", *names):
        assert f"<!-- {said} -->" in text


def test_answers_at_every_step_are_counted_by_position(trials):
    (record, *_), (source, *_) = (
        read_trials(trials).records,
        [load_task_model(path) for path in sorted((trials / "models" / "1").iterdir())],
    )
    right, number = Counter(), Counter()
    for example in source.task.split("test", record["seed"]):
        outputs = source.model(torch.tensor([example.source])).logits.argmax(-1)[0].tolist()
        for place in range(1, len(example.source)):  # the first answer is not scored
            number[place + 1] += 1
            right[place + 1] += outputs[place] == example.target[place]
    assert record["scores"]["test"]["by_position"] == {
        "accuracy": {str(place): [right[place] / number[place], number[place]] for place in sorted(number)}
    }
    assert record["longest"] == max(len(example.source) for example in source.task.split("train", record["seed"]))


def test_titles_and_panels_have_names_as_they_are(capsys, tmp_path):
    rows = {("my/dyck_km", "a-net"): {"task": "test/per_step"}}
    title = "a-net on some/long-path of_a/table-of-strings_2.csv"
    table = small_tasks.write_table(
        tmp_path, title, rows, columns=["task", "net"], measures=["accuracy.median"], seeds=1
    )
    assert TRAIN.main([str(table)]) == 0
    for kind in ("lengths", "results"):
        assert run(capsys, "plot", kind, tmp_path / "runs", "--output", tmp_path / "f.svg")[0] == 0
        texts = re.findall("<!-- (.*?) -->", (tmp_path / "f.svg").read_text(), re.DOTALL)
        assert "my/dyck_km" in texts
        assert title in " ".join(texts).replace("\n", " ")


def test_curves_show_the_median_and_the_whole_range():
    curves = {"": {"model": [Curve([1, 2], [0.1, 0.5]), Curve([1], [0.3]), Curve([1, 2], [0.9, 1.0])]}}
    (axes,) = plot_curves(curves, "x", "y").axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[1, 0.3], [2, 0.5]]  # the second trial's 0.3 goes on
    (shade,) = axes.collections
    corners = {tuple(corner) for corner in shade.get_paths()[0].vertices.tolist()}
    assert {(1, 0.1), (1, 0.9), (2, 0.3), (2, 1.0)} <= corners
    with pytest.raises(InputError, match="at most 6 rows; this one has 7"):
        plot_curves({"": {str(i): curves[""]["model"] for i in range(7)}}, "x", "y")


def test_a_plot_of_training(capsys, tmp_path, small_run):
    output = tmp_path / "figure.svg"
    told = run_json(capsys, "plot", "training", small_run, "--output", output)
    assert told["updates"] == {"small": 180}
    assert "<!-- small -->" in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "M", "a c"], "'c' is not a symbol of test/per_step"),
        (["inspect", "M", ""], "a figure of test/per_step needs a string of at least one symbol"),
        (["inspect", "M", "a " * 121, "--figure", "f.png"], "a figure shows at most 120 steps; there are 121"),
        (["plot", "results", "RUNS", "--score", "accuracy.mean"], "--score is the name of a score, such as"),
        (["plot", "lengths", "M"], "has no results: there is no table.yaml"),
        (["plot", "lengths", "RUNS", "--score", "coarse"], "have no score 'coarse'; they have accuracy"),
        (["plot", "convergence", "RUNS", "--score", "coarse"], "of validation strings; --score loss has them"),
        (["plot", "lengths", "RUNS", "--rows", "tape"], "no row matches 'tape'; the rows are echo, yes; echo, no"),
        (["plot", "lengths", "RUNS", "M"], "a figure of lengths has one DIR; got 2"),
    ],
)
def test_bad_input(capsys, tmp_path, trials, arguments, message):
    saved(tmp_path / "m", "test/per_step", **STACK)
    places = {"M": tmp_path / "m", "RUNS": trials}
    output = tmp_path / ("page.html" if arguments[0] == "inspect" else "figure.png")
    given = [places.get(argument, argument) for argument in arguments]
    status, out, err = run(capsys, *given, "--output", output)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not output.exists()


def test_inspect_shows_a_string_of_a_task(capsys, tmp_path):
    saved(tmp_path / "m", "test/per_step", **STACK)
    page, figure = tmp_path / "page.html", tmp_path / "figure.png"
    arguments = ("inspect", tmp_path / "m", "a b b a", "--output", page, "--figure", figure)
    told = run_json(capsys, *arguments)
    assert told["inputs"] == ["a", "b", "b", "a"]
    assert told["written"] == [str(page), str(figure)]
    source = load_task_model(tmp_path / "m")
    computation = compute(TaskModel(*source), choose_example(source.task, "a b b a", None, 0))
    np.testing.assert_allclose(told["panels"]["push_strength"]["numbers"], panel(computation, "push_strength"))
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "push strength (elements)" in text
    assert text.count("<td") == text.count("</td>")
    for value in panel(computation, "push_strength")[0]:
        assert re.search(rf">{value:.2f}</td>", text)
    status, out, _ = run(capsys, *arguments[:3], "--output", page)
    assert status == 0
    assert "answer" in out
    for option in (["--data", "x"], ["--signal", "push_strength"], ["--device", "cpu"], ["--word-strength", "max"]):
        status, _, err = run(capsys, *arguments[:3], "--output", page, *option)
        assert (status, err.count("\n")) == (2, 1)
        assert "is for sentences" in err


def test_symbols_of_a_page_are_text(capsys, tmp_path):
    """Symbols such as `<s>` are no tags."""
    saved(tmp_path / "m", "test/language")
    status, _, err = run(capsys, "inspect", tmp_path / "m", "a b", "--output", tmp_path / "page.html")
    assert status == 0, err
    text = (tmp_path / "page.html").read_text()
    assert "&lt;s&gt;" in text
    assert "<s>" not in text
    assert json.loads((tmp_path / "m" / "task.json").read_text())["task"] == "test/language"


@pytest.fixture
def strings(tmp_path):
    """A file of strings of test/per_step; the first answer is not scored."""
    (tmp_path / "strings.csv").write_text("a b b a,a b b a\nb a,b a\nb b b,b b b\n")
    return tmp_path / "strings.csv"


def test_models_are_scored_on_the_strings_of_a_file(capsys, tmp_path, strings):
    places = [tmp_path / name for name in ("a", "b", "#")]
    for answer, place in enumerate(places):
        trial = saved(place, "test/per_step")
        torch.nn.init.zeros_(trial.model.score.weight)
        trial.model.score.bias.data = torch.eye(3)[answer]
        trial.model.save_pretrained(place)
    told = run_json(capsys, "tasks", "score", strings, *places)
    assert (told["task"], told["lines"]) == ("test/per_step", 3)
    # Scored are b b a, a, and b b: of six, four are b.
    assert [model["accuracy"] for model in told["models"]] == pytest.approx([2 / 6, 4 / 6, 0])
    numbers = {name: told[name]["accuracy"] for name in ("minimum", "median", "maximum")}
    assert numbers == pytest.approx({"minimum": 0, "median": 2 / 6, "maximum": 4 / 6})
    status, out, _ = run(capsys, "tasks", "score", strings, *places, "--output", tmp_path / "answers.csv")
    assert status == 0
    assert re.search(r"median +\S? *0.3333", out)
    with open(tmp_path / "answers.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        answer = {"a": "a", "b": "b", "#": "#"}[row["model"].rpartition("/")[2]]
        assert row["target"].split() == row["string"].split()[1:]  # the first answer is not scored
        assert row["answer"].split() == [answer] * len(row["target"].split())
        assert int(row["right"]) == (row["answer"] == row["target"])


@pytest.mark.parametrize(
    ("content", "models", "message"),
    [
        ("a b,a a\n", ["m"], "line 1 does not agree with test/per_step: the output is a a, the task's a b"),
        ("a b,a b\n", ["m", "other"], "the models must be of one task; "),
        ("a b,a b\n", ["nowhere"], "has no model of a task (no task.json)"),
    ],
)
def test_strings_that_cannot_be_scored(capsys, tmp_path, strings, content, models, message):
    strings.write_text(content)
    saved(tmp_path / "m", "test/per_step")
    saved(tmp_path / "other", "test/summed")
    status, out, err = run(capsys, "tasks", "score", strings, *(tmp_path / name for name in models))
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert message in err


def test_a_memory_from_outside_is_shown(tmp_path, registers):
    saved(tmp_path / "m", "test/per_step", memory="registers", memory_depth=3)
    found = load_task_model(tmp_path / "m")
    computation = compute(found, choose_example(found.task, "a b b a", None, 0))
    assert {"write", "read", "decay_strength", "value", "reading", "memory"} <= set(computation.panels)


def test_a_plot_of_a_memory_from_outside_has_its_actions(capsys, tmp_path, registers):
    saved(tmp_path / "m", "test/per_step", memory="registers", memory_depth=3)
    output = tmp_path / "figure.svg"
    status, _, _ = run(capsys, "inspect", tmp_path / "m", "--output", tmp_path / "p.html", "--figure", output)
    text = output.read_text()
    assert status == 0
    assert all(f"<!-- {said} -->" in text for said in ("decay strength (elements)", "write (weight)", "read (weight)"))


def test_a_heat_map_has_curves_by_position_for_tasks_with_answers_at_every_step(capsys, tmp_path, trials):
    output = tmp_path / "figure.svg"
    assert run(capsys, "plot", "results", trials, "--output", output)[0] == 0
    assert "<!-- position in the string (symbols read) -->" in output.read_text()
