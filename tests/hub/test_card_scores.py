"""`stack-lm results` of models: their scores, from cards or the output of commands, side by side."""

import json

import pytest
from conftest import run, run_json
from huggingface_hub import EvalResult, ModelCard, ModelCardData


def score(task, data, metric, value, **arguments):
    return EvalResult(task, data, data, metric, value, task_name=task, metric_name=metric, metric_args=arguments)


def write(path, *results):
    data = ModelCardData(model_name=path.name, eval_results=list(results) or None)
    path.mkdir(parents=True)
    ModelCard(f"---\n{data.to_yaml()}\n---\n").save(path / "README.md")
    return path


@pytest.fixture
def models(tmp_path):
    """The second has another held-out text, and no trees; its agreement is told by attractors."""
    first = write(
        tmp_path / "u1",
        score("Parsing", "treebank", "F1, prpn", 54.716, interval_95=[54.2, 55.3]),
        score("Prediction", "text, seed 0", "perplexity", 85.5),
    )
    second = write(
        tmp_path / "lstm",
        score("Prediction", "text, seed 1", "perplexity", 84.25),
        score("Prediction", "text, seed 0", "perplexity", 90.0),
        score("Agreement", "linzen", "accuracy, %", 46.0, by_attractors={"0": 88.87, "1": 38.88}),
    )
    return first, second


TABLE = """Scores of models

| score | u1 | lstm |
|---|--:|--:|
| **Parsing: treebank** |  |  |
| F1, prpn | 54.72 |  |
| **Prediction: text, seed 0** |  |  |
| perplexity | 85.50 | 90.00 |
| **Prediction: text, seed 1** |  |  |
| perplexity |  | 84.25 |
| **Agreement: linzen** |  |  |
| accuracy, % |  | 46.00 |
| accuracy, %, 0 attractors |  | 88.87 |
| accuracy, %, 1 attractor |  | 38.88 |
"""


def test_scores_of_models_side_by_side(capsys, models):
    assert run(capsys, "results", *models, "--format", "markdown")[1] == TABLE
    assert "54.72" in run(capsys, "results", *models)[1]


def test_chosen_scores(capsys, models):
    printed = run(capsys, "results", *models, "--rows", "seed 0|1 attractor", "--format", "markdown")[1]
    assert [line.split(" | ")[0] for line in printed.splitlines()[4:]] == [
        "| **Prediction: text, seed 0**",
        "| perplexity",
        "| **Agreement: linzen**",
        "| accuracy, %, 1 attractor",
    ]


def test_a_row_for_each_model(capsys, models):
    """Each column has the one score of a model whose name matches, on whatever data."""
    columns = ["--column", "perplexity=seed 0", "--column", "F1=prpn"]
    assert run(capsys, "results", *models, *columns, "--format", "markdown")[1].splitlines()[2:] == [
        "| model | perplexity | F1 |",
        "|---|--:|--:|",
        "| u1 | 85.50 | 54.72 |",
        "| lstm | 90.00 |  |",
    ]
    assert run_json(capsys, "results", *models, *columns)["rows"] == [
        {"model": "u1", "perplexity": 85.5, "F1": 54.716},
        {"model": "lstm", "perplexity": 90.0, "F1": None},
    ]


def test_json_has_the_intervals(capsys, models):
    found = run_json(capsys, "results", *models)
    assert found["models"] == {"u1": str(models[0]), "lstm": str(models[1])}
    assert found["scores"][0] == {
        "task": "Parsing",
        "data": "treebank",
        "metric": "F1, prpn",
        "values": {"u1": 54.716},
        "intervals": {"u1": [54.2, 55.3]},
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--matrix"], "--matrix is about trials of `stack-lm train task`"),
        (
            ["--rows", "perplexiti"],
            "finds no score; the scores are Parsing: treebank, F1, prpn; Prediction: text",
        ),
        (["--summary"], "--summary is about the columns of --column"),
        (
            ["--column", "a=perplexity"],
            "finds more than one score of lstm: 'Prediction: text, seed 0, perplexity' and 'Prediction: text, seed 1,",
        ),
    ],
)
def test_options_that_do_not_fit(capsys, models, options, message):
    status, out, err = run(capsys, "results", *models, *options)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert message in err


def test_models_without_scores(capsys, models, tmp_path):
    bare = write(tmp_path / "bare")
    assert "README.md has no scores" in run(capsys, "results", models[0], bare)[2]
    (bare / "README.md").unlink()
    assert f"{bare} has no card (README.md); `stack-lm card {bare}`" in run(capsys, "results", models[0], bare)[2]
    (bare / "README.md").write_text("---\nmodel-index: [3]\n---\n")
    assert f"cannot read {bare / 'README.md'}" in run(capsys, "results", bare)[2]
    assert "is given twice" in run(capsys, "results", models[0], models[0])[2]


def f1(system, value, **more):
    """The output of `stack-lm parse-f1 --json`."""
    head = {"command": "stack-lm parse-f1", "convention": "prpn", "changes": {}, "treebank": "treebank"}
    scored = {"system": system, "signal": "push_strength", "decoder": "gap", "f1": value, "n_sentences": 9}
    return head | {"systems": [scored]} | more


def output(path, record):
    path.write_text(json.dumps(record))
    return path


def test_the_output_of_commands_is_enough(capsys, tmp_path):
    """Of one model or several; ensembles and baselines have rows, too, and a model has one row, if it has a score."""
    several = f1("runs/u1", 44.2)
    several["systems"] += f1("runs/free", 42.9)["systems"]
    several |= {
        "ensemble": {"votes": {"f1": 57.05}, "prior": "right-branching", "votes_with_prior": {"f1": 58.19}},
        "baselines": {"left": {"f1": 8.63}},
    }
    agreement = {"command": "stack-lm agreement", "data": ["linzen"], "format": "linzen", "oov": "skip"}
    right = {"accuracy": 47.23, "interval": [46.0, 48.0], "n": 7227}
    several_runs = {
        "runs": [{"model": "runs/u1/"} | right],
        "against": {"runs": [{"model": "lstm"} | right | {"accuracy": 46.01}]},
    }
    paths = [output(tmp_path / "f1.json", several), output(tmp_path / "agreement.json", agreement | several_runs)]
    columns = ["--column", "F1=prpn", "--column", "agreement=linzen"]
    assert run(capsys, "results", *paths, *columns, "--format", "markdown")[1].splitlines()[4:] == [
        "| u1 | 44.20 | 47.23 |",
        "| free | 42.90 |  |",
        "| ensemble | 57.05 |  |",
        "| ensemble, right-branching voting too | 58.19 |  |",
        "| baseline: left | 8.63 |  |",
        "| lstm |  | 46.01 |",
    ]
    printed = run(capsys, "results", *paths, "--column", "agreement=linzen", "--format", "markdown")[1]
    assert [line.split(" | ")[0] for line in printed.splitlines()[4:]] == ["| u1", "| lstm"]


def test_two_values_of_one_score(capsys, tmp_path):
    paths = [output(tmp_path / f"{value}.json", f1("u1", value)) for value in (31.0, 32.0)]
    status, out, err = run(capsys, "results", *paths)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert f"{paths[1]} has another 'F1, convention prpn, push_strength, gap' of u1 than a file before it" in err


TABLE_OF_SCORES = """model,"F1, prpn",parameters
ON-LSTM,47.70,
"u = 1, seed 0",54,1580228

"u = 1, seed 1",47.58,1580228
"u = 1, seed 2",48.58,
"""


def test_scores_of_others_from_a_table(capsys, models, tmp_path):
    """A CSV file beside the models, as printed by `--format csv`, too; a cell keeps its decimals."""
    path = tmp_path / "published.csv"
    path.write_text(TABLE_OF_SCORES)
    columns = ["--column", "F1=F1, prpn$", "--column", "size=parameters"]
    expected = [
        "| u1 | 54.72 |  |",
        "| ON-LSTM | 47.70 |  |",
        "| u = 1, seed 0 | 54 | 1,580,228 |",
        "| u = 1, seed 1 | 47.58 | 1,580,228 |",
        "| u = 1, seed 2 | 48.58 |  |",
    ]
    assert run(capsys, "results", models[0], path, *columns, "--format", "markdown")[1].splitlines()[4:] == expected
    printed = run(capsys, "results", models[0], path, *columns, "--format", "csv")[1]
    (tmp_path / "again.csv").write_text(printed)
    assert printed.splitlines()[3] == '"u = 1, seed 0",54,1580228'
    columns = ["--column", "F1=F1", "--column", "size=size"]
    again = run(capsys, "results", tmp_path / "again.csv", *columns, "--format", "csv")[1]
    assert again == printed


def test_the_range_over_seeds(capsys, tmp_path):
    path = tmp_path / "published.csv"
    path.write_text(TABLE_OF_SCORES + "free-s0,50,1\nfree-s1,,\nfree-s12,,3\nfree2,1,1\nd_s0,2,2\nd_s1,2,2\n")
    columns = ["--column", "F1=F1, prpn$", "--column", "size=parameters", "--summary", "--title", "Trees"]
    title, *printed = run(capsys, "results", path, *columns, "--format", "markdown")[1].splitlines()
    assert title == "Trees"
    assert printed[7] == "| u = 1: minimum, median, maximum | 47.58; 48.58; 54.00 | 1,580,228 |"
    assert printed[-5:-3] == ["| free: minimum, median, maximum |  | 1; 2; 3 |", "| free2 | 1 | 1 |"]
    assert printed[-1] == "| d: minimum, median, maximum | 2 | 2 |"
    assert run_json(capsys, "results", path, *columns)["summary"] == [
        {
            "models": ["u = 1, seed 0", "u = 1, seed 1", "u = 1, seed 2"],
            "name": "u = 1",
            "F1": [47.58, 48.58, 54.0],
            "size": [1580228.0, 1580228.0, 1580228.0],
        },
        {"models": ["free-s0", "free-s12"], "name": "free", "F1": None, "size": [1.0, 2.0, 3.0]},
        {"models": ["d_s0", "d_s1"], "name": "d", "F1": [2.0, 2.0, 2.0], "size": [2.0, 2.0, 2.0]},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,F1\na,1\n", "has no column 'model'; its columns are name, F1"),
        ("model,F1\na,high\n", "row 1: 'F1' must be a number; got 'high'"),
        ("model,F1\na,1\na,2\n", "row 2: a second row of a"),
    ],
)
def test_tables_that_cannot_be_read(capsys, models, tmp_path, text, message):
    path = tmp_path / "published.csv"
    path.write_text(text)
    status, out, err = run(capsys, "results", models[0], path)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert str(path) in err
    assert message in err


def test_models_without_a_score_in_the_columns_are_named(capsys, models, tmp_path):
    """And only the name of a table's column is matched, not that of the file."""
    path = tmp_path / "prpn.csv"
    path.write_text("model,F1 WSJ,size\nON-LSTM,47.7,1\n")
    status, out, note = run(capsys, "results", *models, path, "--column", "F1=prpn", "--summary", "--format", "csv")
    assert (status, out) == (0, "model,F1\nu1,54.72\n")
    assert note.splitlines() == [
        "without a score in these columns, and not shown: lstm, ON-LSTM",
        "--summary finds no models whose names differ only in the seed at their end, such as u1-seed3",
    ]
    printed = run(capsys, "results", *models, path, "--column", "F1=prpn|^F1", "--format", "csv")[1]
    assert printed == "model,F1\nu1,54.72\nON-LSTM,47.7\n"
