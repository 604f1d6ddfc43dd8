"""`stack-lm parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..console import (
    Problems,
    add_model,
    print_json,
    print_note,
    print_table,
    progress,
)
from ..data.records import Record
from ..errors import InputError
from ..hub.locating import find_models
from ..parsing.ensemble import mean_agreement, mutual_f1, without_punctuation
from ..parsing.export import ENDINGS, check_tree_file, tree_record, write_trees
from .files import check_ending, check_outputs
from .models import (
    add_dropout_options,
    add_parsing_options,
    check_dropout_options,
    check_parsing_options,
    open_parser,
    print_signals,
    words_of,
)
from .texts import add_column, add_keep_going, note_several_sentences, note_without_result, read_texts

if TYPE_CHECKING:
    from ..scoring.parser import Parse, Parser

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
        ".tex for LaTeX (forest); .jsonl with distances; .mrg, .tree, .ptb, .txt or no ending for one (X (X the) ...) "
        "per line",
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
    parser = open_parser(options.model, options, ensemble=options.ensemble)
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


def _print_parse(parse: Parse) -> None:
    print(parse)
    if not parse.strengths:  # of a span parser
        return
    print_signals(parse.words, parse.unknown, parse.strengths)
