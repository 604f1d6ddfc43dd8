"""recipes/train_classifier.py as a user types it, and its classifiers as agreement asks them."""

import json
import random
import re

import numpy as np
import pytest
import torch
from conftest import recipe
from transformers.trainer_pt_utils import LengthGroupedSampler

from stack_lm import ModelScorer, train_word_tokenizer
from stack_lm.cli.main import main as stack_lm
from stack_lm.core.errors import InputError
from stack_lm.scoring.number_classifier import NumberClassifier
from stack_lm.training.batches import WholePools
from stack_lm.training.classification import LengthGroupedBatches
from stack_lm.training.compact import TokenArray

TRAIN = recipe("train_classifier")
SMALL = ["data.validation=null", "model.hidden_size=8", "model.embedding_size=6", "training.learning_rate=1.0e-2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The number of the first noun decides; another noun is in between."""
    directory = tmp_path_factory.mktemp("numpred")
    rng = random.Random(3)
    lines = []
    for _ in range(300):
        subject, other = (rng.choice([["dog", "cat", "boy"], ["dogs", "cats", "boys"]]) for _ in range(2))
        label = "VBP" if subject[0].endswith("s") else "VBZ"
        lines.append(f"{label}\tthe {rng.choice(subject)} near the {rng.choice(other)}\n")
    (directory / "numpred.train").write_text("".join(lines))
    (directory / "numpred.test.1").write_text("".join(lines[:50]))
    return directory


def arguments(data, output, *more):
    files = [f"data.train={data / 'numpred.train'}", f"data.test=[{data / 'numpred.test.1'}]", f"output_dir={output}"]
    return ["merrill2019/numpred_u1", *files, *SMALL, *more]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    output = tmp_path_factory.mktemp("runs") / "number"
    assert TRAIN.main(arguments(data, output, "training.epochs=6", "training.patience=2")) == 0
    return output


def test_a_run_learns_and_its_model_scores_as_the_recipe_said(capsys, data, run):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [record["eval_loss"] for record in records if "eval_loss" in record]
    assert min(losses) < losses[0]
    test = str(data / "numpred.test.1")
    assert stack_lm(["agreement", str(run), "--data", test, "--format", "linzen-numpred", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n"] == 50
    assert "sentence tokens: `<s>`." in (run / "README.md").read_text()  # which the tokenizer itself adds
    assert result["accuracy"] > 90
    assert result["by"]["attractors"]["1"]["n"] == 50


def test_the_scorer_gives_the_models_probabilities(run):
    scorer = NumberClassifier.from_pretrained(str(run), device="cpu", batch_tokens=8)
    prefixes = ["the dog near the cats", "the dogs", "the boys near the boy", ""]
    labels = [("VBZ", "VBP"), ("VBP", "VBZ"), ("VBZ",), ("VBZ",)]
    for text, names, result in zip(
        prefixes, labels, scorer.continuation_logprobs([p.split() for p in prefixes], labels), strict=True
    ):
        logits = scorer.model(torch.tensor([scorer.tokenizer(text).input_ids])).logits[0]
        expected = logits.log_softmax(-1)[[scorer.model.config.label2id[name] for name in names]]
        np.testing.assert_allclose(result, expected.detach(), atol=1e-5)
    scorer.tokenizer = train_word_tokenizer([(["the"], None)], add_bos=False)
    assert np.isnan(scorer.continuation_logprobs([[]], [("VBZ", "VBP")])[0]).all()
    assert scorer.knows("VBZ")
    assert not scorer.knows("is")


def test_a_test_file_is_cut_as_the_validation_file(capsys, data, tmp_path):
    test = data / "numpred.test.1"
    more = (f"data.validation={test}", "data.max_length=3", "training.epochs=2")
    assert TRAIN.main([*arguments(data, tmp_path / "run", *more), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test"][str(test)]["accuracy"] == pytest.approx(result["eval_accuracy"])
    scorer = NumberClassifier.from_pretrained(str(tmp_path / "run"), device="cpu")
    cut = NumberClassifier(scorer.model, scorer.tokenizer, max_length=3)
    asked = [["the", "dogs", "near", "the", "boy"]], [("VBZ", "VBP")]
    (whole,), (end,) = scorer.continuation_logprobs([asked[0][0][2:]], asked[1]), cut.continuation_logprobs(*asked)
    np.testing.assert_allclose(end, whole, atol=1e-6)


@pytest.mark.parametrize("n_processes", [1, 2, 3])
def test_sentences_come_in_the_order_of_transformers_each_once(n_processes):
    rng = random.Random(5)
    rows = TokenArray.pack([[[i] * rng.randint(2, 12) for i in range(40)]], 41)
    parts = [LengthGroupedBatches(WholePools(rows), 3, 9, rank, n_processes) for rank in range(n_processes)]
    readers = [part.read(None) for part in parts]
    for epoch in range(2):
        batches = [next(reader)[0] for _ in range(parts[0].steps_per_epoch) for reader in readers]
        generator = torch.Generator().manual_seed(1_000_003 * 9 + epoch)
        sampler = LengthGroupedSampler(3, lengths=rows.lengths.tolist(), generator=generator)
        assert [row[0] for batch in batches for row in batch] == list(sampler)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model.vocab_size=9"], "model.vocab_size cannot be set: it comes from the data"),
        (["data.test=[1]"], r"data.test\[0\] must be a string; got 1"),
    ],
)
def test_bad_input(capsys, data, tmp_path, more, message):
    assert TRAIN.main(arguments(data, tmp_path / "run", *more)) == 2
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_models_that_are_no_number_classifiers(run, tmp_path):
    with pytest.raises(InputError, match="cannot load a number classifier from"):
        NumberClassifier.from_pretrained(str(tmp_path / "none"))
    with pytest.raises(InputError, match="it is a StackRNNForSequenceClassification, not a complete language model"):
        ModelScorer.from_pretrained(str(run))
    scorer = NumberClassifier.from_pretrained(str(run), device="cpu")
    padding, scorer.tokenizer.pad_token = scorer.tokenizer.pad_token, None
    with pytest.raises(InputError, match="tokenizer has a padding token, as batches need it; this has none"):
        NumberClassifier(scorer.model, scorer.tokenizer)
    scorer.tokenizer.pad_token = padding
    scorer.model.config.label2id = {"A": 0, "B": 1}
    with pytest.raises(InputError, match="has the labels VBP and VBZ; this has A, B"):
        NumberClassifier(scorer.model, scorer.tokenizer)
