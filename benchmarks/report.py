"""The common part of the benchmarks: options, and results as tables on the screen, as Markdown and as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from timing import Key, Timing, alternate, environment

from stack_lm.core.atomic import atomic_file
from stack_lm.core.console import (
    format_cell,
    positive_int,
    print_note,
    print_table,
    progress,
    run_command,
    script_parser,
)
from stack_lm.core.errors import InputError

Row = dict[str, Any]
# A table is JSON from the start: {"name", "title", "rows", "caption"}; its columns are the keys of its rows.
Table = dict[str, Any]
# The function that measures a table's rows. It takes the options, and a callback for the name of the next measurement.
Measure = Callable[[argparse.Namespace, Callable[[str], None]], list[Row]]


class Part:
    """One table that a benchmark measures.

    Args:
        name: for selecting the table.
        title, caption: above and below the table.
        measure: computes the rows.
    """

    def __init__(self, name: str, title: str, caption: str, measure: Measure) -> None:
        self.name, self.title, self.caption, self.measure = name, title, caption, measure


def run_benchmark(
    name: str,
    parts: Sequence[Part],
    description: str | None,
    argv: Sequence[str] | None = None,
    *,
    summarize: Callable[[list[Table], argparse.Namespace], Table | None] | None = None,
) -> int:
    """Run a benchmark's command: measure, print, write; returns its exit status.

    Args:
        name: of the benchmark, for its JSON.
        parts: its tables.
        description: the docstring of its module, with a paragraph that begins with "Example:".
        argv: the arguments; None takes the process's own.
        summarize: makes a summary table of all the others, which comes first.
    """
    parser = script_parser(description, f"benchmarks/{name}.py")
    names = [part.name for part in parts]
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds: does it run, not how fast")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="TABLE", help=", ".join(names))
    parser.add_argument("--threads", type=positive_int, help="threads of torch and of the scan (default: torch's own)")
    parser.add_argument("--device", default="cpu", help="cpu (the default), cuda or cuda:N")
    parser.add_argument("--json", metavar="FILE", help="write the results to a file as well, when all is measured")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--from", dest="source", metavar="FILE", help="print the results in a file; measure nothing")
    args = parser.parse_args(argv)

    def run() -> None:
        if args.source:
            result = read_result(args.source)
            if result["benchmark"] != name:
                raise InputError(f"{args.source} is a result of benchmarks/{result['benchmark']}.py, not of {name}.py")
            result["tables"] = [table for table in result["tables"] if table["name"] in (*args.only, "targets")]
        else:
            result = _measure(name, [part for part in parts if part.name in args.only], args, summarize)
        _show(result, args.markdown)
        if args.json:
            with atomic_file(args.json) as path:
                path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    return run_command(f"benchmarks/{name}.py", run)


def timed(
    runs: Mapping[Key, Callable[[], Any]], args: argparse.Namespace, seconds: float, max_rounds: int = 200
) -> dict[Key, Timing]:
    """`alternate` with the given options."""
    if args.quick:
        return alternate(runs, seconds=0, device=args.device, min_rounds=1, max_rounds=1)
    return alternate(runs, seconds=seconds, device=args.device, max_rounds=max_rounds)


def _measure(name: str, parts: Sequence[Part], args: argparse.Namespace, summarize: Any) -> dict[str, Any]:
    try:
        args.device = torch.device(args.device)
        torch.empty(0, device=args.device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {args.device}: {str(error).splitlines()[0]}") from error
    if args.device.type not in ("cpu", "cuda"):
        raise InputError(f"--device must be cpu or cuda; got {args.device}")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tables: list[Table] = []
    with progress("measuring", len(parts)) as advance:
        for part in parts:
            rows = part.measure(args, lambda what, part=part: print_note(f"{part.name}: {what}"))  # type: ignore[misc]
            tables.append({"name": part.name, "title": part.title, "caption": part.caption, "rows": rows})
            advance(1)
    first = summarize(tables, args) if summarize is not None else None
    where = environment(args.device) | {"quick": args.quick}
    return {"benchmark": name, "environment": where, "tables": [first, *tables] if first else tables}


def read_result(path: str) -> dict[str, Any]:
    """Read a result written with `--json`.

    Raises:
        InputError: if the file is not such a result.
    """
    try:
        result = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(result, dict) or not {"benchmark", "environment", "tables"} <= result.keys():
        raise InputError(f"{path} is not a result of a benchmark: it needs benchmark, environment and tables")
    return result


def _show(result: dict[str, Any], markdown: bool) -> None:
    where = result["environment"]
    measured = f"{where['device']}, {where['threads']} thread(s), torch {where['torch']}, Python {where['python']}"
    if where["quick"]:
        measured += "; quick, so no figure means anything"
    for table in result["tables"]:
        columns = list(dict.fromkeys(key for row in table["rows"] for key in row))
        rows = [[row.get(column) for column in columns] for row in table["rows"]]
        headings = [column.replace("_", " ") for column in columns]
        if markdown:
            print(_markdown(table["title"], headings, rows, table["caption"]))
        else:
            print_table(table["title"], headings, rows, table["caption"])
    print(f"Measured on {measured}.")


def _markdown(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    lines = [f"**{title}**", "", "| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(map(format_cell, row)) + " |" for row in rows]
    return "\n".join([*lines, "", *([caption, ""] if caption else [])])
