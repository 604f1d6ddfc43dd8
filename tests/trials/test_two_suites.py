"""Training on the tasks of Delétang et al. (2023) and on the languages of FLaRe, with small networks."""

import json

import pytest
import torch

from stack_lm.cli.main import main
from stack_lm.tasks import make_task
from stack_lm.training.trials.config import Table
from stack_lm.training.trials.encoding import Encoding, loss_weights


@pytest.fixture(autouse=True)
def _no_compiled_scan(monkeypatch):
    monkeypatch.setenv("STACK_LM_SCAN_BACKEND", "reference")


def results(directory):
    return [json.loads(line) for line in (directory / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def test_all_of_an_answer_is_trained_on_and_its_number_scored():
    task = make_task("deletang2023/binary_addition")
    encoding = Encoding(task, "StackRNNForTokenClassification")
    rows = encoding.encode([task.example(task.read(string)) for string in ("1 + 1", "1 1 + 1 1")])
    assert rows.steps.tolist() == [7, 11]
    assert rows.sizes.tolist() == [3, 5]
    assert rows.trained.sum(1).tolist() == [4, 6]
    assert rows.scored.sum(1).tolist() == [3, 4]  # 0 1 2 and 0 1 1 2
    assert (rows.inputs[0, 3:7] == encoding.symbols.index("#")).all()
    weights = loss_weights(rows.trained, "mean")
    assert torch.equal(weights > 0, rows.trained)
    assert weights.sum() == pytest.approx(1)


@pytest.mark.slow
def test_training_stops_when_all_has_been_right(tmp_path):
    sizes = {"train": (640, 1, 3), "validation": (8, 1, 3), "test": (2, 4, 6)}
    small = [f"options.splits.{k}={{number: {n}, shortest: {a}, longest: {b}}}" for k, (n, a, b) in sizes.items()]
    settings = "model.hidden_size=16 training.batch_size=32 training.learning_rate=0.02 training.epochs=40"
    command = f"train task deletang2023/lstm deletang2023/even_pairs --seeds 1 {settings} training.solved_patience=2"
    main([*command.split(), f"output_dir={tmp_path}", *small])
    (record,) = results(tmp_path)
    assert record["epochs"] < 40
    right = [epoch["validation"]["accuracy"] == 1 for epoch in record["history"]]
    assert right[-2:] == [True, True]
    assert [True, True] not in [right[i : i + 2] for i in range(len(right) - 2)]
    test = record["scores"]["test"]
    assert test["length_accuracy"] == pytest.approx(
        sum(score for score, _ in test["by_length"]["accuracy"].values()) / 3
    )
    assert set(test["by_length"]["accuracy"]) == {"4", "5", "6"}


def test_the_languages_come_in_the_order_of_the_hierarchy():
    from stack_lm.core.config_files import preset_path, read_yaml

    table = Table.build(read_yaml(preset_path("flare/languages", tables=True)))
    classes = [row.cells[0] for row in table.rows]
    assert classes == sorted(classes, key=["R", "DCF", "CF", "CS"].index)
    # By language and model a row that validates on short strings, and one on long ones.
    assert len(table.rows) == 18 * 8 * 2
    for row in table.rows:
        assert row.training == ({} if row.cells[3] == "short" else {"validate": "validation_long"})
