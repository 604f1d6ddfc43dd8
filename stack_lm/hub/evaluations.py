"""Convert the results of `stack-lm` commands to evaluation results of a model card, with convention and interval."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult

from ..data.text import json_record, read_lines
from ..errors import InputError

# Of an absolute path: all but its last part.
_DIRECTORIES = re.compile(r"(?<![^\s=:'\"])~?/(?:[^\s/:'\"]+/)*(?=[^\s/:'\"])")


class _Measure(NamedTuple):
    """One of the numbers in a perplexity result, by its name in records.

    Attributes:
        kind: of metric.
        counted: the unit that it is per, in the plural; records count them.
        convention: the counting convention.
    """

    kind: str
    counted: str
    convention: str


_PERPLEXITY = {
    "perplexity": _Measure(
        "perplexity",
        "tokens",
        "per predicted token, first words and ends of sentences included where the model predicts them",
    ),
    "word_perplexity": _Measure("perplexity", "words", "per predicted word; ends of sentences add loss, and no words"),
    "bits_per_byte": _Measure(
        "bits_per_byte", "bytes", "per byte of UTF-8, spaces and ends of lines included; unknown words flatter it"
    ),
    "inner_perplexity": _Measure(
        "perplexity",
        "inner_tokens",
        "per token after the first word (in training: after the first token), without ends of sentences",
    ),
}


def format_score(value: float | None, metric: str) -> str:
    """A score for a table: three decimals for bits per byte, two for others, "" for None."""
    return "" if value is None else f"{value:.{3 if metric == 'bits per byte' else 2}f}"


def read_evaluations(path: Path, directory: Path) -> list[EvalResult]:
    """The evaluation results in a file of a command's `--json` output.

    Args:
        path: the file: one JSON object, or one on each line.
        directory: of the model that the card is for.

    Raises:
        InputError: if the file holds no such result, or a result of another model.
    """
    records = [json_record(line, f"{path}, line {number}") for number, line in read_lines(path)]
    found: list[EvalResult] = []
    for record in records:
        name = _command(record)
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise InputError(f"{path} must hold what --json of {known} prints; it is of {name or 'no such command'}")
        try:
            systems = _READERS[name](record)
            models = [str(Path(system.pop("model")).resolve()) for system in systems]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(
                f"{path} must hold the result of one model; {error} is missing or of another kind"
            ) from error
        for system, model in zip(systems, models, strict=True):
            if model != str(directory.resolve()):
                raise InputError(f"{path} has results of {model}, not of {directory}")
            found.append(EvalResult(**without_directories(system)))
    return found


def of_training(
    record: Mapping[str, Any], data: str, command: str, classification: str = "Text classification"
) -> list[EvalResult]:
    """The known validation results in a record of metrics.jsonl.

    Args:
        record: of one validation.
        data: its sentences, in words.
        command: that trains.
        classification: the name of a classifier's task.
    """
    found = []
    for key in _PERPLEXITY:
        if record.get(f"eval_{key}") is not None:  # no inner perplexity of sentences of one word
            found.append(_perplexity(key, record, "eval_", data, command))
    if "eval_accuracy" in record:
        task = {"task_type": "text-classification", "task_name": classification}
        found.append(_result(task, data, "accuracy", record["eval_accuracy"], "accuracy, %", {"command": command}))
    return [EvalResult(**result) for result in found]


def merged(earlier: Iterable[EvalResult], new: Iterable[EvalResult]) -> list[EvalResult]:
    """Old and new evaluation results; new ones replace old ones of the same task, data and metric."""

    def key(result: EvalResult) -> tuple[Any, ...]:
        return result.task_name, result.dataset_name, result.metric_name

    return list({key(result): result for result in (*earlier, *new)}.values())


def without_directories(value: Any) -> Any:
    """A JSON or YAML value with absolute paths cut to their last part, since paths differ between machines."""
    if isinstance(value, dict):
        return {key: without_directories(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_directories(item) for item in value]
    return _DIRECTORIES.sub("", value) if isinstance(value, str) else value


def _command(record: Mapping[str, Any]) -> str:
    """The name of the command in a record; empty if absent."""
    words = str(record.get("command", "")).split()
    return words[1] if len(words) > 1 and words[0] == "stack-lm" else ""


def _result(
    task: dict[str, str], data: str, metric: str, value: float | None, name: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{metric}={value}")
    named = {key: argument for key, argument in arguments.items() if argument is not None}
    return {
        **task,
        "dataset_type": data,  # results of one type would be filed under one name
        "dataset_name": data,
        "metric_type": metric,
        "metric_value": None if value is None else round(value, 4),
        "metric_name": name,
        "metric_args": named,
    }


def _perplexity(key: str, record: Mapping[str, Any], prefix: str, data: str, command: str) -> dict[str, Any]:
    task = {"task_type": "text-generation", "task_name": "Language modelling"}
    kind, counted, convention = _PERPLEXITY[key]
    count = {counted.rpartition("_")[2]: record.get(f"{prefix}{counted}")}
    arguments = {"convention": convention, **count, "command": command}
    return _result(task, data, kind, record[f"{prefix}{key}"], key.replace("_", " "), arguments)


def _of_perplexity(record: dict[str, Any]) -> list[dict[str, Any]]:
    counts = {counted: record.get(f"n_{counted}") for _, counted, _ in _PERPLEXITY.values()}
    return [
        _perplexity(key, record | counts, "", record["data"], record["command"]) | {"model": record["model"]}
        for key in _PERPLEXITY
        if key in record or key != "bits_per_byte"  # which earlier versions did not have
    ]


def _name_of_f1(record: Mapping[str, Any], system: Mapping[str, Any]) -> str:
    """The name of an F1 score with the settings of its trees, so that scores of several decoders can coexist."""
    how = [system[key] for key in ("signal", "decoder") if system.get(key)]
    return ", ".join([f"F1, convention {record['convention']}", *how])


def _of_f1(record: dict[str, Any]) -> list[dict[str, Any]]:
    task = {"task_type": "parsing", "task_name": "Unsupervised parsing"}
    changes = {key: str(value) for key, value in record["changes"].items()} or None
    return [
        _result(
            task,
            record["treebank"],
            "f1",
            system["f1"],
            _name_of_f1(record, system),
            {
                "convention": record["convention"],
                "changes": changes,
                "interval_95": _interval(system.get("interval")),
                "sentences": system["n_sentences"],
                "signal": system.get("signal"),
                "decoder": system.get("decoder"),
                "command": record["command"],
            },
        )
        | {"model": system["system"]}
        for system in record["systems"]
    ]


def _of_choices(name: str) -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    def read(record: dict[str, Any]) -> list[dict[str, Any]]:
        arguments = {
            "convention": f"unknown words: {record['oov']}",
            "interval_95": _interval(record["interval"]),
            "items": record["n"],
            "majority": record.get("majority"),
            "by_attractors": _rounded(record.get("by_attractors")),
            "command": record["command"],
        }
        task = {"task_type": "text-generation", "task_name": name}
        data = f"{record['format']}: {', '.join(record['data'])}"
        return [
            _result(task, data, "accuracy", record["accuracy"], "accuracy, %", arguments) | {"model": record["model"]}
        ]

    return read


def _rounded(values: dict[str, float] | None) -> dict[str, float] | None:
    return None if values is None else {key: round(value, 4) for key, value in values.items()}


def _interval(bounds: Any) -> list[float] | None:
    return None if bounds is None else [round(bound, 4) for bound in bounds]


_READERS: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
    "perplexity": _of_perplexity,
    "parse-f1": _of_f1,
    "agreement": _of_choices("Subject-verb agreement"),
    "minimal-pairs": _of_choices("Minimal pairs"),
}
