"""Models trained on files of one's own, from the command line to tables, scores and figures."""

import json
import re

import pytest
import torch
import yaml
from conftest import run, run_json
from small_tasks import FIELDS, TRAIN, config_values
from transformers import pipeline

from stack_lm.core.checks import build
from stack_lm.tasks import make_task
from stack_lm.training.trials.computation import choose_example, compute, load_task_model
from stack_lm.training.trials.config import TaskConfig
from stack_lm.training.trials.encoding import Encoding
from stack_lm.training.trials.learning import train
from stack_lm.training.trials.scores import score
from stack_lm.training.trials.trial import Trial

STRINGS = ["a b", "b", "a a b", "b b", "a", "b a b a"] * 4
FILES = {
    "classification": ("string,label", lambda s: f"{s},{('none', 'one', 'more')[min(s.count('a'), 2)]}"),
    "tagging": ("input,output", lambda s: f"{s},{s.upper()}"),
    "transduction": ("input,output", lambda s: f"{s},{s} {s}"),
    "language": ("text", lambda s: s),
}
HEADS = {
    "classification": "StackRNNForSequenceClassification",
    "tagging": "StackRNNForTokenClassification",
    "transduction": "StackRNNForCausalLM",
    "language": "StackRNNForCausalLM",
}


def write(folder, kind):
    columns, line = FILES[kind]
    path = folder / f"{kind}.csv"
    path.write_text("\n".join([columns, *map(line, STRINGS)]) + "\n")
    return path


@pytest.fixture
def preset(tmp_path, monkeypatch):
    """One of another head than any file here needs."""
    monkeypatch.chdir(tmp_path)
    fields = {"architectures": ["StackRNNForKHotPrediction"], **FIELDS["StackRNNForKHotPrediction"]}
    values = {"model": fields, "training": {"epochs": 1, "batch_size": 5}}
    (tmp_path / "preset.yaml").write_text(yaml.safe_dump(values))
    return tmp_path / "preset.yaml"


@pytest.mark.parametrize("kind", FILES)
def test_a_preset_gives_the_network_and_a_file_the_head(capsys, preset, tmp_path, kind):
    path = write(tmp_path, kind)
    arguments = [preset, path.name, "--seeds", 2, "--json"]
    assert TRAIN.main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert f"{path.name}: {kind}; 20 train, 2 validation, 2 test strings" in captured.err
    lines = (tmp_path / result["output_dir"] / "results.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert result["output_dir"] == f"runs/preset-{kind}"
    assert [record["config"]["model"]["architectures"] for record in records] == [[HEADS[kind]]] * 2
    assert records[0]["config"]["data"] == make_task(path.name).digest
    models = [f"{result['output_dir']}/{record['model']}" for record in records]
    scored = run_json(capsys, "tasks", "score", path.name, *models)
    assert scored["lines"] == len(STRINGS)
    assert re.search("b", run(capsys, "tasks", "show", path.name)[1])
    source = load_task_model(models[0])
    found = compute(source, choose_example(source.task, "a a b", None, 0))
    assert [len(found.targets), len(found.outputs)] == [len(found.inputs)] * 2
    assert found.targets[-1]
    assert kind != "classification" or found.targets[:2] == ["", ""]


def test_a_classifier_is_one_of_transformers(capsys, preset, tmp_path):
    path = write(tmp_path, "classification")
    assert TRAIN.main([str(preset), path.name, "--seeds", "1"]) == 0
    directory = "runs/preset-classification/models/1/0"
    classify = pipeline("text-classification", directory)
    answers = classify(["a b a b", "b", "a"], batch_size=3)
    assert {answer["label"] for answer in answers} <= {"none", "one", "more"}
    for string, answer in zip(("a b a b", "b", "a"), answers, strict=True):
        assert classify(string)[0]["score"] == pytest.approx(answer["score"], abs=1e-5)


def test_a_classifier_answers_after_the_last_symbol(tmp_path):
    """Whatever the strings beside it, alone or with other trials."""
    path = write(tmp_path, "classification")
    values = config_values("test/per_step", "StackRNNForKHotPrediction") | {"task": str(path)}
    values["model"]["architectures"] = ["StackRNNForSequenceClassification"]
    configs = [build(TaskConfig, {**values, "seed": seed}) for seed in range(2)]
    together = [Trial(config) for config in configs]
    alone = [Trial(config) for config in configs]
    of_both = train(together)
    for trial, other, result in zip(together, alone, of_both, strict=True):
        assert train([other])[0]["history"][-1]["loss"] == pytest.approx(result["history"][-1]["loss"], rel=1e-4)
        for one, same in zip(trial.model.parameters(), other.model.parameters(), strict=True):
            torch.testing.assert_close(one, same, rtol=1e-4, atol=1e-5)
    task = make_task(str(path))
    encoding, examples = Encoding(task, "StackRNNForSequenceClassification"), task.split("train", 0)
    whole = score(alone[0].model, encoding, encoding.encode(examples))["accuracy"]
    right = 0
    for example in examples:
        logits = alone[0].model(torch.tensor([example.source])).logits
        right += int(logits.argmax(-1)) == example.target[0]
    assert whole == right / len(examples)


def test_a_model_of_a_file_that_changed_is_refused(capsys, preset, tmp_path, monkeypatch):
    """Its symbols and labels would have other ids."""
    path = write(tmp_path, "classification")
    (tmp_path / "other.csv").write_text(path.read_text())
    assert TRAIN.main([str(preset), path.name, "--seeds", "1", "output_dir=run"]) == 0
    model = "run/models/1/0"
    assert run(capsys, "tasks", "score", "other.csv", model)[0] == 0
    lines = path.read_text()
    for changed, message in (
        ("a c b,none\n", "trained on other symbols than classification.csv has now: number"),
        ("a b,all\n", "trained on other answers than classification.csv has now: number 1 was 'more' and is 'all'"),
    ):
        path.write_text(lines + changed)
        for command in (("tasks", "score", "other.csv", model), ("inspect", model, "a b")):
            status, _, error = run(capsys, *command)
            assert (status, error.count("\n")) == (2, 1)
            assert message in error
    path.write_text(lines)
    tokenizer = tmp_path / model / "tokenizer.json"
    tokenizer.rename(tmp_path / "away.json")
    status, _, error = run(capsys, "tasks", "score", "other.csv", model)
    assert (status, error.count("\n"), f"{model} has no model that can be loaded" in error) == (2, 1, True)
    (tmp_path / "away.json").rename(tokenizer)
    path.unlink()
    message = f"{model} is a model of a task that cannot be made here: classification.csv does not exist"
    assert message in run(capsys, "tasks", "score", "other.csv", model)[2]


def test_results_of_another_file_are_not_mixed(capsys, preset, tmp_path):
    path = write(tmp_path, "tagging")
    assert TRAIN.main([str(preset), path.name, "--seeds", "1"]) == 0
    path.write_text(path.read_text() + "a,A\n")
    capsys.readouterr()
    assert TRAIN.main([str(preset), path.name, "--seeds", "2", "--resume"]) == 2
    assert "in which data was" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hao2018/buffered_linear_stack", "classification.csv"], "needs a StackRNNForSequenceClassification or"),
        (["preset.yaml", "tagging.csv", "model.architectures=[StackRNNForCausalLM]"], "a StackRNNForCausalLM does not"),
        (["preset.yaml", "tagging.csv", "options.kind=classification"], "has the columns input, output"),
    ],
)
def test_bad_input(capsys, preset, tmp_path, arguments, message):
    for kind in ("classification", "tagging"):
        write(tmp_path, kind)
    assert TRAIN.main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_files_are_described(capsys, preset, tmp_path):
    path = write(tmp_path, "classification")
    status, out, _ = run(capsys, "tasks", "check", path, "test=0.25")
    assert status == 0
    assert "16 train, 2 validation, 6 test strings; 2 symbols; 3 labels: more, none, one" in out
    assert run_json(capsys, "tasks", "check", path, path)["agree"] == len(STRINGS)
    other = tmp_path / "other.csv"
    other.write_text("string,label\na,two\n")
    status, _, err = run(capsys, "tasks", "check", path, other)
    assert (status, "other.csv, row 1: no training string has the label 'two'" in err) == (2, True)
