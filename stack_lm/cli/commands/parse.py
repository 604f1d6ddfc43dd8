"""`stack-lm parse`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.console import print_note, progress
from ...core.errors import InputError
from ...hub.locating import find_models
from ...parsing.ensemble import mean_agreement, mutual_f1, without_punctuation
from ...parsing.export import ENDINGS, tree_record, write_trees
from ...text.records import Record
from ..files import check_files
from ..models import add_dropout_option, open_parser, signals_table
from ..options import PARSING, option, shared
from ..printing import PrintedTable
from ..report import Problems, Report
from ..texts import add_sentences, note_strange_words, note_without_result, read_sentences

if TYPE_CHECKING:
    from ...scoring.parser import Parse

Records = Sequence[Record | None]
_EMPTY: dict[str, Any] = tree_record(None) | {"tree": ""}

EXAMPLE = (
    'stack-lm parse runs/brown-u1 "the dog that the cats fear barks loudly"\n'
    "  stack-lm parse runs/brown-u1 --data sentences.txt --output trees.html"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm parse`."""
    shared(parser, "MODEL")
    option(parser, "[SENTENCE ...]", "text of a sentence; - reads stdin")
    add_sentences(parser)
    output = "also write the trees to this file, in the format of its ending: .html, a page to look through; .svg; "
    output += ".tex for LaTeX (forest); .jsonl with distances; .mrg, .tree, .ptb, .txt "
    option(parser, "-o, --output FILE", f"{output}or no ending for one (X (X the) ...) per line", endings=ENDINGS)
    shared(parser, "--ensemble", ensemble="models")
    choose = (
        "with --ensemble: no vote, but the trees of the model that agrees most with the others, which needs no gold "
    )
    option(parser, "--choose", f"{choose}trees: a way to choose a seed for a language without a treebank")
    add_dropout_option(parser)
    shared(parser, *PARSING)


def run(options: argparse.Namespace) -> Report:
    """Parse the sentences; their trees are printed."""
    models = [options.model, *options.ensemble]
    check_files(options, options.data, *models)
    find_models(*models)
    if options.choose and len(models) < 3:
        raise InputError(f"--choose needs three models or more, because two agree equally; got {len(models)}")
    problems = Problems(options.keep_going)
    source, records = read_sentences(options, options.sentences, problems)
    texts = ["" if record is None else record.tokens or record.text for record in records]
    parser = open_parser(options.model, options, ensemble=options.ensemble)
    with progress("parsing", len(models) * parser.readings * sum(map(bool, texts))) as advance:
        parses = parser.parse_batch(texts, progress=advance)
    knows = "every one of the models knows" if options.ensemble else "the model knows"
    made = [parse for parse in parses if parse is not None and parse.unknown is not None]
    if made:
        unknown = np.concatenate([parse.unknown for parse in made])
        words = [word for parse in made for word in parse.words]
        sizes = {word: len(parser.scorer.tokenizer.tokenize(word)) for word in set(words)}
        note_strange_words(options.model, words, unknown, np.array([sizes[word] for word in words]))
    _check_parses(source, records, [i for i, parse in enumerate(parses) if parse is None], knows)
    how: dict[str, Any] = {"model": options.model, "signal": parser.signal}
    if options.ensemble:
        how = {"models": models} | _agreement(parses)
    if options.choose:
        best = int(np.argmax(how["agreement"]))
        how["chosen"] = models[best]
        parses = [None if parse is None else replace(parse, tree=parse.runs[best]) for parse in parses]
    if options.output:
        trees = [None if parse is None else parse.tree for parse in parses]
        distances = None if options.ensemble else [None if parse is None else parse.distances for parse in parses]
        write_trees(options.output, trees, distances=distances, source=", ".join(models))
        print_note(f"written: {options.output}")  # not on standard output, which has a tree per line
    record = {**how, "decoder": parser.decoder}
    record["parses"] = [_EMPTY if parse is None else parse.record() for parse in parses]
    with_signals = not (options.ensemble or source or len(parses) > 3)
    return Report(record, _shown(record, parses, with_signals), finish=problems.finish)


def _shown(record: dict[str, Any], parses: Sequence[Parse | None], with_signals: bool) -> Iterator[PrintedTable | str]:
    """The trees, with the signals of each word on request; of an ensemble, the models' agreement."""
    for parse in parses:
        yield "" if parse is None else str(parse)
        if with_signals and parse is not None and parse.strengths:  # a span parser has none
            yield signals_table(parse.words, parse.unknown, parse.strengths)
    if "models" in record:
        chosen = {record.get("chosen"): " (chosen)"}
        names = [name + chosen.get(name, "") for name in record["models"]]
        rows = list(zip(names, record["agreement"], strict=True))
        yield PrintedTable("", ["model", "mean F1 with the other models"], rows)


def _agreement(parses: Sequence[Parse | None]) -> dict[str, list[Any]]:
    """The F1 of each model's trees against the others', over the words that they vote for: without punctuation."""
    by_sentence = (map(without_punctuation, parse.runs) for parse in parses if parse is not None)
    mutual = mutual_f1(list(zip(*by_sentence, strict=True)))
    return {"mutual_f1": mutual.tolist(), "agreement": mean_agreement(mutual).tolist()}


def _check_parses(source: str | None, records: Records, failed: Sequence[int], knows: str) -> None:
    """Report sentences without a tree: an error for typed sentences or if no sentence has one, else a note."""
    unknown = [i for i in failed if (record := records[i]) is not None and record.text]
    if unknown and (len(failed) == len(records) or not source):
        record = records[unknown[0]]
        assert record is not None
        if source:
            raise InputError(f"{source} has no word that {knows}; {record.unit} {record.number}: {record.text!r}")
        is_file = os.path.isfile(record.text)
        hint = f"; --data {record.text} parses the sentences of that file" if is_file else ""
        raise InputError(f"{record.unit} {record.number} has no word that {knows}: {record.text!r}{hint}")
    note_without_result(records, unknown, knows)
