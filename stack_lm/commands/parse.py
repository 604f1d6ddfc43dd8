"""`stack-lm parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
from ..data.records import Record
from ..data.text import check_encodable
from ..errors import InputError
from ..hub.locating import find_models
from ..messages import check_name
from ..parsing.distances import DECODERS, DEFAULT_DECODER, SHIFTS
from ..parsing.ensemble import mean_agreement, mutual_f1, without_punctuation
from ..parsing.export import ENDINGS, check_tree_file, tree_record, write_trees
from ..trace import Trace
from .files import check_ending, check_outputs
from .texts import add_column, add_keep_going, note_several_sentences, note_without_result, read_texts

if TYPE_CHECKING:
    from ..scoring.parser import Parse, Parser
    from ..scoring.sentences import ModelScorer
    from ..scoring.spans import SpanScorer

# The reference scan traces this few sentences faster than the compiled one loads, which takes half a second.
FEW_WORDS = 500

Records = Sequence[Record | None]
_EMPTY: dict[str, Any] = tree_record(None) | {"tree": ""}

EXAMPLE = (
    'stack-lm parse runs/brown-u1 "the dog that the cats fear barks loudly"\n'
    "  stack-lm parse runs/brown-u1 --data sentences.txt --output trees.html"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm parse`."""
    add_model(parser)
    parser.add_argument(
        "sentences", metavar="SENTENCE", nargs="*", default=[], help="text of a sentence; - reads stdin"
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="one sentence per line or row: text, .jsonl, .json, .csv, .tsv, .parquet, or the words of trees, .mrg; "
        "also compressed; hub:DATASET; or - for standard input. A sentence that is empty or has no known word gives an "
        "empty line",
    )
    add_column(parser)
    parser.add_argument("--split", help="split of a dataset of the hub (default: train)")
    add_keep_going(parser, "lines and rows")
    parser.add_argument(
        "--output",
        metavar="F",
        help="also write the trees to this file, in the format of its ending: .html, a page to look through; .svg; "
        ".pdf (needs stack-lm[plots]); .tex for LaTeX (forest); .jsonl with distances; .mrg, .tree, .ptb, .txt or no "
        "ending for one (X (X the) ...) per line",
    )
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        nargs="+",
        default=[],
        help="more models: all vote for the spans of one tree; the table shows their mutual F1",
    )
    add_dropout_options(parser)
    add_parsing_options(parser)


def add_dropout_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that let several readings of a sentence vote for its tree."""
    parser.add_argument(
        "--dropout-samples",
        type=positive_int,
        metavar="N",
        default=0,
        help="also read each sentence N times with dropout in the embeddings; the trees of these readings vote for the "
        "spans of one tree, which takes N + 1 times as long (Monte Carlo dropout; 16 is a good number)",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        metavar="P",
        help="with --dropout-samples: drop this share of the embeddings' units (default: 0.2)",
    )


def add_parsing_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that turn a model's strengths into trees."""
    parser.add_argument(
        "--signal",
        metavar="NAME",
        help=f"source of the distances: one of {', '.join(SHIFTS)} (default: the push strength; the pop strength if "
        "the push is fixed; run_depth, the depth of the most probable run, for a nondeterministic stack)",
    )
    parser.add_argument(
        "--decoder",
        metavar="NAME",
        help=f"one of {', '.join(DECODERS)} (default: gap for run_depth, because it keeps all spans of the run; "
        f"otherwise {DEFAULT_DECODER})",
    )
    add_layer_option(parser)
    add_model_options(parser)


def add_layer_option(parser: argparse.ArgumentParser) -> None:
    """Add the options that select a memory layer and a word's strength."""
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="for models with several memory layers: the number of one, from 0 (default: the only one that can parse)",
    )
    add_word_strength_option(parser)


def add_word_strength_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that selects the strength of a word with several tokens."""
    parser.add_argument(
        "--word-strength",
        choices=("first", "last", "sum", "max"),
        default="last",
        help="the strength of a word with several tokens: that of its first or last token, their sum, or the largest "
        "(default: last)",
    )


def first_given(options: argparse.Namespace, names: Sequence[str]) -> str | None:
    """The first of some options that does not have its default, as typed; None if all have theirs."""
    defaults = {"word_strength": "last", "dropout_samples": 0}
    given = (name for name in names if getattr(options, name) != defaults.get(name))
    return next((f"--{name.replace('_', '-')}" for name in given), None)


def check_parsing_options(options: argparse.Namespace) -> None:
    """Check the options before a model is loaded."""
    if options.decoder is not None:
        check_name("--decoder", options.decoder, DECODERS)
    if options.signal is not None:
        check_name("--signal", options.signal, SHIFTS)


def check_dropout_options(options: argparse.Namespace) -> None:
    """Check the options of several readings before a model is loaded."""
    if options.dropout is None:
        return
    if not options.dropout_samples:
        raise InputError("--dropout is for --dropout-samples N; give both")
    if not 0 < options.dropout < 1:
        raise InputError(f"--dropout must be above 0 and below 1; got {options.dropout}")


def reading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that control how a model reads sentences."""
    return {name: getattr(options, name) for name in ("device", "batch_tokens", "layer", "word_strength")}


def open_scorer(model: str, options: argparse.Namespace, sentences: Sequence[Sequence[str]]) -> ModelScorer:
    """Load the model at a path to trace sentences."""
    from ..scoring.sentences import ModelScorer

    scorer = ModelScorer.from_pretrained(model, **reading_options(options))
    _prepare(scorer, sentences)
    return scorer


def open_parser(
    model: str, options: argparse.Namespace, sentences: Sequence[Sequence[str]], *, ensemble: Sequence[str] = ()
) -> Parser:
    """Load the model at a path, and others that vote with it, to parse sentences."""
    from ..scoring.parser import Parser

    names = ("signal", "decoder", "dropout_samples")
    how = reading_options(options) | {name: getattr(options, name) for name in names}
    if options.dropout is not None:
        how["dropout"] = options.dropout
    parser = Parser.from_pretrained(model, ensemble=ensemble, **how)
    for each in (parser, *parser.ensemble):
        _prepare(each.scorer, sentences)
    return parser


def _prepare(scorer: ModelScorer | SpanScorer, sentences: Sequence[Sequence[str]]) -> None:
    from ..kernels.dispatch import VARIABLE
    from ..layers.controlled import set_scan_backend

    if sum(map(len, sentences)) <= FEW_WORDS and VARIABLE not in os.environ:
        set_scan_backend(scorer.model, "reference")


def trace_sentences(
    scorer: ModelScorer,
    options: argparse.Namespace,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]] | None,
    say: str,
) -> tuple[list[Trace], str]:
    """Traces of all sentences, and the name of the signal to parse with."""
    signal = scorer.choose_signal(options.signal)
    with progress(say, len(sentences)) as advance:
        traces = scorer.trace(sentences, tags, logprobs=False, progress=advance)
    return traces, signal


def run(options: argparse.Namespace) -> None:
    """Parse the sentences and print their trees."""
    check_parsing_options(options)
    check_dropout_options(options)
    check_ending("--output", options.output, ENDINGS)
    if options.output is not None:
        check_tree_file(options.output)
    check_outputs({"--output": options.output}, [options.data, options.model, *options.ensemble])
    find_models(options.model, *options.ensemble)
    problems = Problems(options.keep_going)
    records = _records_to_parse(options, problems)
    note_several_sentences(records)
    texts = ["" if record is None else record.text for record in records]
    models = [options.model, *options.ensemble]
    parser = open_parser(options.model, options, [text.split() for text in texts], ensemble=options.ensemble)
    with progress("parsing", len(models) * parser.readings * sum(map(bool, texts))) as advance:
        parses = parser.parse_batch(texts, progress=advance)
    _check_parses(options, records, [i for i, parse in enumerate(parses) if parse is None])
    if options.output:
        trees = [None if parse is None else parse.tree for parse in parses]
        distances = None if options.ensemble else [None if parse is None else parse.distances for parse in parses]
        write_trees(options.output, trees, distances=distances, source=", ".join(models))
        print_note(f"written: {options.output}")  # not on standard output, which has a tree per line
    _print(options, parser, parses)
    problems.finish()


def _print(options: argparse.Namespace, parser: Parser, parses: Sequence[Parse | None]) -> None:
    models = [options.model, *options.ensemble]
    agreement = _agreement(parses) if options.ensemble else {}
    if options.json:
        how = {"models": models} if options.ensemble else {"model": options.model, "signal": parser.signal}
        found = [_EMPTY if parse is None else parse.record() for parse in parses]
        print_json({**how, "decoder": parser.decoder, **agreement, "parses": found})
        return
    if options.ensemble or _source(options) or len(parses) > 3:
        for parse in parses:
            print("" if parse is None else parse)
    else:
        for parse in filter(None, parses):
            _print_parse(parse)
    if options.ensemble:
        rows = list(zip(models, agreement["agreement"], strict=True))
        print_table("", ["model", "mean F1 with the other models"], rows)


def _agreement(parses: Sequence[Parse | None]) -> dict[str, list[Any]]:
    """The F1 of each model's trees against the others', over the words that they vote for: without punctuation."""
    by_sentence = (map(without_punctuation, parse.runs) for parse in parses if parse is not None)
    mutual = mutual_f1(list(zip(*by_sentence, strict=True)))
    return {"mutual_f1": mutual.tolist(), "agreement": mean_agreement(mutual).tolist()}


def _check_parses(options: argparse.Namespace, records: Records, failed: Sequence[int]) -> None:
    """Report sentences without a tree: an error for typed sentences or if no sentence has one, else a note."""
    knows = "every one of the models knows" if options.ensemble else "the model knows"
    unknown = [(i, record) for i in failed if (record := records[i]) is not None and record.text]
    if unknown and (len(failed) == len(records) or not _source(options)):
        record = unknown[0][1]
        if source := _source(options):
            raise InputError(f"{source} has no word that {knows}; {record.unit} {record.number}: {record.text!r}")
        is_file = os.path.isfile(record.text)
        hint = f"; --data {record.text} parses the sentences of that file" if is_file else ""
        raise InputError(f"{record.unit} {record.number} has no word that {knows}: {record.text!r}{hint}")
    note_without_result(records, [i for i, _ in unknown], knows)


def _source(options: argparse.Namespace) -> str | None:
    """The file to parse; None for sentences that are arguments."""
    return options.data or ("-" if options.sentences == ["-"] else None)


def _records_to_parse(options: argparse.Namespace, problems: Problems) -> Records:
    if options.data and options.sentences:
        raise InputError("give sentences or --data, not both")
    source = _source(options)
    if source:
        return read_texts(source, options.column, problems, split=options.split)
    for option in ("column", "split", "keep_going"):
        if getattr(options, option):
            raise InputError(f"--{option.replace('_', '-')} is for --data")
    if not options.sentences:
        raise InputError("no sentence to parse: give one or more, or --data FILE, or - for standard input")
    records = []
    for number, text in enumerate(options.sentences, start=1):
        words = words_of(text, f"sentence {number}")
        if not words:
            raise InputError(f"sentence {number} is empty")
        records.append(Record(number, " ".join(words), {}, "", "sentence"))
    if len(records) > 1 and not any(" " in record.text for record in records):
        print_note("each argument is a sentence of one word; put quotation marks around a sentence of several words")
    return records


def words_of(text: str, name: str) -> list[str]:
    """The words of a sentence given as an argument.

    Raises:
        InputError: if its bytes are not UTF-8.
    """
    check_encodable(text, name)
    return text.split()


def _print_parse(parse: Parse) -> None:
    print(parse)
    if not parse.strengths:  # of a span parser
        return
    unknown = np.zeros(len(parse.words), dtype=bool) if parse.unknown is None else parse.unknown
    rows = [
        (f"{word} (unknown)" if unknown[i] else word, *(float(values[i]) for values in parse.strengths.values()))
        for i, word in enumerate(parse.words)
    ]
    print_table("", ["word", *(name.replace("_", " ") for name in parse.strengths)], rows)
