"""`stack-lm perplexity`."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..console import (
    Problems,
    add_model_options,
    non_negative_int,
    positive_int,
    print_json,
    print_table,
    progress,
)
from ..data import Sentence, hold_out
from ..data.corpora import Corpus, tags_of_all
from ..errors import InputError
from ..eval.perplexity import (
    Perplexity,
    PerplexityComparison,
    SentenceLosses,
    compare_perplexity,
    sentence_losses,
)
from ..eval.seeds import Spread
from ..hub.locating import find_models
from ..messages import counted
from ..tokenization import splits_words
from .runs import check_runs, interval_and_p
from .texts import ScoredText, add_keep_going, add_text_options, note_segmentation, text_record

if TYPE_CHECKING:
    from ..scoring.sentences import ModelScorer
    from ..trace import Trace

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
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="a model directory, or a model on the hub; several count as runs of one model",
    )
    parser.add_argument(
        "--against",
        metavar="MODEL",
        nargs="+",
        help="another model, or several runs of it: show the difference in perplexity, tested over sentences, or over "
        "runs and sentences",
    )
    add_text_options(parser, "the text", "test; with --held-out, train")
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="N",
        help="only the sentences that a training run with this data.held_out leaves out: a number, or a share below 1",
    )
    parser.add_argument(
        "--seed",
        type=non_negative_int,
        metavar="N",
        help="with --held-out: the run's data.held_out_seed, or its seed (default: 0)",
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="only the first N sentences")
    add_keep_going(parser, "lines and rows")
    add_model_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure perplexity and print it."""
    against = options.against or []
    paths = [*options.models, *against]
    check_runs(options.models, against)
    find_models(*paths)
    note_segmentation(paths, options.segmentation)
    problems = Problems(options.keep_going)
    if options.held_out is not None:
        options.split, options.seed = options.split or "train", options.seed or 0
    elif options.seed is not None:
        raise InputError("--seed chooses the sentences of --held-out; give both")
    text = ScoredText(options, problems, lambda corpus: _choose(corpus, options), keep=len(paths) > 1)
    losses = {path: _score(path, text, options) for path in paths}
    if len(paths) == 1:
        _report_one(options, losses[paths[0]].perplexity())
    else:
        _report_runs(options, *([losses[path] for path in side] for side in (options.models, against)))
    problems.finish()


def _choose(corpus: Corpus, options: argparse.Namespace) -> Iterable[Sentence]:
    """The requested sentences: the first, or those that a training run leaves out."""
    sentences: Iterable[Sentence] = islice(corpus, options.limit)
    if options.held_out is None:
        return sentences
    with progress("reading sentences", options.limit) as advance:
        everything = list(_counted(sentences, advance))
    return hold_out(everything, options.held_out, options.seed)[1]


def _score(path: str, text: ScoredText, options: argparse.Namespace) -> SentenceLosses:
    """The losses of one model."""
    from ..scoring.sentences import ModelScorer

    scorer = ModelScorer.from_pretrained(path, device=options.device, batch_tokens=options.batch_tokens)
    sentences = text.sentences(splits_words(scorer.tokenizer))
    total = len(sentences) if isinstance(sentences, list) else options.limit
    with progress(f"scoring {path}", total) as advance:
        return sentence_losses(_trace(scorer, sentences, advance))


def _report_one(options: argparse.Namespace, found: Perplexity) -> None:
    result = dataclasses.asdict(found)
    if options.json:
        print_json({"model": options.models[0]} | _text_of(options) | result)
        return
    bits = found.bits_per_byte
    rows = [
        ("token", found.perplexity, found.nats_per_token, found.bits_per_token, found.n_tokens),
        ("word", found.word_perplexity, found.nats_per_word, found.bits_per_word, found.n_words),
        (
            "inner token",
            found.inner_perplexity,
            found.nats_per_inner_token,
            found.nats_per_inner_token / math.log(2),
            found.n_inner_tokens,
        ),
        ("byte", None, f"{bits * math.log(2):.4f}", f"{bits:.4f}", found.n_bytes),
    ]
    unknown = _unknown(found)
    compares = ", so bits per byte are not comparable" if unknown else ""
    print_table(
        f"perplexity, {options.data}",
        ["per", "perplexity", "nats", "bits", "predicted"],
        rows,
        caption=f"{counted(found.n_sentences, 'sentence')}, {counted(found.n_all_words, 'word')}, "
        f"{found.n_unknown:,} of them unknown ({unknown:.1%}){compares}",
    )


def _report_runs(
    options: argparse.Namespace, first: Sequence[SentenceLosses], second: Sequence[SentenceLosses]
) -> None:
    """Print the perplexities of several runs, and the difference of two models."""
    sides = [(options.models, first)] + ([(options.against, second)] if second else [])
    results = [(paths, [losses.perplexity() for losses in side]) for paths, side in sides]
    comparison: dict[str, PerplexityComparison] = {}
    try:
        if second:
            comparison = compare_perplexity(first, second)
    finally:  # the perplexities have taken long, so they are printed even if they cannot be compared
        _print_runs(options, results, comparison)


def _print_runs(
    options: argparse.Namespace,
    results: Sequence[tuple[Sequence[str], list[Perplexity]]],
    comparison: Mapping[str, PerplexityComparison],
) -> None:
    if options.json:
        described = [
            {
                "runs": [{"model": path} | dataclasses.asdict(run) for path, run in zip(paths, side, strict=True)],
                "spread": {name: dataclasses.asdict(_spread(side, name)) for name in _comparable(side)},
            }
            for paths, side in results
        ]
        compared = {unit: dataclasses.asdict(found) for unit, found in comparison.items()}
        more = {"against": described[1], "comparison": compared} if len(described) > 1 else {}
        print_json(_text_of(options) | described[0] | more)
        return
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
    print_table(
        f"perplexity, {options.data}",
        ["model", *(heading for heading, _ in _SHOWN.values()), "unknown words"],
        rows,
        caption=f"{runs[0].n_sentences:,} sentences"
        + (
            ", some with unknown words, so only models with the same vocabulary are comparable"
            if any(map(_unknown, runs))
            else ""
        ),
    )
    if comparison:
        numbers = [len(side) for _, side in results]
        print_table(
            "difference in perplexity, in %",
            ["per", "difference", "95% interval", "p", "predicted"],
            [
                (unit.replace("_", " "), f"{of.difference:+.2f}", *interval_and_p(of.low, of.high, of.p_value), of.n)
                for unit, of in comparison.items()
            ],
            caption=f"over {numbers[0]} and {numbers[1]} runs and the sentences: min F' (Clark 1973)"
            if numbers[0] > 1
            else "over the sentences: paired t-test of a ratio of means",
        )


def _text_of(options: argparse.Namespace) -> dict[str, Any]:
    """For JSON: the sentences that are scored."""
    return text_record(options) | {
        "held_out": options.held_out,
        "held_out_seed": options.seed,
        "limit": options.limit,
    }


def _comparable(side: Sequence[Perplexity]) -> list[str]:
    """The scores of runs that predict the same number of their units: with other tokenizers, only some."""
    return [name for name, (_, n) in _SHOWN.items() if len({getattr(run, n) for run in side}) == 1]


def _spread(side: Sequence[Perplexity], name: str) -> Spread:
    return Spread.of([getattr(run, name) for run in side])


def _number(name: str, value: float) -> str:
    return f"{value:.4f}" if name == "bits_per_byte" else f"{value:,.2f}"


def _unknown(run: Perplexity) -> float:
    return run.n_unknown / run.n_all_words


def _counted(sentences: Iterable[Sentence], advance: Callable[[int], None]) -> Iterator[Sentence]:
    for sentence in sentences:
        advance(1)
        yield sentence


def _trace(scorer: ModelScorer, sentences: Iterable[Sentence], advance: Callable[[int], None]) -> Iterator[Trace]:
    """Traces of sentences, a block at a time, since a whole corpus may not fit into memory."""
    rest = iter(sentences)
    while block := list(islice(rest, BLOCK)):
        tags = tags_of_all(sentence.tags for sentence in block)
        yield from scorer.trace([sentence.words for sentence in block], tags, progress=advance)
