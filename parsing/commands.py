"""`stack-lm parse` and `stack-lm parse-f1`."""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nltk.tree import Tree

from stack_lm.atomic import atomic_file
from stack_lm.console import (
    Subparsers,
    add_command,
    add_model_options,
    positive_int,
    print_json,
    print_note,
    print_table,
    progress,
)
from stack_lm.data.text import read_lines
from stack_lm.errors import InputError
from stack_lm.trace import Trace

from .baselines import balanced, left_branching, random_distances, random_merges, right_branching
from .distances import DECODERS, SHIFTS, distances_from_trace, tree_from_distances
from .f1 import CONVENTIONS, Convention, F1Score, GoldTree, get_convention, prepare_gold, score_trees
from .treebank import read_treebank
from .trees import to_brackets, to_plain

RANDOM_SEEDS = 5


def add_commands(subparsers: Subparsers) -> None:
    """Add the commands of this module."""
    parse = add_command(
        subparsers,
        "parse",
        run_parse,
        summary="parse sentences with a model's push strengths",
        example='stack-lm parse runs/brown-u1 "the dog that the cats fear barks loudly"',
    )
    parse.add_argument("model", metavar="MODEL", help="a model directory, or a model on the hub")
    parse.add_argument("sentences", metavar="SENTENCE", nargs="*", help="words separated by spaces; - reads stdin")
    parse.add_argument("--file", metavar="F", help="a text file with one sentence a line, or - for standard input")
    parse.add_argument("--output", metavar="F", help="also write the trees, one (X (X the) ...) a line, to this file")
    _add_parsing_options(parse)

    f1 = add_command(
        subparsers,
        "parse-f1",
        run_f1,
        summary="score a model's trees, or trees from a file, against a treebank",
        example="stack-lm parse-f1 runs/brown-u1 --treebank nltk:treebank --convention prpn --baselines",
    )
    f1.add_argument("model", metavar="MODEL", nargs="?", help="a model directory, or a model on the hub")
    f1.add_argument("--predictions", metavar="FILE", help="score these trees instead of a model's")
    f1.add_argument(
        "--treebank",
        metavar="PATH",
        required=True,
        help="a .mrg file or a directory of them, a file of bracketed trees, JSON lines with binary parses, "
        "nltk:treebank, or - for standard input",
    )
    f1.add_argument("--convention", metavar="NAME", required=True, help=f"one of {', '.join(CONVENTIONS)}")
    f1.add_argument("--baselines", action="store_true", help="score left, right, balanced and random trees beside")
    f1.add_argument("--max-length", type=positive_int, metavar="N", help="only sentences of at most N scored words")
    f1.add_argument("--ignore-labels", action="store_true", help="compare brackets without labels, for evalb")
    f1.add_argument(
        "--punctuation",
        choices=("after", "before"),
        default="after",
        help="where a convention removes punctuation, remove it after the model has parsed the whole sentence "
        "(default), or before, so that the model never sees it",
    )
    _add_parsing_options(f1)


def _add_parsing_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--signal",
        metavar="NAME",
        help=f"distances come from one of {', '.join(SHIFTS)}; by default the push strength, or the pop strength "
        "where the push is fixed",
    )
    parser.add_argument(
        "--decoder",
        metavar="NAME",
        default="algorithm1",
        help=f"one of {', '.join(DECODERS)} (default: algorithm1)",
    )
    add_model_options(parser)


def _trace(
    options: argparse.Namespace,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]] | None,
    say: str,
) -> tuple[list[Trace], str]:
    """Traces of all sentences, and the name of the signal to parse with."""
    from stack_lm.scoring import ModelScorer

    scorer = ModelScorer.from_pretrained(options.model, device=options.device, batch_tokens=options.batch_tokens)
    signal = options.signal or scorer.parsing_signal
    with progress(say, len(sentences)) as advance:
        traces = scorer.trace(sentences, tags, logprobs=False, progress=advance)
    return traces, signal


def _check_parsing_options(options: argparse.Namespace) -> None:
    """Find mistakes before a model is loaded."""
    if options.decoder not in DECODERS:
        raise InputError(f"--decoder must be one of {', '.join(DECODERS)}; got {options.decoder!r}")
    if options.signal is not None and options.signal not in SHIFTS:
        raise InputError(f"--signal must be one of {', '.join(SHIFTS)}; got {options.signal!r}")


def run_parse(options: argparse.Namespace) -> None:
    """Parse the sentences and print their trees."""
    _check_parsing_options(options)
    sentences = _sentences_to_parse(options)
    traces, signal = _trace(options, sentences, None, "parsing")
    for number, trace in enumerate(traces, start=1):
        if trace.unknown.all():
            raise InputError(f"sentence {number} has no word that the model knows: {' '.join(trace.words)!r}")
    distances = [distances_from_trace(trace, signal) for trace in traces]
    trees = [tree_from_distances(t.words, d, options.decoder) for t, d in zip(traces, distances, strict=True)]
    if options.output:
        with atomic_file(options.output) as path:
            path.write_text("".join(to_brackets(tree) + "\n" for tree in trees), encoding="utf-8")
    if options.json:
        parses = [
            {
                "words": list(trace.words),
                "tree": to_plain(tree),
                "brackets": to_brackets(tree),
                "distances": distance.tolist(),
                "unknown": [word for word, unknown in zip(trace.words, trace.unknown, strict=True) if unknown],
                **{name: values.tolist() for name, values in trace.signals.items()},
            }
            for trace, tree, distance in zip(traces, trees, distances, strict=True)
        ]
        print_json({"model": options.model, "signal": signal, "decoder": options.decoder, "parses": parses})
    elif len(trees) > 3:
        for tree in trees:
            print(to_plain(tree))
    else:
        for trace, tree in zip(traces, trees, strict=True):
            _print_parse(trace, tree)


def _sentences_to_parse(options: argparse.Namespace) -> list[list[str]]:
    lines: list[str] = []
    if options.file and options.sentences:
        raise InputError("give sentences or --file, not both")
    source = options.file or ("-" if options.sentences == ["-"] else None)
    if source:
        lines = [line for _, line in read_lines(source)]
    elif options.sentences:
        lines = options.sentences
    else:
        raise InputError("no sentence to parse: give one or more, or --file F, or - for standard input")
    sentences = [line.split() for line in lines]
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise InputError(f"sentence {number} is empty")
    return sentences


def _print_parse(trace: Trace, tree: Tree) -> None:
    print(to_plain(tree))
    names = list(trace.signals)
    rows = [
        (f"{word} (unknown)" if unknown else word, *(float(trace.signals[name][i]) for name in names))
        for i, (word, unknown) in enumerate(zip(trace.words, trace.unknown, strict=True))
    ]
    print_table("", ["word", *(name.replace("_", " ") for name in names)], rows)


def run_f1(options: argparse.Namespace) -> None:
    """Score trees and print the score beside the baselines."""
    convention = get_convention(options.convention)
    _check_parsing_options(options)
    if (options.model is None) == (options.predictions is None):
        raise InputError("give either a MODEL or --predictions FILE")
    if options.treebank == options.predictions == "-":
        raise InputError("only one of --treebank and --predictions can be standard input")
    trees = read_treebank(options.treebank)
    gold = [prepare_gold(tree, convention) for tree in trees]
    result: dict[str, Any] = {"convention": convention.name, "treebank": options.treebank}
    if options.predictions is not None:
        predictions = read_treebank(options.predictions)
        if len(predictions) != len(gold):
            raise InputError(
                f"{options.predictions} has {len(predictions)} trees, but {options.treebank} has {len(gold)}"
            )
        labelled = not options.ignore_labels
        result["predictions"] = options.predictions
    else:
        predictions, described = _parse_gold_sentences(options, convention, gold)
        labelled = False  # a model's trees have no labels
        result |= {"model": options.model} | described
    wanted = [i for i, item in enumerate(gold) if options.max_length is None or sum(item.kept) <= options.max_length]
    if not wanted:
        raise InputError(f"no sentence has at most {options.max_length} scored words")
    gold, predictions = [gold[i] for i in wanted], [predictions[i] for i in wanted]
    score = score_trees(gold, predictions, convention, labelled=labelled)
    result |= {
        "f1": score.f1,
        "precision": score.precision,
        "recall": score.recall,
        "n_sentences": score.n_sentences,
        "max_length": options.max_length,
        "labels": "compared" if convention.brackets == "labelled" and labelled else "ignored",
        "label_recall": {label: recall for label, recall in score.label_recall.items() if _frequent(score, label)},
    }
    if options.baselines:
        result["baselines"] = _baselines(gold, convention, options.decoder)
    if options.json:
        print_json(result)
        return
    _print_f1(result, convention)


def _frequent(score: F1Score, label: str) -> bool:
    return score.label_counts[label] * 1000 >= sum(score.label_counts.values())


def _parse_gold_sentences(
    options: argparse.Namespace, convention: Convention, gold: Sequence[GoldTree]
) -> tuple[list[Tree], dict[str, Any]]:
    """The model's parses of the gold trees' sentences, and how they were made."""
    before = convention.punctuation == "removed" and options.punctuation == "before"
    empty = [i for i, item in enumerate(gold) if before and not item.kept.any()]
    sentences = [item.words if i in empty or not before else item.kept_words for i, item in enumerate(gold)]
    tags = None
    if all(item.tags is not None for item in gold):
        tags = [
            [tag for tag, keep in zip(item.tags or (), item.kept, strict=True) if keep or not before or i in empty]
            for i, item in enumerate(gold)
        ]
    traces, signal = _trace(options, sentences, tags, "parsing the treebank")
    if all(trace.unknown.all() for trace in traces):
        raise InputError(f"the model knows no word of {options.treebank}: {' '.join(traces[0].words)[:80]!r} ...")
    trees = [tree_from_distances(trace.words, distances_from_trace(trace, signal), options.decoder) for trace in traces]
    n_words = sum(len(trace.words) for trace in traces)
    described = {
        "signal": signal,
        "decoder": options.decoder,
        "punctuation": f"removed {options.punctuation} parsing" if convention.punctuation == "removed" else "kept",
        "unknown_words": 100 * sum(int(trace.unknown.sum()) for trace in traces) / n_words,
        "n_unknown_sentences": sum(bool(trace.unknown.all()) for trace in traces),
    }
    return trees, described


def _baselines(gold: Sequence[GoldTree], convention: Convention, decoder: str) -> dict[str, dict[str, float]]:
    """Scores of trees that know nothing; the random ones are means over seeds."""
    makers: dict[str, Callable[[Sequence[str], random.Random], Tree]] = {
        "left": lambda words, _: left_branching(words),
        "right": lambda words, _: right_branching(words),
        "balanced": lambda words, _: balanced(words),
        "random distances": lambda words, rng: random_distances(words, rng, decoder),
        "random merges": random_merges,
    }
    # Where a sentence loses all its words, any tree of all of them will do.
    sentences = [item.kept_words or item.words for item in gold]
    results = {}
    with progress("scoring baselines", 3 + 2 * RANDOM_SEEDS) as advance:
        for name, make in makers.items():
            scores = []
            for seed in range(RANDOM_SEEDS if name.startswith("random") else 1):
                rng = random.Random(seed)
                trees = [make(words, rng) for words in sentences]
                scores.append(score_trees(gold, trees, convention, labelled=False))
                advance(1)
            means = {key: float(np.mean([getattr(s, key) for s in scores])) for key in ("f1", "precision", "recall")}
            if len(scores) > 1:
                means["f1_std"] = float(np.std([score.f1 for score in scores]))
            results[name] = means
    return results


def _print_f1(result: dict[str, Any], convention: Convention) -> None:
    rows = [
        (
            result.get("model") or result.get("predictions"),
            result["f1"],
            result["precision"],
            result["recall"],
        )
    ]
    rows += [(name, s["f1"], s["precision"], s["recall"]) for name, s in result.get("baselines", {}).items()]
    rules = ", ".join(
        f"{name.replace('_', ' ')}: {value}"
        for name, value in dataclasses.asdict(convention).items()
        if name not in ("name", "source")
    )
    title = f"F1 in %, convention {convention.name} ({convention.source}), {result['n_sentences']} sentences"
    print_table(title, ["trees", "F1", "precision", "recall"], rows, caption=rules)
    if result["label_recall"]:
        recalls = list(result["label_recall"].items())[:12]
        print_table(
            "recall of gold phrases by label, in %",
            [label for label, _ in recalls],
            [[r for _, r in recalls]],
        )
    if "unknown_words" in result:
        print_note(
            f"signal {result['signal']}, decoder {result['decoder']}, punctuation {result['punctuation']}, "
            f"{result['unknown_words']:.1f}% of the words unknown to the model"
        )
