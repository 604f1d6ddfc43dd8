"""Kill training at random moments, resume it, and compare the end with that of an undisturbed run.

Each run is killed (SIGKILL) again and again, and started anew with the same command, until it ends; then its weights
and metrics must be those of a run that was left alone, to the bit. Of two processes one or both are killed. Processes
are forked from this one, so that an attempt takes seconds. The figure has a line for each run, and on it where the run
was when it was killed.

Example:
    python benchmarks/kills.py --kills 100 --seed 0 --figure kills.png
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from safetensors.torch import load_file

from stack_lm.cli.files import FIGURES, check_files
from stack_lm.cli.options import option
from stack_lm.core.checks import build
from stack_lm.core.console import positive_int, print_json, print_note, print_table, run_command
from stack_lm.core.errors import InputError
from stack_lm.figures.figures import new_figure, save_figure, with_plain_text
from stack_lm.text import generate_corpus
from stack_lm.training.checkpoints import all_checkpoints, checkpoint_step
from stack_lm.training.config import RunConfig
from stack_lm.training.language_model import Trainer
from stack_lm.training.run_directory import CHECKPOINTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A run that does not end by itself within this time is considered hung.
PATIENCE = 300.0
UPDATES = 60  # of a run
# Of the log's entries those that depend on the machine.
VOLATILE = ("seconds", "tokens_per_second")


@dataclass(frozen=True)
class Case:
    """A training run to kill."""

    mode: str
    streaming: bool
    processes: int

    @property
    def name(self) -> str:
        """The display name of the case."""
        number = "two processes" if self.processes == 2 else "one process"
        return f"{self.mode}, {'stream' if self.streaming else 'in memory'}, {number}"

    def config(self, text: Path, directory: Path) -> RunConfig:
        """A run of some seconds, with dropout, so that the random state matters, and a checkpoint every few updates."""
        data = {"source": str(text), "mode": self.mode, "sequence_length": 12, "held_out": 0.15}
        if self.streaming:
            data |= {"streaming": True, "pool": 60, "workers": 0}
        training: dict[str, Any] = {
            "batch_size": 4,
            "log_every": 5,
            "save_every": 4,
            "eval_every": 30,
            "learning_rate": 3e-3,
        }
        training |= {"max_steps": UPDATES, "epochs": 100, "threads": 1, "loss_dtype": "float32"}
        model = {"embedding_size": 6, "hidden_size": 8, "memory_size": 3, "output_dropout": 0.1}
        tokenizer = {"vocab_size": 200}
        values = {"output_dir": str(directory), "seed": 3, "model": model, "tokenizer": tokenizer}
        return build(RunConfig, values | {"data": data, "training": training})


CASES = [
    Case(mode, streaming, processes)
    for mode in ("sentences", "continuous")
    for streaming in (False, True)
    for processes in (1, 2)
]


def write_texts(folder: Path, documents: int) -> None:
    """Write three files of documents of 2 to 9 sentences of the generated English, separated by empty lines."""
    rng = random.Random(0)
    sentences = (" ".join(sentence.words) for sentence in generate_corpus(9 * documents, seed=1))
    parts = ["\n".join(next(sentences) for _ in range(rng.randint(2, 9))) for _ in range(documents)]
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text("\n\n".join(parts[number::3]) + "\n", encoding="utf-8")


class Group:
    """The processes of an attempt, forked from this one, which has loaded all modules."""

    def __init__(self, number: int, work: Callable[[], Any], log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._log = log
        self._running = {self._fork(rank, number, port, work): rank for rank in range(number)}
        self.statuses: dict[int, int] = {}  # by rank, as subprocess has them

    def _fork(self, rank: int, number: int, port: int, work: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            os.dup2(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
            if number > 1:
                names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR")
                os.environ |= dict(zip(names, map(str, (rank, number, rank, number, port, "127.0.0.1")), strict=True))
            work()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def wait(self, seconds: float) -> bool:
        """Wait up to a time limit; True if all processes have ended by then."""
        end = time.monotonic() + seconds
        while self._running:
            for pid in list(self._running):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    self.statuses[self._running.pop(pid)] = os.waitstatus_to_exitcode(status)
            if self._running and time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def kill(self, ranks: Sequence[int], number: int = signal.SIGKILL) -> None:
        """Send a signal to some of the processes."""
        for pid, rank in self._running.items():
            if rank in ranks:
                os.kill(pid, number)


def outcome(directory: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """A run's weights, and the lines of its log that do not depend on the machine."""
    lines = map(json.loads, (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    records = [{key: value for key, value in line.items() if key not in VOLATILE} for line in lines]
    return load_file(directory / "model.safetensors"), records


def same(one: Path, two: Path) -> bool:
    """True if two runs ended in the same weights and metrics."""
    (weights, records), (other_weights, other_records) = outcome(one), outcome(two)
    return (
        weights.keys() == other_weights.keys()
        and all(torch.equal(weights[name], other_weights[name]) for name in weights)
        and json.dumps(records) == json.dumps(other_records)  # NaN included
    )


def kill_case(case: Case, kills: int, rng: random.Random, folder: Path) -> dict[str, Any]:
    """Kill runs of a case a given number of times, and compare each finished run with an undisturbed one."""
    text, log = folder / "texts", folder / "stderr.txt"

    def attempt(directory: Path) -> Group:
        return Group(
            case.processes, lambda: Trainer(case.config(text, directory), resume=True, quiet=True).train(), log
        )

    def finish(group: Group) -> None:
        if not group.wait(PATIENCE):
            group.kill(range(case.processes))
            group.wait(math.inf)
            raise InputError(f"{case.name}: a run hangs; see {log}")
        if any(group.statuses.values()):
            lines = log.read_text(encoding="utf-8").splitlines()
            raise InputError(f"{case.name}: a run ended with status {group.statuses}: {lines[-1] if lines else ''}")

    start = time.monotonic()
    finish(attempt(folder / "undisturbed"))
    usual = time.monotonic() - start
    done = equal = 0
    killed_at: list[list[int]] = []  # of each run, the last checkpoint at each kill
    while done < kills:
        directory = folder / f"run-{len(killed_at)}"
        killed_at.append([])
        ended = False
        while not ended:
            group, start = attempt(directory), time.monotonic()
            if done == kills or group.wait(rng.uniform(0, usual)):
                finish(group)
                usual = min(usual, max(1.0, time.monotonic() - start))
                ended = True
                continue
            group.kill(rng.choice([range(case.processes), *([rank] for rank in range(case.processes))]))
            # A launcher ends the others when one has died; before that they may see it themselves.
            if not group.wait(rng.choice([0.0, 0.3])):
                group.kill(range(case.processes))
                group.wait(math.inf)
            done += 1
            killed_at[-1].append(max(map(checkpoint_step, all_checkpoints(directory / CHECKPOINTS)), default=0))
        equal += same(directory, folder / "undisturbed")
    return {"case": case.name, "kills": done, "runs": len(killed_at), "equal": equal, "killed_at": killed_at}


@with_plain_text
def draw(cases: Sequence[dict[str, Any]]) -> Figure:
    """Draw each run as a line of updates, with a cross for each kill, and a count if a checkpoint has several."""
    runs = [(case["case"] if not i else "", kills) for case in cases for i, kills in enumerate(case["killed_at"])]
    figure = new_figure(7, 0.24 * len(runs) + 1, "")
    axes = figure.subplots()
    for row, (_, kills) in enumerate(runs):
        axes.plot([0, UPDATES], [row, row], color="0.8", linewidth=2, zorder=1)
        axes.plot(UPDATES, row, "o", color="0.8", markersize=9, zorder=1)
        for step, number in sorted(Counter(kills).items()):
            axes.plot(step, row, "x", color="#D55E00", markersize=6, zorder=2)
            if number > 1:
                axes.annotate(f"{number}", (step, row), (5, 2), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(len(runs)), [name for name, _ in runs])
    axes.invert_yaxis()
    axes.set_xlabel("last checkpoint when the run was killed (updates)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


def split(kills: int, parts: int) -> Iterator[int]:
    """Split a number into about equal parts."""
    return (kills // parts + (i < kills % parts) for i in range(parts))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status, 1 if a run's result differs from the undisturbed one's."""
    text, _, example = str(__doc__).partition("Example:")
    parser = argparse.ArgumentParser(
        description=text, epilog="Example:" + example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=positive_int, default=100, help="over all cases (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    option(parser, "--figure FILE", "draw where the runs were killed: .png, .pdf or .svg", endings=FIGURES)
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    options = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []

    def run() -> None:
        check_files(options)
        torch.set_num_threads(1)
        for number, (case, kills) in enumerate(zip(CASES, split(options.kills, len(CASES)), strict=True)):
            if not kills:
                continue
            with tempfile.TemporaryDirectory() as folder:
                write_texts(Path(folder) / "texts", 40)
                rows.append(kill_case(case, kills, random.Random(f"{options.seed}/{number}"), Path(folder)))
            print_note(f"{case.name}: {rows[-1]['kills']} kills, {rows[-1]['equal']} of {rows[-1]['runs']} runs equal")
        if options.figure:
            save_figure(options.figure, draw(rows))
        if options.json:
            print_json({"seed": options.seed, "cases": rows})
        else:
            columns = ["case", "kills", "runs", "equal"]
            print_table("killed and resumed", columns, [[row[column] for column in columns] for row in rows])

    status = run_command("kills", run)
    return status or int(any(row["equal"] < row["runs"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
