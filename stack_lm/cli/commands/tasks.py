"""`stack-lm tasks`: the formal tasks of the papers, and tasks from your own files."""

from __future__ import annotations

import argparse
import csv
import statistics
from io import StringIO
from itertools import groupby
from typing import Any, NamedTuple

from ...core.config_files import parse_overrides
from ...core.console import add_command, write_table
from ...core.errors import InputError
from ...core.messages import counted
from ...tasks import Example, FileTask, Split, Task, make_task, task_names
from ...tasks.checks import check_own
from ...tasks.files import split_set
from ...tasks.scores import overall
from ...text.plain import read_text
from ..files import check_files
from ..options import option, shared
from ..printing import PrintedTable
from ..recipe import split_arguments
from ..report import Report

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
    show, check, score = (
        add_command(actions, name, run_action, summary=summary, example=example, nested=True)
        for name, (run_action, summary, example) in _ACTIONS.items()
    )
    for action in (show, check):
        name = "as in the list, such as hao2018/xor; a file or folder of your own; or regex:EXPRESSION, grammar:FILE, "
        option(action, "NAME", f"{name}automaton:FILE")
    shared(show, "--seed", seed="seed of the data (default: 0)")
    option(show, "-n N", "number of examples", default=5)
    option(show, "--split NAME", "train, validation or test", default="train")
    for bound in ("shortest", "longest"):
        option(show, f"--{bound} N", f"size of the {bound} strings (default: that of the split)")
    file = (
        "CSV lines `input,output` (for a language to recognise `string,label`), symbols separated by spaces; a set of "
    )
    file += "symbols is a/b. For a task of your own, a file with the same columns"
    option(score, "FILE", file)
    overrides = "options of the task, such as symbols=16; the options.* of `stack-lm train task`"
    option(show, "[KEY=VALUE ...]", overrides, dest="overrides")
    option(check, "[FILE|KEY=VALUE ...]", f"{file}; and {overrides}", dest="overrides")
    written = "also write the answers: a row for each model and string, as .csv or .tsv"
    option(score, "-o, --output FILE", written, endings=(".csv", ".tsv"))
    option(score, "MODEL ...", "directories of models of one task that `stack-lm train task` saved")


def run(options: argparse.Namespace) -> Report:
    """List all tasks."""
    tasks = [make_task(name) for name in task_names()]
    shown: list[PrintedTable | str] = []
    for paper, group in groupby(tasks, key=lambda task: task.paper):
        same = list(group)
        splits = list(dict.fromkeys(name for task in same for name in task.plan))
        rows = [
            [task.name, task.kind, task.unit, *(_summary(task.plan.get(name)) for name in splits), len(task.vocabulary)]
            for task in same
        ]
        columns = ["task", "kind", "sizes by", *splits, "symbols"]
        shown.append(PrintedTable(paper or "Other tasks", columns, rows, len(columns) - 1))
    shown.append("A split is its number of examples and the sizes of their strings.")
    return Report({"tasks": [_record(task) for task in tasks]}, shown)


def show_examples(options: argparse.Namespace) -> Report:
    """Show the first examples of a split."""
    task = make_task(options.name, **parse_overrides(options.overrides))
    window = {name: size for name in ("shortest", "longest") if (size := getattr(options, name)) is not None}
    # A smaller split has the first examples of a larger one.
    task.change({options.split: {"number": min(options.n, task.planned(options.split).number)} | window})
    seed = options.seed or 0
    check_own(task, seed)
    examples = [_written(task, example) for example in task.split(options.split, seed)[: options.n]]
    lines = [f"{', '.join(filter(None, (task.name, task.paper)))}: {task.kind}, {options.split}, seed {seed}"]
    for example in examples:
        lines.append(f"\nsource {example['source']}\ntarget {example['target']}")
        if not all(example["mask"]):
            targets = zip(example["target"].split(), example["mask"], strict=True)
            lines.append(f"scored {' '.join(target if scored else '.' * len(target) for target, scored in targets)}")
    return Report(_record(task) | {"split": options.split, "seed": seed, "examples": examples}, lines)


def check_file(options: argparse.Namespace) -> Report:
    """Compare the outputs in a file with the task's targets."""
    files, pairs = split_arguments(options.overrides)
    task = make_task(options.name, **parse_overrides(pairs))
    if len(files) > 1:
        raise InputError(f"give one file; got {', '.join(files)}")
    if isinstance(task, FileTask):
        return _describe_files(task, *files)
    if not files:
        raise InputError(f"name a file of strings to check with {task}")
    (file,) = files
    if type(task).example is Task.example:
        raise InputError(f"{task} cannot compute the targets of given strings")
    lines = _read_lines(task, file)
    wrong = [{"line": line.number, "problem": problem} for line in lines if (problem := _disagreement(task, line))]
    record = {"task": task.name, "file": file, "lines": len(lines), "agree": len(lines) - len(wrong)}
    shown = [f"{file}: {record['agree']:,} of {len(lines):,} lines agree with {task.name}"]
    shown += [f"line {each['line']}: {each['problem']}" for each in wrong[:_SHOWN_LINES]]
    if len(wrong) > _SHOWN_LINES:
        shown.append(f"and {len(wrong) - _SHOWN_LINES:,} more")
    return Report(record | {"disagree": wrong}, shown, status=int(bool(wrong)))


def _describe_files(task: FileTask, file: str | None = None) -> Report:
    """Describe a task's own files, and the number of the task's strings in another file."""
    task.check_plan(0)
    record, shown = _record(task) | {"digest": task.digest}, [task.summary()]
    if file is not None:
        number = len(task.read_file(file))
        record |= {"file": file, "lines": number, "agree": number, "disagree": []}
        shown.append(f"{file}: {number:,} strings, with symbols of {task} alone")
    return Report(record, shown)


def score_file(options: argparse.Namespace) -> Report:
    """Score models on the strings of a file."""
    from ...training.trials.config import check_task_models

    check_task_models(*options.models)
    from ...training.trials.computation import load_task_model
    from ...training.trials.scores import predictions, score

    check_files(options, options.file, *options.models)
    sources = {name: load_task_model(name) for name in options.models}
    (first, source), *others = sources.items()
    for name, other in others:
        if str(other.task) != str(source.task):
            raise InputError(f"the models must be of one task; {first} is of {source.task}, {name} of {other.task}")
        if any(getattr(other.task, each) != getattr(source.task, each) for each in ("vocabulary", "target_vocabulary")):
            raise InputError(f"the models must have one vocabulary; that of {name} is not that of {first}")
    examples = _read_examples(source.task, options.file)
    scores: dict[str, dict[str, float]] = {}
    answers: list[list[Any]] = [["model", "string", "target", "answer", "right"]]
    for name, (model, task, encoding) in sources.items():
        encoded = encoding.encode(examples)
        scores[name] = overall(score(model, encoding, encoded))
        if options.output:
            pairs = zip(examples, predictions(model, encoding, encoded), strict=True)
            answers += [[name, task.write(e.source), wanted, got, int(wanted == got)] for e, (wanted, got) in pairs]
    measures = list(scores[first])
    summary = {
        statistic: {measure: function([of[measure] for of in scores.values()]) for measure in measures}
        for statistic, function in (("minimum", min), ("median", statistics.median), ("maximum", max))
    }
    record = {"task": str(source.task), "file": options.file, "lines": len(examples)}
    record |= {"models": [{"model": name} | of for name, of in scores.items()], **summary}
    lines = scores | (summary if len(scores) > 1 else {})
    rows = [[name, *(f"{of[measure]:.4f}" for measure in measures)] for name, of in lines.items()]
    title = f"{source.task}: {len(examples):,} strings of {options.file}"
    if options.output:
        write_table(options.output, answers[0], answers[1:])
    written = [options.output] * bool(options.output)
    return Report(record | {"written": written}, [PrintedTable(title, ["model", *measures], rows)], written)


def _read_examples(task: Task, file: str) -> list[Example]:
    """The examples of a file whose outputs match the task's."""
    if isinstance(task, FileTask):
        return task.read_file(file)
    lines = _read_lines(task, file)
    for line in lines:
        if problem := _disagreement(task, line):
            raise InputError(f"{file}, line {line.number} does not agree with {task}: {problem}")
    longest = task.window(max(len(line.string) for line in lines))
    return [task.fill(task.example(line.string), longest) for line in lines]


class _Line(NamedTuple):
    number: int
    string: tuple[int, ...]
    output: list[str]


def _read_lines(task: Task, file: str) -> list[_Line]:
    """Read the lines of a file, at least one, with symbols spelled as in the task."""
    text, lines = read_text(file), []
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if reader.line_num > 1 or tuple(row) not in _HEADERS:
                lines.append(_read_line(task, row, reader.line_num))
    except (csv.Error, InputError) as error:
        raise InputError(f"{file}, line {reader.line_num}: {error}") from error
    if not lines:
        raise InputError(f"{file} has no lines")
    return lines


def _read_line(task: Task, row: list[str], number: int) -> _Line:
    known, labels = set(task.target_vocabulary), task.kind == "classification"
    if len(row) != 2:
        columns = "string,label" if labels else "input,output"
        raise InputError(f"a line must be `{columns}`; it has {counted(len(row), 'field')}")
    output = []
    for symbols in row[1].split():
        parts = [symbols] if symbols in known else split_set(symbols)
        spelled = [s if s in known else task.aliases.get(s, s) for s in parts]
        unknown = [symbol for symbol in spelled if symbol not in known]
        if unknown:
            what = "label" if labels else "symbol of the targets"
            there = f"; it has {' '.join(task.target_vocabulary)}" if labels else ""
            raise InputError(f"{unknown[0]!r} is not a {what} of {task}{there}")
        output.append("/".join(spelled))
    if labels and len(output) != 1:
        raise InputError(f"a line must have one label; it has {len(output) or 'none'}")
    return _Line(number, task.read(row[0]), output)


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


_ACTIONS = {
    "show": (
        show_examples,
        "print examples of a task with their targets, and which of them are scored",
        "stack-lm tasks show suzgun2019/dyck2 --seed 0 -n 5 --split test\n"
        "  stack-lm tasks show 'regex:(ab)*' kind=language\n"
        "  stack-lm tasks show grefenstette2015/copy symbols=16 --longest 16",
    ),
    "check": (
        check_file,
        "recompute the targets of the strings in a file; status 1 if any differs. For a task of your own, its file "
        "alone is read and described",
        "stack-lm tasks check hao2018/xor strings.csv\n  stack-lm tasks check labels.csv test=0.2",
    ),
    "score": (
        score_file,
        "score trained models of a task on the strings of a file",
        "stack-lm tasks score strings.csv runs/hao2018-table1/models/5/*",
    ),
}
