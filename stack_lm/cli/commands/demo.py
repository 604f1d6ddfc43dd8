"""`stack-lm demo`: the main workflow in five to ten minutes, on the built-in generated English.

It runs other commands, prints each as one would type it, and what it prints.
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.atomic import write_text
from ...core.console import Parser, json_value, print_note
from ...core.errors import InputError
from ..options import option, shared
from ..report import Report

SENTENCE = "the dog that the cats fear chases a rabbit near the old bridge ."
FIGURE = "strengths.png"
HELD_OUT = 1_000
PARSED = 500

EXAMPLE = "stack-lm demo --output runs/demo"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm demo`."""
    output = "output directory, which replaces an earlier demo"
    option(parser, "-o, --output DIR", output, default="runs/demo")
    option(parser, "--limit N", "generated sentences", default=20_000)
    option(parser, "--epochs N", "training epochs", default=8)
    shared(parser, "--seed", seed="seed of the training runs (default: 0)")


def run(options: argparse.Namespace) -> Report:
    """Train both models, score them, and write the results."""
    started = time.perf_counter()
    output = Path(options.output)
    if output.is_dir() and any(output.iterdir()) and not (output / "stack").is_dir():
        raise InputError(f"--output {output} is neither empty nor an earlier demo; name another directory")
    if options.limit <= 2 * HELD_OUT:
        raise InputError(f"--limit must be more than {2 * HELD_OUT}; got {options.limit}")
    from ...figures.figures import check_matplotlib
    from ...text.generated import generate_corpus
    from . import agreement, parse, parse_f1, perplexity, strengths, train_lm

    for earlier in ("metrics.json", FIGURE):  # results of the models that this run replaces
        (output / earlier).unlink(missing_ok=True)
    stack, lstm, trees = (str(output / name) for name in ("stack", "lstm", "gold.mrg"))
    seed, corpus = str(options.seed or 0), f"generated:{options.limit}"
    results: dict[str, Any] = {}
    for path, memory in ((stack, "stack"), (lstm, "none")):
        training = f"data.source={corpus} data.held_out={HELD_OUT} seed={seed} model.memory={memory}"
        training += f" tokenizer.lowercase=none training.epochs={options.epochs} training.batch_size=16"
        training += " training.learning_rate=1.0e-3 training.loss_dtype=float32"
        results[Path(path).name] = _run(options, "train lm", train_lm, *training.split(), "-o", path, "--overwrite")
    held_out = ("--data", corpus, "--held-out", str(HELD_OUT), "--seed", seed)
    results["perplexity"] = _run(options, "perplexity", perplexity, stack, "--against", lstm, *held_out)
    generated = ("--data", "1", "--format", "generated")
    results["agreement"] = _run(options, "agreement", agreement, stack, "--against", lstm, *generated)
    gold = [" ".join(str(sentence.tree).split()) for sentence in generate_corpus(PARSED, seed=1)]
    write_text(trees, "".join(f"({tree})\n" for tree in gold))
    rules = ("--data", trees, "--convention", "prpn", "--baselines")
    results["parsing"] = _run(options, "parse-f1", parse_f1, stack, *rules)
    results["parse"] = _run(options, "parse", parse, stack, SENTENCE)
    figure = ["--figure", str(output / FIGURE)]
    try:
        check_matplotlib()
    except InputError as error:
        figure = []
        print_note(f"no figure is drawn: {error}")
    results["strengths"] = _run(options, "strengths", strengths, stack, "--data", trees, *figure)
    results["seconds"] = time.perf_counter() - started
    write_text(output / "metrics.json", json.dumps(json_value(results), indent=2) + "\n")
    note = "one model of one seed: F1 swings by several points from epoch to epoch and seed to seed"
    return Report(results, [f"all this took {results['seconds']:.0f} s; {note}"], [str(output / "metrics.json")])


def _run(options: argparse.Namespace, name: str, command: ModuleType, *arguments: str) -> dict[str, Any]:
    """Run another command and, without --json, print what it prints; returns its record."""
    print_note(f"$ stack-lm {name} {shlex.join(arguments)}")
    parser = Parser(prog=f"stack-lm {name}")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(command=name)
    command.add_options(parser)
    report = command.run(parser.parse_args(arguments))
    if not isinstance(report, Report):  # a run that a signal ended
        raise SystemExit(report)
    if not options.json:
        report.print(as_json=False)
    return report.record
