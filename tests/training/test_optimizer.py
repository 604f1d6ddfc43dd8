"""The optimizer and its learning rate over the updates, also of a run that is resumed."""

import shutil

import pytest
import torch
from test_language_model import metrics, run_config, same, weights

from stack_lm.core.errors import InputError
from stack_lm.training.config import LoopConfig
from stack_lm.training.language_model import Trainer
from stack_lm.training.optimizer import make_optimizer


class RateRecorder(Trainer):
    """Records the learning rate of each update."""

    def _update(self, batches):
        self.rates = [*getattr(self, "rates", []), self.updater.optimizer.param_groups[0]["lr"]]
        return super()._update(batches)


def test_learning_rate_schedule(tmp_path):
    config = run_config(tmp_path, epochs=1, schedule="linear", warmup_steps=5, log_every=1, learning_rate=1e-2)
    trainer = RateRecorder(config, quiet=True)
    trainer.train()
    rates = [record["learning_rate"] for record in metrics(tmp_path) if "train_nats_per_token" in record]
    assert rates == trainer.rates
    assert rates[:6] == pytest.approx([0, 2e-3, 4e-3, 6e-3, 8e-3, 1e-2])
    assert rates[-1] == pytest.approx(1e-3)


def test_a_constant_rate_falls_at_the_end(tmp_path):
    rates = {}
    for name, decay in (("constant", 0), ("decay", 4)):
        settings = {"learning_rate": 1e-2, "decay_steps": decay, "warmup_steps": 2, "log_every": 1, "save_every": 5}
        Trainer(run_config(tmp_path / name, epochs=1, keep_checkpoints=9, **settings), quiet=True).train()
        rates[name] = [r["learning_rate"] for r in metrics(tmp_path / name) if "train_nats_per_token" in r]
    assert rates["constant"] == pytest.approx([0, 5e-3] + 13 * [1e-2])
    assert rates["decay"] == pytest.approx([0, 5e-3] + 10 * [1e-2] + [7.5e-3, 5e-3, 2.5e-3])

    # Given to a run at a constant rate, from a checkpoint before its end.
    part = tmp_path / "constant"
    shutil.rmtree(part / "checkpoints" / "checkpoint-15")
    (part / "model.safetensors").unlink()
    resumed = Trainer(run_config(part, epochs=1, keep_checkpoints=9, **settings), resume=True, quiet=True)
    assert resumed.step == 10
    resumed.train()
    assert same(weights(part), weights(tmp_path / "decay"))


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"max_steps": 8, "decay_steps": 4}, {"max_steps": 12, "decay_steps": 4}, True),  # in the old fall
        ({"max_steps": 8}, {"max_steps": 10, "decay_steps": 6}, True),  # in the new one
        ({"max_steps": 8}, {"max_steps": 12, "decay_steps": 4}, False),
    ],
)
def test_a_resumed_run_has_the_rates_of_its_own_schedule(tmp_path, capsys, before, after, changed):
    fixed = {"save_every": 6, "keep_checkpoints": 9, "log_every": 100}
    whole = RateRecorder(run_config(tmp_path / "whole", **fixed, **after), quiet=True)
    whole.train()
    part = tmp_path / "part"
    Trainer(run_config(part, **fixed, **before), quiet=True).train()
    shutil.rmtree(part / "checkpoints" / "checkpoint-8")
    (part / "model.safetensors").unlink()
    resumed = RateRecorder(run_config(part, **fixed, **after), resume=True)
    assert resumed.updater.scheduler.get_last_lr() == [resumed.updater.optimizer.param_groups[0]["lr"]]
    resumed.train()
    assert resumed.rates == whole.rates[6:]
    assert ("the schedule has changed: after step 6 the learning rate is" in capsys.readouterr().err) == changed


def test_a_fall_that_cannot_be(tmp_path, capsys):
    with pytest.raises(InputError, match="decay_steps needs training.schedule constant; got linear"):
        run_config(tmp_path, schedule="linear", decay_steps=3).check()
    with pytest.raises(InputError, match="warmup_steps and decay_steps, 3 and 13, are more than the run's 15 updates"):
        Trainer(run_config(tmp_path, epochs=1, warmup_steps=3, decay_steps=13))
    assert "loss" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind", "rate", "settings"),
    [
        ("rmsprop", torch.optim.RMSprop, 1e-3, {}),
        ("sgd", torch.optim.SGD, 1.0, {"momentum": 0.5}),
        ("Adafactor", torch.optim.Adafactor, 0.1, {"d": 2.0}),
        ("torch.optim.nadam.NAdam", torch.optim.NAdam, 1e-2, {"betas": [0.9, 0.95]}),
    ],
)
def test_other_optimizers(name, kind, rate, settings, tmp_path):
    chosen = {"optimizer": name, "learning_rate": rate, "optimizer_settings": settings}
    config = run_config(tmp_path, epochs=1, log_every=1, **chosen)
    trainer = Trainer(config, quiet=True)
    assert isinstance(getattr(trainer.updater.optimizer, "optimizer", trainer.updater.optimizer), kind)
    assert settings.items() <= trainer.updater.optimizer.param_groups[0].items()
    trainer.train()
    losses = [record["train_nats_per_token"] for record in metrics(tmp_path) if "train_nats_per_token" in record]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("adamx", {}, r"training.optimizer must be one of adadelta, .*; got 'adamx'; did you mean 'adamax'\?"),
        ("lbfgs", {}, "training.optimizer must be one of"),
        ("nowhere.Lion", {}, "training.optimizer: cannot import nowhere.Lion: ModuleNotFoundError: No module named"),
        ("torch.nn.Linear", {}, "training.optimizer must be one of"),
        ("adam", {"beta": 1}, r"training.optimizer_settings must be one of betas, .* did you mean 'betas'\?"),
        ("muon", {}, "training.optimizer muon cannot be used here: Muon only supports 2D parameters"),
        ("rprop", {"weight_decay": 1}, "training.optimizer_settings must be one of"),
    ],
)
def test_optimizers_that_cannot_be(name, settings, message):
    given = LoopConfig(optimizer=name, optimizer_settings=settings)
    with pytest.raises(InputError, match=message) as caught:
        make_optimizer(given, [torch.nn.Parameter(torch.ones(2))], 1e-3, torch.device("cpu"))
    assert "\n" not in str(caught.value)


def test_a_resumed_run_may_change_its_rate_and_schedule_and_records_it(tmp_path, capsys):
    fixed = {"save_every": 6, "keep_checkpoints": 9, "log_every": 100}
    after = {"max_steps": 12, "schedule": "linear", "learning_rate": 1e-2}
    Trainer(run_config(tmp_path, max_steps=6, **fixed), quiet=True).train()
    resumed = RateRecorder(run_config(tmp_path, **fixed, **after), resume=True)
    resumed.train()
    assert resumed.rates == pytest.approx([1e-2 * (12 - step) / 12 for step in range(6, 12)])
    (record,) = (each for each in metrics(tmp_path) if "changed" in each)
    assert record["step"] == 6
    assert record["changed"]["training.schedule"] == {"before": "constant", "now": "linear"}
    assert {*record["changed"]} == {f"training.{name}" for name in after}
    assert "training.learning_rate was" in capsys.readouterr().err
