"""`stack-lm perplexity`."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ..config_files import read_run_config
from ..console import (
    Problems,
    add_model,
    add_model_options,
    positive_int,
    print_json,
    print_note,
    print_table,
    progress,
)
from ..data import Sentence, hold_out, open_corpus
from ..data.text import Segmenter
from ..eval.perplexity import evaluate_perplexity
from ..hub.locating import find_models
from ..tokenization import splits_words
from .texts import add_column, add_keep_going

if TYPE_CHECKING:
    from ..scoring.sentences import ModelScorer
    from ..trace import Trace

# Sentences scored at a time: enough for batches of similar length.
BLOCK = 10_000

EXAMPLE = "stack-lm perplexity runs/brown-u1 --data nltk:brown --held-out 3000"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm perplexity`."""
    add_model(parser)
    parser.add_argument(
        "--data",
        metavar="PATH",
        required=True,
        help="a file of text, .jsonl, .json, .csv, .tsv, .parquet or .mrg, a directory of them, nltk:NAME, "
        "generated:N:SEED, wikitext, hub:DATASET, or - for standard input",
    )
    parser.add_argument("--split", default="test", help="split of a dataset of the hub (default: test)")
    parser.add_argument(
        "--segmentation", choices=Segmenter.MODES, help="layout of the text (default: the one that fits the source)"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="N",
        help="only the sentences that a training run with this data.held_out leaves out: a number, or a share below 1",
    )
    parser.add_argument("--seed", type=int, default=0, help="the run's data.held_out_seed, or its seed (default: 0)")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="only the first N sentences")
    add_column(parser)
    add_keep_going(parser, "lines and rows")
    add_model_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure perplexity and print it."""
    from ..scoring.sentences import ModelScorer

    find_models(options.model)
    _note_segmentation(options)
    problems = Problems(options.keep_going)
    scorer = ModelScorer.from_pretrained(options.model, device=options.device, batch_tokens=options.batch_tokens)
    corpus = open_corpus(
        options.data,
        split=options.split,
        segmentation=options.segmentation,
        column=options.column,
        on_error=problems.on_error,
        split_words=splits_words(scorer.tokenizer),
    )
    sentences: Iterable[Sentence] = islice(corpus, options.limit)
    if options.held_out is not None:
        with progress("reading sentences", options.limit) as advance:
            everything = list(_counted(sentences, advance))
        _, sentences = hold_out(everything, options.held_out, options.seed)
    total = len(sentences) if isinstance(sentences, list) else options.limit
    with progress("scoring sentences", total) as advance:
        result = dataclasses.asdict(evaluate_perplexity(_trace(scorer, sentences, advance)))
    if options.json:
        print_json({"model": options.model, "data": options.data} | result)
        problems.finish()
        return
    bits = result["bits_per_byte"]
    rows = [
        ("token", result["perplexity"], result["nats_per_token"], result["bits_per_token"], result["n_tokens"]),
        ("word", result["word_perplexity"], result["nats_per_word"], result["bits_per_word"], result["n_words"]),
        (
            "inner token",
            result["inner_perplexity"],
            result["nats_per_inner_token"],
            result["nats_per_inner_token"] / math.log(2),
            result["n_inner_tokens"],
        ),
        ("byte", None, f"{bits * math.log(2):.4f}", f"{bits:.4f}", result["n_bytes"]),
    ]
    unknown = result["n_unknown"] / result["n_all_words"]
    compares = ", so bits per byte do not compare" if unknown else ""
    print_table(
        f"perplexity, {options.data}",
        ["per", "perplexity", "nats", "bits", "predicted"],
        rows,
        caption=f"{result['n_sentences']:,} sentences, {result['n_all_words']:,} words, "
        f"{unknown:.1%} of them unknown{compares}",
    )
    problems.finish()


def _note_segmentation(options: argparse.Namespace) -> None:
    """Print a note if the model was trained on segmented text and no segmentation is requested."""
    form = read_run_config(Path(options.model)).get("data", {}).get("segmentation")
    if form is not None and options.segmentation is None:
        print_note(f"{options.model} was trained with data.segmentation={form}; such text needs --segmentation {form}")


def _counted(sentences: Iterable[Sentence], advance: Callable[[int], None]) -> Iterator[Sentence]:
    for sentence in sentences:
        advance(1)
        yield sentence


def _trace(scorer: ModelScorer, sentences: Iterable[Sentence], advance: Callable[[int], None]) -> Iterator[Trace]:
    """Traces of sentences, a block at a time, since a whole corpus may not fit into memory."""
    rest = iter(sentences)
    while block := list(islice(rest, BLOCK)):
        tags = [sentence.tags for sentence in block if sentence.tags is not None]
        words = [sentence.words for sentence in block]
        yield from scorer.trace(words, tags if len(tags) == len(block) else None, progress=advance)
