"""recipes/train_classifier.py on tables with any labels."""

import json
import random
from dataclasses import replace

import pytest
from conftest import byte_level_tokenizer, recipe
from tokenizers.processors import TemplateProcessing
from transformers import pipeline

from stack_lm.core.checks import build
from stack_lm.core.config_files import read_config
from stack_lm.text.labelled import LabelledText
from stack_lm.training.classification import ClassificationTrainer
from stack_lm.training.config import ClassificationConfig

TRAIN = recipe("train_classifier")
SMALL = ["model.hidden_size=8", "model.embedding_size=6", "training.learning_rate=1.0e-2", "training.threads=1"]


def table(path, rows, columns="review,stars"):
    path.write_text("\n".join([columns, *(f"{text},{label}" for text, label in rows)]) + "\n")
    return path


@pytest.fixture
def files(tmp_path):
    """Three labels, which a word decides."""
    rng = random.Random(0)
    words = {"good": "fine", "so-so": "middling", "bad": "awful"}
    rows = [(f"a {word} {rng.choice(['book', 'film'])}", label) for label, word in words.items() for _ in range(40)]
    rng.shuffle(rows)
    table(tmp_path / "train.csv", rows[30:])
    table(tmp_path / "test.csv", rows[:30])
    return tmp_path


def arguments(files, *more):
    named = [f"data.train={files / 'train.csv'}", f"data.test={files / 'test.csv'}", f"output_dir={files / 'run'}"]
    return [*named, "data.column=review", "data.label_column=stars", *SMALL, *more]


def test_three_labels(capsys, files):
    assert TRAIN.main(arguments(files, "training.epochs=4", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    (test,) = result["test"].values()
    assert test["n"] == 30
    assert test["accuracy"] == test["macro_f1"] == 100
    assert [one["label"] for one in test["labels"]] == ["bad", "good", "so-so"]
    classify = pipeline("text-classification", str(files / "run"))
    answers = classify(["a fine film", "a middling book", "awful"], batch_size=3)
    assert [answer["label"] for answer in answers] == ["good", "so-so", "bad"]
    assert "name: Text classification" in (files / "run" / "README.md").read_text()
    # Files of one name in two folders, and a preset's network, for labels that are numbers.
    rows = [("a b", k % 2) for k in range(20)]
    train = table(files / "numbers.csv", rows, "text,label")
    more = [f"data.train={train}", "data.validation=null", f"output_dir={files / 'other'}"]
    for folder in ("amazon", "yelp"):
        (files / folder).mkdir()
        table(files / folder / "test.csv", rows, "text,label")
    more.append(f"data.test=[{files / 'amazon' / 'test.csv'}, {files / 'yelp' / 'test.csv'}]")
    assert TRAIN.main(["merrill2019/numpred_u1", *more, *SMALL, "training.epochs=1"]) == 0
    out = capsys.readouterr().out
    assert "macro F1" in out
    assert "labels of amazon/test.csv" in out
    assert "labels of yelp/test.csv" in out
    assert json.loads((files / "other" / "config.json").read_text())["id2label"] == {"0": "0", "1": "1"}


def framing_tokenizer(directory):
    """A tokenizer from elsewhere, which puts tokens around each text, as BERT's does."""
    tokenizer = byte_level_tokenizer(cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")
    ids = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ids)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.mark.parametrize("own", [True, False], ids=["pretrained", "subwords"])
def test_tokenizers_of_other_kinds(capsys, files, own):
    """The pipeline's texts have the tokens of training, those around them too."""
    tokenizer = ["tokenizer.kind=bpe", "tokenizer.vocab_size=300"]
    if own:
        tokenizer = [f"tokenizer.pretrained={framing_tokenizer(files / 'theirs')}"]
    assert TRAIN.main(arguments(files, "training.epochs=6", "--json", *tokenizer)) == 0
    assert json.loads(capsys.readouterr().out)["test"].popitem()[1]["accuracy"] == 100
    classify = pipeline("text-classification", str(files / "run"))
    assert [answer["label"] for answer in classify(["a fine film", "a middling book"])] == ["good", "so-so"]
    texts = [LabelledText(("a", "fine", "film"), "good", "")]
    config = build(ClassificationConfig, read_config(files / "run" / "training_config.yaml"))
    trainer = ClassificationTrainer(replace(config, output_dir=str(files / "again")), quiet=True)
    assert list(trainer._encode(texts)[0])[:-1] == classify.tokenizer("a fine film").input_ids
    trainer.run.close()


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        ("train.csv", "", [], "train.csv is empty"),
        ("train.csv", "review,stars\na,x\nb,x\n", [], "needs two labels or more; all texts have 'x'"),
        ("train.csv", "reveiw,stars\na,x\nb,y\n", [], "no column 'review' (did you mean 'reveiw'"),
        ("train.csv", "review,stars\na,x\nb,\n", [], "row 2: a label must be a string or an integer; got ''"),
        ("test.csv", "review,stars\na,good\nb,great\n", [], "test.csv, row 2: no training text has the label 'great'"),
        ("train.csv", "review,stars\na,x\nb,y\n", ["data.train=''"], "data.train must name a file of labelled texts"),
        ("numpred.test.1", "VBZ\tthe dog\n", ["data.test=numpred.test.1"], "is a file of number prediction; "),
    ],
)
def test_bad_input(capsys, files, monkeypatch, name, content, more, message):
    monkeypatch.chdir(files)
    (files / name).write_text(content)
    assert TRAIN.main(arguments(files, *more)) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (files / "run").exists()
