"""How the recipes tell configurations from overrides."""

import pytest

from stack_lm.cli.recipe import split_arguments
from stack_lm.core.errors import InputError


def test_an_override_whose_value_is_a_file_is_no_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = ["data.source=notes.yml", "output_dir=runs/a.yaml", "--training.epochs=2"]
    assert split_arguments(["merrill2019/brown_u1", *pairs]) == (["merrill2019/brown_u1"], pairs)
    (tmp_path / "lr=0.1").mkdir()
    (tmp_path / "lr=0.1" / "mine.yaml").write_text("seed: 1")
    assert split_arguments(["lr=0.1/mine.yaml"]) == (["lr=0.1/mine.yaml"], [])
    with pytest.raises(InputError, match="unknown option '--epochs'"):
        split_arguments(["--epochs", "2"])
