"""`stack-lm parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..console import Problems, add_model, add_model_options, print_json, print_table, progress
from ..data.records import Record
from ..errors import InputError
from ..parsing.distances import DECODERS, SHIFTS, distances_from_trace, tree_from_distances
from ..parsing.ensemble import combine_runs
from ..parsing.export import ENDINGS, tree_record, write_trees
from ..parsing.trees import ConstituencyTree
from ..trace import Trace
from .files import check_ending, check_outputs
from .texts import add_column, add_keep_going, note_without_result, read_texts

if TYPE_CHECKING:
    from ..scoring.sentences import ModelScorer

# So few are traced by the reference scan before the compiled one would be loaded, which takes half a second.
FEW_WORDS = 500

Records = Sequence[Record | None]
_EMPTY: dict[str, Any] = tree_record(None) | {"tree": ""}

EXAMPLE = 'stack-lm parse runs/brown-u1 "the dog that the cats fear barks loudly"'


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm parse`."""
    add_model(parser)
    parser.add_argument(
        "sentences", metavar="SENTENCE", nargs="*", default=[], help="text of a sentence; - reads stdin"
    )
    parser.add_argument(
        "--file",
        metavar="F",
        help="a sentence a line or row: text, .jsonl, .json, .csv, .tsv or .parquet, also packed, or - for standard "
        "input. What is empty, or has no word that the model knows, gives an empty line",
    )
    add_column(parser)
    add_keep_going(parser, "lines and rows")
    parser.add_argument(
        "--output",
        metavar="F",
        help="also write the trees to this file, by its ending: .jsonl with distances, .tex for LaTeX (forest), .svg; "
        ".mrg, .tree, .ptb, .txt or no ending for one (X (X the) ...) a line",
    )
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        nargs="+",
        default=[],
        help="more models: all vote for the spans of one tree; the table shows their mutual F1",
    )
    add_parsing_options(parser)


def add_parsing_options(parser: argparse.ArgumentParser) -> None:
    """How a model's strengths become trees."""
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
    add_layer_option(parser)
    add_model_options(parser)


def add_layer_option(parser: argparse.ArgumentParser) -> None:
    """Which strengths of a model: those of which memory, and of a word with several tokens."""
    parser.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="the memory layer, from 0, of a model with several; by default the only one that can be parsed with",
    )
    parser.add_argument(
        "--word-strength",
        choices=("first", "last", "sum", "max"),
        default="last",
        help="the strength of a word with several tokens: that of its first or last token, their sum, or the largest "
        "(default: last)",
    )


def check_parsing_options(options: argparse.Namespace) -> None:
    """Find mistakes before a model is loaded."""
    if options.decoder not in DECODERS:
        raise InputError(f"--decoder must be one of {', '.join(DECODERS)}; got {options.decoder!r}")
    if options.signal is not None and options.signal not in SHIFTS:
        raise InputError(f"--signal must be one of {', '.join(SHIFTS)}; got {options.signal!r}")


def open_scorer(model: str, options: argparse.Namespace, sentences: Sequence[Sequence[str]]) -> ModelScorer:
    """The model at a path, ready to trace some sentences."""
    from ..kernels.dispatch import VARIABLE
    from ..layers.controlled import set_scan_backend
    from ..scoring.sentences import ModelScorer

    scorer = ModelScorer.from_pretrained(
        model,
        device=options.device,
        batch_tokens=options.batch_tokens,
        layer=options.layer,
        word_strength=options.word_strength,
    )
    if sum(map(len, sentences)) <= FEW_WORDS and VARIABLE not in os.environ:
        set_scan_backend(scorer.model, "reference")
    return scorer


def signal_of(scorer: ModelScorer, options: argparse.Namespace) -> str:
    """The name of the signal to parse with: the one that was asked for, or the layer's own."""
    if options.signal and len(scorer.memories) > 1:
        _ = scorer.layer  # an error where it is not known which layer's
    return options.signal or scorer.parsing_signal


def trace_sentences(
    scorer: ModelScorer,
    options: argparse.Namespace,
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]] | None,
    say: str,
) -> tuple[list[Trace], str]:
    """Traces of all sentences, and the name of the signal to parse with."""
    signal = signal_of(scorer, options)
    with progress(say, len(sentences)) as advance:
        traces = scorer.trace(sentences, tags, logprobs=False, progress=advance)
    return traces, signal


def run(options: argparse.Namespace) -> None:
    """Parse the sentences and print their trees."""
    check_parsing_options(options)
    check_ending("--output", options.output, ENDINGS)
    check_outputs({"--output": options.output}, [options.file, options.model, *options.ensemble])
    problems = Problems(options.keep_going)
    records = _records_to_parse(options, problems)
    if options.ensemble:
        _parse_together(options, records)
    else:
        _parse_alone(options, records)
    problems.finish()


def _parse_alone(options: argparse.Namespace, records: Records) -> None:
    """Print the trees of one model."""
    parses, signal = _parse_with(options.model, options, records)
    _check_parses(options, records, [i for i, parse in enumerate(parses) if parse is None])
    trees = [None if parse is None else parse.tree for parse in parses]
    if options.output:
        write_trees(options.output, trees, distances=[None if parse is None else parse.distances for parse in parses])
    if options.json:
        how = {"model": options.model, "signal": signal, "decoder": options.decoder}
        print_json(how | {"parses": [_EMPTY if parse is None else parse.record() for parse in parses]})
    elif len(records) > 3:
        _print_trees(trees)
    else:
        for parse in filter(None, parses):
            _print_parse(parse)


class _Parse(NamedTuple):
    """A sentence's trace, its distances and the tree they make."""

    trace: Trace
    distances: np.ndarray
    tree: ConstituencyTree

    def record(self) -> dict[str, Any]:
        trace = self.trace
        return {
            **tree_record(self.tree, self.distances),
            "tree": str(self.tree),
            "unknown": [word for word, unknown in zip(trace.words, trace.unknown, strict=True) if unknown],
            **{name: values.tolist() for name, values in trace.signals.items()},
        }


def _print_trees(trees: Sequence[ConstituencyTree | None]) -> None:
    for tree in trees:
        print("" if tree is None else tree)


def _parse_with(model: str, options: argparse.Namespace, records: Records) -> tuple[list[_Parse | None], str]:
    """A model's parses of all records, and its signal. A record without a word that the model knows has no parse."""
    say = f"parsing with {model}" if options.ensemble else "parsing"
    words = [[] if record is None else record.text.split() for record in records]
    scorer = open_scorer(model, options, words)
    # Text, not words: punctuation may not have been split off.
    sentences = [scorer.split(" ".join(own)) for own in words if own]
    traces, signal = trace_sentences(scorer, options, sentences, None, say)
    rest = iter(traces)
    parses: list[_Parse | None] = []
    for own in words:
        trace = next(rest) if own else None
        if trace is None or trace.unknown.all():
            parses.append(None)
            continue
        distances = distances_from_trace(trace, signal)
        parses.append(_Parse(trace, distances, tree_from_distances(trace.words, distances, options.decoder)))
    return parses, signal


def _check_parses(options: argparse.Namespace, records: Records, failed: Sequence[int]) -> None:
    """Say which sentences have no tree. Of a file the others go on; what is typed can be typed again."""
    knows = "every one of the models knows" if options.ensemble else "the model knows"
    unknown = [(i, record) for i in failed if (record := records[i]) is not None and record.text]
    if unknown and (len(failed) == len(records) or not _source(options)):
        record = unknown[0][1]
        raise InputError(f"{record.unit} {record.number} has no word that {knows}: {record.text!r}")
    note_without_result(records, [i for i, _ in unknown], knows)


def _parse_together(options: argparse.Namespace, records: Records) -> None:
    """Print the trees that several models vote for. All vote: a few sentences cannot show that a run has failed."""
    models = [options.model, *options.ensemble]
    by_model = [_parse_with(model, options, records)[0] for model in models]
    there = [i for i, parses in enumerate(zip(*by_model, strict=True)) if None not in parses]
    _check_parses(options, records, sorted(set(range(len(records))) - set(there)))
    runs = [[parse.tree for i in there if (parse := parses[i]) is not None] for parses in by_model]
    ensemble = combine_runs(runs, names=models, outlier_share=0)
    trees: list[ConstituencyTree | None] = [None] * len(records)
    for place, tree in zip(there, ensemble.trees, strict=True):
        trees[place] = tree
    if options.output:
        write_trees(options.output, trees)
    if options.json:
        found = [_EMPTY] * len(records)
        for i, place in enumerate(there):
            tree = ensemble.trees[i]
            found[place] = {**tree_record(tree), "tree": str(tree), "runs": [str(run[i]) for run in runs]}
        agreement = {"mutual_f1": ensemble.mutual_f1.tolist(), "agreement": ensemble.agreement.tolist()}
        print_json({"models": models, "decoder": options.decoder, **agreement, "parses": found})
        return
    _print_trees(trees)
    rows = list(zip(models, ensemble.agreement.tolist(), strict=True))
    print_table("", ["model", "mean F1 with the other models"], rows)


def _source(options: argparse.Namespace) -> str | None:
    """The file to parse; None for sentences that are arguments."""
    return options.file or ("-" if options.sentences == ["-"] else None)


def _records_to_parse(options: argparse.Namespace, problems: Problems) -> Records:
    if options.file and options.sentences:
        raise InputError("give sentences or --file, not both")
    source = _source(options)
    if source:
        return read_texts(source, options.column, problems)
    for option in ("column", "keep_going"):
        if getattr(options, option):
            raise InputError(f"--{option.replace('_', '-')} is for --file")
    if not options.sentences:
        raise InputError("no sentence to parse: give one or more, or --file F, or - for standard input")
    records = []
    for number, text in enumerate(options.sentences, start=1):
        words = words_of(text, f"sentence {number}")
        if not words:
            raise InputError(f"sentence {number} is empty")
        records.append(Record(number, " ".join(words), {}, "", "sentence"))
    return records


def words_of(text: str, name: str) -> list[str]:
    """The words of a sentence that is an argument.

    Raises:
        InputError: if its bytes are not UTF-8.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # such bytes arrive as lone surrogates
        raise InputError(f"{name} is not UTF-8 text (character {error.start + 1})") from error
    return text.split()


def _print_parse(parse: _Parse) -> None:
    print(parse.tree)
    trace = parse.trace
    names = list(trace.signals)
    rows = [
        (f"{word} (unknown)" if unknown else word, *(float(trace.signals[name][i]) for name in names))
        for i, (word, unknown) in enumerate(zip(trace.words, trace.unknown, strict=True))
    ]
    print_table("", ["word", *(name.replace("_", " ") for name in names)], rows)
