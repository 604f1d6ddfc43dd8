"""Plot a benchmark's tables."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from report import Row, read_result

from stack_lm.core.atomic import atomic_file
from stack_lm.core.console import run_command
from stack_lm.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Distinct in grey and for colour-blind readers (Okabe and Ito).
STYLES = {
    "lstm": ("nn.LSTM", "#000000", "o"),
    "scan": ("stack RNN", "#0072B2", "s"),
    "scan_alone": ("stack RNN, measured alone", "#56b4e9", "D"),
    "reference": ("stack RNN, reference", "#D55E00", "^"),
}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def _plot_columns(axes: Axes, rows: Sequence[Row], unit: str) -> None:
    """Plot each column of one unit against T."""
    for name, (label, color, marker) in STYLES.items():
        points = [(row["T"], row[name + unit]) for row in rows if row.get(name + unit) is not None]
        if points:
            axes.plot(*zip(*points, strict=True), color=color, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks([row["T"] for row in rows], [str(row["T"]) for row in rows])
    axes.minorticks_off()
    axes.set_xlabel("T")
    axes.legend(frameon=False)


def plot_length(axes: Axes, rows: Sequence[Row]) -> None:
    """Plot time per token against T."""
    _plot_columns(axes, rows, "_us/token")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_ylabel("forward and backward, µs per token")


def plot_memory(axes: Axes, rows: Sequence[Row]) -> None:
    """Plot peak memory against T."""
    _plot_columns(axes, rows, "_MiB")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("peak memory, MiB")


def plot_ratios(axes: Axes, rows: Sequence[Row], column: str, label: str) -> None:
    """Plot time relative to the LSTM against another column."""
    places = range(len(rows))
    bars = axes.bar(places, [row["scan/lstm"] for row in rows], color=STYLES["scan"][1], width=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=2, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    axes.margins(y=0.12)
    axes.axhline(1, color="black", linewidth=1, linestyle=":")
    axes.set_xticks(places, [str(row[column]) for row in rows])
    axes.set_xlabel(label)
    axes.set_ylabel("time, relative to nn.LSTM")


def plot_chunks(axes: Axes, rows: Sequence[Row]) -> None:
    """Plot the speed-up of the loss against the rows of a chunk, with the default chunk marked."""
    sizes = list(dict.fromkeys((row["H"], row["V"]) for row in rows))
    for size, color in zip(sizes, COLORS, strict=False):
        own = [row for row in rows if (row["H"], row["V"]) == size]
        x, y = [row["chunk_rows"] for row in own], [row["plain/ours"] for row in own]
        axes.plot(x, y, color=color, marker=".", label=f"H = {size[0]}, V = {size[1]:,}")
        (default,) = [i for i, row in enumerate(own) if row["default"]]
        axes.plot(x[default], y[default], color=color, marker="o", markersize=9)
    axes.axhline(1, color="black", linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("rows of a chunk (large dots: by default)")
    axes.set_ylabel("speed, relative to the plain loss")
    axes.legend(frameon=False)


def plot_growth(axes: Axes, rows: Sequence[Row], column: str, label: str) -> None:
    """Plot time and peak memory against a size, on logarithmic axes, so that slopes are powers."""
    from matplotlib.ticker import LogLocator

    x = [row[column] for row in rows]
    for unit, what, color, marker in (("ms", "time, ms", COLORS[0], "s"), ("MiB", "peak memory, MiB", COLORS[1], "o")):
        if all(row[unit] for row in rows):
            axes.plot(x, [row[unit] for row in rows], color=color, marker=marker, label=what)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(x, [str(value) for value in x])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(label)
    axes.legend(frameon=False)


GROWTH = {
    "n": "n, symbols",
    "Q": "Q, states",
    "S": "S, stack symbols",
    "m": "m, elements of a vector",
    "B": "B, batch size",
    "D": "D, window",
}
PANELS: dict[str, Callable[[Any, Sequence[Row]], None]] = {
    "length": plot_length,
    "memory": plot_memory,
    "hidden": lambda axes, rows: plot_ratios(axes, rows, "H", "H"),
    "batch": lambda axes, rows: plot_ratios(axes, rows, "batch", "batch size"),
    "strength": lambda axes, rows: plot_ratios(axes, rows, "push_strength", "push strength"),
    "chunks": plot_chunks,
    **{name: partial(plot_growth, column=name, label=label) for name, label in GROWTH.items()},
}


def plot(source: str, target: str) -> None:
    """Plot the tables of a result that are curves.

    Raises:
        InputError: without matplotlib, or for a file that is not a result or has no such tables.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("figures need matplotlib: pip install 'stack-lm[plots]'") from error
    result = read_result(source)
    tables = {table["name"]: table for table in result["tables"]}
    names = [name for name in PANELS if name in tables and (name != "memory" or result["benchmark"] == "scan")]
    if not names:
        raise InputError(f"{source} has none of the tables that are drawn: {', '.join(PANELS)}")
    columns = min(3, len(names))
    figure = Figure(figsize=(4.6 * columns, 3.8 * -(-len(names) // columns)), layout="constrained", dpi=120)
    for i, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // columns), columns, i + 1)
        PANELS[name](axes, tables[name]["rows"])
        axes.set_title(textwrap.fill(tables[name]["title"], 44), fontsize="small")
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_file(target) as path:
        try:
            figure.savefig(path)
        except ValueError as error:
            raise InputError(f"cannot draw {target}: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/plot.py",
        description="Draw the curves of a benchmark's result.",
        epilog="example:\n  python benchmarks/plot.py scan.json docs/figures/scan.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "result",
        metavar="RESULT.json",
        help="written with --json by a benchmark that draws: scan, loss, nondeterministic",
    )
    parser.add_argument("figure", metavar="OUT.png", help="figure to write; the suffix gives the format")
    args = parser.parse_args(argv)
    return run_command("benchmarks/plot.py", lambda: plot(args.result, args.figure))


if __name__ == "__main__":
    sys.exit(main())
