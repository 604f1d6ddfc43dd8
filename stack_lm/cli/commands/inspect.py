"""`stack-lm inspect`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.atomic import write_text
from ...core.errors import InputError
from ...figures.computation import Computation, computation_of_trace, plot_computation
from ...figures.figures import plot_distributions, plot_strengths, save_figure
from ...figures.page import render_page
from ...hub.locating import find_models
from ...parsing.distances import DEFAULT_DECODER, default_decoder, distances_from_trace, tree_from_distances
from ...parsing.export import tree_record
from ...parsing.treebank import read_every_tree
from ...parsing.trees import ConstituencyTree
from ...text.plain import read_lines
from ...training.trials.config import is_task_model
from ..files import FIGURES, PAGES, check_files
from ..models import first_given, open_scorer, shown_words, words_of
from ..options import PARSING, option, shared
from ..printing import PrintedTable
from ..report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ...core.trace import StackRun, Trace
    from ...nn.controlled import ControlledMemory
    from ...nn.dead_zone import DeadZone
    from ...scoring.sentences import ModelScorer

# The page shows the stack after each word, so its size is quadratic in the number of words.
LONGEST = 500
# Options that a model of a formal task does not accept.
_OF_SENTENCES = ("data", "sentence", "distributions", "signal", "decoder", "layer", "device", "word_strength")

EXAMPLE = (
    'stack-lm inspect runs/brown-u1 "the dog that the cats fear barks loudly" --output dog.html\n'
    "  stack-lm inspect runs/brown-u1 --data nltk:treebank --sentence 8 --output page.html\n"
    '  stack-lm inspect runs/hao2018-table1/models/1/0 "1 0 0 1 1 1" --output reversal.html'
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm inspect`."""
    shared(parser, "MODEL")
    sentence = "text of one sentence, or - for standard input; for a model of a formal task, one of its strings"
    option(parser, "[SENTENCE]", sentence, dest="words")
    option(parser, "--data TREEBANK", "take the sentence from this treebank, and show its gold tree")
    option(parser, "--sentence N", "with --data: the sentence's number, from 1")
    option(parser, "-o, --output FILE", "the HTML page to write", default="inspect.html", endings=PAGES)
    shared(parser, "--figure", figure="stack, or strengths, and tree")
    distributions = "also draw the distributions at each word, in the same formats"
    option(parser, "--distributions FILE", distributions, endings=FIGURES)
    shared(parser, *PARSING)


def run(options: argparse.Namespace) -> Report:
    """Write the page and the requested figures."""
    of_task = is_task_model(options.model)
    if of_task and (given := first_given(options, _OF_SENTENCES)):
        raise InputError(f"{given} is for sentences; {options.model} is a model of a task")
    check_files(options, options.model, options.data)
    inspection = _inspect_string(options) if of_task else _inspect_sentence(options)
    # Figures first: nothing is written if one of them cannot be drawn.
    figures = {path: draw() for path, draw in inspection.figures.items() if path is not None}
    page = render_page(inspection.computation, inspection.about, inspection.tree, inspection.gold)
    write_text(options.output, page)
    for path, figure in figures.items():
        save_figure(path, figure)
    written = [path for path in (options.output, options.figure, options.distributions) if path is not None]
    record = inspection.record | _describe_run(inspection.computation.run) | {"written": written}
    if inspection.zone is not None:
        record["dead_zone"] = inspection.zone._asdict() | {"older_share": inspection.zone.older_share}
    tree = [] if inspection.tree is None else [str(inspection.tree)]
    reach = [str(inspection.zone)] if inspection.zone else []
    return Report(record, [*tree, _table(inspection), *reach], written)


class _Inspection(NamedTuple):
    """The computation of a model on a sentence or string, and what is shown of it.

    Attributes:
        computation: the computation.
        about: facts about the model, by name.
        record: the record for JSON, without the run.
        table: the columns of the table to print, by name, those of text first.
        n_texts: the number of its columns of text.
        figures: functions that draw the requested figures, by path; None is no figure.
        zone: how far the readings of a memory with strengths reach.
        tree: the tree of a sentence, if the memory gives one.
        gold: its gold tree.
    """

    computation: Computation
    about: dict[str, str]
    record: dict[str, Any]
    table: dict[str, Sequence[Any]]
    n_texts: int
    figures: Mapping[str | None, Callable[[], Figure]]
    zone: DeadZone | None = None
    tree: ConstituencyTree | None = None
    gold: ConstituencyTree | None = None


def _inspect_sentence(options: argparse.Namespace) -> _Inspection:
    """A sentence of natural language."""
    find_models(options.model)
    gold = _gold_tree(options)
    words = words_of(_text(options.words), "the sentence") if gold is None else gold.words
    if not words:
        raise InputError("no sentence to inspect: give one, or --data PATH and --sentence N")
    if len(words) > LONGEST:
        raise InputError(f"a page shows at most {LONGEST} words; the sentence has {len(words):,}")
    scorer = open_scorer(options.model, options)
    if gold is None:
        words = scorer.split(" ".join(words))  # text, whose punctuation may not have been split off
    tags = None if gold is None else gold.word_tags
    (trace,) = scorer.trace([words], None if tags is None else [tags])
    about, record, labels = _describe_memory(options, scorer, trace)
    tree = distances = contents = None
    if options.signal or options.decoder or (scorer.memories and scorer.makes_trees):
        if trace.unknown.all():
            raise InputError(f"the sentence has no word that the model knows: {' '.join(words)!r}")
        signal = scorer.choose_signal(options.signal)
        decoder = options.decoder or default_decoder(signal)
        distances = distances_from_trace(trace, signal)
        tree = tree_from_distances(trace.words, distances, decoder)
        about["tree"] = f"{signal.replace('_', ' ')}, {decoder}"
        record |= {"signal": signal, "decoder": decoder, **tree_record(tree, distances), "tree": str(tree)}
    if tree is not None:
        with suppress(InputError):  # of a memory that does not keep one strength for each step
            contents = scorer.memory_contents(words, tags)
            record["contents"] = contents.tolist()
    computation = computation_of_trace(trace, labels, distances=distances, contents=contents)
    record["surprisal"] = computation.panels["surprisal"].numbers[0].tolist()
    if tree is not None and trace.run is None:
        from ...memory import NeuralStack

        memory = scorer.memories[scorer.layer].memory if scorer.memories else None
        is_stack = isinstance(memory, NeuralStack) and memory.read_order == "after_push"
        skyline = contents if is_stack else None
        draw = partial(plot_strengths, trace, tree, title=options.model, contents=skyline)
    else:
        draw = partial(plot_computation, computation, title=options.model)
    table: dict[str, Sequence[Any]] = {"word": shown_words(words, trace.unknown)}
    for name in ("surprisal", *(() if trace.run is not None else (*trace.signals, *trace.operations))):
        panel = computation.panels[name]
        for label, numbers in zip(panel.labels, panel.numbers.tolist(), strict=True):
            table[f"{panel.name} {label}".strip()] = numbers
    figures = {options.figure: draw, options.distributions: partial(plot_distributions, trace, title=options.model)}
    return _Inspection(computation, about, record, table, 1, figures, scorer.dead_zone(words, tags), tree, gold)


def _describe_memory(
    options: argparse.Namespace, scorer: ModelScorer, trace: Trace
) -> tuple[dict[str, str], dict[str, Any], dict[str, list[str]]]:
    """Facts about the model, the record of its actions, and the labels of those that have several numbers."""
    about = {"model": options.model, "memory": "none"}
    record = {"words": list(trace.words), "unknown": trace.unknown.tolist(), "logprobs": trace.logprobs.tolist()}
    if not scorer.memories:
        return about, about | record, {}
    from ...nn import operation_labels

    layer = scorer.memories[scorer.layer]
    about["memory"], labels, controls = layer.memory.name, operation_labels(layer), _controls(layer)
    actions = {name: values.tolist() for name, values in trace.actions[scorer.layer].items()}
    return about | controls, about | {"controls": controls, "labels": labels} | record | actions, labels


def _inspect_string(options: argparse.Namespace) -> _Inspection:
    """One string of the task that a model was trained on."""
    from ...training.trials.computation import choose_example, compute, describe_network, load_task_model
    from ...training.trials.scores import measure_dead_zone

    source = load_task_model(options.model)
    example = choose_example(source.task, options.words, None, 0)
    computation = compute(source, example)
    if len(computation.inputs) > LONGEST:
        raise InputError(f"a page shows at most {LONGEST} symbols; the string has {len(computation.inputs):,}")
    about = {"model": options.model, "task": str(source.task)} | describe_network(source.model)
    panels = {
        name: {"rows": list(panel.labels), "numbers": panel.numbers.tolist()}
        for name, panel in computation.panels.items()
    }
    record: dict[str, Any] = {**about, "inputs": computation.inputs, "targets": computation.targets}
    record |= {"outputs": computation.outputs, "errors": len(computation.errors), "panels": panels}
    table = {"read": computation.inputs, "target": computation.targets, "answer": computation.outputs}
    if computation.buffered and computation.run is not None:
        table = {"step": computation.steps}
    figures = {options.figure: partial(plot_computation, computation, title=str(source.task))}
    zone = measure_dead_zone(source.model, source.encoding, source.encoding.encode([example]))
    return _Inspection(computation, about, record, table, len(table), figures, zone)


def _describe_run(run: StackRun | None) -> dict[str, Any]:
    """The most probable run for JSON, if there is one."""
    if run is None:
        return {}
    numbers = {name: getattr(run, name).tolist() for name in ("states", "symbols", "elements", "depths")}
    return {"run": {"moves": run.moves, **numbers, "stacks": run.stacks, "weight": run.weight}}


def _table(inspection: _Inspection) -> PrintedTable:
    """A table with a row for each step, and the moves of the most probable run, if there is one."""
    table, run, note = inspection.table, inspection.computation.run, ""
    if run is not None:
        numbers = {"state": run.states.tolist(), "symbol": run.symbols.tolist(), "depth": run.depths.tolist()}
        table = {**table, "move": run.moves, **numbers}
        note = "move, state, top symbol and depth: of the most probable run"
    return PrintedTable("", list(table), list(zip(*table.values(), strict=True)), inspection.n_texts, note)


def _text(argument: str | None) -> str:
    """The text of the sentence: the argument, or the line of standard input if that is "-"."""
    if argument != "-":
        return argument or ""
    lines = [line for _, line in read_lines("-")]
    if len(lines) > 1:
        raise InputError(f"a page shows one sentence; standard input has {len(lines):,} lines")
    return "".join(lines)


def _gold_tree(options: argparse.Namespace) -> ConstituencyTree | None:
    if options.data is None:
        if options.sentence is not None:
            raise InputError("--sentence says which sentence of --data is shown; give both")
        return None
    if options.words is not None or options.sentence is None:
        raise InputError("--data needs --sentence N, and no sentence as an argument")
    trees = read_every_tree(options.data, decoder=options.decoder or DEFAULT_DECODER)
    if options.sentence > len(trees):
        raise InputError(
            f"--sentence must be at most {len(trees)}, as {options.data} has no more; got {options.sentence}"
        )
    tree = trees[options.sentence - 1]
    if tree is None:
        raise InputError(f"sentence {options.sentence} of {options.data} has no words")
    return tree


def _controls(layer: ControlledMemory) -> dict[str, str]:
    """Describe the emission of the memory's strengths."""
    from ...memory.emission import ExpectedValue, Fixed  # loads torch
    from ...nn import strengths_of

    def describe(control: Any) -> str:
        if isinstance(control, Fixed):
            return f"fixed to {control.value:g}"
        return "expected value" if isinstance(control, ExpectedValue) else "sigmoid"

    return {name.replace("_strength", ""): describe(control) for name, control in strengths_of(layer).items()}
