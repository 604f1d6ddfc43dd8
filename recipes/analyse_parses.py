"""F1 of several models or checkpoints, by convention, decoder, length and label, beside the spread of their strengths.

Each model parses the treebank once. f1.tsv has a row for each model, convention, decoder and part (all sentences, those
of some lengths, the recall of a label); models.tsv has the mean and the spread of the strength that distances come
from, over all known words, and its mean by part of speech; attachments.tsv compares where parses and gold trees attach
the final stop and prepositional phrases; f1.png shows F1 over the spread. Checkpoints of one run, given in order, are
joined.

Gold trees decide these numbers: do not choose a checkpoint by them without saying so.

Example:
    python recipes/analyse_parses.py runs/u1/checkpoints/* runs/u1 --data nltk:treebank --output analysis
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stack_lm.cli.models import reading_options
from stack_lm.cli.options import DEVICE, LAYER, shared
from stack_lm.core.atomic import atomic_directory
from stack_lm.core.console import (
    print_note,
    print_written,
    progress,
    run_command,
    script_parser,
    write_table,
)
from stack_lm.core.errors import InputError
from stack_lm.figures.curves import F1Panel, plot_f1
from stack_lm.figures.figures import NO_MATPLOTLIB, can_draw, save_figure
from stack_lm.figures.strengths import ALL_WORDS, Occurrences, Summary
from stack_lm.parsing.attachment import compare_attachments
from stack_lm.parsing.baselines import right_branching
from stack_lm.parsing.conventions import CONVENTIONS, get_convention
from stack_lm.parsing.distances import DECODERS, distances_from_trace, tree_from_distances
from stack_lm.parsing.f1 import F1Score, GoldTree, prepare_gold, score_trees
from stack_lm.parsing.treebank import read_treebank
from stack_lm.scoring.sentences import ModelScorer

CLASSES = (ALL_WORDS, "nouns", "verbs", "determiners", "adpositions")
SHOWN_CONVENTIONS = ("prpn", "merrill")
Gold = dict[str, Sequence[GoldTree]]


def prepare(source: str, conventions: Sequence[str]) -> tuple[list[Any], Gold]:
    """The treebank's trees, and the gold trees of each convention."""
    trees = read_treebank(source)
    missing = next((tree.origin for tree in trees if tree.word_tags is None), None)
    if missing is not None:
        raise InputError(f"{missing}: the tree has no part-of-speech tags")
    return trees, {name: [prepare_gold(tree, get_convention(name)) for tree in trees] for name in conventions}


def name_of(path: str) -> tuple[str, str]:
    """The run and checkpoint names of a model: "u1" and "checkpoint-10" for runs/u1/checkpoints/checkpoint-10."""
    place = Path(path)
    if place.parent.name in ("checkpoints", "epochs"):
        return place.parent.parent.name, place.name
    return place.name, "end"


def parts(score: F1Score) -> dict[str, tuple[float, int]]:
    """F1 overall and by length, and recall by label, in percent, with the numbers of sentences or phrases."""
    found = {"all": (score.f1, score.n_sentences)}
    found |= {f"{name} words": (part.f1, part.n_sentences) for name, part in score.by_length.items()}
    if score.convention.brackets == "set":
        found |= {f"label {name}": (recall, score.label_counts[name]) for name, recall in score.label_recall.items()}
    return found


def analyse(
    path: str, scorer: ModelScorer, trees: Sequence[Any], gold: Gold
) -> tuple[dict[str, Any], list[list[Any]], list[dict[str, Any]]]:
    """A model's strengths, the rows of its scores, and its attachments by decoder and kind."""
    tags = [tree.word_tags for tree in trees]
    with progress(f"parsing with {path}", len(trees)) as advance:
        traces = scorer.trace([tree.words for tree in trees], tags, logprobs=False, progress=advance)
    signal = scorer.parsing_signal
    words = Occurrences.from_traces(traces, signal, tags)
    if not words.words:
        raise InputError(f"{path} knows no word of the treebank")
    run, point = name_of(path)
    summaries = {name: Summary.of(words.values[found]) for name, found in words.classes().items() if name in CLASSES}
    model = {"model": path, "run": run, "point": point, "signal": signal, "n": summaries[ALL_WORDS].n}
    model |= {"mean": summaries[ALL_WORDS].mean, "sd": summaries[ALL_WORDS].std}
    model |= {name: summaries[name].mean if name in summaries else None for name in CLASSES[1:]}
    rows, attachments = [], []
    for decoder in DECODERS:
        distances = [(trace.words, distances_from_trace(trace, signal)) for trace in traces]
        parses = [tree_from_distances(of_words, of_sentence, decoder) for of_words, of_sentence in distances]
        for name, of_convention in gold.items():
            score = score_trees(of_convention, parses, get_convention(name))
            rows += [[path, name, decoder, part, *values] for part, values in parts(score).items()]
        attachments += [
            {"model": path, "decoder": decoder, "kind": kind, **asdict(counts)}
            for kind, counts in compare_attachments(trees, parses).items()
        ]
    return model, rows, attachments


def draw(path: Path, models: Sequence[dict[str, Any]], scores: dict[tuple[str, str, str], float], gold: Gold) -> None:
    """Draw the figure."""
    shown = [name for name in SHOWN_CONVENTIONS if name in gold] or list(gold)
    baselines = {
        name: score_trees(
            gold[name], [right_branching(item.annotated.words) for item in gold[name]], get_convention(name)
        ).f1
        for name in shown
    }
    x_label = f"sd of the {models[0]['signal'].replace('_', ' ')} (elements)"
    panels = []
    for name in shown:
        series: dict[str, tuple[list[float], list[float]]] = {}
        for model in models:
            for decoder in DECODERS:
                x, f1 = series.setdefault(f"{model['run']}, {decoder}", ([], []))
                x.append(model["sd"])
                f1.append(scores[model["model"], name, decoder])
        panels.append(F1Panel(name, x_label, "F1 (%)", series, is_path=True, baseline=baselines[name]))
    save_figure(str(path), plot_f1(panels))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__, "analyse_parses.py")
    parser.add_argument("models", metavar="MODEL", nargs="+", help="model directories, or checkpoints")
    parser.add_argument(
        "--data", dest="treebank", metavar="PATH", required=True, help="a treebank with tags, as for stack-lm parse-f1"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIRECTORY", required=True, help="folder for the tables and the figure"
    )
    parser.add_argument("--conventions", metavar="NAME", nargs="+", help="default: all")
    shared(parser, *LAYER, *DEVICE)
    options = parser.parse_args(arguments)

    def run() -> None:
        trees, gold = prepare(options.treebank, options.conventions or list(CONVENTIONS))
        models, rows, attachments = [], [], []
        with atomic_directory(options.output) as directory:
            for path in options.models:
                scorer = ModelScorer.from_pretrained(path, **reading_options(options))
                model, model_rows, model_attachments = analyse(path, scorer, trees, gold)
                models.append(model)
                rows += model_rows
                attachments += model_attachments
            scores = {(path, name, decoder): f1 for path, name, decoder, part, f1, _ in rows if part == "all"}
            write_table(str(directory / "f1.tsv"), ["model", "convention", "decoder", "part", "value", "n"], rows)
            for name, records in (("models", models), ("attachments", attachments)):
                values = [list(record.values()) for record in records]
                write_table(str(directory / f"{name}.tsv"), list(records[0]), values)
            if can_draw():
                draw(directory / "f1.png", models, scores, gold)
            else:
                print_note(f"no figure is drawn: {NO_MATPLOTLIB}")
        print_written(options.output)

    return run_command("analyse_parses", run)


if __name__ == "__main__":
    sys.exit(main())
