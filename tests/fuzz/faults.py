"""Damage what commands read, and see that each ends in one line or in a result.

Each case copies small inputs, damages a file or an argument, and runs a command in a process of its own with limits on
time and memory. It fails if there is a traceback, more than one line of error, a NaN, a result that cannot be, an input
that has changed, something half-written, a signal, or too much time or memory. The same seed gives the same cases.

Example:
    python tests/fuzz/faults.py --cases 10000 --seed 0
    python tests/fuzz/faults.py --seed 0 --case 123
"""

from __future__ import annotations

import csv
import gc
import hashlib
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from fuzz.command_lines import OUTPUTS, Command, commands
from fuzz.inputs import write_inputs, write_runs
from fuzz.mutations import damage_arguments, damage_file

import stack_lm.cli.commands as stack_lm_commands
from stack_lm import ModelScorer
from stack_lm.cli.main import main as stack_lm
from stack_lm.core.console import positive_int, script_parser
from stack_lm.core.quiet import quiet_libraries

# What commands import, so that a case starts at once.
LOADED = (
    *("cli.choices", "figures.page", "figures.surprisal", "scoring.number_classifier", "scoring.surprisal"),
    *("training.language_model", "training.classification", "training.trials.run"),
    *(f"cli.commands.{module.name}" for module in iter_modules(stack_lm_commands.__path__)),
)
MEGABYTE = 2**20
# Of a case: seconds on a processor, and on the clock of a busy machine; memory in use in MB, 400 of which the libraries
# take, and address space, more than at the start.
SECONDS, PATIENCE, MEMORY, SPACE = 30, 300, 1500, 6000
LONGEST_LINE = 1000
# What messages of Python have, and not ours.
PYTHONS = re.compile("universal.newline|newline mode")


@dataclass
class Outcome:
    """How a case ended.

    Attributes:
        status: exit status, negative for a signal.
        out, err: what it printed.
        seconds: of a processor.
        megabytes: most memory in use.
    """

    status: int
    out: str
    err: str
    seconds: float
    megabytes: float


@dataclass
class Case:
    """A command with damaged input.

    Attributes:
        number: of the case.
        command: what runs.
        arguments: with the folder of this case filled in, and perhaps damaged.
        damage: what was damaged, and how.
        folder: of the case.
    """

    number: int
    command: Command
    arguments: list[str]
    damage: str
    folder: Path


def make_case(seed: int | None, number: int, inputs: Path, folder: Path) -> Case:
    """The case of a number: its folder, with the damage done; without a seed, the command of that number undamaged."""
    shutil.rmtree(folder, ignore_errors=True)  # which the damaged output_dir of another case may name
    shutil.copytree(inputs, folder, symlinks=True)
    for path in folder.rglob("*"):  # some name files of the folder
        if path.suffix in (".yaml", ".jsonl", ".json") and str(inputs) in (text := path.read_text()):
            path.write_text(text.replace(str(inputs), str(folder)))
    rng = random.Random(f"{seed}/{number}")
    command = commands()[number] if seed is None else rng.choice(commands())
    arguments = [argument.replace("{}", str(folder)) for argument in command.arguments]
    if seed is None:
        return Case(number, command, arguments, "nothing", folder)
    done = []
    if command.reads and rng.random() < 0.9:
        for name in rng.sample(command.reads, min(len(command.reads), rng.choice((1, 1, 1, 2)))):
            done.append(f"{name}: {damage_file(rng, folder / name)}")
    if not done or rng.random() < 0.05:
        arguments = damage_arguments(rng, arguments)
        done.append("arguments")
    return Case(number, command, arguments, ", ".join(done), folder)


def run_case(case: Case, program: Callable[[list[str]], int] = stack_lm) -> Outcome:
    """Run a case in a process of its own, within the limits; a test has a program of its own."""
    names = [f"{case.folder}.{name}" for name in ("stdout", "stderr")]
    child = os.fork()
    if child == 0:
        status = 70
        try:
            _limit()
            for number, name in enumerate(names, start=1):
                os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
            _give_input(case)
            sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
            os.chdir(case.folder)
            os.environ["STACK_LM_CACHE"] = str(case.folder / "out" / "cache")
            status = _call(program, case.arguments)
        except BaseException:  # as Python ends
            import traceback

            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)
    waiting = os.pidfd_open(child)
    if not select.select([waiting], [], [], PATIENCE)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(waiting)
    _, status, usage = os.wait4(child, 0)
    out, err = (Path(name).read_text(errors="replace") for name in names)
    for name in names:
        os.unlink(name)
    seconds = usage.ru_utime + usage.ru_stime
    return Outcome(os.waitstatus_to_exitcode(status), out, err, seconds, usage.ru_maxrss / 1024)


def _give_input(case: Case) -> None:
    source = case.folder / case.command.stdin if case.command.stdin else Path(os.devnull)
    if not source.is_file():  # damage may have left something else, which a shell would not open either
        source = Path(os.devnull)
    os.dup2(os.open(source, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def _limit() -> None:
    used = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]
    resource.setrlimit(resource.RLIMIT_AS, (used + SPACE * MEGABYTE,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _call(program: Callable[[list[str]], int], arguments: list[str]) -> int:
    try:
        return program(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1


# --- what is a fault


def judge(case: Case, outcome: Outcome, before: dict[str, str]) -> str | None:
    """What is wrong with how a case ended; None if nothing is.

    Args:
        case: that ran.
        outcome: of it.
        before: digests of its files before it ran.
    """
    lines = outcome.err.splitlines()
    errors = [line for line in lines if ": error: " in line]
    if "Traceback" in outcome.err or "Exception ignored" in outcome.err:
        return f"a traceback: {lines[-1]}"
    if outcome.status in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"too slow: {outcome.seconds:.0f} s"
    if outcome.status not in (0, 1, 2):
        return f"status {outcome.status}: {lines[-1] if lines else ''}"
    if outcome.megabytes > MEMORY or "out of memory" in outcome.err:
        return f"too much memory: {outcome.megabytes:.0f} MB"
    if inside := next((line for line in lines if PYTHONS.search(line)), None):
        return f"a message of Python's: {inside}"
    if any(len(line) > LONGEST_LINE for line in lines):
        return "a line of error that is too long"
    after = digests(case.folder)
    if changed := [name for name in before if before[name] != after.get(name)]:
        return f"changed: {', '.join(changed)}"
    if [name for name in after if ".partial" in name]:
        return "something half-written is left"
    if outcome.status == 1 and case.arguments[:2] == ["tasks", "check"] and not errors:
        return _judge_result(case, outcome)  # not all lines agree
    if outcome.status:
        if len(errors) != 1 or lines[-1] != errors[0] or not errors[0].partition(": error: ")[2].strip():
            return f"no one line of error but {len(lines)}: {' | '.join(lines)[:300]}"
        if "--keep-going" in case.arguments:
            return None
        if outcome.out.strip():
            return f"an error, but also a result: {outcome.out[:100]!r}"
        return next((f"an error, but {path} was written" for path in _written(case)), None)
    if errors:
        return f"status 0, but {errors[0]}"
    return _judge_result(case, outcome)


def _written(case: Case) -> list[str]:
    """The files that the command was to write, and has written."""
    named = [path for option, path in pairwise(case.arguments) if option in OUTPUTS]
    named += case.arguments[2:3] if case.arguments[:1] == ["export"] else []
    return [path for path in named if path.rstrip("/").startswith(f"{case.folder}/out/") and os.path.exists(path)]


def _judge_result(case: Case, outcome: Outcome) -> str | None:
    if "--json" not in case.arguments:
        return "a table with nan" if re.search(r"│ +-?(nan|NaN) *│", outcome.out) else None
    try:
        (line,) = outcome.out.removesuffix("\n").split("\n")
        result = json.loads(line, parse_constant=_refuse)
    except ValueError as error:
        return f"no JSON: {error}: {outcome.out[:100]!r}"
    for name, value in _numbers(result):
        share = name in ("accuracy", "f1", "precision", "recall", "unknown_words", "majority")
        if (
            (share and not 0 <= value <= 100.0001)
            or (name.endswith("perplexity") and value < 1)
            or (name.endswith("surprisal") and value < -1e-4)
            or (name.startswith("n_") and value < 0)
        ):
            return f"a result that cannot be: {name} is {value}"
    for parse in result.get("parses", ()) if isinstance(result, dict) else ():
        if len(parse["spans"]) != max(0, len(parse["words"]) - 1):
            return f"a tree that is not binary: {parse['brackets'][:100]}"
    return _judge_words(case, outcome, result)


def _judge_words(case: Case, outcome: Outcome, result: Any) -> str | None:
    """Compare the words that went in, found by a simpler reader, with those that came out.

    All come out, or a note names what is left out; nothing comes out that did not go in.
    """
    options = dict(pairwise(case.arguments))
    named = case.folder / options.get("--data", "")
    reader = WORDS_OF.get(named.suffix)
    if reader is None or not named.is_file() or "runs" in result or options.keys() & {"--segmentation", "--limit"}:
        return None
    given = reader(named.read_text(encoding="utf-8-sig").replace("\ufeff", ""), options.get("--column"))
    if given is None:
        return None
    less = re.search("left out|empty|no word", outcome.err) is not None
    name = {"perplexity": "n_all_words", "strengths": "n_words"}.get(case.arguments[0])
    if name is not None:
        n, n_given = result[name] + (result["n_unknown"] if name == "n_words" else 0), len(given.split())
        return None if (n <= n_given if less else n == n_given) else f"other words: {n_given} went in, {n} came out"
    rows = result.get("parses", result.get("rows", ()))
    if case.arguments[0] not in ("parse", "surprisal") or not rows or "model" in rows[0]:
        return None
    out = "".join(word for row in rows for word in row.get("words", [row.get("word")]))
    same = Counter(out) <= Counter(given) if less else "".join(out.split()) == "".join(given.split())
    return None if same else f"other words: {given.split()[:20]} went in, {out[:100]!r} came out"


def _of_conllu(text: str, column: str | None) -> str:
    """The words of lines, but for the parts of others."""
    words, covered, before = [], 0, ""
    for line in re.split("\r\n?|\n", text):
        number, *cells = line.split("\t")
        first, _, last = number.partition("-")
        if first.isdecimal():
            if last or (first == "1" and "-" not in before):
                covered = 0
            words += cells[:1] if int(first) > covered else []
            covered = int(last or covered)
        before = number
    return " ".join(words)


def _of_trees(text: str, column: str | None) -> str:
    """Whatever follows no opening bracket, but for traces."""
    tokens = re.findall(r"[()]|[^\s()]+", re.sub(r"(?m)^\*x\*.*", "", text), re.ASCII)
    triples = zip(["", "", *tokens], ["", *tokens], tokens, strict=False)
    leaves = (t for two, one, t in triples if t not in "()" and one != "(" and (two, one) != ("(", "-NONE-"))
    return " ".join(leaves)


def _of_rows(rows: Sequence[dict[str, Any]], column: str | None) -> str | None:
    """The texts of rows; None if it is not clear which column has them."""
    columns = [column] if column else ["text", "sentence"]
    chosen = next((name for name in columns if rows and name in rows[0]), None)
    return None if chosen is None else "\n".join(row.get(chosen) or "" for row in rows)


def _of_table(delimiter: str) -> Callable[[str, str | None], str | None]:
    def read(text: str, column: str | None) -> str | None:
        text = re.sub("\r\n?", "\n", text).lstrip("\n")
        if delimiter == "\t" and '"' in text:  # some of which are text
            return None
        return _of_rows(list(csv.DictReader(StringIO(text), delimiter=delimiter)), column)

    return read


def _of_json_lines(text: str, column: str | None) -> str | None:
    return _of_rows([json.loads(line) for line in re.split("\r\n?|\n", text) if line.strip()], column)


# For each ending, the words of a text of that format in its own order; None if they are not clear.
WORDS_OF: dict[str, Callable[[str, str | None], str | None]] = {
    ".txt": lambda text, column: text,
    ".conllu": _of_conllu,
    ".mrg": _of_trees,
    ".csv": _of_table(","),
    ".tsv": _of_table("\t"),
    ".jsonl": _of_json_lines,
}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _numbers(value: Any, name: str = "") -> list[tuple[str, float]]:
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in _numbers(part, key)]
    if isinstance(value, list):
        return [found for part in value for found in _numbers(part, name)]
    return [(name, value)] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def digests(folder: Path) -> dict[str, str]:
    """A digest of each file of a case but its results, and the names of what is half-written there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith("out") and not path.is_symlink():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif ".partial" in name:
            found[name] = ""
    return found


# --- the run


def run(seed: int | None, numbers: Sequence[int], folder: Path, keep: bool = False) -> list[str]:
    """Run cases, and print how it goes; returns a line for each that failed.

    Args:
        seed: of the cases; None for commands without damage, each of which must give a result.
        numbers: of the cases.
        folder: an empty one to work in.
        keep: leave the folders of the cases, and print how each ended.
    """
    quiet_libraries()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    torch.set_num_threads(1)
    inputs = folder / "inputs"
    inputs.mkdir()
    write_inputs(inputs)
    for name in (*(f"stack_lm.{name}" for name in LOADED), "matplotlib.figure", "matplotlib.backends.backend_svg"):
        import_module(name)
    write_runs(inputs)
    ModelScorer.from_pretrained(str(inputs / "model")).trace([["a"] * 1000])  # loads the compiled scan
    gc.freeze()  # or each case would copy the memory of these while it collects garbage
    faults: list[str] = []
    ends: Counter[int] = Counter()
    longest = largest = 0.0
    for number in numbers:
        case = make_case(seed, number, inputs, folder / f"case{number}")
        before = digests(case.folder)
        outcome = run_case(case)
        fault = judge(case, outcome, before)
        if seed is None and outcome.status:
            fault = outcome.err.strip()
        ends[outcome.status] += 1
        longest, largest = max(longest, outcome.seconds), max(largest, outcome.megabytes)
        if fault is not None:
            command = " ".join(case.arguments).replace(str(case.folder), "")
            faults.append(f"case {number}: {fault}\n    {command[:300]}\n    damaged: {case.damage}")
            print(faults[-1], flush=True)
        if keep:
            print(f"{case.folder}: {' '.join(case.arguments)}\ndamaged: {case.damage}\n{outcome}")
        else:
            shutil.rmtree(case.folder)
    print(
        f"seed {seed}: {len(numbers):,} cases, {len(faults)} faults; {ends[0]:,} ended in a result, {ends[2]:,} in one "
        f"line with status 2, {ends[1]:,} with status 1; longest {longest:.1f} s, most memory {largest:.0f} MB"
    )
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer; returns 1 if there was a fault."""
    parser = script_parser(__doc__, "faults.py")
    parser.add_argument("--cases", type=positive_int, default=10_000, metavar="N", help="default: 10000")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--case", type=int, metavar="N", help="run this case alone, and keep and print all of it")
    parser.add_argument("--undamaged", action="store_true", help="run each command once, without damage")
    options = parser.parse_args(arguments)
    in_memory = Path("/dev/shm")  # each case copies and removes all inputs
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=in_memory if in_memory.is_dir() else None))
    alone = options.case is not None
    numbers = [options.case] if alone else range(options.cases)
    if options.undamaged:
        numbers = range(len(commands()))
    faults = run(None if options.undamaged else options.seed, numbers, folder, keep=alone)
    if not alone:
        shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
