"""One run directory for every trainer: started, killed, resumed, replaced, logged to and saved in the same way."""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

from stack_lm.core.errors import InputError
from stack_lm.training.classification import ClassificationTrainer
from stack_lm.training.config import (
    ClassificationConfig,
    ClassificationDataConfig,
    ClassificationLoopConfig,
    DataConfig,
    LoopConfig,
    RunConfig,
    TokenizerConfig,
)
from stack_lm.training.language_model import Trainer
from stack_lm.training.run_directory import RunDirectory

MODEL = {"embedding_size": 6, "hidden_size": 8, "memory_size": 3, "output_dropout": 0.1}


def language_model(directory, **training):
    return RunConfig(
        output_dir=str(directory),
        model=MODEL,
        tokenizer=TokenizerConfig(vocab_size=100),
        data=DataConfig(source="generated:60", held_out=20),
        training=LoopConfig(**({"epochs": 3, "batch_size": 8, "log_every": 2, "threads": 1} | training)),
    )


def classifier(directory, **training):
    file = Path(directory).parent / "numpred.train"
    if not file.exists():
        rng = random.Random(3)
        labels = rng.choices(["VBZ", "VBP"], k=60)
        file.write_text("".join(f"{x}\tthe {'dog' if x == 'VBZ' else 'dogs'} near the old cat\n" for x in labels))
    return ClassificationConfig(
        output_dir=str(directory),
        model=MODEL,
        data=ClassificationDataConfig(train=str(file), held_out=20),
        training=ClassificationLoopConfig(**({"epochs": 3, "batch_size": 8, "threads": 1} | training)),
    )


class Kind:
    """A trainer, and its tiny configuration."""

    def __init__(self, trainer, config):
        self.trainer, self.config = trainer, config

    def run(self, directory, *, quiet=True, resume=False, overwrite=False, **training):
        config = self.config(directory, **training)
        return self.trainer(config, resume=resume, overwrite=overwrite, quiet=quiet).train()


KINDS = {"language model": Kind(Trainer, language_model), "classifier": Kind(ClassificationTrainer, classifier)}
# Both have one loop: test_classification.py has what is a classifier's own.
EACH_KIND = ["language model", pytest.param("classifier", marks=pytest.mark.slow)]


@pytest.fixture(params=EACH_KIND)
def kind(request):
    return KINDS[request.param]


def weights(directory):
    return load_file(directory / "model.safetensors")


def same(one, two):
    one, two = weights(one), weights(two)
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def records(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def validations(directory):
    return [(record["step"], record["eval_loss" if "eval_loss" in record else "eval_nats_per_token"])
            for record in records(directory) if any(key.startswith("eval_") for key in record)]  # fmt: skip


def checkpoints(directory):
    return sorted((directory / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def files(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def stop_after(checkpoint, directory):
    """Make a finished run one that was stopped after a checkpoint."""
    for later in checkpoints(directory)[checkpoint + 1 :]:
        shutil.rmtree(later)
    for name in json.loads((directory / ".model_files.json").read_text()):
        (directory / name).unlink()
    (directory / ".model_files.json").unlink()


# --- resuming


@pytest.mark.parametrize("before", ["absent", "empty", "killed before its first checkpoint"])
def test_resuming_starts_where_there_is_no_checkpoint(capsys, tmp_path, kind, before):
    directory = tmp_path / "run"
    if before == "empty":
        directory.mkdir()
    elif before != "absent":
        run = RunDirectory(kind.config(directory), quiet=True)
        run.begin()
        run.log({"step": 1, "loss": 9.0})
        run.close()
    kind.run(directory, resume=True, quiet=False)
    assert capsys.readouterr().err.count(f"no checkpoint in {directory}: starting from the beginning\n") == 1
    kind.run(tmp_path / "other")
    assert same(directory, tmp_path / "other")
    assert all(record.get("loss") != 9.0 for record in records(directory))


def test_resuming_is_exact_and_says_where(capsys, tmp_path, kind):
    whole, part = tmp_path / "whole", tmp_path / "part"
    expected, _ = kind.run(whole), kind.run(part)
    stop_after(0, part)
    step = int(checkpoints(part)[0].name.split("-")[1])
    result = kind.run(part, resume=True, quiet=False)
    assert capsys.readouterr().err.count(f"resuming at step {step}\n") == 1
    assert same(part, whole)
    assert validations(part) == validations(whole)
    volatile = {"seconds"}
    assert {key: result[key] for key in result.keys() - volatile} == {
        key: expected[key] for key in expected.keys() - volatile
    }


def unfinished(checkpoint, how):
    """A checkpoint as a killed process may leave it."""
    (checkpoint / "manifest.json").unlink()
    if how == "no state":
        (checkpoint / "trainer_state.json").unlink()
    elif how == "half a state":
        state = (checkpoint / "trainer_state.json").read_text()
        (checkpoint / "trainer_state.json").write_text(state[: len(state) // 2])
    elif how == "empty":
        shutil.rmtree(checkpoint)
        checkpoint.mkdir()
    else:
        (checkpoint.parents[1] / ".partial").mkdir()
        checkpoint.rename(checkpoint.parents[1] / ".partial" / "checkpoints")


@pytest.mark.parametrize("how", ["no state", "half a state", "empty", "partial"])
def test_an_unfinished_checkpoint_is_not_taken_for_one(tmp_path, kind, how):
    kind.run(tmp_path / "run", epochs=2)
    kind.run(tmp_path / "other", epochs=2)
    stop_after(1, tmp_path / "run")
    first, last = checkpoints(tmp_path / "run")
    unfinished(last, how)
    run = RunDirectory(kind.config(tmp_path / "run", epochs=2), resume=True, quiet=True)
    assert run.checkpoint == first
    run.begin()
    assert checkpoints(tmp_path / "run") == [first]
    assert not (tmp_path / "run" / ".partial").exists()
    run.close()
    kind.run(tmp_path / "run", epochs=2, resume=True)
    assert same(tmp_path / "run", tmp_path / "other")


def test_damaged_records_are_removed(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    before = records(tmp_path / "run")
    later = json.dumps({"step": before[-1]["step"] + 1, "loss": 1.0}).encode()
    damaged = [
        later,
        b'{"step": [1]}',
        b'{"step": "1"}',
        b"{}",
        b"[" * 50_000,
        b'{"step": \xff}',
        b"1" * 5_000,
        b"null",
    ]
    with open(tmp_path / "run" / "metrics.jsonl", "ab") as file:
        file.write(b"\n".join(damaged) + b"\n")
    RunDirectory(kind.config(tmp_path / "run", epochs=1), resume=True, quiet=True).begin()
    assert records(tmp_path / "run") == before


def test_a_run_is_resumed_for_longer(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    kind.run(tmp_path / "run", epochs=3, resume=True)
    kind.run(tmp_path / "other", epochs=3)
    assert same(tmp_path / "run", tmp_path / "other")
    assert validations(tmp_path / "run") == validations(tmp_path / "other")
    assert yaml.safe_load((tmp_path / "run" / "training_config.yaml").read_text())["training"]["epochs"] == 3


def test_another_run_is_not_resumed(tmp_path, kind):
    config = kind.config(tmp_path / "run", epochs=1)
    kind.run(tmp_path / "run", epochs=1)
    others = {
        r"its model.hidden_size was 8, and is 9 now": {"model": MODEL | {"hidden_size": 9}},
        "its seed was 0, and is 1 now": {"seed": 1},
        r"its training.batch_size was 8, and is 4 now": {"training": replace(config.training, batch_size=4)},
    }
    before = files(tmp_path / "run")
    for message, change in others.items():
        with pytest.raises(InputError, match=f"cannot resume .*{message}"):
            kind.trainer(replace(config, **change), resume=True, quiet=True)
    assert files(tmp_path / "run") == before


@pytest.mark.parametrize("content", ["a: !!bool x", "- 1", "[" * 50_000])
def test_a_run_with_a_damaged_configuration_is_not_resumed(tmp_path, content):
    (tmp_path / "training_config.yaml").write_text(content)
    with pytest.raises(InputError, match="cannot resume .*training_config.yaml"):
        KINDS["language model"].trainer(KINDS["language model"].config(tmp_path, epochs=1), resume=True, quiet=True)


def test_a_run_from_before_a_setting_existed_is_resumed_with_its_default(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    path = tmp_path / "run" / "training_config.yaml"
    earlier = yaml.safe_load(path.read_text())
    del earlier["training"]["weight_decay"], earlier["data"]["limit"]
    path.write_text(yaml.safe_dump(earlier))
    with pytest.raises(InputError, match="its training.weight_decay was 0.0, and is 0.1 now"):
        kind.run(tmp_path / "run", epochs=1, weight_decay=0.1, resume=True)
    kind.run(tmp_path / "run", epochs=2, resume=True)


def test_a_completed_run_gives_its_results_again_also_elsewhere(tmp_path, kind):
    first = kind.run(tmp_path / "run")
    before = weights(tmp_path / "run"), records(tmp_path / "run"), [p.name for p in checkpoints(tmp_path / "run")]
    (tmp_path / "run").rename(tmp_path / "moved")
    again = kind.run(tmp_path / "moved", resume=True)
    first.pop("seconds", None), again.pop("seconds", None)
    assert again == first
    after = weights(tmp_path / "moved"), records(tmp_path / "moved"), [p.name for p in checkpoints(tmp_path / "moved")]
    assert after[1:] == before[1:]
    assert all(torch.equal(after[0][name], before[0][name]) for name in before[0])


def test_a_model_without_checkpoints_is_not_trained_anew(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    before = files(tmp_path / "run")
    with pytest.raises(InputError, match="has a model but no checkpoint: --overwrite it"):
        kind.run(tmp_path / "run", epochs=1, resume=True)
    assert files(tmp_path / "run") == before


# --- starting and replacing


def test_a_directory_that_is_not_empty_is_refused(tmp_path, kind):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InputError, match="is not empty: --resume its run"):
            kind.run(tmp_path / "run", resume=resume)
    with pytest.raises(InputError, match=r"is not a run \(it has no training_config.yaml\), so it is not overwritten"):
        kind.run(tmp_path / "run", overwrite=True)
    with pytest.raises(InputError, match="either resumed or overwritten"):
        kind.run(tmp_path / "run", resume=True, overwrite=True)
    assert files(tmp_path / "run") == {"notes.txt": b"mine"}
    with pytest.raises(InputError, match=r"cannot write in output_dir .*: (it is a file|Not a directory)"):
        kind.trainer(replace(kind.config(tmp_path / "run"), output_dir=str(tmp_path / "run" / "notes.txt" / "run")))


def test_overwriting_removes_what_a_run_wrote_and_nothing_else(tmp_path, kind):
    directory = tmp_path / "run"
    kind.run(directory, epochs=2)
    (directory / ".partial" / "model").mkdir(parents=True)
    mine = ["notes.txt", "extra.safetensors", "tokenizer-mine.json", "checkpoints/best/model", "epochs/plot.png"]
    for name in mine:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("mine")
    run = RunDirectory(kind.config(directory), overwrite=True, quiet=True)
    run.begin()
    run.close()
    assert set(files(directory)) == {"training_config.yaml", *mine}
    kind.run(directory, epochs=1, overwrite=True)
    kind.run(tmp_path / "other", epochs=1)
    assert same(directory, tmp_path / "other")
    assert records(directory)[-1]["epoch"] == 1


def test_a_run_that_cannot_start_leaves_the_earlier_one(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    before = files(tmp_path / "run")
    config = kind.config(tmp_path / "run")
    with pytest.raises(InputError, match="model: memory must be one of"):
        kind.trainer(replace(config, model={"memory": "heap"}), overwrite=True, quiet=True)
    with pytest.raises(InputError, match="cannot hold out 60 of 60 sentences"):
        kind.trainer(replace(config, data=replace(config.data, held_out=60)), overwrite=True, quiet=True)
    assert files(tmp_path / "run") == before


def test_a_model_that_cannot_be_saved_leaves_the_earlier_one(tmp_path, kind):
    kind.run(tmp_path / "run", epochs=1)
    before = files(tmp_path / "run")
    run = RunDirectory(kind.config(tmp_path / "run", epochs=1), resume=True, quiet=True)

    def write(directory):
        (directory / "model.safetensors").write_text("half")
        raise OSError("no space left")

    with pytest.raises(InputError, match=r"cannot write the model in .*: no space left; with --resume .* from step \d"):
        run.save_model(write)
    assert {name: text for name, text in files(tmp_path / "run").items() if ".partial" not in name} == before
