"""`stack-lm contrasts`: means of regions by condition, and contrasts by item."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from ...core.checks import compile_pattern
from ...core.console import print_note, write_table
from ...core.errors import InputError, fail
from ...core.messages import unknown_name
from ...eval.contrasts import RegionContrasts, Row, contrast_region, region_by_columns, region_by_pattern
from ...text.files import check_file
from ...text.formats import read_rows
from ..files import check_files
from ..options import option, shared
from ..printing import PrintedTable
from ..report import Report

EXAMPLE = (
    "stack-lm contrasts words.csv --item item --by condition --region from:to\n"
    "  stack-lm contrasts words.csv --item item --by ambiguity clause --region verb --region verb+1:verb+2"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm contrasts`."""
    option(parser, "TABLE", "a row for each word, as `stack-lm surprisal --output` writes it, in any of its formats")
    option(parser, "--item NAME", "column that names the item", required=True)
    option(parser, "--by NAME ...", "one column of conditions, or two with two levels each", required=True)
    region = "positions in a sentence: FROM or FROM:TO, each a column or a number, perhaps +N or -N; each option is one"
    option(parser, "--region TEXT ...", region)
    option(parser, "--pattern REGEX ...", "a region: the words of a sentence that the expression touches")
    option(parser, "--column NAME", "column to sum over the region", default="surprisal")
    shared(parser, "--items", items="sums and contrasts by item")


def run(options: argparse.Namespace) -> Report:
    """Compare conditions."""
    if len(options.by) > 2:
        raise InputError(f"--by takes one or two columns; got {len(options.by)}")
    if not options.region and not options.pattern:
        raise InputError("give a --region or a --pattern")
    check_files(options, options.table)
    rows = [row for _, row in read_rows(options.table, None, fail, None)[1] if isinstance(row, dict)]
    columns = list(rows[0]) if rows else []
    for name in ("sentence", "position", "word", options.item, *options.by, options.column):
        if name not in columns:
            raise unknown_name(f"{check_file(options.table)}: a column", name, columns)
    regions = {text: region_by_columns(text, columns) for text in options.region}
    regions |= {text: region_by_pattern(compile_pattern(text, "--pattern")) for text in options.pattern}
    results: dict[tuple[str, str], RegionContrasts] = {}
    for model, sentences in _by_model(rows):
        for name, region in regions.items():
            settings = {"item": options.item, "conditions": options.by, "column": options.column}
            results[model, name] = contrast_region(sentences, region, **settings)
    for (model, name), result in results.items():
        if result.left_out:
            where = ", ".join(filter(None, (model, name)))
            print_note(
                f"{where}: {result.left_out:,} sentences have an unknown word or no value in the region; left out"
            )
    if options.items is not None:
        write_table(options.items, *_items_table(results))
    return Report(_record(options, results), list(_tables(options, results)), [options.items])


def _by_model(rows: Sequence[Row]) -> Iterator[tuple[str, list[list[Row]]]]:
    """The sentences of each model, in order."""
    for model, of_model in groupby(rows, key=lambda row: str(row.get("model") or "")):
        yield model, [list(some) for _, some in groupby(of_model, key=lambda row: row["sentence"])]


def _record(options: argparse.Namespace, results: dict[tuple[str, str], RegionContrasts]) -> dict[str, Any]:
    regions = [
        {"region": name}
        | ({"model": model} if model else {})
        | {"means": [{"cell": list(cell)} | asdict(mean) for cell, mean in result.means.items()]}
        | {"contrasts": {contrast: asdict(test) for contrast, test in result.contrasts.items()}}
        | {"n_items": len(result.by_item), "left_out": result.left_out}
        for (model, name), result in results.items()
    ]
    return {name: getattr(options, name) for name in ("table", "item", "by", "column")} | {"regions": regions}


def _tables(options: argparse.Namespace, results: dict[tuple[str, str], RegionContrasts]) -> Iterator[PrintedTable]:
    head = ["model", "region"] if any(model for model, _ in results) else ["region"]
    means, contrasts = [], []
    for place, result in results.items():
        start = list(place[-len(head) :])
        for cell, mean in result.means.items():
            n = sum(cell in some for some in result.cells.values())
            means.append([*start, *cell, mean.difference, f"{mean.low:.2f} - {mean.high:.2f}", n])
        for name, test in result.contrasts.items():
            interval = f"{test.low:+.2f} to {test.high:+.2f}"
            contrasts.append([*start, name, test.difference, interval, len(result.by_item), f"{test.p_value:.3g}"])
    columns = [*head, *options.by, "mean", "95% interval", "items"]
    yield PrintedTable(f"{options.column}, sums over regions", columns, means, len(head) + len(options.by))
    columns = [*head, "contrast", "difference", "95% interval", "items", "p"]
    note = "intervals and p-values (Student's t) are over items; a model has no subjects"
    yield PrintedTable("contrasts by item", columns, contrasts, len(head) + 1, note)


def _items_table(results: dict[tuple[str, str], RegionContrasts]) -> tuple[list[str], list[list[Any]]]:
    """A row for each sum and each contrast of each item."""
    rows: list[list[Any]] = []
    for (model, region), result in results.items():
        for item, cells in result.cells.items():
            rows += [[model, region, item, "sum", ", ".join(cell), value] for cell, value in cells.items()]
            by_item = result.by_item.get(item, {})
            rows += [[model, region, item, "contrast", name, value] for name, value in by_item.items()]
    return ["model", "region", "item", "kind", "name", "value"], rows
