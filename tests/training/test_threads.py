"""The number of threads: measured in training's own updates, on a machine whose speeds the tests make up."""

import dataclasses
import itertools
import json
import re
from types import SimpleNamespace

import pytest
import torch
from conftest import train_small

from stack_lm.training import loop, threads
from stack_lm.training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
from stack_lm.training.language_model import Trainer
from stack_lm.training.threads import MEASURED, PAUSE, WINDOW, ThreadChooser


class Machine:
    """Tokens a second by number of threads, as a machine on which only updates take time."""

    def __init__(self, monkeypatch, speeds):
        self.speeds, self.number = speeds, max(speeds)
        self.used, self.said = [], []
        monkeypatch.setattr(threads.torch, "get_num_threads", lambda: self.number)
        monkeypatch.setattr(threads.torch, "set_num_threads", lambda number: setattr(self, "number", number))

    def chooser(self, setting="auto", state=None):
        return ThreadChooser(setting, torch.device("cpu"), self.said.append, state)

    def train(self, chooser, updates, tokens=100):
        with chooser.running():
            for _ in range(updates):
                self.used.append(self.number)
                chooser.observe(tokens, tokens / self.speeds[self.number])


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({1: 100, 2: 180}, 2),
        ({1: 100, 2: 40}, 1),
        ({1: 100, 2: 103}, 1),  # not worth another core
        ({1: 100, 4: 250, 8: 200}, 4),
        ({1: 100, 4: 20, 8: 300}, 8),
    ],
)
def test_the_fastest_number_is_taken(monkeypatch, speeds, chosen):
    machine = Machine(monkeypatch, speeds)
    chooser = machine.chooser()
    assert chooser.chosen is None
    machine.train(chooser, 1 + MEASURED * len(speeds) + 5)
    assert chooser.chosen == chosen
    assert machine.used[-5:] == [chosen] * 5
    assert machine.number == max(speeds)  # put back
    (line,) = machine.said
    assert line.startswith(f"training with {chosen} of {max(speeds)} threads, {speeds[chosen]} tokens/s (with ")


def test_measuring_takes_turns_and_gives_up_what_is_hopeless(monkeypatch):
    machine = Machine(monkeypatch, {1: 100, 2: 70, 4: 5})
    machine.train(machine.chooser(), 30)
    assert machine.used[:6] == [1, 1, 2, 4, 1, 2]  # the first loads and compiles, and does not count
    assert machine.used.count(4) == 1
    assert machine.used[-1] == 1


def test_one_thread_has_nothing_to_measure(monkeypatch):
    machine = Machine(monkeypatch, {1: 100})
    machine.train(machine.chooser(), 5)
    assert machine.said == []
    machine = Machine(monkeypatch, {1: 100, 2: 1, 8: 100})
    machine.train(machine.chooser(2), 5)
    assert machine.used == [2] * 5
    assert machine.number == 8


@pytest.mark.parametrize(
    ("speeds", "again"),
    [({1: 60, 2: 70}, 1), ({1: 100, 2: 95}, 0), ({1: 200, 2: 100}, 0), ({1: 90, 2: 85}, 1)],
    ids=["half", "not half", "not known", "below one thread"],
)
def test_it_measures_again_when_the_machine_becomes_slow(monkeypatch, speeds, again):
    machine = Machine(monkeypatch, {1: 100, 2: 150})
    chooser = machine.chooser()
    machine.train(chooser, 1 + 2 * MEASURED + WINDOW)
    assert chooser.chosen == 2
    machine.speeds = speeds
    machine.train(chooser, 2 * WINDOW + 2 * MEASURED)
    assert len(machine.said) == 1 + again
    if again:
        assert re.match(r"\d+ tokens/s after 150: training with ", machine.said[1])


def test_it_is_never_slower_than_one_thread_by_more_than_a_tenth(monkeypatch):
    machine = Machine(monkeypatch, {1: 100, 2: 150})
    chooser = machine.chooser()
    machine.train(chooser, 100)
    for busy in ({1: 95, 2: 10}, {1: 60, 2: 40}, {1: 100, 2: 170}, {1: 100, 2: 88}):
        machine.speeds = busy
        machine.train(chooser, 2 * WINDOW + 2 * MEASURED)
        machine.used.clear()
        machine.train(chooser, WINDOW)
        assert all(busy[number] >= 0.9 * busy[1] for number in machine.used), busy


def test_it_goes_back_to_more_threads_when_others_have_left(monkeypatch):
    machine = Machine(monkeypatch, {1: 100, 2: 40})
    chooser = machine.chooser()
    machine.train(chooser, 1 + 2 * MEASURED)
    assert chooser.chosen == 1
    seconds = MEASURED * (100 / 100 + 100 / 40)
    machine.train(chooser, int(PAUSE * seconds) - WINDOW)
    assert len(machine.said) == 1
    machine.speeds = {1: 100, 2: 150}
    machine.train(chooser, 2 * WINDOW + 2 * MEASURED)
    assert chooser.chosen == 2
    assert machine.said[1] == "measured again: training with 2 of 2 threads, 150 tokens/s (with 1: 100)"
    machine.used.clear()
    machine.train(chooser, 10_000)  # with all there are it has nothing to look for
    assert set(machine.used) == {2}


@pytest.mark.parametrize("slow", [5, 34, 60, 99])
def test_looking_for_more_threads_costs_little_and_ever_less(monkeypatch, slow):
    machine = Machine(monkeypatch, {1: 100, 2: slow})
    chooser = machine.chooser()
    machine.train(chooser, 100)
    resumed = machine.chooser(state=chooser.state())
    for trained in (chooser, resumed):
        machine.used.clear()
        machine.train(trained, 20_000)
        seconds = sum(100 / machine.speeds[number] for number in machine.used)
        assert seconds <= 1.05 * len(machine.used)
        tried = [i for i, number in enumerate(machine.used) if number == 2]
        breaks = [b - a for a, b in itertools.pairwise(tried) if b - a > 2 * MEASURED]
        assert 2 <= len(breaks) + 1 <= 8
        assert all(b > 1.5 * a for a, b in itertools.pairwise(breaks))
    assert len(machine.said) == 1  # nothing has changed


def test_a_resumed_chooser_keeps_its_choice_and_what_it_knows(monkeypatch):
    machine = Machine(monkeypatch, {1: 100, 2: 150})
    chooser = machine.chooser()
    machine.train(chooser, 100)
    machine.used.clear()
    resumed = machine.chooser(state=chooser.state())
    machine.train(resumed, 100)
    assert machine.used == [2] * 100
    machine.speeds = {1: 100, 2: 20}
    machine.train(resumed, 100)
    assert machine.used[-1] == 1
    assert machine.chooser(state=machine.chooser().state()).chosen is None  # it was stopped while it measured
    assert machine.chooser(state=machine.chooser(2).state()).chosen is None  # nothing was measured


def config(directory, **training):
    return RunConfig(
        output_dir=str(directory),
        model={"embedding_size": 6, "hidden_size": 8, "memory_size": 3},
        tokenizer=TokenizerConfig(vocab_size=100),
        data=DataConfig(source="generated:200", held_out=20),
        training=LoopConfig(**({"epochs": 1, "batch_size": 4} | training)),
    )


def test_the_trainer_measures_its_own_updates_and_resumes_with_its_choice(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    counts = []
    set_num_threads = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda number: (counts.append(number), set_num_threads(1)))
    trainer = Trainer(config(tmp_path / "a"))
    trainer.train()
    assert {1, 2} <= set(counts)
    assert "of 2 threads, " in capsys.readouterr().err
    chosen = trainer.threads.chosen
    resumed = Trainer(config(tmp_path / "a", epochs=2), resume=True, quiet=True)
    assert resumed.threads.chosen == chosen
    # Measuring trains on the same batches in the same order.
    fixed = Trainer(config(tmp_path / "b", threads=1), quiet=True)
    assert fixed.threads.chosen == 1
    result = fixed.train()
    assert result["eval_nats_per_token"] == pytest.approx(trainer._last["eval_nats_per_token"], rel=1e-5)
    assert dataclasses.asdict(fixed.config)["training"]["threads"] == 1


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
