"""When training stops early, and which model it takes then."""

import pytest
import torch
from safetensors.torch import load_file
from test_preemption import signalled
from test_run_directory import EACH_KIND, KINDS, checkpoints, same, validations

from stack_lm.hub.card import read_card
from stack_lm.training.preemption import Stopped
from stack_lm.training.stopping import EarlyStopping


@pytest.mark.parametrize(
    ("values", "patience", "more_is_better", "expected"),
    [
        ([1.0] * 20, 5, True, 6),  # as good as the best is not better
        ([0.1, 0.2, 0.1, 0.2, 0.3, 0.1, 0.3, 0.2], 3, True, 8),
        ([0.1, 0.2, 0.1, 0.2, 0.3], 3, True, None),
        ([3.0, 2.0, 2.0, 2.5], 2, False, 4),
        ([3.0, 4.0, 5.0], None, False, None),
    ],
)
def test_validations_that_are_not_better_are_counted_in_a_row(values, patience, more_is_better, expected):
    stopping = EarlyStopping(patience, more_is_better)
    found = None
    for number, value in enumerate(values, 1):
        best = stopping.best
        assert stopping.update_best(value) == (best is None or stopping.best != best)
        if stopping.over:
            found = number
            break
    assert found == expected
    assert stopping.best == (max if more_is_better else min)(values[:found])


# --- in the loop: five updates an epoch, each a validation

LOSSES = {5: 3.0, 10: 2.0, 15: 2.5, 20: 2.0, 25: 1.0, 30: 1.5}


@pytest.fixture(params=EACH_KIND)
def kind(request, monkeypatch):
    found = KINDS[request.param]

    def evaluate(self):
        loss = LOSSES.get(self.step, 9.0)
        return {f"eval_{self.LOSS}": loss, "eval_accuracy": 10 * loss}, f"loss {loss}"

    monkeypatch.setattr(found.trainer, "evaluate", evaluate)
    return found


def steps(directory):
    return [int(path.name.split("-")[1]) for path in checkpoints(directory)]


def weights_of(directory, step):
    return load_file(directory / "checkpoints" / f"checkpoint-{step}" / "model.safetensors")


def same_model(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


def test_a_run_stops_and_its_model_is_the_best(tmp_path, kind):
    run = tmp_path / "run"
    result = kind.run(run, epochs=6, patience=2, keep_checkpoints=1)
    assert result.get("epoch", result.get("best_epoch")) == 2
    assert [step for step, _ in validations(run)] == [5, 10, 15, 20]
    assert steps(run) == [10, 20]  # the best and the last
    assert same_model(load_file(run / "model.safetensors"), weights_of(run, 10))
    assert not same_model(load_file(run / "model.safetensors"), weights_of(run, 20))


@pytest.mark.parametrize("step", [3, 5, 8, 10, 13, 15, 18])
def test_stopped_by_a_signal_and_resumed_it_stops_where_it_would_have(tmp_path, kind, monkeypatch, capsys, step):
    kind.run(tmp_path / "whole", epochs=6, patience=2)
    with monkeypatch.context() as patch:
        signalled(patch, step)
        with pytest.raises(Stopped):
            kind.run(tmp_path / "part", epochs=6, patience=2)
    capsys.readouterr()
    kind.run(tmp_path / "part", epochs=6, patience=2, resume=True, quiet=False)
    assert "training.patience was not set" not in capsys.readouterr().err
    assert same(tmp_path / "part", tmp_path / "whole")
    assert validations(tmp_path / "part") == validations(tmp_path / "whole")


def test_a_run_that_is_over_may_wait_longer(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=6, patience=2)
    again = kind.run(tmp_path / "run", epochs=6, patience=1, resume=True)
    assert again.get("epoch", again.get("best_epoch")) == 2
    assert len(validations(tmp_path / "run")) == 4
    kind.run(tmp_path / "run", epochs=6, patience=3, resume=True)
    kind.run(tmp_path / "whole", epochs=6, patience=3)
    assert same(tmp_path / "run", tmp_path / "whole")
    assert validations(tmp_path / "run") == validations(tmp_path / "whole")


def test_patience_that_comes_later_counts_from_then_and_the_card_has_the_score_of_the_model(tmp_path, kind, capsys):
    run = tmp_path / "run"
    kind.run(run, epochs=5, patience=None)
    kind.run(run, epochs=6, patience=5, resume=True, quiet=False)
    assert "patience was not set before, so earlier validations do not" in " ".join(capsys.readouterr().err.split())
    assert same_model(load_file(run / "model.safetensors"), weights_of(run, 30))
    (accuracy,) = (each for each in read_card(run / "README.md").eval_results if each.metric_type == "accuracy")
    assert accuracy.metric_value == 10 * LOSSES[30]


def test_the_best_within_an_epoch_is_saved(tmp_path, kind, monkeypatch):
    monkeypatch.setitem(LOSSES, 8, 0.5)
    kind.run(tmp_path / "run", epochs=6, patience=3, eval_every=4)
    assert [step for step, _ in validations(tmp_path / "run")] == [4, 5, 8, 10, 12, 15]
    assert steps(tmp_path / "run") == [8, 10, 15]
    assert same_model(load_file(tmp_path / "run" / "model.safetensors"), weights_of(tmp_path / "run", 8))


def test_a_best_model_that_is_damaged_is_left_out(tmp_path, kind, capsys):
    run = tmp_path / "run"
    kind.run(run, epochs=6, patience=2, keep_checkpoints=1)
    (run / "checkpoints" / "checkpoint-10" / "model.safetensors").unlink()
    kind.run(run, epochs=6, patience=2, resume=True, quiet=False)
    said = " ".join(capsys.readouterr().err.split())
    assert "the model of step 10, the best so far, is left out: model.safetensors is missing" in said
    assert same_model(load_file(run / "model.safetensors"), weights_of(run, 25))
