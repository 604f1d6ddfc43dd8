"""The models in the repository: complete, small, listed, loadable."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

MODELS = Path(__file__).parents[2] / "models"
FOLDERS = sorted(path for path in MODELS.iterdir() if path.is_dir())
LARGEST = 45e6


def test_they_are_listed():
    rows = re.findall(r"^\| \[?`?([\w.-]+)`?\]?.*\|$", (MODELS / "README.md").read_text(), re.MULTILINE)
    assert sorted(name for name in rows if name != "model") == [path.name for path in FOLDERS]


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
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    logits = model(**tokenizer("the dog barks .", return_tensors="pt", return_token_type_ids=False)).logits
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
