"""The number of threads: a property of the run."""

import json
from types import SimpleNamespace

import pytest
import torch
from conftest import train_small

from stack_lm.training import loop
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.language_model import Trainer
from stack_lm.training.threads import MOST_THREADS, choose_threads


@pytest.mark.parametrize(
    ("setting", "device", "recorded", "expected"),
    [
        ("auto", "cpu", None, MOST_THREADS),
        ("auto", "cpu", 3, 3),
        (2, "cpu", 3, 2),
        ("auto", "cuda", None, 64),
        (2, "cuda", None, 64),
    ],
)
def test_the_number_follows_a_rule(monkeypatch, setting, device, recorded, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert choose_threads(setting, torch.device(device), recorded) == expected


def config(directory, **training):
    return RunConfig(
        output_dir=str(directory),
        model={"embedding_size": 6, "hidden_size": 8, "memory_size": 3},
        tokenizer=TokenizerConfig(vocab_size=100),
        data=DataConfig(source="generated:200", held_out=20),
        training=LoopConfig(**({"epochs": 1, "batch_size": 4} | training)),
    )


def test_a_run_has_one_number_of_threads_whatever_the_load_and_resumes_with_it(monkeypatch, tmp_path, capsys):
    available, used = [2], []
    set_num_threads = torch.set_num_threads
    monkeypatch.setattr(torch, "get_num_threads", lambda: available[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda number: (used.append(number), set_num_threads(1)))
    Trainer(config(tmp_path)).train()
    assert set(used) == {2}
    assert "training on 1 process(es), cpu, 2 thread(s)" in capsys.readouterr().err
    (checkpoint,) = (tmp_path / "checkpoints").iterdir()
    assert json.loads((checkpoint / "trainer_state.json").read_text())["threads"] == {"threads": 2}
    available[0] = 5
    assert Trainer(config(tmp_path, epochs=2), resume=True, quiet=True).threads == 2
    assert Trainer(config(tmp_path, epochs=2, threads=1), resume=True, quiet=True).threads == 1


def test_the_first_update_does_not_count_for_the_speed(tmp_path, monkeypatch):
    """It compiles, which would make the whole run look slow. Nor does a checkpoint between two records."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    update, save = loop.TrainingLoop._update, loop.TrainingLoop._save_checkpoint

    def timed(self, batches):
        clock.now += 100 if self.step == 0 else 1
        return update(self, batches)

    def saved(self, *arguments):
        clock.now += 1000
        save(self, *arguments)

    monkeypatch.setattr(loop.TrainingLoop, "_update", timed)
    monkeypatch.setattr(loop.TrainingLoop, "_save_checkpoint", saved)
    train_small(tmp_path, {}, max_steps=12, log_every=4, save_every=3, epochs=5)
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    speeds = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    assert len(speeds) == 4  # one at the end of the epoch
    assert max(speeds) < 2 * min(speeds)
