"""`stack-lm inspect`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import write_text
from ..console import positive_int, print_json, print_table, print_written
from ..data.text import read_text
from ..errors import InputError
from ..experiments.config import is_task_model
from ..hub.locating import find_models
from ..interpretation.figures import check_figure_names, plot_distributions, plot_strengths, save_figure
from ..parsing.distances import DEFAULT_DECODER, default_decoder, distances_from_trace, tree_from_distances
from ..parsing.export import tree_record
from ..parsing.treebank import read_treebank
from ..parsing.trees import ConstituencyTree
from .files import PAGES, check_ending, check_outputs
from .models import (
    add_parsing_options,
    check_parsing_options,
    first_given,
    open_scorer,
    print_signals,
    shown_words,
    words_of,
)
from .options import shared

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..scoring.sentences import ModelScorer
    from ..trace import StackRun, Trace

# The page shows the stack after each word, so its size is quadratic in the number of words: about 6 MB for this many.
LONGEST = 500
# Options that a model of a formal task does not take.
_OF_SENTENCES = ("treebank", "sentence", "distributions", "signal", "decoder", "layer", "device", "word_strength")

EXAMPLE = (
    'stack-lm inspect runs/brown-u1 "the dog that the cats fear barks loudly" --output dog.html\n'
    "  stack-lm inspect runs/brown-u1 --data nltk:treebank --sentence 8 --output page.html\n"
    '  stack-lm inspect runs/hao2018-table1/models/1/0 "1 0 0 1 1 1" --output reversal.html'
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm inspect`."""
    shared(parser, "MODEL")
    parser.add_argument(
        "words",
        metavar="SENTENCE",
        nargs="?",
        help="text of one sentence, or - for standard input; for a model of a formal task, one of its strings",
    )
    parser.add_argument(
        "--data", dest="treebank", metavar="PATH", help="take the sentence from this treebank, and show its gold tree"
    )
    parser.add_argument("--sentence", type=positive_int, metavar="N", help="with --data: the sentence's number, from 1")
    parser.add_argument(
        "-o", "--output", metavar="F", default="inspect.html", help="the HTML page to write (default: inspect.html)"
    )
    parser.add_argument("--figure", metavar="F", help="also draw strengths and tree: .png, .pdf or .svg")
    parser.add_argument(
        "--distributions", metavar="F", help="also draw the distributions at each word, in the same formats"
    )
    add_parsing_options(parser)


def run(options: argparse.Namespace) -> None:
    """Write the page and the requested figures."""
    if is_task_model(options.model):
        _inspect_task(options)
        return
    check_parsing_options(options)
    check_figure_names(options.figure, options.distributions)
    check_ending("--output", options.output, PAGES)
    outputs = {"--output": options.output, "--figure": options.figure, "--distributions": options.distributions}
    check_outputs(outputs, [options.model, options.treebank])
    find_models(options.model)
    targets = [path for path in outputs.values() if path is not None]
    gold = _gold_tree(options)
    words = words_of(_text(options.words), "the sentence") if gold is None else gold.words
    if not words:
        raise InputError("no sentence to inspect: give one, or --data PATH and --sentence N")
    if len(words) > LONGEST:
        raise InputError(f"a page shows at most {LONGEST} words; the sentence has {len(words):,}")
    from ..interpretation.page import render_page

    scorer = open_scorer(options.model, options, [words])
    if gold is None:
        words = scorer.split(" ".join(words))  # text, whose punctuation may not have been split off
    tags = None if gold is None else gold.word_tags
    # Without a memory there are the words' probabilities; a requested signal or layer is an error below.
    alone = not scorer.memories and options.layer is None and not options.signal
    if (
        alone
        or (scorer.memories and scorer.shows_runs)
        or (not options.signal and not (scorer.makes_trees and scorer.keeps_strengths))
    ):
        _inspect_actions(options, scorer, words, tags, gold)
        return
    signal = scorer.choose_signal(options.signal)
    contents = scorer.memory_contents(words, tags)
    (trace,) = scorer.trace([words], None if tags is None else [tags])
    if trace.unknown.all():
        raise InputError(f"the sentence has no word that the model knows: {' '.join(words)!r}")
    decoder, distances, tree = _make_tree(trace, signal, options.decoder)
    memory, controls = scorer.memories[scorer.layer].memory.name, _controls(scorer)
    about = {"model": options.model, **controls, "tree": f"{signal.replace('_', ' ')}, {decoder}"}
    page = render_page(trace, tree, contents, distances, memory=memory, about=about, gold=gold)
    figures = _sentence_figures(options, trace, tree)
    write_text(options.output, page)
    for path, figure in figures.items():
        save_figure(path, figure)
    if options.json:
        how = {"model": options.model, "memory": memory, "controls": controls}
        how |= {"signal": signal, "decoder": decoder}
        print_json(how | _describe_sentence(trace, tree, contents, distances) | {"written": targets})
        return
    print(tree)
    print_signals(words, trace.unknown, trace.signals)
    print_written(*targets)


def _inspect_actions(
    options: argparse.Namespace,
    scorer: ModelScorer,
    words: Sequence[str],
    tags: Sequence[str] | None,
    gold: ConstituencyTree | None,
) -> None:
    """Write surprisal and all actions or the run, word by word, for a model without trees: one without a memory, with a
    memory in superposition or without a strength per element, or with a nondeterministic stack."""
    from ..interpretation.computation import computation_of_trace, computation_page, plot_computation
    from ..layers import operation_labels

    if options.distributions:
        raise InputError(
            "--distributions is for a memory whose push or pop strengths make trees; --figure draws all actions"
        )
    if options.decoder and not (scorer.memories and scorer.shows_runs):
        raise InputError(f"--decoder is for a model with strengths for parsing; {options.model} has none")
    (trace,) = scorer.trace([words], None if tags is None else [tags])
    about: dict[str, str] = {"model": options.model, "memory": "none"}
    labels: dict[str, list[str]] = {}
    actions: dict[str, Any] = {}
    if scorer.memories:
        layer = scorer.memories[scorer.layer]
        labels = operation_labels(layer)
        about |= {"memory": layer.memory.name} | _controls(scorer)
        actions = {name: values.tolist() for name, values in trace.actions[scorer.layer].items()}
    computation = computation_of_trace(trace, labels)
    tree: dict[str, Any] = {}
    if trace.run is not None:
        tree = _tree_of_run(options, scorer, trace)
        about["tree"] = f"{tree['tree']} ({tree['signal'].replace('_', ' ')}, {tree['decoder']})"
    if gold is not None:
        about["gold tree"] = str(gold)
    write_text(options.output, computation_page(computation, about, " ".join(words)))
    if options.figure:
        save_figure(options.figure, plot_computation(computation, title=options.model))
    written = [path for path in (options.output, options.figure) if path]
    if options.json:
        told = {"words": list(words), "unknown": trace.unknown.tolist(), "logprobs": trace.logprobs.tolist()}
        told["surprisal"] = computation.panels["surprisal"].numbers[0].tolist()
        print_json(about | tree | told | _describe_run(trace.run) | actions | {"labels": labels, "written": written})
        return
    if tree:
        print(tree["tree"])
    shown_actions = () if trace.run is not None else (*trace.signals, *trace.operations)
    panels = [computation.panels[name] for name in ("surprisal", *shown_actions)]
    columns = [f"{panel.name} {label}".strip() for panel in panels for label in panel.labels]
    numbers = np.concatenate([panel.numbers for panel in panels]).T.tolist()
    rows = [(word, *row) for word, row in zip(shown_words(words, trace.unknown), numbers, strict=True)]
    _print_steps(["word", *columns], rows, trace.run, 1)
    print_written(*written)


def _make_tree(trace: Trace, signal: str, decoder: str | None) -> tuple[str, np.ndarray, ConstituencyTree]:
    """The decoder (the signal's default unless given), the distances and the tree of a sentence by a signal."""
    decoder = decoder or default_decoder(signal)
    distances = distances_from_trace(trace, signal)
    return decoder, distances, tree_from_distances(trace.words, distances, decoder)


def _tree_of_run(options: argparse.Namespace, scorer: ModelScorer, trace: Trace) -> dict[str, Any]:
    """The tree of a nondeterministic stack's most probable run, and the method."""
    signal = scorer.choose_signal(options.signal)
    decoder, distances, tree = _make_tree(trace, signal, options.decoder)
    return {"signal": signal, "decoder": decoder, **tree_record(tree, distances), "tree": str(tree)}


def _describe_run(run: StackRun | None) -> dict[str, Any]:
    """The most probable run for JSON, if there is one."""
    if run is None:
        return {}
    numbers = {name: getattr(run, name).tolist() for name in ("states", "symbols", "elements", "depths")}
    return {"run": {"moves": run.moves, **numbers, "stacks": run.stacks, "weight": run.weight}}


def _print_steps(columns: list[str], rows: Sequence[tuple[Any, ...]], run: StackRun | None, text_columns: int) -> None:
    """Print a table with a row for each step, and the moves of the most probable run, if there is one."""
    if run is None:
        print_table("", columns, rows, text_columns=text_columns)
        return
    of_run = zip(run.moves, run.states.tolist(), run.symbols.tolist(), run.depths.tolist(), strict=True)
    both = [row + own for row, own in zip(rows, of_run, strict=True)]
    caption = "move, state, top symbol and depth: of the most probable run"
    print_table("", [*columns, "move", "state", "symbol", "depth"], both, caption, text_columns)


def _inspect_task(options: argparse.Namespace) -> None:
    """Write the page of one string of the task that a model was trained on."""
    if given := first_given(options, _OF_SENTENCES):
        raise InputError(f"{given} is for sentences; {options.model} is a model of a task")
    check_figure_names(options.figure)
    check_ending("--output", options.output, PAGES)
    check_outputs({"--output": options.output, "--figure": options.figure}, [options.model])
    from ..experiments.computation import choose_example, compute, describe_network, load_task_model
    from ..interpretation.computation import computation_page, plot_computation

    source = load_task_model(options.model)
    computation = compute(source, choose_example(source.task, options.words, None, 0))
    if len(computation.inputs) > LONGEST:
        raise InputError(f"a page shows at most {LONGEST} symbols; the string has {len(computation.inputs):,}")
    about = {"model": options.model, "task": str(source.task)} | describe_network(source.model)
    page = computation_page(computation, about, " ".join(computation.inputs))
    write_text(options.output, page)
    if options.figure:
        save_figure(options.figure, plot_computation(computation, title=str(source.task)))
    written = [path for path in (options.output, options.figure) if path]
    if options.json:
        numbers = {
            name: {"rows": list(panel.labels), "numbers": panel.numbers.tolist()}
            for name, panel in computation.panels.items()
        }
        told = {"inputs": computation.inputs, "targets": computation.targets, "outputs": computation.outputs}
        rest = {"errors": len(computation.errors), "panels": numbers, "written": written}
        print_json(about | told | _describe_run(computation.run) | rest)
        return
    if computation.buffered and computation.run is not None:
        _print_steps(["step"], [(step,) for step in computation.steps], computation.run, 1)
    else:
        symbols = zip(computation.inputs, computation.targets, computation.outputs, strict=True)
        _print_steps(["read", "target", "answer"], list(symbols), computation.run, 3)
    print_written(*written)


def _text(argument: str | None) -> str:
    """The text of the sentence: the argument, or the line of standard input if that is "-"."""
    if argument != "-":
        return argument or ""
    lines = [line for line in read_text("-").splitlines() if line.strip()]
    if len(lines) > 1:
        raise InputError(f"a page shows one sentence; standard input has {len(lines):,} lines")
    return "".join(lines)


def _gold_tree(options: argparse.Namespace) -> ConstituencyTree | None:
    if options.treebank is None:
        if options.sentence is not None:
            raise InputError("--sentence says which sentence of --data is shown; give both")
        return None
    if options.words is not None or options.sentence is None:
        raise InputError("--data needs --sentence N, and no sentence as an argument")
    trees = read_treebank(options.treebank, decoder=options.decoder or DEFAULT_DECODER)
    if options.sentence > len(trees):
        raise InputError(
            f"--sentence must be at most {len(trees)}, as {options.treebank} has no more; got {options.sentence}"
        )
    return trees[options.sentence - 1]


def _controls(scorer: ModelScorer) -> dict[str, str]:
    """Describe the emission of the memory's strengths."""
    from ..emission import ExpectedValue, Fixed  # loads torch
    from ..layers import strengths_of

    def say(control: Any) -> str:
        if isinstance(control, Fixed):
            return f"fixed to {control.value:g}"
        return "expected value" if isinstance(control, ExpectedValue) else "sigmoid"

    strengths = strengths_of(scorer.memories[scorer.layer])
    return {name.replace("_strength", ""): say(control) for name, control in strengths.items()}


def _sentence_figures(options: argparse.Namespace, trace: Trace, tree: ConstituencyTree) -> dict[str, Figure]:
    """The requested figures, by path."""
    figures = {}
    if options.figure:
        figures[options.figure] = plot_strengths(trace, tree, title=options.model)
    if options.distributions:
        figures[options.distributions] = plot_distributions(trace, title=options.model)
    return figures


def _describe_sentence(
    trace: Trace, tree: ConstituencyTree, contents: np.ndarray, distances: np.ndarray
) -> dict[str, Any]:
    return {
        **tree_record(tree, distances),
        "tree": str(tree),
        "unknown": trace.unknown.tolist(),
        "logprobs": trace.logprobs.tolist(),
        **{name: values.tolist() for name, values in trace.signals.items()},
        **{name: values.tolist() for name, values in trace.distributions.items()},
        "contents": contents.tolist(),
    }
