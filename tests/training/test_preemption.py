"""A run that is asked to end saves a checkpoint and ends with its own status; resumed, it is as if nothing had been."""

import os
import signal

import pytest
from conftest import recipe
from test_run_directory import EACH_KIND, KINDS, checkpoints, records, same, validations

from stack_lm.training.loop import TrainingLoop
from stack_lm.training.preemption import STOPPED_STATUS, Stopped, StopSignals


def test_signals_are_remembered_and_handlers_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        assert signals.received is None
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == "SIGUSR1"
        assert signals.describe(1200).startswith("stopped by SIGUSR1 at step 1,200: the checkpoint is saved")
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(Stopped, match="stopped by SIGTERM outside of training") as stopped, StopSignals(at_once=True):
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.code == STOPPED_STATUS == 75
    assert signal.getsignal(signal.SIGTERM) is before


def signalled(monkeypatch, step, number=signal.SIGTERM):
    """Send the process a signal in the middle of an update."""
    update = TrainingLoop._update

    def interrupted(self, batches):
        if self.step + 1 == step:
            os.kill(os.getpid(), number)
        return update(self, batches)

    monkeypatch.setattr(TrainingLoop, "_update", interrupted)


@pytest.mark.parametrize("name", EACH_KIND)
@pytest.mark.parametrize("step", [3, 5, 7])  # within an epoch, at its end, in the next
def test_a_stopped_run_goes_on_exactly(tmp_path, monkeypatch, name, step):
    kind = KINDS[name]
    kind.run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        signalled(patch, step, signal.SIGUSR1)
        with pytest.raises(Stopped, match=f"at step {step}: the checkpoint is saved, and --resume continues from it"):
            kind.run(tmp_path / "part")
    assert not (tmp_path / "part" / "model.safetensors").exists()
    assert not (tmp_path / "part" / ".lock").exists()
    assert checkpoints(tmp_path / "part")[-1].name == f"checkpoint-{step}"
    kind.run(tmp_path / "part", resume=True)
    assert same(tmp_path / "part", tmp_path / "whole")
    assert validations(tmp_path / "part") == validations(tmp_path / "whole")
    volatile = ("seconds", "tokens_per_second", "sentences_per_second")
    speeds = [
        value for record in records(tmp_path / "part") for key, value in record.items() if key.endswith("_second")
    ]
    assert min(speeds) > 0
    logs = [
        [{key: value for key, value in record.items() if key not in volatile} for record in records(tmp_path / run)]
        for run in ("part", "whole")
    ]
    assert logs[0] == logs[1]  # the means of training losses are carried over too


def test_the_recipes_status(tmp_path, monkeypatch, capsys):
    options = [
        "data.source=generated:100",
        "training.epochs=1",
        "model.hidden_size=8",
        f"output_dir={tmp_path / 'run'}",
    ]
    with monkeypatch.context() as patch:
        signalled(patch, 2)
        assert recipe("train_lm").main(options) == 75
    err = capsys.readouterr().err.splitlines()
    assert err[-1] == (
        "stack-lm: stopped by SIGTERM at step 2: the checkpoint is saved, and --resume continues from it"
    )
    assert recipe("train_lm").main([*options, "--resume"]) == 0
    assert "resuming at step 2\n" in capsys.readouterr().err


def test_before_training_nothing_is_lost(tmp_path, monkeypatch, capsys):
    from stack_lm.training import language_model as module

    prepare = module.prepare_data

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGTERM)
        return prepare(*arguments, **options)

    monkeypatch.setattr(module, "prepare_data", interrupted)
    assert recipe("train_lm").main(["data.source=generated:100", f"output_dir={tmp_path / 'run'}"]) == 75
    assert "stack-lm: stopped by SIGTERM outside of training; nothing is lost\n" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
