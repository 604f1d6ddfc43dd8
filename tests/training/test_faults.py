"""What goes wrong around a run: damaged checkpoints, a full disk, a read-only directory, losses that are NaN."""

import json
import math
import resource
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from test_run_directory import EACH_KIND, KINDS, checkpoints, files, language_model, records, same, stop_after

from stack_lm.core.checks import build
from stack_lm.core.errors import InputError
from stack_lm.training import loop
from stack_lm.training.config import RunConfig
from stack_lm.training.language_model import Trainer
from stack_lm.training.lock import RunLock
from stack_lm.training.run_directory import RunDirectory


@pytest.fixture(params=EACH_KIND)
def kind(request):
    return KINDS[request.param]


# --- damaged checkpoints


def damage(path, how):
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Runs of both kinds, each with two checkpoints and no model yet; and those that were left alone."""
    directory = tmp_path_factory.mktemp("stopped")
    for name, kind in KINDS.items():
        (directory / name).mkdir()
        kind.run(directory / name / "whole", epochs=2)
        kind.run(directory / name / "run", epochs=2)
        stop_after(1, directory / name / "run")
    return directory


def copy_of(stopped, name, tmp_path):
    shutil.copytree(stopped / name, tmp_path / name)
    config = tmp_path / name / "run" / "training_config.yaml"
    config.write_text(config.read_text().replace(str(stopped), str(tmp_path)))  # where a classifier's data are
    return tmp_path / name / "run"


@pytest.mark.parametrize("name", EACH_KIND)
@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "one bit"])
def test_any_damage_to_any_file_of_the_newest_checkpoint_is_found(stopped, tmp_path, name, how):
    run = copy_of(stopped, name, tmp_path)
    first, newest = checkpoints(run)
    config = KINDS[name].config(run, epochs=2)
    for path in sorted(path for path in newest.rglob("*") if path.is_file()):
        if (path.name, how) == ("manifest.json", "missing"):
            continue  # below
        content = path.read_bytes()
        damage(path, how)
        found = RunDirectory(config, resume=True, quiet=True)
        assert found.checkpoint == first, path
        (warning,) = found._warnings
        assert str(newest) in warning
        if path.name != "manifest.json":  # of which one bit may be another file's checksum
            assert f"{path.relative_to(newest)} is {'missing' if how == 'missing' else 'damaged'}" in warning
        path.write_bytes(content)
    assert RunDirectory(config, resume=True, quiet=True).checkpoint == newest


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_damaged_checkpoint_is_left_out_with_a_warning(stopped, tmp_path, name, capsys):
    run = copy_of(stopped, name, tmp_path)
    first, newest = checkpoints(run)
    damage(newest / "model.safetensors", "one bit")
    KINDS[name].run(run, epochs=2, resume=True, quiet=False)
    err = " ".join(capsys.readouterr().err.split())
    assert (
        f"{newest} is damaged: model.safetensors is damaged; continuing from the one before, {first} resuming at" in err
    )
    assert same(run, stopped / name / "whole")


@pytest.mark.parametrize("name", EACH_KIND)
def test_where_all_checkpoints_are_damaged_nothing_is_removed(stopped, tmp_path, name):
    run = copy_of(stopped, name, tmp_path)
    for checkpoint in checkpoints(run):
        damage(checkpoint / "model.safetensors", "missing")
    before = files(run)
    with pytest.raises(InputError, match=r"model.safetensors is missing; there is no other checkpoint: restore it"):
        KINDS[name].run(run, epochs=2, resume=True)
    assert files(run) == before


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_checkpoint_without_a_manifest_is_taken_with_a_warning(stopped, tmp_path, name):
    run = copy_of(stopped, name, tmp_path)
    newest = checkpoints(run)[-1]
    (newest / "manifest.json").unlink()
    found = RunDirectory(KINDS[name].config(run, epochs=2), resume=True, quiet=True)
    assert found.checkpoint == newest
    assert found._warnings == [f"{newest} has no manifest.json, so its files are not checked"]


def test_a_checkpoint_of_another_version_is_refused(stopped, tmp_path):
    run = copy_of(stopped, "language model", tmp_path)
    for checkpoint in checkpoints(run):
        state = json.loads((checkpoint / "trainer_state.json").read_text())
        del state["position"]
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))
        (checkpoint / "manifest.json").unlink()
    before = files(run)
    with pytest.raises(InputError, match="is from another version: trainer_state.json lacks position"):
        KINDS["language model"].run(run, epochs=2, resume=True)
    assert files(run) == before


# --- the lock


def test_a_second_run_is_refused_at_once(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    holder = RunLock(tmp_path / "run")
    holder.acquire()
    before = files(tmp_path / "run")
    for options in ({"resume": True}, {"overwrite": True}, {}):
        with pytest.raises(InputError, match="run is in use by another run; two runs cannot share it"):
            kind.run(tmp_path / "run", epochs=2, **options)
    assert files(tmp_path / "run") == before
    holder.release()
    kind.run(tmp_path / "run", epochs=2, resume=True)


def test_a_run_that_cannot_start_gives_the_lock_back(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    config = kind.config(tmp_path / "run", epochs=2)
    RunLock(tmp_path / "run").acquire()  # leaves its file, as a killed run does
    with pytest.raises(InputError, match="model: memory must be one of"):
        kind.trainer(replace(config, model={"memory": "heap"}), overwrite=True, quiet=True)
    kind.run(tmp_path / "run", epochs=2, resume=True)


# --- a full disk


@pytest.fixture
def full_disk():
    """Files cannot grow beyond some bytes, as on a full disk: writes fail below Python, in torch and safetensors."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize(
    ("name", "size"),
    [("language model", size) for size in (300, 3_000, 9_000, 20_000)]
    + [pytest.param("classifier", size, marks=pytest.mark.slow) for size in (300, 3_000, 9_000)],
)
def test_a_full_disk_leaves_the_earlier_checkpoints(stopped, tmp_path, name, size, full_disk):
    run = copy_of(stopped, name, tmp_path)
    shutil.rmtree(checkpoints(run)[-1])
    before = files(checkpoints(run)[0])
    (run / "metrics.jsonl").write_text("")  # so that it is not what cannot grow
    full_disk(size)
    with pytest.raises(InputError, match=r"cannot write .*(File too large|as on a full disk)"):
        KINDS[name].run(run, epochs=2, resume=True)
    full_disk(-1)
    assert files(checkpoints(run)[0]) == before
    assert not (run / "model.safetensors").exists()
    KINDS[name].run(run, epochs=2, resume=True)
    assert same(run, stopped / name / "whole")


# --- losses that are not finite


def poisoned(directory, word=None, **training):
    """A trainer whose model's embedding of one word is NaN, and that word's id."""
    trainer = Trainer(language_model(directory, **training), quiet=True)
    tokenizer = trainer.data.tokenizer
    number = tokenizer.convert_tokens_to_ids(word) if word else 2 + len(tokenizer) // 2
    with torch.no_grad():
        trainer.model.model.embed_tokens.weight[number] = float("nan")
    return trainer, number


def test_updates_that_are_not_finite_are_skipped(tmp_path, monkeypatch, capsys):
    """As if their batches had not been there."""
    trainer, number = poisoned(tmp_path / "run", on_nan="skip", log_every=1, epochs=1)
    skipped, finite = [], []

    def update(self, batches):
        def watched():
            batch, position = next(batches)
            poisoned_batch = any(number in sentence[:-1] for sentence in batch)
            (skipped if poisoned_batch else finite).append(self.step + 1)
            before.update({name: value.clone() for name, value in self.model.state_dict().items()})
            yield batch, position

        before = {}
        count = original(self, watched())
        changed = any(
            not torch.equal(value.nan_to_num(), before[name].nan_to_num())
            for name, value in self.model.state_dict().items()
        )
        assert changed == (self.step + 1 in finite)
        return count

    original = loop.TrainingLoop._update
    monkeypatch.setattr(loop.TrainingLoop, "_update", update)
    monkeypatch.setattr(trainer, "evaluate", lambda: ({"eval_nats_per_token": 1.0}, ""))
    monkeypatch.setattr(trainer.updater, "fault", lambda step: None)  # the poisoned one stays
    trainer.train()
    assert skipped
    assert finite
    log = {record["step"]: record for record in records(tmp_path / "run") if "skipped_updates" in record}
    assert [step for step, record in log.items() if record["skipped_updates"]] == skipped
    assert all(("train_nats_per_token" in log[step]) == (step in finite) for step in log)


def test_a_run_that_skips_everything_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "MOST_SKIPPED", 4)
    trainer, _ = poisoned(tmp_path / "run", on_nan="skip")
    with torch.no_grad():
        trainer.model.lm_head.bias.fill_(float("nan"))
    with pytest.raises(InputError, match="4 updates in a row, up to step 4, were not finite and skipped"):
        trainer.train()
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_gradient_that_is_not_finite_leaves_the_earlier_checkpoint(tmp_path):
    """The loss of the update is finite, and the run ends before another loss is computed."""
    config = language_model(tmp_path / "run", max_steps=6, save_every=2, log_every=2, eval_every=100)
    trainer = Trainer(config, quiet=True)
    weight = trainer.model.lm_head.weight
    weight.register_hook(lambda gradient: gradient * math.inf if trainer.step == 3 else gradient)
    with pytest.raises(InputError, match=r"weight is not finite at step 4, .*; training.on_nan=skip ignores such"):
        trainer.train()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["checkpoint-2"]
    resumed = Trainer(config, resume=True, quiet=True)
    assert resumed.train()["step"] == 6


# --- configurations


def test_a_model_that_no_machine_holds_leaves_no_files(tmp_path, kind):
    config = replace(kind.config(tmp_path / "run"), model={"hidden_size": 10**18})
    with pytest.raises(InputError, match="^model: "):
        kind.trainer(config, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": {"mode": "continuous"}, "training": {"tokens_per_batch": 500}}, "tokens_per_batch is for sentences"),
        (
            {"data": {"mode": "continuous", "source": "generated:50"}},
            "one of them must be left to train on",
        ),
    ],
)
def test_modes_that_cannot_be(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        Trainer(build(RunConfig, {"output_dir": str(tmp_path / "run")} | change), quiet=True)
    assert not (tmp_path / "run").exists()
