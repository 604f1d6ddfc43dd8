"""The speed of train_lm's loop, beside the bare step on the same batches.

Example:
    python benchmarks/training.py --threads 1 --json training.json
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import median
from typing import Any

import torch
from report import Part, Row, Table, run_benchmark, timed
from timing import clock, synchronize

from stack_lm.core.checks import build
from stack_lm.core.config_files import merge, read_config
from stack_lm.training.batches import Batches
from stack_lm.training.config import RunConfig
from stack_lm.training.language_model import Trainer

Tell = Callable[[str], None]
PRESET = "merrill2019/brown_u1"
# Brown's sentences are 20 words long on average, with a long tail; its words are Zipf's.
MEAN_LENGTH, SHAPE, WORDS = 20.0, 2.2, 12_000


def write_corpus(path: Path, sentences: int) -> None:
    """Write random text with Brown's statistics, one sentence per line."""
    rng = random.Random(0)
    words = [f"w{rank}" for rank in range(WORDS)]
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(WORDS)))
    lengths = [max(2, round(rng.gammavariate(SHAPE, MEAN_LENGTH / SHAPE))) for _ in range(sentences)]
    lines = (" ".join(rng.choices(words, cum_weights=weights, k=length)) for length in lengths)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def make_trainer(folder: Path, args: argparse.Namespace, **training: Any) -> Trainer:
    """A trainer of the paper's sizes, or of small ones."""
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        write_corpus(corpus, 2_000 if args.quick else 20_000)
    values = read_config(PRESET)
    merge(values, {"output_dir": str(folder / "run"), "data": {"source": str(corpus), "held_out": 100}})
    merge(values, {"training": {"save_epochs": False} | training})
    if args.quick:
        merge(values, {"model": {"hidden_size": 8, "memory_size": 2}, "tokenizer": {"vocab_size": 100}})
    return Trainer(build(RunConfig, values), overwrite=(folder / "run").exists(), quiet=True)


class BareStep:
    """Only the forward pass, the backward pass and the optimizer."""

    def __init__(self, trainer: Trainer) -> None:
        self.collate = trainer.collate
        self.model = copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model)).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def seconds(self, batches: list[list[list[int]]]) -> float:
        """The time of a step on each batch; batches are collated beforehand."""
        ready = [self.collate(batch)[0] for batch in batches]
        now = clock(self.model.device)
        start = now()
        for inputs in ready:
            self.model(**inputs, use_cache=False).loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        synchronize(self.model.device)
        return now() - start


class Alternating:
    """Batches that time a trainer's loop on one block at a time, and after each block the bare step on it."""

    def __init__(self, inner: Batches, bare: BareStep, steps: int) -> None:
        self._inner, self._bare, self._steps = inner, bare, steps
        self.times: list[tuple[float, float, int]] = []

    @property
    def steps_per_epoch(self) -> int | None:
        """The number of steps of the batches within."""
        return self._inner.steps_per_epoch

    def read(self, position: dict[str, Any] | None) -> Iterator[tuple[list[list[int]], dict[str, Any]]]:
        """Yield the inner batches; the trainer's time for a block is the time until it requests the next."""
        batches, now = self._inner.read(position), clock(self._bare.model.device)
        while True:
            start = now()
            block = list(islice(batches, self._steps))
            yield from block
            synchronize(self._bare.model.device)
            loop = now() - start
            contents = [batch for batch, _ in block]
            tokens = sum(len(sentence) - 1 for batch in contents for sentence in batch)
            self.times.append((loop, self._bare.seconds(contents), tokens))


def measure_loop(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """The trainer's loop against the bare step."""
    steps, blocks = (2, 2) if args.quick else (20, 40)
    tell(f"{blocks} blocks of {steps} updates")
    with tempfile.TemporaryDirectory() as folder:
        # One extra update, so that the last block does not end in a validation.
        trainer = make_trainer(Path(folder), args, max_steps=(blocks + 1) * steps + 1, threads=args.threads or 1)
        trainer.batches = alternating = Alternating(trainer.batches, BareStep(trainer), steps)
        trainer.train()
    per_token = [(loop / tokens, bare / tokens) for loop, bare, tokens in alternating.times[1:]]  # the first compiles
    loops, bares = zip(*per_token, strict=True)
    return [
        {
            "threads": args.threads or 1,
            "loop_us/token": median(loops) * 1e6,
            "bare_us/token": median(bares) * 1e6,
            "bare/loop": median(bare / loop for loop, bare in per_token),
            "bare/loop_of_minima": min(bares) / min(loops),
            "loop_tokens/s": 1 / median(loops),
        }
    ]


def measure_optimizers(args: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure torch's variants of the optimizers on the model's weights."""
    forms: dict[str, tuple[type[torch.optim.Optimizer], dict[str, bool]]] = {
        "Adam, tensor by tensor": (torch.optim.Adam, {"foreach": False}),
        "Adam, foreach": (torch.optim.Adam, {"foreach": True}),
        "Adam, fused (used)": (torch.optim.Adam, {"fused": True}),
        "RMSprop, tensor by tensor": (torch.optim.RMSprop, {"foreach": False}),
        "RMSprop, foreach (used)": (torch.optim.RMSprop, {"foreach": True}),
    }
    tell("Adam and RMSprop")
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(Path(folder), args)
    steps: dict[str, Callable[[], Any]] = {}
    for name, (optimizer, form) in forms.items():
        model = copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model))
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        steps[name] = optimizer(model.parameters(), **form).step  # type: ignore[arg-type]
    times = timed(steps, args, 6)
    return [
        {"optimizer": name, "ms": times[name].median * 1e3, "ms_minimum": times[name].minimum * 1e3} for name in forms
    ]


PARTS = [
    Part(
        "loop",
        "train_lm's loop and the bare step on the same batches",
        "The bare step: forward and backward pass and fused Adam on batches that are collated already. bare/loop: the "
        "share of the bare step's speed that the loop has.",
        measure_loop,
    ),
    Part("optimizers", "A step of the optimizers alone", "Over the weights of the same model.", measure_optimizers),
]


def summarize(tables: list[Table], args: argparse.Namespace) -> Table | None:
    """The measured targets."""
    rows: list[Row] = []

    def add(what: str, measured: float, target: float) -> None:
        rows.append(
            {"what": what, "measured": measured, "target": f">= {target}", "met": "yes" if measured >= target else "no"}
        )

    for table in tables:
        for row in table["rows"]:
            if table["name"] == "loop":
                add(f"loop to bare step, {row['threads']} thread(s)", row["bare/loop"], 0.9)
    if args.quick or not rows:
        return None
    return {"name": "targets", "title": "Targets", "caption": "Ratios of speeds.", "rows": rows}


main = partial(run_benchmark, "training", PARTS, __doc__, summarize=summarize)


if __name__ == "__main__":
    sys.exit(main())
