"""`stack-lm tasks`: the formal tasks of the papers, and tasks from your own files."""

from __future__ import annotations

import argparse
import csv
import os
import statistics
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple

from ..config_files import parse_overrides
from ..console import add_command, non_negative_int, positive_int, print_json, print_note, print_table
from ..data.text import read_text
from ..errors import InputError
from ..messages import counted
from ..tasks import Example, FileTask, Split, Task, make_task, task_names
from ..tasks.checks import check_own
from ..tasks.files import split_set
from ..tasks.registry import TASKS
from ..tasks.scores import overall

EXAMPLE = (
    "stack-lm tasks\n"
    "  stack-lm tasks show hao2018/parentheses --seed 0 -n 5\n"
    "  stack-lm tasks check hao2018/xor strings.csv\n"
    "  stack-lm tasks show labels.csv symbols=characters\n"
    "  stack-lm tasks score strings.csv runs/hao2018-table1/models/5/*"
)
_HEADERS = (("input", "output"), ("string", "label"))
# Maximum number of mismatched lines to print; further ones are only counted.
_SHOWN_LINES = 5


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `stack-lm tasks`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    show = add_command(
        actions,
        "show",
        show_examples,
        summary="print examples of a task with their targets, and which of them are scored",
        example="stack-lm tasks show suzgun2019/dyck2 --seed 0 -n 5 --split test\n"
        "  stack-lm tasks show grefenstette2015/copy symbols=16 --longest 16",
        nested=True,
    )
    check = add_command(
        actions,
        "check",
        check_file,
        summary="recompute the targets of the strings in a file; status 1 if any differs. For a task of "
        "your own, its file alone is read and described",
        example="stack-lm tasks check hao2018/xor strings.csv\n  stack-lm tasks check labels.csv test=0.2",
        nested=True,
    )
    score = add_command(
        actions,
        "score",
        score_file,
        summary="score trained models of a task on the strings of a file",
        example="stack-lm tasks score strings.csv runs/hao2018-table1/models/5/*",
        nested=True,
    )
    for action in (show, check):
        action.add_argument(
            "name", metavar="NAME", help="as in the list, such as hao2018/xor; or a file or folder of your own"
        )
    show.add_argument("--seed", type=non_negative_int, default=0, help="seed of the data (default: 0)")
    show.add_argument("-n", type=positive_int, default=5, metavar="N", help="number of examples (default: 5)")
    show.add_argument("--split", default="train", help="train (default), validation or test")
    for bound in ("shortest", "longest"):
        show.add_argument(
            f"--{bound}",
            type=positive_int,
            metavar="SIZE",
            help=f"size of the {bound} strings (default: that of the split)",
        )
    for action in (check, score):
        action.add_argument(
            "file",
            metavar="FILE",
            nargs="?" if action is check else None,
            help="CSV lines `input,output` (for a language to recognise `string,label`), symbols separated by "
            "spaces; a set of symbols is a/b. For a task of your own, a file with the same columns",
        )
    for action in (show, check):
        action.add_argument(
            "overrides",
            nargs="*",
            default=[],
            metavar="KEY=VALUE",
            help="options of the task, such as symbols=16; the options.* of `stack-lm train task`",
        )
    score.add_argument(
        "models", metavar="MODEL", nargs="+", help="directories of models of one task that `stack-lm train task` saved"
    )


def run(options: argparse.Namespace) -> None:
    """Print all tasks."""
    tasks = list(_working_tasks())
    if options.json:
        print_json({"tasks": [_record(task) for task in tasks]})
        return
    for paper, group in groupby(tasks, key=lambda task: task.paper):
        same = list(group)
        splits = list(dict.fromkeys(name for task in same for name in task.plan))
        rows = [
            [task.name, task.kind, task.unit, *(_summary(task.plan.get(name)) for name in splits), len(task.vocabulary)]
            for task in same
        ]
        columns = ["task", "kind", "sizes by", *splits, "symbols"]
        print_table(paper or "Other tasks", columns, rows, text_columns=len(columns) - 1)
    print("A split is its number of examples and the sizes of their strings.")


def _working_tasks() -> Iterator[Task]:
    """Yield every task; of a plug-in's tasks, those that can be made, with a note on each of the others."""
    for name in task_names():
        try:
            yield make_task(name)
        except Exception as error:
            if TASKS.origin(name) is None:
                raise
            print_note(f"{name}, of {TASKS.origin(name)}, cannot be made: {type(error).__name__}: {error}")


def show_examples(options: argparse.Namespace) -> None:
    """Print the first examples of a split."""
    task = make_task(options.name, **parse_overrides(options.overrides))
    window = {name: size for name in ("shortest", "longest") if (size := getattr(options, name)) is not None}
    # A smaller split has the first examples of a larger one.
    task.change({options.split: {"number": min(options.n, task.planned(options.split).number)} | window})
    check_own(task, options.seed)
    examples = task.split(options.split, options.seed)[: options.n]
    if options.json:
        print_json(_record(task) | {"split": options.split, "seed": options.seed} | {
            "examples": [_written(task, example) for example in examples]
        })  # fmt: skip
        return
    print(f"{', '.join(filter(None, (task.name, task.paper)))}: {task.kind}, {options.split}, seed {options.seed}")
    for example in examples:
        written = _written(task, example)
        targets = written["target"].split()
        print(f"\nsource {written['source']}\ntarget {written['target']}")
        if not all(example.mask):
            dots = (
                target if scored else "." * len(target) for target, scored in zip(targets, example.mask, strict=True)
            )
            print(f"scored {' '.join(dots)}")


def check_file(options: argparse.Namespace) -> None:
    """Compare the outputs in a file with the task's targets."""
    if options.file is not None and "=" in options.file and not os.path.exists(options.file):
        options.overrides.insert(0, options.file)
        options.file = next((text for text in options.overrides if "=" not in text), None)
        options.overrides = [text for text in options.overrides if text != options.file]
    task = make_task(options.name, **parse_overrides(options.overrides))
    if isinstance(task, FileTask):
        _describe_files(task, options)
        return
    if options.file is None:
        raise InputError(f"name a file of strings to check with {task}")
    if type(task).example is Task.example:
        raise InputError(f"{task} cannot compute the targets of given strings")
    lines = list(_read_lines(task, options.file))
    if not lines:
        raise InputError(f"{options.file} has no lines")
    wrong = [(line, problem) for line in lines if (problem := _disagreement(task, line)) is not None]
    agreeing = len(lines) - len(wrong)
    if options.json:
        print_json(
            {
                "task": task.name,
                "file": options.file,
                "lines": len(lines),
                "agree": agreeing,
                "disagree": [{"line": line.number, "problem": problem} for line, problem in wrong],
            }
        )
    else:
        print(f"{options.file}: {agreeing:,} of {len(lines):,} lines agree with {task.name}")
        for line, problem in wrong[:_SHOWN_LINES]:
            print(f"line {line.number}: {problem}")
        if len(wrong) > _SHOWN_LINES:
            print(f"and {len(wrong) - _SHOWN_LINES:,} more")
    if wrong:
        raise SystemExit(1)


def _describe_files(task: FileTask, options: argparse.Namespace) -> None:
    """Describe a task's own files, and the number of the task's strings in another file."""
    task.check_plan(0)
    number = None if options.file is None else len(task.read_file(options.file))
    if options.json:
        found = {} if number is None else {"file": options.file, "lines": number, "agree": number, "disagree": []}
        print_json(_record(task) | {"digest": task.digest} | found)
        return
    print(task.summary())
    if number is not None:
        print(f"{options.file}: {number:,} strings, with symbols of {task} alone")


def score_file(options: argparse.Namespace) -> None:
    """Score models on the strings of a file."""
    from ..experiments.config import check_task_models

    check_task_models(*options.models)
    from ..experiments.computation import load_task_model
    from ..experiments.scores import score

    sources = {name: load_task_model(name) for name in options.models}
    (first, source), *others = sources.items()
    for name, other in others:
        if str(other.task) != str(source.task):
            raise InputError(f"the models must be of one task; {first} is of {source.task}, {name} of {other.task}")
        if (other.task.vocabulary, other.task.target_vocabulary) != (
            source.task.vocabulary,
            source.task.target_vocabulary,
        ):
            raise InputError(f"the models must have one vocabulary; that of {name} is not that of {first}")
    examples = _read_examples(source.task, options.file)
    scores: dict[str, dict[str, float]] = {}
    for name, (model, _, encoding) in sources.items():
        scores[name] = overall(score(model, encoding, encoding.encode(examples)))
    measures = list(scores[first])
    summary = {
        said: {measure: function([of[measure] for of in scores.values()]) for measure in measures}
        for said, function in (("minimum", min), ("median", statistics.median), ("maximum", max))
    }
    if options.json:
        print_json(
            {
                "task": str(source.task),
                "file": options.file,
                "lines": len(examples),
                "models": [{"model": name} | of for name, of in scores.items()],
                **summary,
            }
        )
        return
    lines = list(scores.items()) + (list(summary.items()) if len(scores) > 1 else [])
    rows = [[name, *(f"{of[measure]:.4f}" for measure in measures)] for name, of in lines]
    print_table(f"{source.task}: {len(examples):,} strings of {options.file}", ["model", *measures], rows)


def _read_examples(task: Task, file: str) -> list[Example]:
    """The examples of a file whose outputs match the task's."""
    if isinstance(task, FileTask):
        return task.read_file(file)
    lines = list(_read_lines(task, file))
    for line in lines:
        problem = _disagreement(task, line)
        if problem is not None:
            raise InputError(f"{file}, line {line.number} does not agree with {task}: {problem}")
    if not lines:
        raise InputError(f"{file} has no lines")
    longest = task.window(max(len(line.string) for line in lines))
    return [task.fill(task.example(line.string), longest) for line in lines]


class _Line(NamedTuple):
    number: int
    string: tuple[int, ...]
    output: list[str]


def _read_lines(task: Task, file: str) -> Iterator[_Line]:
    """Read the lines of a file, with symbols spelled as in the task."""
    text = read_text(file)
    known, labels = set(task.target_vocabulary), task.kind == "classification"
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    with StringIO(text, newline="") as lines:
        reader = csv.reader(lines, strict=True)
        try:
            for row in reader:
                number = reader.line_num
                if number == 1 and tuple(row) in _HEADERS:
                    continue
                if len(row) != 2:
                    columns = "string,label" if labels else "input,output"
                    raise InputError(f"line {number} must be `{columns}`; it has {counted(len(row), 'field')}")
                output = []
                for symbols in row[1].split():
                    spelled = [s if s in known else task.aliases.get(s, s) for s in _parts(symbols, known)]
                    unknown = [symbol for symbol in spelled if symbol not in known]
                    if unknown:
                        what = "label" if labels else "symbol of the targets"
                        there = f"; it has {' '.join(task.target_vocabulary)}" if labels else ""
                        raise InputError(f"line {number}: {unknown[0]!r} is not a {what} of {task}{there}")
                    output.append("/".join(spelled))
                if labels and len(output) != 1:
                    raise InputError(f"line {number} must have one label; it has {len(output) or 'none'}")
                try:
                    yield _Line(number, task.read(row[0]), output)
                except InputError as error:
                    raise InputError(f"line {number}: {error}") from error
        except csv.Error as error:
            raise InputError(f"{file}, line {reader.line_num + 1}: {error}") from error
        except InputError as error:
            raise InputError(f"{file}, {error}") from error


def _parts(symbols: str, known: set[str]) -> list[str]:
    return [symbols] if symbols in known else split_set(symbols)


def _disagreement(task: Task, line: _Line) -> str | None:
    """Describe the error of a line, if any. Unscored targets at the end may be missing."""
    try:
        example = task.example(line.string)
    except InputError as error:
        return str(error)
    targets = task.write_targets(example.target)
    rest = example.mask[len(line.output) :]
    if line.output == targets[: len(line.output)] and not any(rest):
        return None
    return f"the output is {' '.join(line.output)}, the task's {' '.join(targets)}"


def _summary(split: Split | None) -> str:
    if split is None:
        return ""
    sizes = str(split.longest) if split.shortest == split.longest else f"{split.shortest}-{split.longest}"
    return f"{split.number:,}{' each' if split.balanced else ''} of {sizes}"


def _record(task: Task) -> dict[str, Any]:
    names = "name paper kind unit vocabulary target_vocabulary distinct online step_reduction".split()
    splits = {name: vars(split) for name, split in task.plan.items()}
    return {name: getattr(task, name) for name in names} | {"splits": splits}


def _written(task: Task, example: Example) -> dict[str, Any]:
    targets = " ".join(task.write_targets(example.target))
    return {"source": task.write(example.source), "target": targets, "mask": list(example.mask)}
