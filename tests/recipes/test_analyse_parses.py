"""F1 of several models beside the spread of their strengths."""

import csv
import sys
from pathlib import Path

import pytest
from conftest import run_json

from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.language_model import Trainer

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def recipe(monkeypatch):
    """The script."""
    monkeypatch.syspath_prepend(str(RECIPES))
    import analyse_parses

    yield analyse_parses
    del sys.modules["analyse_parses"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with two checkpoints."""
    directory = tmp_path_factory.mktemp("runs") / "u1"
    config = RunConfig(
        output_dir=str(directory),
        model={"hidden_size": 12, "embedding_size": 8, "memory_size": 3, "push_strength_init": 0.5},
        tokenizer=TokenizerConfig(lowercase="none"),
        data=DataConfig(source="generated:300", held_out=30),
        training=LoopConfig(epochs=2, learning_rate=1e-2, threads=1),
    )
    Trainer(config, quiet=True).train()
    return directory


def test_tables_and_figure(recipe, run, treebank, tmp_path, capsys):
    checkpoints = sorted(run.glob("checkpoints/*"), key=lambda path: int(path.name.split("-")[1]))
    models = [str(path) for path in (*checkpoints, run)]
    out = tmp_path / "out"
    assert recipe.main([*models, "--data", str(treebank), "--output", str(out)]) == 0
    assert capsys.readouterr().out == f"written: {out}\n"
    assert {"f1.tsv", "models.tsv", "attachments.tsv", "f1.png"} == {path.name for path in out.iterdir()}
    rows, found_models, attachments = (
        list(csv.DictReader((out / f"{name}.tsv").read_text().splitlines(), delimiter="\t"))
        for name in ("f1", "models", "attachments")
    )
    assert [(m["run"], m["point"]) for m in found_models] == [("u1", p.name) for p in checkpoints] + [("u1", "end")]
    whole = {(r["model"], r["convention"], r["decoder"]): float(r["value"]) for r in rows if r["part"] == "all"}
    assert len(whole) == 3 * 6 * 2
    # As parse-f1 has them.
    for convention, decoder in (("prpn", "gap"), ("merrill", "algorithm1"), ("evalb", "algorithm1")):
        command = ("parse-f1", run, "--data", treebank, "--convention", convention, "--decoder", decoder)
        (system,) = run_json(capsys, *command)["systems"]
        assert whole[str(run), convention, decoder] == pytest.approx(system["f1"])
        own = [r for r in rows if (r["model"], r["convention"], r["decoder"]) == (str(run), convention, decoder)]
        found = {r["part"]: float(r["value"]) for r in own}
        for name, part in system["by_length"].items():
            if part["n_sentences"]:
                assert found[f"{name} words"] == pytest.approx(part["f1"])
        for label, recall in system.get("label_recall", {}).items():
            assert found[f"label {label}"] == pytest.approx(recall)
    assert len(attachments) == 3 * 2 * 3
    assert all(
        int(row["found"]) == sum(int(row[place]) for place in ("higher", "same", "lower")) for row in attachments
    )
    strengths = run_json(capsys, "strengths", run, "--data", treebank)["groups"]
    (last,) = (m for m in found_models if m["model"] == str(run))
    expected = strengths["all words"]["mean"], strengths["all words"]["std"], strengths["nouns"]["mean"]
    assert [float(last[name]) for name in ("mean", "sd", "nouns")] == pytest.approx(expected)


def test_bad_input(recipe, run, tmp_path, capsys):
    (tmp_path / "bare.jsonl").write_text('{"sentence1_binary_parse": "( ( the dog ) barks )"}\n')
    command = [str(run), "--output", str(tmp_path / "out"), "--data"]
    assert recipe.main([*command, str(tmp_path / "bare.jsonl")]) == 2
    assert "the tree has no part-of-speech tags" in capsys.readouterr().err
    assert recipe.main([*command, str(tmp_path / "none.mrg")]) == 2
    assert not (tmp_path / "out").exists()
