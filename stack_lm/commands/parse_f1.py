"""`stack-lm parse-f1`."""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from ..console import Problems, positive_int, print_json, print_note, print_written, progress
from ..data.corpora import tags_of_all
from ..errors import InputError
from ..eval.seeds import Spread
from ..hub.locating import find_models
from ..messages import shortened
from ..parsing.baselines import FIXED_BASELINES, PRIORS, RANDOM_BASELINES, random_distances
from ..parsing.conventions import CONVENTIONS, Convention, GoldForm, Removed, WholeSentence, WordRule, get_convention
from ..parsing.distances import DEFAULT_DECODER, distances_from_trace
from ..parsing.ensemble import OUTLIER_SHARE
from ..parsing.evalb import read_parameters
from ..parsing.export import ENDINGS, check_tree_file, write_trees
from ..parsing.f1 import F1Score, GoldTree, prepare_gold, score_trees
from ..parsing.heads import PENN_TAGS, last_child
from ..parsing.significance import compare_f1, f1_interval
from ..parsing.treebank import read_predictions, read_treebank
from ..parsing.trees import ConstituencyTree, base_label
from .f1_ensemble import Trees, print_ensemble, score_ensemble
from .f1_report import describe, print_f1, write_items
from .files import TABLES, check_ending, check_outputs
from .models import (
    add_dropout_options,
    add_parsing_options,
    check_dropout_options,
    check_parsing_options,
    first_given,
    open_parser,
)
from .texts import add_keep_going

RANDOM_SEEDS = 5
COLLAPSED = 0.05  # sd in elements; a sixtieth of the usual range, as in training's warning

EXAMPLE = (
    "stack-lm parse-f1 runs/brown-u1 --treebank nltk:treebank --convention prpn --baselines\n"
    "  stack-lm parse-f1 --predictions a.mrg b.jsonl --treebank gold.mrg --convention evalb --compare"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm parse-f1`."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help="model directories, or models on the hub")
    parser.add_argument(
        "--predictions",
        metavar="FILE",
        nargs="+",
        default=[],
        help="score these files: bracketed trees, or JSON lines with trees or with words and distances",
    )
    parser.add_argument(
        "--treebank",
        metavar="PATH",
        required=True,
        help="a .mrg file or a directory of them, a file of bracketed trees, JSON lines with parses, nltk:treebank, "
        "nltk:conll2000, chunks:FILE, or - for standard input",
    )
    parser.add_argument(
        "--convention",
        metavar="NAME",
        help=f"required: one of {', '.join(CONVENTIONS.registered)}, or a plug-in's",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also score baseline trees, which ignore the words, and the best binary trees",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="compare the first system with each of the others, by the paired bootstrap",
    )
    parser.add_argument(
        "--ensemble",
        action="store_true",
        help="also score an ensemble: one tree for each sentence, from the votes of all systems for spans",
    )
    parser.add_argument(
        "--outlier-share",
        type=float,
        metavar="X",
        default=OUTLIER_SHARE,
        help="with --ensemble: a run whose mean F1 with the others is below X of the median has no vote "
        f"(default: {OUTLIER_SHARE}; 0: all vote). No gold tree is used",
    )
    parser.add_argument(
        "--prior", choices=tuple(PRIORS), help="with --ensemble: also score it with these trees as an extra voter"
    )
    parser.add_argument(
        "--prior-votes",
        type=positive_int,
        metavar="N",
        default=1,
        help="with --prior: its number of votes (default: 1)",
    )
    parser.add_argument(
        "--trees",
        metavar="FILE",
        help="write the scored trees: .html, .svg and .jsonl with the gold trees; .tex, .mrg",
    )
    parser.add_argument("--only", metavar="LIST", help="with --trees: these sentences of the treebank, such as 1,5-8")
    parser.add_argument(
        "--items", metavar="FILE", help="write a table of all sentences, from which F1 can be recomputed"
    )
    parser.add_argument(
        "--max-length",
        type=positive_int,
        metavar="N",
        help="only sentences of at most N words, not counting removed ones",
    )
    add_keep_going(parser, "trees")
    _add_rules(parser)
    add_dropout_options(parser)
    add_parsing_options(parser)


def _add_rules(parser: argparse.ArgumentParser) -> None:
    rules = parser.add_argument_group("rules", "changes to the convention; see docs/parse_f1.md")
    rules.add_argument("--parameters", metavar="FILE", help="with evalb: EVALB's parameter file, such as COLLINS.prm")
    rules.add_argument(
        "--punctuation",
        choices=("kept", "before", "after"),
        help="keep it; or remove it before a model parses; or after, from its trees (default if the convention "
        "removes it)",
    )
    rules.add_argument("--removed", choices=get_args(Removed)[1:], help="tokens that count as punctuation")
    rules.add_argument(
        "--removed-by", choices=get_args(WordRule), help="identify punctuation by tag, if trees have tags, or by token"
    )
    rules.add_argument(
        "--gold",
        choices=get_args(GoldForm),
        help="gold trees as annotated; collapsed: without unary phrases; or binarised: left, right, or by head rules",
    )
    rules.add_argument(
        "--whole-sentence", choices=get_args(WholeSentence), help="how to score the span of the whole sentence"
    )
    rules.add_argument("--average", choices=("sentence", "corpus"), help="mean over sentences, or one F1 of all spans")
    rules.add_argument(
        "--min-words",
        type=positive_int,
        metavar="N",
        help="do not score sentences of fewer than N words, not counting removed ones",
    )
    rules.add_argument(
        "--without-spans",
        choices=("scored", "skipped"),
        help="how to treat sentences whose gold trees have no span to score",
    )
    rules.add_argument("--ignore-labels", action="store_true", help="with evalb: compare brackets without labels")


def _convention(options: argparse.Namespace) -> tuple[Convention, dict[str, Any]]:
    """The convention with the requested changes, and the changes."""
    if options.convention is None:
        there = ", ".join(CONVENTIONS.registered)
        raise InputError(f"--convention is required, as F1 depends on it: one of {there} (docs/parse_f1.md)")
    base = get_convention(options.convention)
    if options.parameters:
        if base.name != "evalb":
            raise InputError(f"--parameters needs --convention evalb; got {base.name}")
        base = read_parameters(options.parameters)
    names = ("removed", "removed_by", "gold", "whole_sentence", "average", "min_words", "without_spans")
    changes = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.punctuation == "kept":
        if options.removed:
            raise InputError(f"--punctuation kept and --removed {options.removed} contradict each other")
        changes["removed"] = "nothing"
    elif options.punctuation and not options.removed and base.removed == "nothing":
        changes["removed"] = "punctuation+currency"
    if options.ignore_labels:
        if base.brackets != "multiset":
            raise InputError(f"--ignore-labels needs a convention that compares labels, such as evalb; got {base.name}")
        changes["labels"] = "ignored"
    changes = {name: value for name, value in changes.items() if value != getattr(base, name)}
    convention = dataclasses.replace(base, **changes)
    if options.removed_by and convention.removed == "nothing":
        raise InputError(f"--removed-by is for words that are removed; {base.name} with these options removes none")
    return convention, changes


def run(options: argparse.Namespace) -> None:
    """Score trees and print the scores with the baselines."""
    systems = [*options.models, *options.predictions]
    check_parsing_options(options)
    check_dropout_options(options)
    check_ending("--trees", options.trees, ENDINGS)
    if options.trees is not None:
        check_tree_file(options.trees)
    check_ending("--items", options.items, TABLES)
    check_outputs(
        {"--trees": options.trees, "--items": options.items}, [*systems, options.treebank, options.parameters]
    )
    convention, changes = _convention(options)
    if not systems:
        raise InputError("give a MODEL, or --predictions FILE, or several")
    of_models = ("signal", "layer", "word_strength", "dropout_samples", "device")
    given = first_given(options, of_models) or ("--punctuation before" if options.punctuation == "before" else None)
    if not options.models and given:
        raise InputError(f"{given} is for models, and --predictions are trees already")
    if options.treebank == "-" and "-" in options.predictions:
        raise InputError("only one of --treebank and --predictions can be standard input")
    if options.compare and len(systems) < 2:
        raise InputError(f"--compare needs two systems or more; got {systems[0]}")
    only = _numbers(options.only) if options.only else None
    if only is not None and not options.trees:
        raise InputError("--only says which sentences --trees writes; give both")
    _check_ensemble_options(options, systems)
    if len(systems) > 1 and not options.ensemble and (options.trees or options.items):
        raise InputError(f"--trees and --items write the trees of one system; got {len(systems)}: {', '.join(systems)}")
    problems = Problems(options.keep_going)
    if not options.keep_going:
        find_models(*options.models)
    trees = read_treebank(options.treebank, decoder=options.decoder or DEFAULT_DECODER, on_error=problems.on_error)
    if only is not None and (number := max(first for first, _ in only)) > len(trees):
        raise InputError(f"--only names sentence {number}; {options.treebank} has {len(trees):,}")
    gold = [prepare_gold(tree, convention) for tree in trees]
    _note_tags(gold, convention)
    _note_heads(gold, convention)
    wanted = [i for i, item in enumerate(gold) if options.max_length is None or item.length <= options.max_length]
    if not wanted:
        raise InputError(f"no sentence has at most {options.max_length} words that count")
    result: dict[str, Any] = {
        "convention": convention.name,
        "changes": changes,
        "parameters": options.parameters,
        "treebank": options.treebank,
        "max_length": options.max_length,
        "n_gold": len(gold),
        "n_without_tags": sum(item.annotated.word_tags is None for item in gold),
        "words_removed": 100 * (1 - np.mean(np.concatenate([item.kept for item in gold]))),
        "systems": [],
    }
    scores: list[F1Score] = []
    read: list[tuple[str, Trees]] = []
    chosen = [gold[i] for i in wanted]
    for place, system in enumerate(systems):
        with problems.of(system):
            described: dict[str, Any] = {"system": system}
            of_wanted: Sequence[ConstituencyTree | None]
            if place < len(options.models):
                of_wanted, how = _parse_gold_sentences(system, options, convention, chosen)
                described |= how
            else:
                predictions = _read_system(system, options, len(gold), problems)
                of_wanted = [predictions[i] for i in wanted]
            score = score_trees(chosen, of_wanted, convention, keep_going=options.keep_going)
            problems.add(score.errors)
            scores.append(score)
            read.append((system, of_wanted))
            result["systems"].append(described | describe(score))
    if not scores:
        problems.finish()
    if (source := _without_labels(options, result["systems"])) and convention.labels == "compared":
        convention = dataclasses.replace(convention, labels="ignored")
        if any(described["labels"] == "compared" for described in result["systems"]):
            print_note(f"labels are ignored, because {source} no labels, and all trees are scored by the same rules")
            scores = [score_trees(chosen, of, convention, keep_going=options.keep_going) for _, of in read]
            for described, score in zip(result["systems"], scores, strict=True):
                described |= describe(score)
    shown, score = read[0][1], scores[0]
    if options.ensemble:
        result["ensemble"], shown = score_ensemble(
            chosen,
            read,
            convention,
            outlier_share=options.outlier_share,
            prior=options.prior,
            prior_votes=options.prior_votes,
        )
        score = score_trees(chosen, shown, convention, keep_going=None in shown)
    if options.trees:
        numbers = [
            i
            for i in score.numbers.tolist()
            if only is None or any(first <= wanted[i] + 1 <= last for first, last in only)
        ]
        _write_trees(options.trees, [(chosen[i], shown[i]) for i in numbers], ", ".join(systems))
    if options.items:
        write_items(options.items, chosen, score, [i + 1 for i in wanted])
    if options.compare and len(scores) > 1:
        result["comparisons"] = [
            {"first": other["system"], "second": result["systems"][0]["system"]}
            | dataclasses.asdict(compare_f1(score, scores[0]))
            for score, other in zip(scores[1:], result["systems"][1:], strict=True)
        ]
    if options.baselines:
        result["baselines"] = _baselines(
            chosen, convention, options.decoder or result["systems"][0].get("decoder") or DEFAULT_DECODER
        )
    if options.json:
        for described, score in zip(result["systems"], scores, strict=True):
            described["interval"] = f1_interval(score)
        # The figures of the first system, usually the only one, are also at the top level.
        print_json({"convention": result["convention"]} | result["systems"][0] | result)
    else:
        print_f1(result, convention)
        if options.ensemble:
            print_ensemble(result["ensemble"], [score.f1 for score in scores])
        print_written(options.trees, options.items)
    problems.finish()


def _note_heads(gold: Sequence[GoldTree], convention: Convention) -> None:
    """Print a note if gold trees are binarised by head rules that do not know most of their tags."""
    if convention.gold != "head":
        return
    tags = [base_label(tag) for item in gold for tag in item.annotated.word_tags or ()]
    unknown = Counter(tag for tag in tags if tag not in PENN_TAGS)
    if 2 * unknown.total() > len(tags):
        shown = ", ".join(tag for tag, _ in unknown.most_common(5))
        print_note(
            f"the head rules are those of the Penn Treebank and do not know the tags ({shown}) of "
            f"{unknown.total():,} of {len(tags):,} words, so many heads of the binarised gold trees are arbitrary; "
            "prpn, compound-pcfg, corpus and evalb take the trees as they are"
        )


def _without_labels(options: argparse.Namespace, systems: Sequence[dict[str, Any]]) -> str:
    """Say which trees of the report have no labels to compare; "" if all have."""
    names = [described["system"] for described in systems if described["labels"] == "ignored"]
    names += ["the ensemble"] * options.ensemble + ["baselines"] * options.baselines
    return f"{names[0]} has" if names and names != ["baselines"] else "baselines have" if names else ""


def _note_tags(gold: Sequence[GoldTree], convention: Convention) -> None:
    """Print a note if most punctuation counts because the convention does not know its tags."""
    if not convention.removed.startswith("punctuation") or convention.removed_by == "tokens":
        return
    by_token = dataclasses.replace(convention, removed_by="tokens")
    marks = 0
    counted: Counter[str | None] = Counter()
    for item in gold:
        words = item.annotated.words
        tags = item.annotated.word_tags or (None,) * len(words)
        for tag, kept, is_word in zip(tags, item.kept, by_token.kept(words, tags), strict=True):
            marks += not is_word
            if kept and not is_word:
                counted[tag] += 1
    if 2 * counted.total() > marks:
        shown = ", ".join(str(tag) for tag, _ in counted.most_common(5))
        print_note(
            f"the convention does not know the tags ({shown}) of {counted.total():,} of {marks:,} punctuation marks, "
            "which count as words; --removed-by tokens removes them by their form"
        )


def _check_ensemble_options(options: argparse.Namespace, systems: Sequence[str]) -> None:
    if options.prior_votes > 1 and options.prior is None:
        raise InputError("--prior-votes needs --prior")
    if not options.ensemble:
        for name in ("prior", "outlier_share"):
            if getattr(options, name) not in (None, OUTLIER_SHARE):
                raise InputError(f"--{name.replace('_', '-')} needs --ensemble")
        return
    if len(systems) < 2:
        raise InputError(f"--ensemble needs two systems or more; got {systems[0]}")
    if not 0 <= options.outlier_share <= 1:
        raise InputError(f"--outlier-share must be from 0 to 1; got {options.outlier_share:g}")


def _read_system(
    path: str, options: argparse.Namespace, n_gold: int, problems: Problems
) -> list[ConstituencyTree | None]:
    decoder = options.decoder or DEFAULT_DECODER
    predictions = read_predictions(path, sentences=n_gold, decoder=decoder, on_error=problems.on_error)
    if len(predictions) != n_gold:
        raise InputError(f"{path} has {len(predictions)} trees, but {options.treebank} has {n_gold}")
    return predictions


def _parse_gold_sentences(
    model: str, options: argparse.Namespace, convention: Convention, gold: Sequence[GoldTree]
) -> tuple[list[ConstituencyTree], dict[str, Any]]:
    """The model's parses of the gold trees' sentences, and the method."""
    # Where a sentence loses all its words, the model parses all of them.
    before = options.punctuation == "before"
    seen = [item.tree if before and item.tree is not None else item.annotated for item in gold]
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
        raise InputError(f"{model} knows no word of {options.treebank}: {shortened(' '.join(words[0]), 80)!r}")
    # Those of the reading without dropout, so also where votes gave the trees.
    distances = [distances_from_trace(parse.trace, str(parser.signal)) for parse in parses if parse.trace is not None]
    if distances and (spread := float(np.std(np.concatenate(distances)))) < COLLAPSED:
        name = str(parser.signal).replace("_", " ")
        print_note(f"{model}: its {name} hardly varies between words (sd {spread:.3f}), so its trees mean little")
    described = {
        "signal": parser.signal,
        "decoder": parser.decoder,
        "punctuation": "kept"
        if convention.removed == "nothing"
        else f"removed {'before' if before else 'after'} parsing",
        "unknown_words": 100 * float(np.mean(np.concatenate(unknown))),
        "layer": options.layer,
        "word_strength": options.word_strength,
        "dropout_samples": options.dropout_samples,
        "dropout": parser.dropout if options.dropout_samples else None,
        "n_unknown_sentences": sum(bool(of_sentence.all()) for of_sentence in unknown),
    }
    return [parse.tree for parse in parses], described


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
            scores = []
            for seed in range(RANDOM_SEEDS):
                rng = random.Random(seed)
                if draw is random_distances:
                    scores.append(score([random_distances(words, rng, decoder) for words in sentences]))
                else:
                    scores.append(score([draw(words, rng) for words in sentences]))
            results[name] = _means(scores)
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


def _numbers(text: str) -> list[tuple[int, int]]:
    """The first and last number of each range in a list such as 1,5-8."""
    ranges = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,15})(?:-(\d{1,15}))?", part)
        if ends is None:
            raise InputError(f"--only takes numbers of sentences such as 1,5-8; got {text!r}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not 1 <= first <= last:
            raise InputError(f"--only takes numbers from 1 and ranges that rise, such as 1,5-8; got {part!r}")
        ranges.append((first, last))
    return ranges


def _without_chains(tree: ConstituencyTree) -> ConstituencyTree:
    """Without the unary phrases that removed words leave behind, if no phrase has a label; labels are scored."""
    return tree if tree.has_labels else tree.collapse_unaries()


def _write_trees(path: str, pairs: Sequence[tuple[GoldTree, ConstituencyTree | None]], source: str) -> None:
    """Write predicted trees over the words that count, with the gold trees."""
    shown = [(item.align(tree), item.tree) for item, tree in pairs if tree is not None]
    both = [(_without_chains(tree), golden) for tree, golden in shown if tree is not None and golden is not None]
    if not both:
        raise InputError("no sentence that was scored is among those that --only names")
    write_trees(path, [tree for tree, _ in both], gold=[golden for _, golden in both], source=source)
