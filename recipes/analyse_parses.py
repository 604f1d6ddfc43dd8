"""F1 of several models or checkpoints, by convention, decoder, length and label, beside the spread of their strengths.

Each model parses the treebank once. f1.tsv has a row for each model, convention, decoder and part (all sentences, those
of some lengths, the recall of a label); models.tsv has the mean and the spread of the strength that distances come
from, over all known words, and its mean by part of speech; attachments.tsv compares where parses and gold trees attach
the final stop and prepositional phrases; f1.png shows F1 over the spread. The screen shows the means, Spearman's rank
correlation of F1 with the spread, and the attachments. Checkpoints of one run, given in order, are joined.

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

import numpy as np

from stack_lm.atomic import atomic_directory
from stack_lm.commands.models import reading_options
from stack_lm.commands.options import DEVICE, LAYER, shared
from stack_lm.console import (
    print_json,
    print_note,
    print_table,
    progress,
    run_command,
    script_parser,
    write_table,
)
from stack_lm.errors import InputError
from stack_lm.interpretation.curves import ParsedModel, plot_f1_by_spread
from stack_lm.interpretation.figures import NO_MATPLOTLIB, can_draw, save_figure
from stack_lm.interpretation.strengths import ALL_WORDS, Occurrences, Summary
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
    words = Occurrences.of_traces(traces, signal, tags)
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


def correlations(
    models: Sequence[dict[str, Any]], scores: dict[tuple[str, str, str], float]
) -> dict[tuple[str, str], float]:
    """Spearman's correlation of F1 with the spread, by convention and decoder; empty for fewer than three models."""
    from scipy.stats import spearmanr

    keys = dict.fromkeys((convention, decoder) for _, convention, decoder in scores)
    spreads = [model["sd"] for model in models]
    found = {}
    for convention, decoder in keys if len(models) > 2 else ():
        f1 = [scores[model["model"], convention, decoder] for model in models]
        if np.ptp(f1) > 0 and np.ptp(spreads) > 0:
            found[convention, decoder] = float(spearmanr(spreads, f1).statistic)
    return found


def shares(row: dict[str, Any]) -> list[float | None]:
    """The percentages of a parse's constituents attached higher than in the gold tree, equally high, and lower."""
    return [100 * row[place] / row["found"] if row["found"] else None for place in ("higher", "same", "lower")]


def draw(path: Path, models: Sequence[dict[str, Any]], scores: dict[tuple[str, str, str], float], gold: Gold) -> None:
    """Draw the figure."""
    shown = [name for name in SHOWN_CONVENTIONS if name in gold] or list(gold)
    points = [
        ParsedModel(
            model["run"],
            model["sd"],
            {(name, decoder): scores[model["model"], name, decoder] for name in shown for decoder in DECODERS},
        )
        for model in models
    ]
    baselines = {
        name: score_trees(
            gold[name], [right_branching(item.annotated.words) for item in gold[name]], get_convention(name)
        ).f1
        for name in shown
    }
    save_figure(str(path), plot_f1_by_spread(points, baselines, models[0]["signal"]))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = script_parser(__doc__, "analyse_parses.py")
    parser.add_argument("models", metavar="MODEL", nargs="+", help="model directories, or checkpoints")
    parser.add_argument(
        "--data", dest="treebank", metavar="PATH", required=True, help="a treebank with tags, as for stack-lm parse-f1"
    )
    parser.add_argument("--output", metavar="DIRECTORY", required=True, help="folder for the tables and the figure")
    parser.add_argument("--conventions", metavar="NAME", nargs="+", help="default: all")
    parser.add_argument("--json", action="store_true", help="print exactly one JSON object on standard output")
    shared(parser, *LAYER, *DEVICE)
    options = parser.parse_args(arguments)

    def run() -> None:
        trees, gold = prepare(options.treebank, options.conventions or list(CONVENTIONS))
        models, rows, attachments = [], [], []
        with atomic_directory(options.output) as directory:
            for path in options.models:
                scorer = ModelScorer.from_pretrained(path, **reading_options(options))
                model, scores_of_model, attachments_of_model = analyse(path, scorer, trees, gold)
                models.append(model)
                rows += scores_of_model
                attachments += attachments_of_model
            scores = {(path, name, decoder): f1 for path, name, decoder, part, f1, _ in rows if part == "all"}
            write_table(str(directory / "f1.tsv"), ["model", "convention", "decoder", "part", "value", "n"], rows)
            write_table(str(directory / "models.tsv"), list(models[0]), [list(model.values()) for model in models])
            columns = list(attachments[0])
            write_table(str(directory / "attachments.tsv"), columns, [list(row.values()) for row in attachments])
            if can_draw():
                draw(directory / "f1.png", models, scores, gold)
            else:
                print_note(f"no figure is drawn: {NO_MATPLOTLIB}")
        found = correlations(models, scores)
        if options.json:
            f1 = [{"model": m, "convention": c, "decoder": d, "f1": value} for (m, c, d), value in scores.items()]
            spearman = {", ".join(key): rho for key, rho in found.items()}
            print_json({"models": models, "f1": f1, "spearman": spearman, "attachments": attachments})
            return
        shown = [name for name in SHOWN_CONVENTIONS if name in gold] or list(gold)
        keys = [(name, decoder) for name in shown for decoder in DECODERS]
        means = [name for name in CLASSES[1:] if any(model[name] is not None for model in models)]
        print_table(
            f"F1 in % on {options.treebank}, beside the {models[0]['signal'].replace('_', ' ')} in elements",
            ["run", "model", "mean", "sd", *means, *(f"{name} {decoder}" for name, decoder in keys)],
            [
                [
                    *(m[name] for name in ("run", "point", "mean", "sd", *means)),
                    *(scores[m["model"], *key] for key in keys),
                ]
                for m in models
            ],
            caption="Spearman's correlation of F1 with the sd: "
            + (
                ", ".join(f"{' '.join(key)} {found[key]:.2f}" for key in keys if key in found)
                or "needs three that differ"
            ),
            text_columns=2,
        )
        names = {model["model"]: (model["run"], model["point"]) for model in models}
        print_table(
            "attachments in parses against those in gold trees, in %",
            ["run", "model", "decoder", "constituents", "in gold trees", "found", "higher", "same", "lower"],
            [
                [*names[row["model"]], row["decoder"], row["kind"], row["gold"], row["found"], *shares(row)]
                for row in attachments
            ],
            caption="of the constituents found; higher: the phrase around it starts further left than in the gold tree",
            text_columns=4,
        )

    return run_command("analyse_parses", run)


if __name__ == "__main__":
    sys.exit(main())
