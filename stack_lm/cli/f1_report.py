"""The report of `stack-lm parse-f1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.console import print_note, write_table
from ..parsing.averages import Score
from ..parsing.conventions import Convention
from ..parsing.f1 import F1Score, GoldTree
from .printing import PrintedTable

SHOWN_LABELS = 12


def describe(score: F1Score) -> dict[str, Any]:
    """A system's score for JSON."""
    described: dict[str, Any] = {
        "f1": score.f1,
        "precision": score.precision,
        "recall": score.recall,
        "n_sentences": score.n_sentences,
        "n_left_out": len(score.errors),
        "labels": score.convention.labels,
        "by_length": {name: part._asdict() for name, part in score.by_length.items()},
    }
    if score.convention.brackets != "multiset":
        return described | {"label_recall": score.label_recall, "label_counts": score.label_counts}
    described["evalb"] = {
        "complete_match": score.complete_match,
        "average_crossing": float(score.crossing.mean()),
        "no_crossing": 100 * float((score.crossing == 0).mean()),
        "two_or_less_crossing": 100 * float((score.crossing <= 2).mean()),
        "tagging_accuracy": score.tagging_accuracy,
    }
    if score.convention.cutoff is not None:
        described["evalb"]["at_most_cutoff_words"] = score.of_lengths(0, score.convention.cutoff)._asdict()
    return described


def write_items(path: str, gold: Sequence[GoldTree], score: F1Score, numbers: Sequence[int]) -> None:
    """Write a table of all sentences, sufficient to recompute the score.

    Args:
        path: the file.
        gold: the trees that were scored.
        score: the score of their predictions.
        numbers: the numbers of the trees in the treebank.
    """
    rows = []
    for place, counts, values in zip(
        score.numbers.tolist(), score.counts.tolist(), score.per_sentence.tolist(), strict=True
    ):
        item = gold[place]
        scores = (round(value, 6) for value in values)
        rows.append((numbers[place], item.annotated.origin, item.length, *counts, *scores, " ".join(item.kept_words)))
    columns = "number,sentence,length,spans right,spans predicted,spans in gold,precision,recall,F1,words".split(",")
    write_table(path, columns, rows)


def f1_tables(result: dict[str, Any], convention: Convention) -> list[PrintedTable]:
    """All scores as tables."""
    columns = ("f1", "precision", "recall", "n_sentences")
    scored = [(system["system"], system) for system in result["systems"]] + [*result.get("baselines", {}).items()]
    changes = "".join(f", but {name.replace('_', ' ')}: {value}" for name, value in result["changes"].items())
    tables = [
        PrintedTable(
            f"F1 in %, convention {convention.name} ({convention.source}){changes}",
            ["trees", "F1", "precision", "recall", "sentences"],
            [(name, *map(score.get, columns)) for name, score in scored],
            note=_rules(convention, result),
        ),
        *_details(result["systems"]),
    ]
    return tables + ([_comparisons(result["comparisons"])] if result.get("comparisons") else [])


def _comparisons(comparisons: Sequence[dict[str, Any]]) -> PrintedTable:
    one = comparisons[0]
    least = 2 / one["n_resamples"]
    rows = []
    for each in comparisons:
        differences = (f"{each[name]:+.2f}" for name in ("difference", "low", "high"))
        rows.append((each["first"], *differences, f"{each['p_value']:.4f}" if each["p_value"] else f"< {least:g}"))
    return PrintedTable(
        f"difference in F1 from {one['second']}, paired bootstrap",
        ["trees", "difference", f"{one['level']:g}% from", "to", "p"],
        rows,
        note=f"{one['n_resamples']:,} resamples of {one['n_sentences']:,} sentences",
    )


def _rules(convention: Convention, result: dict[str, Any]) -> str:
    rules = {
        "removed": _removed(convention, result),
        "gold trees": convention.gold,
        "whole sentence": convention.whole_sentence,
        "average": convention.average,
        "brackets": convention.brackets,
    }
    if convention.brackets == "multiset":
        rules["labels"] = convention.labels
    if convention.brackets == "edges":
        rules["heads"] = convention.heads
    return "; ".join(f"{name}: {value}" for name, value in rules.items())


def _removed(convention: Convention, result: dict[str, Any]) -> str:
    """Describe the words that do not count, with their share in %."""
    share, untagged, n = result["words_removed"], result["n_without_tags"], result["n_gold"]
    by: str = "tokens" if convention.removed == "period" else convention.removed_by
    if by == "tags" and untagged:
        by = "tokens, as trees have no tags" if untagged == n else f"tags, or by tokens in {untagged:,} trees without"
    ways = [] if convention.removed == "nothing" else [f"{convention.removed}, by {by}"]
    if convention.deleted_labels and share:
        ways.append("words with a deleted tag")
    return f"{' and '.join(ways)} ({share:.1f}% of the tokens)" if ways else "nothing"


def _details(systems: Sequence[dict[str, Any]]) -> Iterator[PrintedTable]:
    """The scores by length and label, with a row for each system; and notes on how models were read."""
    names = [system["system"] for system in systems]
    lengths = [{name: Score(**part) for name, part in system["by_length"].items()} for system in systems]
    rows = [(name, *(part.f1 for part in parts.values())) for name, parts in zip(names, lengths, strict=True)]
    counts = {
        tuple(part.n_sentences for part in parts.values()): name for name, parts in zip(names, lengths, strict=True)
    }
    rows += [("sentences" if len(counts) == 1 else f"sentences, {name}", *of_name) for of_name, name in counts.items()]
    yield PrintedTable("F1 in % by words in a sentence", ["trees", *lengths[0]], rows)
    labels = [system.get("label_recall", {}) for system in systems]
    evalb = [
        {name.replace("_", " "): value for name, value in system.get("evalb", {}).items() if isinstance(value, float)}
        for system in systems
    ]
    for title, scores in (("recall by gold label, in %", labels), ("as EVALB reports", evalb)):
        if columns := list(scores[0])[:SHOWN_LABELS]:
            cells = [[name, *map(of_system.get, columns)] for name, of_system in zip(names, scores, strict=True)]
            yield PrintedTable(title, ["trees", *columns], cells)


def note_readings(systems: Sequence[dict[str, Any]]) -> None:
    """Print a note on how each model was read."""
    for system in systems:
        if "signal" in system:
            made = f"signal {system['signal']}, decoder {system['decoder']}, " if system["signal"] else ""
            print_note(
                f"{system['system']}: {made}punctuation {system['punctuation']}, {system['unknown_words']:.1f}% of the "
                "words unknown to the model"
            )
