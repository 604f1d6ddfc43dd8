"""`stack-lm demo`: the main workflow in five to ten minutes, on the built-in generated English."""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import write_text
from ..console import non_negative_int, positive_int, print_json, print_note, print_table, print_written
from ..errors import InputError

if TYPE_CHECKING:
    from ..scoring.sentences import ModelScorer

SENTENCE = "the dog that the cats fear chases a rabbit near the old bridge .".split()
FIGURE = "strengths.png"
HELD_OUT = 1_000
PARSED = 500

EXAMPLE = "stack-lm demo --output runs/demo"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm demo`."""
    parser.add_argument(
        "--output",
        default="runs/demo",
        metavar="DIR",
        help="output directory (default: runs/demo); replaces an earlier demo",
    )
    parser.add_argument(
        "--sentences", type=positive_int, default=20_000, metavar="N", help="generated sentences (default: 20000)"
    )
    parser.add_argument("--epochs", type=positive_int, default=8, metavar="N", help="training epochs (default: 8)")
    parser.add_argument(
        "--seed", type=non_negative_int, default=0, metavar="N", help="seed of the training runs (default: 0)"
    )


def run(options: argparse.Namespace) -> None:
    """Train both models, score them, and write the results."""
    started = time.perf_counter()
    output = Path(options.output)
    if output.exists() and not output.is_dir():
        raise InputError(f"--output {output} is a file; a directory is needed")
    if output.is_dir() and any(output.iterdir()) and not (output / "stack").is_dir():
        raise InputError(f"--output {output} is neither empty nor an earlier demo; name another directory")
    if options.sentences <= 2 * HELD_OUT:
        raise InputError(f"--sentences must be more than {2 * HELD_OUT}; got {options.sentences}")
    from ..scoring.sentences import ModelScorer
    from ..training.config import DataConfig, LoopConfig, RunConfig, TokenizerConfig
    from ..training.language_model import Trainer

    for earlier in ("metrics.json", FIGURE):  # results of the models that this run replaces
        (output / earlier).unlink(missing_ok=True)
    results: dict[str, Any] = {}
    scorers: dict[str, ModelScorer] = {}
    for name, memory in (("stack", "stack"), ("lstm", "none")):
        print_note(f"training {'the stack RNN' if name == 'stack' else 'the LSTM baseline'} ...")
        config = RunConfig(
            output_dir=str(output / name),
            seed=options.seed,
            model={"memory": memory},
            tokenizer=TokenizerConfig(lowercase="none"),
            data=DataConfig(source=f"generated:{options.sentences}", held_out=HELD_OUT),
            training=LoopConfig(epochs=options.epochs, batch_size=16, learning_rate=1e-3, loss_dtype="float32"),
        )
        trainer = Trainer(config, overwrite=True)
        trained = trainer.train()
        model = trainer.accelerator.unwrap_model(trainer.model)
        scorers[name] = ModelScorer(model, trainer.data.tokenizer)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        results[name] = {"parameters": parameters, "training_seconds": trained["seconds"]}
        results[name] |= _score_language_model(scorers[name], options)
    results["parsing"] = _score_parses(scorers["stack"])
    figure = _draw(scorers["stack"], output)
    results["figure"] = figure
    results["seconds"] = time.perf_counter() - started
    write_text(output / "metrics.json", json.dumps(results, indent=2) + "\n")
    if options.json:
        print_json(results)
        return
    _print(results, output)


def _score_language_model(scorer: ModelScorer, options: argparse.Namespace) -> dict[str, Any]:
    from ..data import hold_out, open_corpus
    from ..eval import evaluate_agreement, evaluate_perplexity, read_agreement

    sentences = list(open_corpus(f"generated:{options.sentences}"))
    _, held = hold_out(sentences, HELD_OUT, options.seed)
    agreement = evaluate_agreement(scorer, read_agreement("1", "generated"))
    return {
        "perplexity": dataclasses.asdict(evaluate_perplexity(scorer.trace([s.words for s in held]))),
        "agreement": agreement.record(),
    }


def _score_parses(scorer: ModelScorer) -> dict[str, Any]:
    """The F1 of the stack model's trees on new sentences, with baselines."""
    from ..data.generated import generate_corpus
    from ..parsing import (
        balanced,
        distances_from_trace,
        left_branching,
        random_distances,
        right_branching,
        score_trees,
        tree_from_distances,
    )

    trees = [sentence.tree for sentence in generate_corpus(PARSED, seed=1)]
    traces = scorer.trace([tree.leaves() for tree in trees], logprobs=False)
    signal = scorer.parsing_signal
    rng = random.Random(0)
    candidates = {
        "stack RNN": [tree_from_distances(t.words, distances_from_trace(t, signal)) for t in traces],
        "left branching": [left_branching(tree.leaves()) for tree in trees],
        "right branching": [right_branching(tree.leaves()) for tree in trees],
        "balanced": [balanced(tree.leaves()) for tree in trees],
        "random distances": [random_distances(tree.leaves(), rng) for tree in trees],
    }
    scores = {name: score_trees(trees, predicted, "prpn") for name, predicted in candidates.items()}
    return {
        "convention": "prpn",
        "n_sentences": PARSED,
        "f1": {name: score.f1 for name, score in scores.items()},
        "label_recall": scores["stack RNN"].label_recall,
    }


def _draw(scorer: ModelScorer, output: Path) -> str | None:
    """Draw the figure; returns its path, or None if matplotlib is not installed."""
    from ..interpretation.figures import NO_MATPLOTLIB, can_draw, plot_strengths, save_figure

    if not can_draw():
        print_note(f"no figure is drawn: {NO_MATPLOTLIB}")
        return None
    from ..parsing import distances_from_trace, tree_from_distances

    (trace,) = scorer.trace([SENTENCE], logprobs=False)
    tree = tree_from_distances(trace.words, distances_from_trace(trace, scorer.parsing_signal))
    target = str(output / FIGURE)
    save_figure(target, plot_strengths(trace, tree, title="stack RNN (u = 1) on generated English"))
    return target


def _print(results: dict[str, Any], output: Path) -> None:
    both = {"stack RNN": results["stack"], "LSTM": results["lstm"]}
    print_table(
        "language modelling, held-out generated English",
        ["model", "perplexity", "nats per token", "parameters", "training, s"],
        [
            (
                name,
                result["perplexity"]["perplexity"],
                result["perplexity"]["nats_per_token"],
                result["parameters"],
                result["training_seconds"],
            )
            for name, result in both.items()
        ],
    )
    parsing = results["parsing"]
    print_table(
        f"unlabelled F1 in %, convention {parsing['convention']}, {parsing['n_sentences']} new sentences",
        ["trees", "F1"],
        list(parsing["f1"].items()),
        caption="one model of one seed: F1 swings by several points from epoch to epoch and seed to seed",
    )
    bins = list(results["stack"]["agreement"]["by"]["attractors"])
    print_table(
        "agreement accuracy in %, by attractors",
        ["model", "all", *bins, "always the more frequent number"],
        [
            (name, a["accuracy"], *(a["by"]["attractors"][k]["accuracy"] for k in bins), a["majority"])
            for name, a in ((name, result["agreement"]) for name, result in both.items())
        ],
    )
    print_written(str(output / "stack"), str(output / "lstm"), results["figure"], str(output / "metrics.json"))
    print(f'all this took {results["seconds"]:.0f} s; next: stack-lm parse {output / "stack"} "{" ".join(SENTENCE)}"')
