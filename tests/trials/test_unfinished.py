"""Trials that were cut off go on, and end as if they had not been."""

import json
from contextlib import nullcontext

import pytest
import small_tasks
import torch
from small_tasks import TRAIN, config_values

from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.training.trials import run, unfinished
from stack_lm.training.trials.config import TaskConfig, comparable
from stack_lm.training.trials.learning import train
from stack_lm.training.trials.results import RESULTS_FILE
from stack_lm.training.trials.trial import Trial
from stack_lm.training.trials.unfinished import StateFile, state_files

ENDS = {0: 6, 1: 2, 2: 6, 3: 5}  # epochs by seed, of several trials


class Killed(BaseException):
    pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A state after each epoch."""
    monkeypatch.setattr(unfinished, "SECONDS", 0.0)


def make(task, seeds, model=(), **training):
    values = config_values(task, **{"epochs": 6, "learning_rate": 0.02, **training})
    values["model"] |= dict(model)
    return [Trial(build(TaskConfig, values | {"seed": seed})) for seed in range(seeds)]


def kill_after(epochs):
    told = []

    def report(share, said):
        told.append(share > 0)  # not of the start
        if sum(told) > epochs:  # what was trained since is lost
            raise Killed

    return report


CASES = {
    "dropout": ("test/per_step", 1, {"hidden_dropout": 0.3}, {"optimizer": "rmsprop", "max_grad_norm": 0.1}),
    "noise": ("test/sets", 1, {"memory": "superposition", "operation_control": "gumbel_softmax"}, {"keep": "best"}),
    "several": ("test/per_step", 4, {}, {"keep": "best", "decay_patience": 1, "loss_reduction": "steps"}),
    "buffered": ("buffered", 4, {}, {"loss_reduction": "steps"}),
    "online": ("test/language", 4, {}, {"optimizer": "sgd", "batch_by_length": True, "batch_size": 4}),
}


@pytest.mark.parametrize(("case", "killed"), [("several", 1), *((case, 4) for case in CASES)])
def test_a_trial_goes_on_exactly(tmp_path, monkeypatch, case, killed):
    task, seeds, model, training = CASES[case]
    end_epoch = Trial.end_epoch

    def early(self, *arguments):
        over = end_epoch(self, *arguments) or len(self.history) == ENDS[self.config.seed]
        self.over = over
        return over

    if seeds > 1:
        monkeypatch.setattr(Trial, "end_epoch", early)
    if case == "online":
        monkeypatch.setattr(small_tasks.EchoLanguage, "online", True)
    if case == "buffered":
        task, training = "test/per_step", training | {"architecture": "BufferedStackRNNForTransduction"}
    whole = make(task, seeds, model, **training)
    expected = train(whole)
    begun = make(task, seeds, model, **training)
    file = StateFile.of(tmp_path, 0, "row", [comparable(trial.config) for trial in begun])
    with pytest.raises(Killed):
        train(begun, kill_after(killed), file)
    assert [found.seeds for found in state_files(tmp_path, {0})] == [list(range(seeds))]
    torch.rand(3)  # what is drawn elsewhere does not matter
    resumed = make(task, seeds, model, **training)
    epochs = []
    found = train(resumed, lambda share, said: epochs.append(share), file)
    assert len(epochs) == 6 - killed
    for one, other in zip(found, expected, strict=True):
        for key in ("scores", "history", "epochs", "updates", "learning_rate", "together"):
            assert one[key] == other[key], key
    for one, other in zip(resumed, whole, strict=True):
        for name, tensor in one.model.state_dict().items():
            assert torch.equal(tensor, other.model.state_dict()[name]), name


def test_a_short_trial_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(unfinished, "SECONDS", 60.0)
    trials = make("test/per_step", 1)
    train(trials, file=StateFile.of(tmp_path, 0, "row", [comparable(trials[0].config)]))
    assert not any(tmp_path.iterdir())


def test_a_state_of_other_weights(tmp_path):
    trials = make("test/per_step", 1)
    file = StateFile.of(tmp_path, 0, "row", [comparable(trials[0].config)])
    with pytest.raises(Killed):
        train(trials, kill_after(1), file)
    with pytest.raises(InputError, match=r"0.safetensors does not fit its trials .*weight_ih.*; remove it"):
        train(make("test/per_step", 1, {"hidden_size": 5}), file=file)


@pytest.fixture
def files(tmp_path):
    rows = {("echo", "mean"): {"task": "test/per_step"}, ("echo", "sum"): {"task": "test/summed"}}
    measures = ["accuracy.minimum"]
    small_tasks.write_table(
        tmp_path, "A table", rows, columns=["task", "loss"], measures=measures, seeds=3, training={"epochs": 4}
    )
    return tmp_path


def run_table(capsys, *arguments):
    capsys.readouterr()
    status = TRAIN.main([str(argument) for argument in arguments])
    return status, capsys.readouterr().err


def cut_off(capsys, files, monkeypatch, *arguments, epochs=6):
    """Interrupt the run after the first epochs of all jobs."""
    with monkeypatch.context() as patch:
        told = []

        def advance(share):
            told.append(share > 0)
            if sum(told) > epochs:
                raise KeyboardInterrupt

        patch.setattr(run, "progress", lambda *names, **options: nullcontext(advance))
        assert run_table(capsys, files / "table.yaml", *arguments)[0] == 130


def lines(directory):
    records = [json.loads(line) for line in (directory / RESULTS_FILE).read_text().splitlines()]
    for record in records:
        for key in ("seconds", "seconds_of_training", "finished"):
            del record[key]
    return records


def test_a_run_goes_on_exactly(capsys, files, monkeypatch):
    whole = files / "whole"
    assert run_table(capsys, files / "table.yaml", f"output_dir={whole}")[0] == 0
    assert not (whole / "unfinished").exists()
    cut_off(capsys, files, monkeypatch)
    runs = files / "runs"
    assert [file.row for file in state_files(runs, {0, 1})] == ["echo, sum"]
    (runs / "unfinished" / "2" / ".0-1.partial.safetensors").touch()
    # Trials that began together go on together.
    status, err = run_table(capsys, files / "table.yaml", "--resume", "--together", 1)
    assert status == 0
    assert "3 of 6 trials are finished, and 3 continue from where they were interrupted" in err
    assert lines(runs) == lines(whole)
    assert not (runs / "unfinished").exists()
    for seed in range(3):
        weights = [folder / "models" / "2" / str(seed) / "model.safetensors" for folder in (runs, whole)]
        assert weights[0].read_bytes() == weights[1].read_bytes()


def test_states_that_do_not_fit(capsys, files, monkeypatch):
    cut_off(capsys, files, monkeypatch, epochs=2)
    (path,) = (files / "runs" / "unfinished").glob("*/*")
    before = path.read_bytes()
    for content in (before[:-9], b"no state"):
        path.write_bytes(content)
        status, err = run_table(capsys, files / "table.yaml", "--resume")
        assert status == 2
        assert "0.safetensors is no state of trials, or damaged; remove it, and its trials begin anew" in err
        assert len(err.splitlines()) == 1
    path.write_bytes(before)
    status, err = run_table(capsys, files / "table.yaml", "--resume", "training.learning_rate=0.5")
    assert status == 2
    assert "has trials of 'echo, mean' in which training.learning_rate was 0.001; it is 0.5 now" in err
    table = files / "table.yaml"
    text = table.read_text()
    table.write_text(text.replace("- echo\n  - mean", "- echo\n  - other"))
    assert table.read_text() != text
    status, err = run_table(capsys, table, "--resume")
    assert "has trials of its row 1, 'echo, mean', which is not in this table" in err
    assert path.read_bytes() == before
    table.write_text(text)
    path.write_bytes(b"no state")
    assert run_table(capsys, table, "--overwrite", "--seeds", 1)[0] == 0
    assert not path.exists()
    assert len(lines(files / "runs")) == 2


def test_fewer_seeds_than_have_begun(capsys, files, monkeypatch):
    cut_off(capsys, files, monkeypatch, epochs=2)
    status, err = run_table(capsys, files / "table.yaml", "--resume", "--seeds", 2)
    assert status == 0
    assert "0 of 4 trials are finished\n" in err
    assert not (files / "runs" / "unfinished").exists()


def test_lines_say_how_trials_stand(capsys, files, monkeypatch):
    monkeypatch.setattr("stack_lm.core.console.SECONDS", 0.0)
    status, err = run_table(capsys, files / "table.yaml", "--rows", "mean")
    assert status == 0
    said = [line for line in err.splitlines() if "epoch 2 of 4" in line]
    assert len(said) == 1
    assert said[0].startswith("echo, mean, seeds 0 to 2: epoch 2 of 4, loss ")
    assert ", validation accuracy " in said[0]
