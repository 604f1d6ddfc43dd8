"""Input and output of commands: tables and JSON on standard output, progress and errors on standard error."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .atomic import atomic_file
from .clock import Clock
from .errors import InputError
from .messages import did_you_mean
from .plugins import import_plugin
from .quiet import quiet_libraries

Subparsers = Any  # argparse's own class for them is private
# Characters of a message, and of a text without spaces in it: a message may show a whole file as a value.
_LONGEST_MESSAGE, _LONGEST_WORD = 900, 200
# Between two lines of progress of one piece of work; see `LineClock`.
SECONDS = 60.0


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, like those of the commands; it keeps line breaks in its texts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter} | settings)

    def format_help(self) -> str:
        """The help, whose usage line has the arguments first, then the required options."""
        forms: dict[str | int | None, str] = {
            None: "{}",
            "?": "[{}]",
            "+": "{} ...",
            "*": "[{} ...]",
            argparse.PARSER: "{} ...",
        }
        words = [forms.get(a.nargs, "{}").format(a.metavar or a.dest) for a in self._actions if not a.option_strings]
        words += [
            f"{a.option_strings[-1]} {a.metavar or a.dest}" for a in self._actions if a.option_strings and a.required
        ]
        self.usage = " ".join(["%(prog)s", *words, "[options]"])
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse. Arguments such as sentences may follow options, which argparse supports only if they are required.

        A command with overrides, such as model.hidden_size=8, takes an argument that is not one of its options as an
        override.
        """
        options, others = super().parse_known_args(args, namespace)
        optional = [action for action in self._actions if not action.option_strings and action.nargs in ("*", "+", "?")]
        last = optional[-1] if optional else None
        named = any(other.startswith("-") and other != "-" for other in others)  # "-" is standard input
        if hasattr(options, "overrides"):
            options.overrides = [*options.overrides, *others]
        elif last and not named and last.nargs != "?":
            setattr(options, last.dest, [*getattr(options, last.dest), *others])
        elif last and not named and len(others) == 1 and getattr(options, last.dest) is None:
            setattr(options, last.dest, others[0])
        elif others:
            near = did_you_mean(others[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(others)}{near}")
        return options, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            allowed = list(map(str, action.choices))
            message = f"must be one of {', '.join(allowed)}; got {value!r}{did_you_mean(value, allowed)}"
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> NoReturn:
        """End the process, with status 2 and one line on standard error."""
        _print_error(self.prog, f"{message} (see {self.prog} --help)")
        sys.exit(2)


def script_parser(documentation: str | None, name: str | None = None) -> argparse.ArgumentParser:
    """The parser of a script, whose help is the script's docstring with its example last.

    Args:
        documentation: the docstring; the example follows "Example:".
        name: the name of the script; None takes the process's own.
    """
    text, marker, example = (documentation or "").partition("Example:")
    parser = Parser(prog=name, description=text.strip(), epilog=marker + example)
    add_import(parser)
    return parser


def add_command(
    subparsers: Subparsers,
    name: str,
    run: Callable[[argparse.Namespace], Any],
    *,
    summary: str,
    example: str,
    description: str = "",
    nested: bool = False,
) -> argparse.ArgumentParser:
    """A subcommand with its help, its example and the option `--json`.

    Args:
        subparsers: the parsers to which it is added.
        name: the name of the command.
        run: its body, which may return a report or an exit status.
        summary: its line in the list of commands, and the first of its help.
        example: the last lines of its help.
        description: the description of its help, below the summary.
        nested: whether it is below a command that also has `--json`.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        **({"help": summary} if nested else {}),
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{description}".strip(),
        epilog=f"example:\n  {example}",
    )
    parser.set_defaults(run=run, command=name)
    add_import(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS if nested else False,  # False would undo the outer command's --json
        help="print exactly one JSON object on standard output",
    )
    return parser


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add the option `--import`. It imports as soon as it is parsed, before any name is looked up."""
    parser.add_argument(
        "--import",
        action=_Import,
        dest=argparse.SUPPRESS,
        metavar="FILE|MODULE",
        help="import a Python file or a module first: memories, tasks, corpora, conventions of your own; repeatable",
    )


class _Import(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, value: Any, option: str | None = None) -> None:
        quiet_libraries()
        try:
            import_plugin(value)
        except InputError as error:
            parser.error(str(error))


def positive_int(text: str) -> int:
    """An argument that must be a whole number of at least 1."""
    return _whole_number(text, at_least=1)


def non_negative_int(text: str) -> int:
    """An argument that must be a whole number of at least 0."""
    return _whole_number(text, at_least=0)


def _whole_number(text: str, at_least: int) -> int:
    if not text.isdecimal() or len(text) > 15 or int(text) < at_least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least} and at most 15 digits")
    return int(text)


def print_json(result: dict[str, Any]) -> None:
    """Print one JSON object, with the command that made it.

    Numbers that JSON lacks become null; the others have the digits that `rounded` leaves.
    """
    result = with_command(result)
    # Characters that the terminal lacks get their JSON escapes.
    print(json.dumps(json_value(result), ensure_ascii=not (sys.stdout.encoding or "").lower().startswith("utf")))


def with_command(result: dict[str, Any]) -> dict[str, Any]:
    """A result after the command that makes it, if one runs."""
    return {"command": _running[-1]} | result if _running else result


def json_value(value: Any) -> Any:
    """A result as `print_json` prints it: rounded numbers, and None for those that JSON lacks."""
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else None
    return value


def rounded(number: float) -> float:
    """A number as in results: nine significant digits, which distinguish all float32 numbers.

    More would be noise, because models compute in float32. Data from which a run resumes, such as a checkpoint, is not
    rounded.
    """
    return float(f"{number:.9g}")


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", text_columns: int = 1
) -> None:
    """Print a table for people: text, in the first columns, on the left; numbers on the right with two decimals."""
    # A pipe has no width to fit.
    console = _console(width=None if sys.stdout.isatty() else 200)
    table = Table()
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(format_cell, row))
    # Not the table's own title and caption, which would be wrapped to its width.
    if title:
        console.print(title, style="bold")
    console.print(table)
    if caption:
        console.print(caption, style="italic")


def _console(**settings: Any) -> Console:
    """A console that prints texts unchanged: "[sic]" is not markup and ":3" is not an emoji."""
    return Console(markup=False, emoji=False, highlight=False, **settings)


def format_cell(value: Any) -> str:
    """A value in tables for people: two decimals, thousands separated, "" for None and NaN."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


CARRIAGE_RETURN = re.compile("\r\n?")
"""A line break in cells of tables that Python's writer leaves without quotation marks."""


def write_table(path: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table to a file, with tabs, or in a .csv with commas. Numbers are as `rounded` leaves them; missing
    values are empty.

    Raises:
        InputError: if it cannot be written.
    """
    with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if path.lower().endswith(".csv") else "\t", lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            cells = ["" if value is None or value != value else value for value in row]
            cells = [CARRIAGE_RETURN.sub("\n", cell) if isinstance(cell, str) else cell for cell in cells]
            writer.writerow([rounded(cell) if isinstance(cell, float) else cell for cell in cells])


def print_note(text: str) -> None:
    """Print a note of one line on standard error, apart from the result."""
    _console(stderr=True, soft_wrap=True).print(_one_line(text))


def print_written(*paths: str | None) -> None:
    """Print which files were written, with the result; None is a file that was not."""
    if written := [path for path in paths if path]:
        print("written: " + ", ".join(written))


class LineClock(Clock):
    """A clock for lines of progress in long work: about one a minute, and only where no bar is shown."""

    def __init__(self) -> None:
        super().__init__(SECONDS)

    def due(self) -> bool:
        """See `Clock.due`."""
        return not _console(stderr=True).is_terminal and super().due()


@contextmanager
def progress(
    description: str, total: int | None, *, quiet: bool = False, lines: bool = True
) -> Iterator[Callable[[float], None]]:
    """Progress on standard error; yields a function that advances it.

    Args:
        description: of the work.
        total: its size; None if unknown.
        quiet: show nothing.
        lines: where standard error is no terminal, print about a line a minute in place of a bar.
    """
    name = TextColumn("{task.description}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = _console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        clock, done = LineClock(), 0.0

        def advance(n: float) -> None:
            nonlocal done
            bar.advance(task, n)
            done += n
            if lines and not quiet and clock.due():
                print_note(f"{description}: {done:,.0f}{'' if total is None else f' of {total:,}'}")

        yield advance


# The commands that `run_command` runs, as typed.
_running: list[str] = []


def runs_command() -> bool:
    """True while a command runs: its process, and what that prints, are the command's own."""
    return bool(_running)


def run_command(name: str, run: Callable[[], int | None], arguments: Sequence[str] = ()) -> int:
    """Run a command's body, with the libraries below quiet; turn an error into one line and an exit status.

    Args:
        name: the name of the command.
        run: its body, which may return an exit status of its own.
        arguments: its arguments, for `print_json`.

    Returns:
        The body's result, or 0; 2 for invalid input; 130 when interrupted; 1 for a closed pipe, and for errors of the
        machine: a full disk, an unreadable file, no memory left.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names of files and terminals need not be UTF-8
            stream.reconfigure(errors="backslashreplace")
    quiet_libraries()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            # Of cuDNN, which copies an LSTM's weights for each sequence unless they lie side by side.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            warnings.showwarning = lambda message, *_: _print_error(name, str(message), kind="warning: ")
            with _as_typed(name, arguments):
                status = run()
        sys.stdout.flush()
    except InputError as error:
        _print_error(name, str(error))
        return 2
    except KeyboardInterrupt:
        _print_error(name, "interrupted", kind="")
        return 130
    except BrokenPipeError:  # such as `| head`
        _drop_output()
        return 1
    except OSError as error:
        if error.filename is None:  # such as standard output on a full disk
            _drop_output()
        _print_error(name, ": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
        _print_error(name, "out of memory: shorter sentences, a smaller --batch-tokens or a smaller model need less")
        return 1
    return status or 0


@contextmanager
def _as_typed(name: str, arguments: Sequence[str]) -> Iterator[None]:
    _running.append(shlex.join([name, *(argument for argument in arguments if argument != "--json")]))
    try:
        yield
    finally:
        _running.pop()


# PyTorch's words, for CPUs and for GPUs.
_OUT_OF_MEMORY = re.compile("(can't|cannot|not enough) (allocate )?memory|out of memory", re.IGNORECASE)


def _drop_output() -> None:
    """Discard the rest of standard output, which nobody reads: Python would complain when it flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(name: str, message: str, kind: str = "error: ") -> None:
    print(f"{name}: {kind}{_one_line(message)}", file=sys.stderr)


def _one_line(message: str) -> str:
    """A message without line breaks and control characters.

    Values that are too long are shortened. A message that is still too long keeps its beginning and end, in whole
    words.
    """
    words = "".join(c if c.isprintable() or c.isspace() else repr(c)[1:-1] for c in message).split()
    words = [w if len(w) <= _LONGEST_WORD else f"{w[: _LONGEST_WORD // 2]}...{w[-_LONGEST_WORD // 4 :]}" for w in words]
    text = " ".join(words)
    if len(text) <= _LONGEST_MESSAGE:
        return text
    beginning = text[: _LONGEST_MESSAGE * 3 // 4].rpartition(" ")[0]
    return f"{beginning} ... {text[-_LONGEST_MESSAGE // 4 :].partition(' ')[2]}"
