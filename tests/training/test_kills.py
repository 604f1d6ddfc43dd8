"""A few of the kills of benchmarks/kills.py: both modes, in memory and streamed, one process and two."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[2] / "benchmarks" / "kills.py"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_killed_runs_end_as_undisturbed_ones(tmp_path):
    figure = tmp_path / "kills.png"
    command = [sys.executable, str(KILLS), "--kills", "16", "--seed", "1", "--json", "--figure", str(figure)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-3000:]
    cases = json.loads(done.stdout)["cases"]
    assert [case["kills"] for case in cases] == [2] * 8
    assert all(case["equal"] == case["runs"] == len(case["killed_at"]) > 0 for case in cases)
    assert all(0 <= step <= 60 for case in cases for of_run in case["killed_at"] for step in of_run)
    assert figure.stat().st_size > 10_000


# Groups of processes, forked as by the kills.
GROUPS = """
import json, os, resource, signal, sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import kills
import torch
from stack_lm.core.quiet import quiet_libraries

torch.set_num_threads(1)
quiet_libraries()
folder = Path(sys.argv[3])
kills.write_texts(folder / "texts", 40)

def start(directory, processes, before=lambda: None, **training):
    case = kills.Case("sentences", True, processes)
    config = case.config(folder / "texts", folder / directory)
    config = replace(config, training=replace(config.training, **training))
    def work():
        before()
        kills.Trainer(config, resume=True).train()
    return kills.Group(processes, work, folder / f"{directory}.err")

def run(directory, processes, **training):
    group = start(directory, processes, **training)
    assert group.wait(300)
    return group.statuses

def checkpoints(directory):
    return sorted(int(path.name.split("-")[1]) for path in (folder / directory / "checkpoints").iterdir())
"""


def groups(tmp_path, script):
    command = [sys.executable, "-c", GROUPS + script, str(KILLS.parent), "-", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_run_goes_on_on_other_numbers_of_processes(tmp_path):
    groups(
        tmp_path,
        """
for processes, steps in ((2, 10), (1, 16), (3, 22), (2, 28)):
    assert set(run("run", processes, max_steps=steps).values()) == {0}, (folder / "run.err").read_text()[-2000:]
    assert checkpoints("run")[-1] == steps
""",
    )
    said = (tmp_path / "run.err").read_text()
    for now, before in ((1, 2), (3, 1), (2, 3)):
        assert f"resuming on {now} process(es) a run of {before}: on the same sentences, in other batches\n" in said
    losses = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    perplexities = [record["eval_perplexity"] for record in losses if "eval_perplexity" in record]
    assert perplexities == sorted(perplexities, reverse=True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_stops_both_at_the_same_update(tmp_path, rank):
    groups(
        tmp_path,
        f"""
group = start("run", 2, max_steps=100_000, save_every=100_000)
while "training on" not in (folder / "run.err").read_text() or group.wait(1):
    time.sleep(0.1)
group.kill([{rank}], signal.SIGTERM)
assert group.wait(120)
assert group.statuses == {{0: 75, 1: 75}}, group.statuses
(step,) = checkpoints("run")
assert set(run("run", 2, max_steps=step + 3).values()) == {{0}}
assert f"resuming at step {{step:,}}" in (folder / "run.err").read_text()
""",
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_full_disk_ends_both_processes_in_the_same_line(tmp_path):
    groups(
        tmp_path,
        """
assert set(run("run", 2, max_steps=8).values()) == {0}

def fill():
    if os.environ["RANK"] == "0":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, -1))

assert set(run("run", 2, max_steps=20, before=fill).values()) == {1}
said = (folder / "run.err").read_text()
assert said.count("InputError: cannot write the checkpoint of step 12") == 2, said[-3000:]
assert "with --resume the run continues from step 8" in said
assert checkpoints("run") == [4, 8]
assert set(run("run", 2, max_steps=20).values()) == {0}
""",
    )
