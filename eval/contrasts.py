"""Sums over regions of sentences, their means by condition, and contrasts by item."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stack_lm.core.errors import InputError
from stack_lm.core.messages import unknown_name

from .seeds import MeanDifference, quasi_f

Cell = tuple[str, ...]
"""The levels of an item's conditions."""
Row = Mapping[str, Any]
_BOUND = re.compile(r"(.+?)\s*([+-]\s*\d+)?")


def region_by_columns(text: str, columns: Sequence[str]) -> Callable[[Sequence[Row]], tuple[int, int]]:
    """The first and the last position of a region in the rows of a sentence.

    Args:
        text: "FROM:TO" or "FROM", each the name of a column with a position, from 1, or a number; it may end in "+N" or
            "-N", as in "verb+1".
        columns: the names of the columns.

    Raises:
        InputError: for another text, here; or later, if the column has no position.
    """
    bounds: list[tuple[str | int, int]] = []
    for part in text.split(":"):
        match = _BOUND.fullmatch(part.strip())
        name, shift = (part, None) if match is None or part in columns else match.groups()
        if name not in columns and not name.isdecimal():
            raise unknown_name("--region: a bound", name, columns)
        bounds.append((name if name in columns else int(name), int((shift or "0").replace(" ", ""))))
    if len(bounds) > 2:
        raise InputError(f"--region must be FROM or FROM:TO; got {text!r}")

    def position(row: Row, name: str | int, shift: int) -> int:
        value = name if isinstance(name, int) else row[name]
        try:
            if int(float(value)) != float(value):
                raise ValueError
            return int(float(value)) + shift
        except (TypeError, ValueError):
            raise InputError(f"sentence {row['sentence']}: {name} must be a position; got {value!r}") from None

    return lambda rows: (position(rows[0], *bounds[0]), position(rows[0], *bounds[-1]))


def region_by_pattern(pattern: re.Pattern[str]) -> Callable[[Sequence[Row]], tuple[int, int]]:
    """The same for the words that the first match of an expression touches, in the words joined by spaces."""

    def find(rows: Sequence[Row]) -> tuple[int, int]:
        words = [str(row["word"]) for row in rows]
        match = pattern.search(" ".join(words))
        if match is None or not match[0]:
            raise InputError(f"sentence {rows[0]['sentence']}: nothing matches {pattern.pattern!r}")
        stops = np.cumsum([len(word) + 1 for word in words])
        first, last = np.searchsorted(stops, (match.start(), match.end() - 1), side="right").tolist()
        return int(rows[first]["position"]), int(rows[last]["position"])

    return find


@dataclass(frozen=True)
class RegionContrasts:
    """A region's sums.

    Attributes:
        cells: the sum of each item in each cell.
        means: by cell, over its items.
        contrasts: by name, over the items that have all cells: with one condition each level minus the first; with two
            of two levels the difference for each and their interaction.
        by_item: these differences, by item.
        left_out: sentences with an unknown word or no surprisal in the region.
    """

    cells: dict[str, dict[Cell, float]]
    means: dict[Cell, MeanDifference]
    contrasts: dict[str, MeanDifference]
    by_item: dict[str, dict[str, float]]
    left_out: int


def contrast_region(
    sentences: Sequence[Sequence[Row]],
    region: Callable[[Sequence[Row]], tuple[int, int]],
    *,
    item: str,
    conditions: Sequence[str],
    column: str = "surprisal",
) -> RegionContrasts:
    """Sum a column over a region of each sentence, and compare conditions within items.

    Intervals and tests are Student's t over items. A model has no subjects, so nothing generalises over readers.

    Args:
        sentences: the rows of each, with `sentence`, `position` and `word`, and perhaps `unknown`.
        region: such as `region_by_columns`.
        item: the column that names the item.
        conditions: one or two columns.
        column: the column of numbers.

    Raises:
        InputError: if a region has no words, or there are too few conditions or items.
    """
    sums: dict[str, dict[Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
    cells: dict[Cell, None] = {}
    left_out = 0
    for rows in sentences:
        start, stop = region(rows)
        cell = tuple(str(rows[0][name]) for name in conditions)
        cells[cell] = None
        inside = [row for row in rows if start <= int(row["position"]) <= stop]
        if not inside:
            raise InputError(f"sentence {rows[0]['sentence']} has no words from {start} to {stop}")
        values = [float("nan") if row[column] in ("", None) else float(row[column]) for row in inside]
        if np.isnan(values).any() or any(str(row.get("unknown")).lower() == "true" for row in inside):
            left_out += 1
            continue
        sums[str(rows[0][item])][cell].append(sum(values))
    of_items = {name: {cell: float(np.mean(found)) for cell, found in some.items()} for name, some in sums.items()}
    weights = _contrasts(list(cells), conditions)
    complete = {name: some for name, some in of_items.items() if len(some) == len(cells)}
    if len(complete) < 2:
        raise InputError(f"{len(complete)} items have all {len(cells)} conditions; contrasts need at least two")
    by_item = {
        name: {contrast: sum(weight * some[cell] for cell, weight in of.items()) for contrast, of in weights.items()}
        for name, some in complete.items()
    }
    means = {cell: quasi_f((), np.array([some[cell] for some in of_items.values() if cell in some])) for cell in cells}
    tests = {contrast: quasi_f((), np.array([each[contrast] for each in by_item.values()])) for contrast in weights}
    return RegionContrasts(of_items, means, tests, by_item, left_out)


def _contrasts(cells: Sequence[Cell], conditions: Sequence[str]) -> dict[str, dict[Cell, float]]:
    """The weights of cells in each contrast, by its name."""
    levels = [list(dict.fromkeys(cell[i] for cell in cells)) for i in range(len(conditions))]
    if len(conditions) == 1 and len(levels[0]) > 1:
        first, *others = levels[0]
        return {f"{other} - {first}": {(other,): 1.0, (first,): -1.0} for other in others}
    if len(conditions) == 2 and [len(some) for some in levels] == [2, 2] and len(cells) == 4:
        sign = {cell: [2 * some.index(level) - 1 for some, level in zip(levels, cell, strict=True)] for cell in cells}
        (a, b), (c, d) = levels
        return {
            f"{b} - {a}": {cell: sign[cell][0] / 2 for cell in cells},
            f"{d} - {c}": {cell: sign[cell][1] / 2 for cell in cells},
            f"interaction ({b} - {a}) x ({d} - {c})": {cell: float(sign[cell][0] * sign[cell][1]) for cell in cells},
        }
    found = ", ".join(f"{name}: {len(some)} levels" for name, some in zip(conditions, levels, strict=True))
    raise InputError(
        f"contrasts need one condition of two levels or more, or two of two levels in all pairs; got {found}"
    )
