"""`stack-lm interventions`: from models and a text to tables and JSON."""

import pytest
from conftest import run, run_json, tiny_config

from stack_lm import DeepStackRNNConfig, DeepStackRNNForCausalLM, StackRNNForCausalLM, train_word_tokenizer

TEXT = "the dog barks\ndogs that the old dog fears bark\nthe dog that cats fear barks\nold dogs bark\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models with one tokenizer, a text and items."""
    folder = tmp_path_factory.mktemp("interventions")
    (folder / "text.txt").write_text(TEXT)
    tokenizer = train_word_tokenizer([(line.split(), None) for line in TEXT.splitlines()])
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    layers = [{"memory": "stack", "hidden_size": 6}, {"memory": "queue", "hidden_size": 5}]
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 5, "pad_token_id": 0} | ids
    models = {
        "stack": StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **ids)),
        "free": StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), pop_control="sigmoid", **ids)),
        "lstm": StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), memory="none", **ids)),
        "deep": DeepStackRNNForCausalLM(DeepStackRNNConfig(layers=layers, **sizes)),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    rows = ["sentence\tverb_pos\tverb_index\tn_diff_intervening"]
    rows += ["the dog that cats fear barks\tVBZ\t6\t1", "the dog barks\tVBZ\t3\t0", "old dogs bark\tVBP\t3\t0"]
    (folder / "items.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_models_together(capsys, folder):
    models, data = [folder / "stack", folder / "free"], ["--data", folder / "text.txt", "--limit", 3]
    agreement = ["--agreement", folder / "items.tsv", "--format", "linzen"]
    found = run_json(capsys, "interventions", *models, *data, *agreement, "--shuffles", 2)
    assert (found["n_sentences"], found["n_items"]) == (3, 3)
    stack, free = found["models"]
    assert "pop-mean" not in stack["interventions"]
    assert list(found["together"]) == list(free["interventions"])
    shuffled, mean = (free["interventions"][name] for name in ("push-shuffled", "push-mean"))
    assert (len(shuffled["runs"]), len(mean["runs"]), mean["sd"]) == (2, 1, None)
    ratios = [run["inner_perplexity"] / free["untouched"]["inner_perplexity"] for run in shuffled["runs"]]
    assert [run["ratio"] for run in shuffled["runs"]] == pytest.approx(ratios)
    assert shuffled["mean"]["ratio"] == pytest.approx(sum(ratios) / 2)
    assert shuffled["sd"]["ratio"] == pytest.approx(abs(ratios[0] - ratios[1]) / 2**0.5, abs=1e-6)
    both = [model["interventions"]["one-element"]["mean"]["ratio"] for model in (stack, free)]
    assert found["together"]["one-element"]["mean"]["ratio"] == pytest.approx(sum(both) / 2)
    assert (found["together"]["pop-mean"]["n_models"], found["together"]["one-element"]["n_models"]) == (1, 2)
    untouched = run_json(capsys, "perplexity", models[0], "--data", folder / "text.txt")
    whole = run_json(capsys, "interventions", models[0], "--data", folder / "text.txt", "--only", "one-element")
    assert whole["models"][0]["untouched"]["inner_perplexity"] == pytest.approx(untouched["inner_perplexity"])
    assert list(whole["models"][0]["interventions"]) == ["one-element"]


def test_models_that_score_other_items(capsys, folder, tmp_path):
    """A model that does not know "fears" has no item without attractors."""
    tokenizer = train_word_tokenizer([(line.replace("fears", "fear").split(), None) for line in TEXT.splitlines()])
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    for part in (StackRNNForCausalLM(tiny_config(vocab_size=len(tokenizer), **ids)), tokenizer):
        part.save_pretrained(tmp_path / "small")
    for name, sentence, verb, gold in (
        ("x", "dogs that the old dog fears bark", "fears\tfear", "5\t{}\t0"),
        ("y", "the dog that cats fear barks", "barks\tbark", "5\t{}\t1"),
    ):
        (tmp_path / f"{name}.text").write_text(f"{sentence} <eos>\n")
        (tmp_path / f"{name}.gold").write_text(gold.format(verb) + "\n")
    data = ["--data", folder / "text.txt", "--only", "push-mean", "--format", "linzen-gulordava"]
    items = ["--agreement", tmp_path / "x.text", tmp_path / "y.text"]
    for models in ([folder / "stack", tmp_path / "small"], [tmp_path / "small", folder / "stack"]):
        found = run_json(capsys, "interventions", *models, *data, *items)
        assert set(found["together"]["push-mean"]["mean"]) == {"ratio", "agreement", "attractors 1"}


def test_tables(capsys, folder):
    data = ["--data", folder / "text.txt", "--only", "push-mean"]
    assert "shuffles" not in run(capsys, "interventions", folder / "stack", *data)[1]
    data.append("push-shuffled")
    status, out, err = run(capsys, "interventions", folder / "deep", *data, "--layer", 1)
    assert (status, err) == (0, "")
    assert "of 3 shuffles" in out
    assert "deep, memory layer 1" in out
    assert "push-shuffled" in out
    assert "models together" not in out
    status, out, _ = run(capsys, "interventions", folder / "stack", folder / "free", *data)
    assert "2 models together" in out


def test_errors_are_one_line(capsys, folder):
    data = ["--data", folder / "text.txt"]
    cases = (
        ([folder / "stack", folder / "lstm", *data], "lstm: the model has no memory (memory='none') to intervene on"),
        ([folder / "deep", *data], "2 memory layers: name one with layer (--layer)"),
        ([folder / "deep", *data, "--layer", 2], "below 2; got 2"),
        ([folder / "stack", *data, "--only", "push-man"], "--only must be one of push-mean, "),
        ([folder / "stack", *data, "--agreement", folder / "items.tsv"], "--agreement and --format go together"),
        ([folder / "stack", folder / "stack", *data], "given twice"),
        ([folder / "stack", *data, "--agreement", folder / "items.tsv", "--format", "linzen-numpred"], "must be one"),
    )
    for arguments, message in cases:
        status, out, err = run(capsys, "interventions", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1), err
        assert message in err
