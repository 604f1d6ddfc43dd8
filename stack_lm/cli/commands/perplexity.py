"""`stack-lm perplexity`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...core.console import progress
from ...core.errors import InputError, fail
from ...core.messages import counted
from ...eval.perplexity import (
    Perplexity,
    PerplexityComparison,
    SentenceLosses,
    compare_perplexity,
    sentence_losses,
)
from ...eval.seeds import Spread
from ...hub.locating import find_models
from ...text import Sentence, hold_out
from ...text.corpora import Corpus, tags_of_all
from ...text.tokenization import splits_words
from ..choices import load_language_model
from ..options import DEVICE, TEXT, option, shared
from ..printing import PrintedTable
from ..report import Problems, Report
from ..runs import check_runs, interval_and_p
from ..texts import ScoredText, note_segmentation, text_record

if TYPE_CHECKING:
    from ...core.trace import Trace
    from ...scoring.sentences import ModelScorer

# Sentences scored at a time: enough for batches of similar length.
BLOCK = 10_000
# The scores of several models in the table, with their headings and the numbers of their units.
_SHOWN = {
    "perplexity": ("per token", "n_tokens"),
    "word_perplexity": ("per word", "n_words"),
    "inner_perplexity": ("per inner token", "n_inner_tokens"),
    "bits_per_byte": ("bits per byte", "n_bytes"),
}

EXAMPLE = """stack-lm perplexity runs/brown-u1 --data nltk:brown --held-out 3000
  stack-lm perplexity runs/u1-s0 runs/u1-s1 --against runs/lstm-s0 runs/lstm-s1 --data text.txt"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm perplexity`."""
    shared(parser, "MODEL ...", "--against", against="sentences, or over runs and sentences")
    shared(parser, "--data", *TEXT, data="the text", split="test; with --held-out, train")
    held_out = "only the sentences that a training run with this data.held_out leaves out: a number, or a share below 1"
    option(parser, "--held-out X", held_out)
    shared(parser, "--seed", seed="with --held-out: the run's data.held_out_seed, or its seed (default: 0)")
    shared(parser, "--limit", "--keep-going", *DEVICE, limit="sentences", keep_going="lines and rows")


def run(options: argparse.Namespace) -> Report:
    """Measure perplexity."""
    paths = [*options.models, *options.against]
    check_runs(options.models, options.against)
    find_models(*paths)
    note_segmentation(paths, options.segmentation)
    problems = Problems(options.keep_going)
    if options.held_out is not None:
        options.split, options.seed = options.split or "train", options.seed or 0
    elif options.seed is not None:
        raise InputError("--seed chooses the sentences of --held-out; give both")
    text = ScoredText(options, problems, lambda corpus: _choose(corpus, options), keep=len(paths) > 1)
    losses = {path: _score(path, text, options) for path in paths}
    about = text_record(options) | {"held_out": options.held_out, "held_out_seed": options.seed, "limit": options.limit}
    sides = [(side, [losses[path] for path in side]) for side in (options.models, options.against) if side]
    return _report(options, about, sides, problems)


def _choose(corpus: Corpus, options: argparse.Namespace) -> Iterable[Sentence]:
    """The requested sentences: the first, or those that a training run leaves out."""
    sentences: Iterable[Sentence] = islice(corpus, options.limit)
    if options.held_out is None:
        return sentences
    return hold_out(list(sentences), options.held_out, options.seed)[1]


def _score(path: str, text: ScoredText, options: argparse.Namespace) -> SentenceLosses:
    """The losses of one model."""
    scorer = load_language_model(path, options)
    sentences = text.sentences(splits_words(scorer.tokenizer))
    total = len(sentences) if isinstance(sentences, list) else options.limit
    with progress(f"scoring {path}", total) as advance:
        return sentence_losses(_trace(scorer, sentences, advance))


def _report(
    options: argparse.Namespace,
    about: dict[str, Any],
    sides: Sequence[tuple[Sequence[str], Sequence[SentenceLosses]]],
    problems: Problems,
) -> Report:
    """The perplexities of one or several runs, and the difference of two models."""
    results = [(paths, [losses.perplexity() for losses in side]) for paths, side in sides]
    shown, finish = [_table_of_runs(options, results)], problems.finish
    described: list[dict[str, Any]] = [
        {"runs": [{"model": path} | dataclasses.asdict(run) for path, run in zip(paths, side, strict=True)]}
        | {"spread": {name: dataclasses.asdict(_spread(side, name)) for name in _comparable(side)}}
        for paths, side in results
    ]
    if len(options.models) == len(sides) == 1:
        model, numbers = described[0]["runs"][0].pop("model"), described[0]["runs"][0]
        return Report({"model": model} | about | numbers, shown, finish=finish)
    record = about | described[0]
    if len(sides) > 1:
        comparison: dict[str, PerplexityComparison] = {}
        try:
            comparison = compare_perplexity(sides[0][1], sides[1][1])
            shown.append(_table_of_differences(comparison, len(sides[0][1]), len(sides[1][1])))
        except InputError as error:  # the perplexities have taken long, so they are printed even so
            finish = partial(fail, error)
        compared = {unit: dataclasses.asdict(each) for unit, each in comparison.items()}
        record |= {"against": described[1], "comparison": compared}
    return Report(record, shown, finish=finish)


def _table_of_runs(
    options: argparse.Namespace, results: Sequence[tuple[Sequence[str], list[Perplexity]]]
) -> PrintedTable:
    rows: list[tuple[object, ...]] = []
    for paths, side in results:
        for path, run in zip(paths, side, strict=True):
            rows.append((path, *(_number(name, getattr(run, name)) for name in _SHOWN), f"{_unknown(run):.1%}"))
        if len(side) > 1:
            spread = {name: _spread(side, name) for name in _comparable(side)}
            for row in ("mean", "sd"):
                cells = (_number(name, getattr(spread[name], row)) if name in spread else "" for name in _SHOWN)
                rows.append((f"  {row}", *cells, ""))
    runs = [run for _, side in results for run in side]
    columns = ["model", *(heading for heading, _ in _SHOWN.values()), "unknown words"]
    note = f"{counted(runs[0].n_sentences, 'sentence')}, {counted(runs[0].n_all_words, 'word')}"
    if any(map(_unknown, runs)):
        note += ", some of them unknown, so only models with the same vocabulary are comparable"
    if len(runs) == 1 and runs[0].n_sentences > 1:
        bounds = [
            _number(name, bound) for name in ("perplexity", "word_perplexity") for bound in runs[0].intervals[name]
        ]
        note += "; 95% intervals over sentences: {} to {} per token, {} to {} per word".format(*bounds)
    return PrintedTable(f"perplexity, {options.data}", columns, rows, note=note)


def _table_of_differences(comparison: dict[str, PerplexityComparison], first: int, second: int) -> PrintedTable:
    test = f"over {first} and {second} runs and the sentences: min F' (Clark 1973)"
    return PrintedTable(
        "difference in perplexity, in %",
        ["per", "difference", "95% interval", "p", "predicted"],
        [
            (unit.replace("_", " "), f"{of.difference:+.2f}", *interval_and_p(of.low, of.high, of.p_value), of.n)
            for unit, of in comparison.items()
        ],
        note=test if first > 1 else "over the sentences: paired t-test of a ratio of means",
    )


def _comparable(side: Sequence[Perplexity]) -> list[str]:
    """The scores of runs that predict the same number of their units: with other tokenizers, only some."""
    return [name for name, (_, n) in _SHOWN.items() if len({getattr(run, n) for run in side}) == 1]


def _spread(side: Sequence[Perplexity], name: str) -> Spread:
    return Spread.of([getattr(run, name) for run in side])


def _number(name: str, value: float) -> str:
    return "" if value != value else f"{value:.4f}" if name == "bits_per_byte" else f"{value:,.2f}"


def _unknown(run: Perplexity) -> float:
    return run.n_unknown / run.n_all_words


def _trace(scorer: ModelScorer, sentences: Iterable[Sentence], advance: Callable[[int], None]) -> Iterator[Trace]:
    """Traces of sentences, a block at a time, since a whole corpus may not fit into memory."""
    rest = iter(sentences)
    while block := list(islice(rest, BLOCK)):
        tags = tags_of_all(sentence.tags for sentence in block)
        yield from scorer.trace([sentence.words for sentence in block], tags, progress=advance)
