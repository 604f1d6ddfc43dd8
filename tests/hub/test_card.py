"""Model cards and uploads: what they say is what training and the commands reported."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest
import yaml
from conftest import run, run_json, tiny_config, train_small
from huggingface_hub import ModelCard

import stack_lm
from stack_lm import StackRNNForCausalLM
from stack_lm.core.errors import InputError
from stack_lm.hub import publishing
from stack_lm.hub.card import write_card
from stack_lm.hub.code import auto_map, model_code
from stack_lm.hub.evaluations import read_results, without_directories
from stack_lm.models.registered import STACK_RNN


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and what its training returned."""
    directory = tmp_path_factory.mktemp("runs") / "small"
    sizes = {"hidden_size": 8, "embedding_size": 6, "memory_size": 3}
    return directory, train_small(directory, sizes, epochs=1, batch_size=8)


@pytest.fixture
def model(trained, tmp_path):
    """A copy of the run's files that a test may change."""
    directory = tmp_path / "small"
    directory.mkdir()
    for path in trained[0].iterdir():
        if path.is_file():
            (directory / path.name).write_bytes(path.read_bytes())
    return directory


def of(directory):
    return ModelCard((directory / "README.md").read_text())


def by_name(card):
    return {(result.dataset_name, result.metric_name): result for result in card.data.eval_results}


def test_training_writes_a_card(trained):
    directory, result = trained
    card = of(directory)
    data = card.data
    assert (data.library_name, data.pipeline_tag, data.model_name) == ("transformers", "text-generation", "small")
    assert data.tags == ["stack-lm", "stack-rnn", "stack"]
    found = by_name(card)
    held_out = "generated:200: 40 sentences held out, seed 0"
    measures = ("perplexity", "word perplexity", "bits per byte", "inner perplexity")
    assert set(found) == {(held_out, measure) for measure in measures}
    assert found[held_out, "perplexity"].metric_value == pytest.approx(result["eval_perplexity"], abs=1e-4)
    inner = found[held_out, "inner perplexity"]
    assert inner.metric_value == pytest.approx(result["eval_inner_perplexity"], abs=1e-4)
    assert inner.metric_args["tokens"] == result["eval_inner_tokens"]
    assert "\n- inner perplexity: per token after the first word" in card.text
    text = card.text
    parameters = sum(p.numel() for p in StackRNNForCausalLM.from_pretrained(directory).parameters())
    for part in (
        f"it has {parameters:,} parameters",
        "push expected value; pop fixed to 1; read expected value",
        "Trained on generated:200, sentence by sentence",
        "sentence tokens: `<s>` and `</s>`",
        "source: generated:200",
        "stack-lm train lm training_config.yaml",
        f"stack-lm {stack_lm.__version__}",
        "None has been chosen",
        "trust_remote_code=True",
    ):
        assert part in text
    assert str(directory.parent) not in card.content
    (index,) = yaml.safe_load((directory / "README.md").read_text().split("---\n")[1])["model-index"]
    assert index["name"] == "small"


@pytest.mark.slow
def test_results_of_commands(capsys, model, treebank):
    commands = {
        "perplexity": ("--data", "generated:50:3"),
        "agreement": ("--data", "1:9", "--format", "generated"),
        "parse-f1": ("--data", treebank, "--convention", "prpn"),
    }
    paths = []
    for name, arguments in commands.items():
        paths.append(model / f"{name}.json")
        paths[-1].write_text(json.dumps(run_json(capsys, name, model, *arguments)))
    written = run_json(capsys, "card", model, "--results", *paths, "--license", "cc-by-4.0")
    assert (written["n_results"], written["card"]) == (6, str(model / "README.md"))
    card = of(model)
    found = by_name(card)
    assert len(found) == 10
    assert card.data.license == "cc-by-4.0"
    agreement = json.loads(paths[1].read_text())
    entry = found["generated: 1:9", "accuracy, %"]
    assert entry.metric_value == pytest.approx(agreement["accuracy"], abs=1e-4)
    assert entry.metric_args["interval_95"] == pytest.approx(agreement["interval"], abs=1e-4)
    assert entry.metric_args["command"] == "stack-lm agreement small --data 1:9 --format generated"
    f1 = json.loads(paths[2].read_text())
    entry = found[treebank.name, "F1, convention prpn, push_strength, algorithm1"]
    assert entry.metric_value == pytest.approx(f1["f1"], abs=1e-4)
    low, high = entry.metric_args["interval_95"]
    assert low < entry.metric_value < high
    score = f"- {entry.metric_name}: {entry.metric_value:.2f} ({low:.2f} to {high:.2f})\n"
    assert f"\n\nUnsupervised parsing, {treebank.name}:\n\n{score}" in card.text
    assert str(model.parent) not in card.content
    # Later ones take the place of earlier ones; the rest stays, the licence too.
    paths[1].write_text(json.dumps(agreement | {"accuracy": 12.5}))
    assert run(capsys, "card", model, "--results", paths[1])[1].strip() == str(model / "README.md")
    again = of(model)
    assert len(by_name(again)) == 10
    assert by_name(again)["generated: 1:9", "accuracy, %"].metric_value == 12.5
    assert again.data.license == "cc-by-4.0"


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        (["agreement", "islands"], "blimp (agreement, islands)"),
        (list("abcdefg"), "blimp (7 constructions)"),
    ],
)
def test_a_suites_score_names_the_sets_that_were_scored(tmp_path, sets, named):
    """Two of its sets are not BLiMP. Their mean, where it is another number, gives each the same weight."""
    record = {
        **{"command": "stack-lm minimal-pairs u1 --data blimp --format blimp", "model": "u1", "oov": "skip"},
        **{"data": ["blimp"], "format": "blimp", "accuracy": 87.8, "interval": [86.3, 89.2], "n": 2000},
        "by_construction": dict.fromkeys(sets, 87.8),
        "mean_over": {"construction": {"accuracy": 50.0, "interval": [40.0, 60.0], "n": 1999}},
    }
    (tmp_path / "pairs.json").write_text(json.dumps(record))
    overall, mean = (of.result for of in read_results(tmp_path / "pairs.json"))
    assert {overall.dataset_name, mean.dataset_name} == {f"blimp: {named}"}
    assert (overall.metric_name, overall.metric_value) == ("accuracy, %", 87.8)
    assert (mean.metric_name, mean.metric_value) == ("accuracy, %, mean over constructions", 50.0)
    assert (mean.metric_args["items"], mean.metric_args["interval_95"]) == (1999, [40.0, 60.0])


def test_scores_under_other_settings_are_other_scores(capsys, model, treebank):
    """None takes the place of another in the card."""
    commands = [
        *(("parse-f1", "--data", treebank, "--convention", "prpn", *more) for more in (
            (),
            ("--rule", "average=corpus", "--max-words", "10"),
            ("--layer", "0", "--word-strength", "max"),
        )),
        *(("perplexity", "--data", "generated:50:3", *more) for more in ((), ("--held-out", "9"), ("--limit", "5"))),
        *(("strengths", "--data", "generated:50:3", *more) for more in (
            (), ("--limit", "5"), ("--signal", "read_strength"), ("--word-strength", "max"),
        )),
    ]  # fmt: skip
    paths = []
    for name, *arguments in commands:
        paths.append(model / f"{len(paths)}.json")
        paths[-1].write_text(json.dumps(run_json(capsys, name, model, *arguments)))
    run(capsys, "card", model, "--results", *paths)
    found = by_name(of(model))
    assert [name for data, name in found if data == treebank.name] == [
        "F1, convention prpn, push_strength, algorithm1",
        "F1, convention prpn, but average: corpus, at most 10 words, push_strength, algorithm1",
        "F1, convention prpn, push_strength, algorithm1, layer 0, word strength max",
    ]
    texts = ["generated:50:3", "generated:50:3: 9 sentences held out, seed 0", "generated:50:3, the first 5 sentences"]
    assert [data for data, name in found if name == "perplexity" and data.startswith("generated:50:3")] == texts
    assert {(data, name) for data, name in found if ", nouns" in name} == {
        (texts[0], "push strength, nouns"),
        (texts[2], "push strength, nouns"),
        (texts[0], "read strength, nouns"),
        (texts[0], "push strength, nouns, word strength max"),
    }
    strengths = json.loads(paths[-4].read_text())
    assert found[texts[0], "push strength, sd of all words"].metric_value == pytest.approx(
        strengths["groups"]["all words"]["std"], abs=1e-4
    )
    contrast = found[texts[0], "push strength, verbs less nouns"]
    nouns, verbs = (found[texts[0], f"push strength, {name}"].metric_value for name in ("nouns", "verbs"))
    assert contrast.metric_value == pytest.approx(verbs - nouns, abs=2e-4)
    low, high = contrast.metric_args["interval_95"]
    assert low <= contrast.metric_value <= high


def test_other_files_are_no_results(capsys, model, tmp_path):
    (tmp_path / "r.json").write_text('{"command": "stack-lm cache"}')
    status, out, err = run(capsys, "card", model, "--results", tmp_path / "r.json")
    assert (status, out, "prints; it is of cache" in err, err.count("\n")) == (2, "", True, 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("README.md", "---\nlibrary_name: !!bool x\n---\n<!-- Written by `stack-lm card`", "README.md"),
        ("model.safetensors", "x", "model.safetensors"),
    ],
)
def test_damaged_files_of_a_run(capsys, model, name, content, message):
    (model / name).write_text(content)
    status, out, err = run(capsys, "card", model)
    assert (status, out, message in err, err.count("\n")) == (2, "", True, 1)


def test_the_validation_of_a_card_is_its_models(capsys, model):
    """The last or, where the best model is kept, the best."""
    metrics, settings = model / "metrics.jsonl", model / "training_config.yaml"
    losses = [(9, 3.0, 20.0), (12, 2.0, 8.0), (15, 4.0, 55.0)]
    names = ("step", "eval_nats_per_token", "eval_perplexity")
    metrics.write_text("".join(json.dumps(dict(zip(names, values, strict=True))) + "\n" for values in losses))
    for patience, expected in (("null", 55.0), ("2", 8.0)):
        settings.write_text(re.sub("patience: .*", f"patience: {patience}", settings.read_text()))
        assert run(capsys, "card", model)[0] == 0
        assert {r.metric_value for (_, name), r in by_name(of(model)).items() if name == "perplexity"} == {expected}


def test_the_card_of_an_epochs_model_has_its_scores(tmp_path):
    """Also if another epoch's are better, and the run keeps the best."""
    sizes = {"hidden_size": 8, "embedding_size": 6, "memory_size": 3}
    train_small(tmp_path / "run", sizes, epochs=3, learning_rate=0.5, patience=3, save_epochs=True)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = [record["eval_perplexity"] for record in records if "eval_perplexity" in record]
    assert logged.index(min(logged)) != 2
    for epoch, expected in enumerate(logged, start=1):
        directory = tmp_path / "run" / "epochs" / str(epoch)
        (directory / "README.md").unlink(missing_ok=True)
        scores = by_name(of(write_card(directory).parent)).items()
        (found,) = (result.metric_value for (_, name), result in scores if name == "perplexity")
        assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("data", "trained_on", "validated_on"),
    [
        (
            {"mode": "continuous", "held_out": 2, "limit": 9},
            "books.txt, the first 9 documents, as continuous text",
            "books.txt, the first 9 documents: 2 documents held out, seed 7",
        ),
        (
            {"streaming": True, "held_out": 0.1, "validation_limit": 500},
            "books.txt, sentence by sentence",
            "books.txt: 10% of the documents held out, the first 500 sentences",
        ),
        (
            {"validation": "other.txt", "validation_limit": 1000, "limit": 5000},
            "books.txt, the first 5,000 sentences, sentence by sentence",
            "other.txt, the first 1,000 sentences",
        ),
    ],
)
def test_the_text_of_a_run(model, data, trained_on, validated_on):
    path = model / "training_config.yaml"
    settings = yaml.safe_load(path.read_text()) | {"seed": 7, "data": {"source": "books.txt"} | data}
    path.write_text(yaml.safe_dump(settings))
    write_card(model)
    card = of(model)
    assert f"Trained on {trained_on}; validated on {validated_on}." in card.text
    assert validated_on in {name for name, _ in by_name(card)}
    assert ("Give whole texts" in card.text) == (data.get("mode") == "continuous")


def test_a_commands_score_of_the_validation_text_stays(capsys, model, tmp_path):
    """Also when the card is written again; training counts its inner tokens otherwise."""
    record = run_json(capsys, "perplexity", model, "--data", "generated:200", "--held-out", 40)
    (tmp_path / "r.json").write_text(json.dumps(record))
    assert run(capsys, "card", model, "--results", tmp_path / "r.json")[0] == 0
    assert run(capsys, "card", model)[0] == 0
    found = by_name(of(model))["generated:200: 40 sentences held out, seed 0", "inner perplexity"]
    assert found.metric_value == pytest.approx(record["inner_perplexity"], abs=1e-4)


def test_a_file_may_have_results_of_other_models_too(capsys, model, tmp_path):
    shutil.copytree(model, tmp_path / "other")
    scores = run_json(capsys, "perplexity", tmp_path / "other", model, "--data", "generated:50:3")
    (tmp_path / "both.json").write_text(json.dumps(scores))
    run_json(capsys, "card", model, "--results", tmp_path / "both.json")
    value = by_name(of(model))["generated:50:3", "perplexity"].metric_value
    assert value == pytest.approx(scores["runs"][1]["perplexity"], abs=1e-4)
    (tmp_path / "both.json").write_text(json.dumps(scores | {"runs": scores["runs"][:1]}))
    status, _, err = run(capsys, "card", model, "--results", tmp_path / "both.json")
    assert (status, f"has results of {tmp_path / 'other'}, not of {model}" in err) == (2, True)


def test_notes_stay(capsys, model, tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("## Limits\n\nEnglish only. <b>\n")
    for arguments in (["--notes", notes], [], ["--name", "other"]):
        assert run(capsys, "card", model, *arguments)[0] == 0
        assert (model / "README.md").read_text().count("## Limits\n\nEnglish only. <b>\n") == 1
    status, out, err = run(capsys, "card", model, "--notes", tmp_path / "absent.md")
    assert (status, out, "absent.md" in err, err.count("\n")) == (2, "", True, 1)


def test_data_and_training_stay_in_a_model_without_its_run(capsys, model, tmp_path):
    """As `stack-lm export` writes it, or as someone else downloads it."""
    (tmp_path / "notes.md").write_text("## Data\n\nOf notes.")
    config = yaml.safe_load((model / "training_config.yaml").read_text())
    config["data"]["source"] = "hub:someone/text"
    (model / "training_config.yaml").write_text(yaml.safe_dump(config))
    assert run(capsys, "card", model, "--notes", tmp_path / "notes.md")[0] == 0
    before = of(model)
    for name in ("training_config.yaml", "metrics.jsonl"):
        (model / name).unlink()
    assert run(capsys, "card", model, "--license", "mit")[0] == 0
    after = of(model)
    assert before.data.datasets == after.data.datasets == "someone/text"
    sections = [
        card.text.partition("## Use")[2].partition("## Data\n")[2].partition("## Licence")[0]
        for card in (before, after)
    ]
    assert sections[0] == sections[1]
    assert "training_config.yaml" in sections[0]
    assert after.text.count("## Versions") == 1


def test_nobody_elses_card_is_replaced(capsys, model, tmp_path):
    (model / "README.md").write_text("# Mine\n")
    status, _, err = run(capsys, "card", model)
    assert (status, "README.md was not written by stack-lm, so it is not replaced" in err) == (2, True)
    assert (model / "README.md").read_text() == "# Mine\n"
    with pytest.raises(InputError, match="is not a model directory: it has no config.json"):
        write_card(tmp_path)


def test_a_model_with_a_layer_from_elsewhere(tmp_path):
    layers = [{"module": "transformers.models.mamba.modeling_mamba.MambaMixer", "settings": {"state_size": 2}}, "stack"]
    config = stack_lm.StackTransformerConfig(vocab_size=9, hidden_size=8, num_attention_heads=2, layers=layers)
    stack_lm.StackTransformerForCausalLM(config).save_pretrained(tmp_path)
    assert "stack" in of(write_card(tmp_path).parent).text


def test_the_model_that_a_run_began_with(model):
    """It is the `base_model` of the hub, unless it is a directory here."""
    config = yaml.safe_load((model / "training_config.yaml").read_text())
    hub = "someone/brown-u1"
    for initial, base, named in ((hub, hub, hub), (str(model), None, model.name)):
        config["training"]["initial_model"] = config["tokenizer"]["pretrained"] = initial
        (model / "training_config.yaml").write_text(yaml.safe_dump(config))
        card = of(write_card(model).parent)
        assert card.data.base_model == base
        assert f"It began with the weights of {named}." in card.text
        assert f"Vocabulary: that of {named}; sentence tokens" in card.text


def test_paths_of_this_machine_are_left_out():
    value = {"a": ["/tmp/x/run", "stack-lm parse ~/runs/u1 --data=/data/s.txt"], "b": "hf:someone/data", "c": 3}
    assert without_directories(value) == {
        "a": ["run", "stack-lm parse u1 --data=s.txt"],
        "b": "hf:someone/data",
        "c": 3,
    }
    assert without_directories("linzen:/data/linzen.tsv, runs/u1, 1/2") == "linzen:linzen.tsv, runs/u1, 1/2"


def test_a_dry_run_writes_what_would_be_uploaded(capsys, model, tmp_path, monkeypatch):
    (model / "README.md").unlink()
    for path in model.glob("*.py"):
        path.unlink()
    config = json.loads((model / "config.json").read_text())
    del config["auto_map"]
    (model / "config.json").write_text(json.dumps(config))
    (model / "notes.txt").write_text("private")
    found = run_json(capsys, "push", model, "someone/small", "--dry-run", tmp_path / "up")
    files = {path.name: path.read_bytes() for path in (tmp_path / "up").iterdir()}
    assert set(found["files"]) == set(files)
    assert set(files) == {
        *("config.json", "generation_config.json", "model.safetensors", "README.md", *model_code(STACK_RNN)),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert json.loads(files["config.json"])["auto_map"] == auto_map(STACK_RNN)
    assert "perplexity" in files["README.md"].decode()
    uploaded = fake_hub(monkeypatch)
    assert run_json(capsys, "push", model, "someone/small", "--private")["target"] == "https://hub/commit"
    assert uploaded.files == files
    assert (uploaded.repository, uploaded.private) == ("someone/small", True)
    run_json(capsys, "push", model, "someone/small", "--revision", "chck_1M")
    assert uploaded.branch == "chck_1M"
    status, _, err = run(capsys, "push", model, "someone/small", "--dry-run", tmp_path / "up")
    assert (status, "up" in err) == (2, True)


def test_a_model_pushes_its_code_and_a_card(tmp_path, monkeypatch):
    model = StackRNNForCausalLM(tiny_config())
    assert model.push_to_hub("someone/tiny", dry_run=tmp_path / "up", tags=["test"]) == str(tmp_path / "up")
    files = {path.name: path.read_bytes() for path in (tmp_path / "up").iterdir()}
    assert set(files) == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "README.md",
        *model_code(STACK_RNN),
    }
    data = of(tmp_path / "up").data
    assert (data.model_name, data.tags[-1], data.eval_results) == ("tiny", "test", None)
    uploaded = fake_hub(monkeypatch)
    assert model.push_to_hub("someone/tiny", tags=["test"], commit_message="First") == "https://hub/commit"
    assert (uploaded.files, uploaded.message) == (files, "First")
    uploaded = fake_hub(monkeypatch)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tag'"):
        model.push_to_hub("someone/tiny", tag="test")
    assert not vars(uploaded)
    # A card that is there is somebody's.
    uploaded = fake_hub(monkeypatch, there=["README.md"])
    model.push_to_hub("someone/tiny", code=False)
    assert set(uploaded.files) == {"config.json", "generation_config.json", "model.safetensors"}


def fake_hub(monkeypatch, there=()):
    uploaded = SimpleNamespace()

    class Hub:
        def __init__(self, token):
            pass

        def create_repo(self, repo_id, *, private, exist_ok):
            uploaded.repository, uploaded.private = repo_id, private
            return SimpleNamespace(repo_id=repo_id)

        def file_exists(self, repo_id, name):
            return name in there

        def create_branch(self, repo_id, *, branch, exist_ok):
            uploaded.branch = branch

        def upload_folder(self, *, repo_id, folder_path, ignore_patterns, commit_message, revision=None):
            uploaded.files = {p.name: p.read_bytes() for p in folder_path.iterdir() if p.name not in ignore_patterns}
            uploaded.message = commit_message
            return "https://hub/commit"

    monkeypatch.setattr(publishing, "HfApi", Hub)
    return uploaded


def test_failed_uploads_are_one_line(capsys, model, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("401\nmore")

    monkeypatch.setattr("stack_lm.cli.commands.push.upload", refuse)
    status, out, err = run(capsys, "push", model, "someone/small")
    assert (status, out, err) == (2, "", "stack-lm: error: cannot upload to someone/small: 401\n")
    status, _, err = run(capsys, "push", model, "bad name!!", "--dry-run", tmp_path / "up")
    assert (status, err.count("\n"), "'bad name!!'" in err, (tmp_path / "up").exists()) == (2, 1, True, False)


def test_a_paragraph_for_a_paper(capsys, model, tmp_path):
    run(capsys, "card", model)
    status, out, _ = run(capsys, "card", model, "--methods")
    assert status == 0
    assert out.startswith(f"We used {model.name} with stack-lm ")
    assert " It is a recurrent language model" in out
    assert " It was trained on " in out
    assert "made with" not in out
    assert out.count("\n") == 1
    assert run_json(capsys, "card", model, "--methods")["methods"] == out.strip()
    status, _, err = run(capsys, "card", tmp_path, "--methods")
    assert (status, f"{tmp_path} has no card; write one with stack-lm card" in err) == (2, True)
