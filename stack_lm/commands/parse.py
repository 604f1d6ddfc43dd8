"""`stack-lm parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..console import add_model, add_model_options, print_json, print_table, progress
from ..data.text import read_lines
from ..errors import InputError
from ..parsing.distances import DECODERS, SHIFTS, distances_from_trace, tree_from_distances
from ..parsing.ensemble import combine_runs
from ..parsing.export import ENDINGS, tree_record, write_trees
from ..parsing.trees import ConstituencyTree
from ..trace import Trace
from .files import check_ending, check_outputs

if TYPE_CHECKING:
    from ..scoring.sentences import ModelScorer

# So few are traced by the reference scan before the compiled one would be loaded, which takes half a second.
FEW_WORDS = 500

Item = TypeVar("Item")

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
        help="a text file with one sentence a line, or - for standard input; an empty line gives an empty line",
    )
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
    lines = _lines_to_parse(options)
    if options.ensemble:
        _parse_together(options, lines)
        return
    traces, signal, distances, trees = _parse_with(options.model, options, lines)
    if options.output:
        write_trees(options.output, _in_lines(lines, trees), distances=_in_lines(lines, distances))
    if options.json:
        parses = [
            {
                **tree_record(tree, distance),
                "tree": str(tree),
                "unknown": [word for word, unknown in zip(trace.words, trace.unknown, strict=True) if unknown],
                **{name: values.tolist() for name, values in trace.signals.items()},
            }
            for trace, tree, distance in zip(traces, trees, distances, strict=True)
        ]
        print_json(
            {"model": options.model, "signal": signal, "decoder": options.decoder, "parses": _records(lines, parses)}
        )
    elif len(lines) > 3:
        _print_trees(lines, trees)
    else:
        for trace, tree in zip(traces, trees, strict=True):
            _print_parse(trace, tree)


def _in_lines(lines: Sequence[Sequence[str]], of_sentences: Sequence[Item]) -> list[Item | None]:
    """What belongs to the sentences, line by line: None for an empty line."""
    rest = iter(of_sentences)
    return [next(rest) if words else None for words in lines]


def _records(lines: Sequence[Sequence[str]], parses: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    empty = tree_record(None) | {"tree": ""}
    return [empty if parse is None else parse for parse in _in_lines(lines, parses)]


def _print_trees(lines: Sequence[Sequence[str]], trees: Sequence[ConstituencyTree]) -> None:
    for tree in _in_lines(lines, trees):
        print("" if tree is None else tree)


def _parse_with(
    model: str, options: argparse.Namespace, lines: Sequence[Sequence[str]]
) -> tuple[list[Trace], str, list[np.ndarray], list[ConstituencyTree]]:
    """A model's traces of the lines that are not empty, its signal, the distances and the trees."""
    say = f"parsing with {model}" if options.ensemble else "parsing"
    numbers = [number for number, words in enumerate(lines, start=1) if words]
    given = [words for words in lines if words]
    scorer = open_scorer(model, options, given)
    # Text, not words: punctuation may not have been split off.
    sentences = [scorer.split(" ".join(words)) for words in given]
    traces, signal = trace_sentences(scorer, options, sentences, None, say)
    for number, trace in zip(numbers, traces, strict=True):
        if trace.unknown.all():
            knows = f"{model} knows" if options.ensemble else "the model knows"
            raise InputError(f"sentence {number} has no word that {knows}: {' '.join(trace.words)!r}")
    distances = [distances_from_trace(trace, signal) for trace in traces]
    trees = [tree_from_distances(t.words, d, options.decoder) for t, d in zip(traces, distances, strict=True)]
    return traces, signal, distances, trees


def _parse_together(options: argparse.Namespace, lines: Sequence[Sequence[str]]) -> None:
    """Print the trees that several models vote for. All vote: a few sentences cannot show that a run has failed."""
    models = [options.model, *options.ensemble]
    runs = [_parse_with(model, options, lines)[3] for model in models]
    ensemble = combine_runs(runs, names=models, outlier_share=0)
    if options.output:
        write_trees(options.output, _in_lines(lines, ensemble.trees))
    if options.json:
        parses = [
            {**tree_record(tree), "tree": str(tree), "runs": [str(run[i]) for run in runs]}
            for i, tree in enumerate(ensemble.trees)
        ]
        agreement = {"mutual_f1": ensemble.mutual_f1.tolist(), "agreement": ensemble.agreement.tolist()}
        print_json({"models": models, "decoder": options.decoder, **agreement, "parses": _records(lines, parses)})
        return
    _print_trees(lines, ensemble.trees)
    rows = list(zip(models, ensemble.agreement.tolist(), strict=True))
    print_table("", ["model", "mean F1 with the other models"], rows)


def _lines_to_parse(options: argparse.Namespace) -> list[list[str]]:
    """The words of each line; none of an empty line of a file."""
    if options.file and options.sentences:
        raise InputError("give sentences or --file, not both")
    source = options.file or ("-" if options.sentences == ["-"] else None)
    if source:
        return [line.split() for _, line in read_lines(source, keep_empty=True)]
    if not options.sentences:
        raise InputError("no sentence to parse: give one or more, or --file F, or - for standard input")
    sentences = [words_of(text, f"sentence {number}") for number, text in enumerate(options.sentences, start=1)]
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise InputError(f"sentence {number} is empty")
    return sentences


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


def _print_parse(trace: Trace, tree: ConstituencyTree) -> None:
    print(tree)
    names = list(trace.signals)
    rows = [
        (f"{word} (unknown)" if unknown else word, *(float(trace.signals[name][i]) for name in names))
        for i, (word, unknown) in enumerate(zip(trace.words, trace.unknown, strict=True))
    ]
    print_table("", ["word", *(name.replace("_", " ") for name in names)], rows)
