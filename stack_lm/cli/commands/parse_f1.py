"""`stack-lm parse-f1`."""

from __future__ import annotations

import argparse
import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.console import print_note, progress
from ...core.errors import InputError
from ...core.messages import shortened
from ...eval.seeds import Spread
from ...hub.locating import find_models
from ...parsing.baselines import FIXED_BASELINES, PRIORS, RANDOM_BASELINES, random_distances
from ...parsing.conventions import CONVENTIONS, Convention
from ...parsing.distances import DEFAULT_DECODER, distances_from_trace
from ...parsing.ensemble import OUTLIER_SHARE
from ...parsing.export import ENDINGS, write_trees
from ...parsing.f1 import F1Score, GoldTree, prepare_gold, score_trees
from ...parsing.heads import last_child
from ...parsing.significance import compare_f1, f1_interval
from ...parsing.treebank import read_every_tree, read_predictions
from ...parsing.trees import ConstituencyTree
from ...text.corpora import tags_of_all
from ..f1_ensemble import ensemble_table, score_ensemble
from ..f1_report import describe, f1_tables, note_readings, write_items
from ..f1_rules import RULES, Rules, note_unknown_marks, read_rules
from ..files import check_files
from ..models import add_dropout_option, first_given, open_parser
from ..options import PARSING, declare, shared
from ..report import Problems, Report

RANDOM_SEEDS = 5
COLLAPSED = 0.05  # sd in elements; a sixtieth of the usual range, as in training's warning
_LISTED = 10  # numbers of trees in a note
_TREE_FILES = (*filter(None, ENDINGS), ".json", ".gz")
_OF_MODELS = ("signal", "layer", "word_strength", "dropout_samples", "device")

EXAMPLE = (
    "stack-lm parse-f1 runs/brown-u1 --data nltk:treebank --convention prpn --baselines\n"
    "  stack-lm parse-f1 a.mrg --against b.jsonl --data gold.mrg --convention evalb"
)


@dataclasses.dataclass
class System:
    """A scored system.

    Attributes:
        name: as given.
        trees: its trees of the gold trees; None where one could not be read.
        how: how a model made them, for JSON.
        score: their score.
    """

    name: str
    trees: Sequence[ConstituencyTree | None]
    how: dict[str, Any]
    score: F1Score


OPTIONS: dict[str, str | tuple[str, dict[str, Any]]] = {
    "[MODEL ...]": "model directories, models on the hub, or files: bracketed trees, or JSON lines with trees or with "
    "words and distances",
    "--data TREEBANK": (
        "a .mrg file or a directory of them, a file of bracketed trees, JSON lines with parses, nltk:treebank, "
        "or - for standard input",
        {"required": True},
    ),
    "--convention NAME": f"required: one of {', '.join(CONVENTIONS.registered)}, or a plug-in's",
    "--rule KEY=VALUE": (
        f"change the convention's {', '.join(RULES)}; repeatable; see docs/parse_f1.md",
        {"action": "append", "default": []},
    ),
    "--baselines": "also score baseline trees, which ignore the words, and the best binary trees",
    "--against": "sentences, from the first model to each of these, by the paired bootstrap",
    "--ensemble": "models or files",
    "--prior NAME[:N]": f"with --ensemble: also score it with N (1) more votes for such trees: {', '.join(PRIORS)}",
    "-o, --output FILE": (
        "write the scored trees: .html, .svg and .jsonl with the gold trees; .tex, .mrg",
        {"endings": ENDINGS},
    ),
    "--items": "sentences",
    "--limit": "of these sentences",
    "--max-words": "",
    "--keep-going": "trees",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm parse-f1`."""
    declare(parser, OPTIONS)
    add_dropout_option(parser)
    shared(parser, *PARSING)


def run(options: argparse.Namespace) -> Report:
    """Score trees, with the baselines and comparisons that are asked for."""
    names = [*options.models, *options.against, *options.ensemble]
    if not names:
        raise InputError("give a MODEL, a file of trees, or several")
    rules, prior = read_rules(options.convention, options.rule), _prior(options.prior)
    _check_options(options, names, rules)
    problems = Problems(options.keep_going)
    trees = read_every_tree(options.data, decoder=options.decoder or DEFAULT_DECODER, on_error=problems.on_error)
    _note_left_out(trees)
    gold = {i: prepare_gold(tree, rules.convention) for i, tree in enumerate(trees) if tree is not None}

    note_unknown_marks(list(gold.values()), rules.convention)
    indices = [i for i, item in gold.items() if options.max_words is None or item.length <= options.max_words]
    indices = indices[: options.limit]
    if not indices:
        raise InputError(f"no sentence has at most {options.max_words} words that count")
    chosen = [gold[i] for i in indices]
    systems = _score_systems(names, options, rules, trees, indices, chosen, problems)
    if not systems:
        problems.finish()
    convention = _same_labels(systems, options, rules.convention, chosen)
    result = _record(options, rules, list(gold.values()), systems, convention)
    result["n_gold_left_out"] = len(trees) - len(gold)
    trees_shown, score = systems[0].trees, systems[0].score
    if options.ensemble:
        runs = [(system.name, system.trees) for system in systems]
        result["ensemble"], trees_shown = score_ensemble(
            chosen, runs, convention, outlier_share=OUTLIER_SHARE, prior=prior
        )
        score = score_trees(chosen, trees_shown, convention, keep_going=None in trees_shown)
    if options.output:
        pairs = [(chosen[i], trees_shown[i]) for i in score.numbers.tolist()]
        _write_trees(options.output, pairs, ", ".join(names))
    if options.items:
        write_items(options.items, chosen, score, [i + 1 for i in indices])
    if options.against and len(systems) > 1:
        result["comparisons"] = [
            {"first": other.name, "second": systems[0].name}
            | dataclasses.asdict(compare_f1(other.score, systems[0].score))
            for other in systems[1:]
            if other.name in options.against
        ]
    if options.baselines:
        decoder = options.decoder or systems[0].how.get("decoder") or DEFAULT_DECODER
        result["baselines"] = _baselines(chosen, convention, decoder)
    shown = f1_tables(result, convention)
    if not options.json:
        note_readings(result["systems"])
    if options.ensemble:
        shown.append(ensemble_table(result["ensemble"], [system.score.f1 for system in systems]))
    if options.json:
        for described, system in zip(result["systems"], systems, strict=True):
            described["interval"] = f1_interval(system.score)
    # The figures of the first system, usually the only one, are also at the top level.
    record = {"convention": result["convention"]} | result["systems"][0] | result
    return Report(record, shown, [options.output, options.items], problems.finish)


def _check_options(options: argparse.Namespace, names: Sequence[str], rules: Rules) -> None:
    """Check the options before anything is read."""
    check_files(options, *names, options.data, rules.parameters)
    given = first_given(options, _OF_MODELS) or ("--rule punctuation=before" if rules.before else None)
    if given and all(map(_is_file, names)):
        raise InputError(f"{given} is for models, and files hold trees already")
    if [options.data, *names].count("-") > 1:
        raise InputError("only one of --data and the files of trees can be standard input")

    if options.prior is not None and not options.ensemble:
        raise InputError("--prior needs --ensemble")
    if len(names) > 1 and not options.ensemble and (options.output or options.items):
        raise InputError(f"--output and --items write the trees of one system; got {len(names)}: {', '.join(names)}")
    if not options.keep_going:
        find_models(*(name for name in names if not _is_file(name)))


def _is_file(name: str) -> bool:
    """Whether a system is a file of trees, or a directory or corpus of them, and not a model."""
    path, kind = Path(name), name.partition(":")[0]
    if name == "-" or kind == "nltk" or path.is_file() or name.lower().endswith(_TREE_FILES):
        return True
    return path.is_dir() and not (path / "config.json").exists() and next(path.glob("*.mrg"), None) is not None


def _score_systems(
    names: Sequence[str],
    options: argparse.Namespace,
    rules: Rules,
    gold: Sequence[ConstituencyTree | None],
    indices: Sequence[int],
    chosen: Sequence[GoldTree],
    problems: Problems,
) -> list[System]:
    """The systems with the scores of their trees; those that cannot be read are left out with `--keep-going`.

    Args:
        names, options, rules, problems: of the command.
        gold: all trees of the treebank, None where one is left out.
        indices: the indices of those that are scored.
        chosen: these, prepared.
    """
    systems = []
    for name in names:
        with problems.skipping():
            trees: Sequence[ConstituencyTree | None]
            how: dict[str, Any] = {}
            if _is_file(name):
                decoder = options.decoder or DEFAULT_DECODER
                trees = read_predictions(name, gold=gold, decoder=decoder, on_error=problems.on_error)
                if len(trees) != len(gold):
                    raise InputError(f"{name} has {len(trees)} trees, but {options.data} has {len(gold)}")
                trees = [trees[i] for i in indices]
            else:
                trees, how = _parse_gold_sentences(name, options, rules, chosen)
            numbers = [i + 1 for i in indices]
            score = score_trees(chosen, trees, rules.convention, keep_going=options.keep_going, numbers=numbers)
            problems.add(score.errors)
            systems.append(System(name, trees, how, score))
    return systems


def _note_left_out(gold: Sequence[ConstituencyTree | None]) -> None:
    """Print a note on the gold trees that nothing can be compared with."""
    numbers = [str(i) for i, tree in enumerate(gold, start=1) if tree is None]
    if numbers:
        listed = ", ".join(numbers[:_LISTED]) + ", ..." * (len(numbers) > _LISTED)
        trees = "gold tree has" if len(numbers) == 1 else "gold trees have"
        print_note(f"{len(numbers):,} {trees} no words or cannot be read, and is left out on both sides ({listed})")


def _same_labels(
    systems: Sequence[System], options: argparse.Namespace, convention: Convention, gold: Sequence[GoldTree]
) -> Convention:
    """Score all systems without labels if some trees of the report have none; returns the convention for all."""
    without = [f"{system.name} has" for system in systems if system.score.convention.labels == "ignored"]
    without += ["the ensemble has"] * bool(options.ensemble) + ["baselines have"] * options.baselines
    if not without or convention.labels == "ignored":
        return convention
    convention = dataclasses.replace(convention, labels="ignored")
    if any(system.score.convention.labels == "compared" for system in systems):
        print_note(f"labels are ignored, because {without[0]} no labels, and all trees are scored by the same rules")
        for system in systems:
            system.score = score_trees(gold, system.trees, convention, keep_going=options.keep_going)
    return convention


def _record(
    options: argparse.Namespace,
    rules: Rules,
    gold: Sequence[GoldTree],
    systems: Sequence[System],
    convention: Convention,
) -> dict[str, Any]:
    return {
        "convention": convention.name,
        "changes": rules.changes,
        "parameters": rules.parameters,
        "treebank": options.data,
        "max_length": options.max_words,
        "limit": options.limit,
        "n_gold": len(gold),
        "n_without_tags": sum(item.annotated.word_tags is None for item in gold),
        "words_removed": 100 * (1 - np.mean(np.concatenate([item.kept for item in gold]))),
        "systems": [{"system": system.name} | system.how | describe(system.score) for system in systems],
    }


def _parse_gold_sentences(
    model: str, options: argparse.Namespace, rules: Rules, gold: Sequence[GoldTree]
) -> tuple[list[ConstituencyTree], dict[str, Any]]:
    """The model's parses of the gold trees' sentences, and the method."""
    # Where a sentence loses all its words, the model parses all of them.
    seen = [item.tree if rules.before and item.tree is not None else item.annotated for item in gold]
    tags = tags_of_all(tree.word_tags for tree in seen)
    words = [tree.words for tree in seen]
    try:
        parser = open_parser(model, options)
        with progress(f"parsing with {model}", parser.readings * len(words)) as advance:
            parses = parser.parse_words(words, tags, progress=advance)
    except InputError as error:
        raise InputError(str(error) if model in str(error) else f"{model}: {error}") from error
    unknown = [parse.unknown for parse in parses if parse.unknown is not None]  # of each, since none is a vote
    if all(of_sentence.all() for of_sentence in unknown):
        raise InputError(f"{model} knows no word of {options.data}: {shortened(' '.join(words[0]), 80)!r}")
    # Those of the reading without dropout, so also where votes gave the trees.
    distances = [distances_from_trace(parse.trace, str(parser.signal)) for parse in parses if parse.trace is not None]
    if distances and (spread := float(np.std(np.concatenate(distances)))) < COLLAPSED:
        name = str(parser.signal).replace("_", " ")
        print_note(f"{model}: its {name} hardly varies between words (sd {spread:.3f}), so its trees mean little")
    removed = f"removed {'before' if rules.before else 'after'} parsing"
    samples, _ = options.dropout_samples
    how = {
        "signal": parser.signal,
        "decoder": parser.decoder,
        "punctuation": "kept" if rules.convention.removed == "nothing" else removed,
        "unknown_words": 100 * float(np.mean(np.concatenate(unknown))),
        "layer": options.layer,
        "word_strength": options.word_strength,
        "dropout_samples": samples,
        "dropout": parser.dropout if samples else None,
        "n_unknown_sentences": sum(bool(of_sentence.all()) for of_sentence in unknown),
    }
    return [parse.tree for parse in parses], how


def _baselines(gold: Sequence[GoldTree], convention: Convention, decoder: str) -> dict[str, dict[str, float]]:
    """Scores of trivial baseline trees, random ones as means over seeds; and the maximum for a binary tree."""
    # If a sentence loses all its words, any tree over all of them will do.
    sentences = [item.kept_words or item.annotated.words for item in gold]
    results: dict[str, dict[str, float]] = {}
    with progress("scoring baselines", 1 + len(FIXED_BASELINES) + RANDOM_SEEDS * len(RANDOM_BASELINES)) as advance:

        def score(trees: Sequence[ConstituencyTree]) -> F1Score:
            advance(1)
            return score_trees(gold, trees, convention)

        for name, make in FIXED_BASELINES.items():
            results[name] = _means([score([make(words) for words in sentences])])
        for name, draw in RANDOM_BASELINES.items():
            more = {"decoder": decoder} if draw is random_distances else {}
            scores = []
            for seed in range(RANDOM_SEEDS):
                rng = random.Random(seed)
                scores.append(score([draw(words, rng, **more) for words in sentences]))
            results[name] = _means(scores)
        if convention.brackets == "edges":
            return results
        # Any binarisation has all spans of the gold tree, and no binary tree can have more.
        best = [(item.tree or item.annotated).binarize(last_child) for item in gold]
        results["best binary trees"] = _means(
            [score([ConstituencyTree.unlabelled(t.words, [s[:2] for s in t.spans]) for t in best])]
        )
    return results


def _means(scores: Sequence[F1Score]) -> dict[str, float]:
    spreads = {key: Spread.of([getattr(score, key) for score in scores]) for key in ("f1", "precision", "recall")}
    means = {key: spread.mean for key, spread in spreads.items()}
    return means | ({"f1_std": spreads["f1"].sd} if len(scores) > 1 else {})


def _prior(text: str | None) -> tuple[str, int] | None:
    """The name of the prior's trees and its number of votes."""
    if text is None:
        return None
    name, _, votes = text.partition(":")
    if name not in PRIORS or not (votes or "1").isdecimal() or int(votes or 1) < 1:
        raise InputError(f"--prior must be one of {', '.join(PRIORS)}, with N votes as NAME:N; got {text!r}")
    return name, int(votes or 1)


def _write_trees(path: str, pairs: Sequence[tuple[GoldTree, ConstituencyTree | None]], source: str) -> None:
    """Write predicted trees over the words that count, with the gold trees.

    Without the unary phrases that removed words leave behind, if no phrase has a label; labels are scored.
    """
    aligned = [(item.align(tree), item.tree) for item, tree in pairs if tree is not None]
    both = [(tree, golden) for tree, golden in aligned if tree is not None and golden is not None]
    if not both:
        raise InputError("no sentence was scored, so --output has nothing to write")
    trees = [tree if tree.has_labels else tree.collapse_unaries() for tree, _ in both]
    write_trees(path, trees, gold=[golden for _, golden in both], source=source)
