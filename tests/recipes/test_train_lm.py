"""recipes/train_lm.py, as a user types it."""

import json
import re
from pathlib import Path

import pytest
from conftest import recipe

RECIPES = Path(__file__).parents[2] / "recipes"


TRAIN = recipe("train_lm")
SMALL = ["data.source=generated:120", "training.epochs=1", "model.hidden_size=8"]


def test_a_configuration_with_overrides_in_both_styles(capsys, tmp_path):
    config = str(RECIPES / "configs" / "merrill2019" / "brown_d1.yaml")
    arguments = [config, *SMALL, "--data.held_out=0.2", "--training.batch_size=4", f"--output_dir={tmp_path / 'run'}"]
    assert TRAIN.main(arguments) == 0
    assert "validation perplexity" in capsys.readouterr().out
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (saved["push_control"], saved["pop_control"], saved["hidden_size"]) == (1.0, "expected_value", 8)
    assert TRAIN.main(arguments) == 2  # the run is there already
    assert TRAIN.main([*arguments, "--resume", "training.epochs=2"]) == 0
    assert TRAIN.main([*arguments, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["training.epoch=1"], "unknown key 'training.epoch'; the keys here are epochs,"),
        (["hao2018/linear_stack"], "the preset hao2018/linear_stack is for `stack-lm train task`"),
        (["--fast"], "unknown option '--fast'; an override is written key.key=value"),
    ],
)
def test_bad_input(capsys, tmp_path, arguments, message):
    assert TRAIN.main([*arguments, f"output_dir={tmp_path / 'run'}"]) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(f"stack-lm: .*{message}.*\n", captured.err)
    assert captured.out == ""
