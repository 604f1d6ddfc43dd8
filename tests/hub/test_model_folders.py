"""The models in the repository: complete, small, listed, loadable."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from stack_lm import Parser
from stack_lm.hub.card_scores import read_scores

MODELS = Path(__file__).parents[2] / "models"
FOLDERS = sorted(path for path in MODELS.iterdir() if path.is_dir())
LIST = (MODELS / "README.md").read_text()
LARGEST = 60e6


def test_they_are_listed():
    rows = re.findall(r"^\| \[?`?([\w.-]+)`?\]?.*\|$", LIST, re.MULTILINE)
    assert sorted(name for name in rows if name != "model") == [path.name for path in FOLDERS]


def test_the_scores_in_the_list_are_those_in_the_cards():
    listed = re.findall(r"^\| \[([\w-]+)\].*?\| ?([\d.]*) \| ?([\d.]*) \| ?([\d.]*) \|$", LIST, re.MULTILINE)
    assert len(listed) == len(FOLDERS)
    models, scores = read_scores([MODELS / name for name, *_ in listed])
    trees = [("nltk:treebank", rf"F1, convention {name}(, push_strength, algorithm1)?") for name in ("prpn", "merrill")]
    for (data, metric), column in zip((("wiki.txt", "inner perplexity"), *trees), (1, 2, 3), strict=True):
        found = [score for score in scores if re.fullmatch(metric, score.metric) and score.data.startswith(data)]
        values = {model: value for score in found for model, value in score.values.items()}
        assert [row[column] for row in listed] == [str(values[model]) if model in values else "" for model in models]


def test_they_are_small_and_in_git_itself():
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < LARGEST
    assert "lfs" not in (MODELS.parent / ".gitattributes").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_model_is_complete(folder):
    weights = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
    card = (folder / "README.md").read_text()
    assert card.startswith("---\n")
    assert "license" in card
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if AutoConfig.from_pretrained(folder).model_type == "span_parser":
        tree = Parser.from_pretrained(str(folder))("the dog that the cats fear barks loudly .").tree
        assert str(tree) == "((the dog) (that ((the (cats (fear (barks loudly)))) .)))"
        return
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    logits = model(**tokenizer("the dog barks .", return_tensors="pt", return_token_type_ids=False)).logits
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
