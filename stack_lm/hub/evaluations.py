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

_MOST_NAMED = 3  # sets of a suite in the name of its score; of more, the number
# All of an absolute path except its last part.
_DIRECTORIES = re.compile(r"(?<![^\s=:'\"])~?/(?:[^\s/:'\"]+/)*(?=[^\s/:'\"])")


class _Measure(NamedTuple):
    """One of the numbers in a perplexity result, by its name in records.

    Attributes:
        kind: kind of metric.
        counted: the unit of its denominator, in the plural; records have their number.
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


def decimals_of(metric: str) -> int:
    """The decimals that a score is printed with: three for bits per byte, two for others."""
    return 3 if metric == "bits per byte" else 2


def format_score(value: float, decimals: int) -> str:
    """A score for a table."""
    return f"{value:,.{decimals}f}"


class SystemResult(NamedTuple):
    """One evaluation result in the output of a command.

    Attributes:
        system: the model's path as given; or the name of an ensemble or a baseline.
        is_model: false for the latter.
        result: what a card takes.
    """

    system: str
    is_model: bool
    result: EvalResult


def read_results(path: Path) -> list[SystemResult]:
    """The evaluation results in a file of a command's `--json` output, of one model or several.

    Args:
        path: the file: one JSON object, or one on each line.

    Raises:
        InputError: if the file holds no such result.
    """
    records = [json_record(line, f"{path}, line {number}") for number, line in read_lines(path)]
    found: list[SystemResult] = []
    for record in records:
        name = _command(record)
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise InputError(f"{path} must hold what --json of {known} prints; it is of {name or 'no such command'}")
        try:
            for run in _runs(record):
                for system in _READERS[name](run):
                    is_model = "model" in system
                    of = system.pop("model" if is_model else "trees")
                    if not isinstance(of, str):
                        raise TypeError("model")
                    found.append(SystemResult(of, is_model, EvalResult(**without_directories(system))))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{path} must hold results of models; {error} is missing or of another kind") from error
    return found


def read_evaluations(path: Path, directory: Path) -> list[EvalResult]:
    """The evaluation results of one model in a file of a command's `--json` output, which may have those of others.

    Args:
        path: see `read_results`.
        directory: the directory of the model that the card is for.

    Raises:
        InputError: if the file holds no result of this model.
    """
    by_model: dict[Path, list[EvalResult]] = {}
    for of in read_results(path):
        if of.is_model:
            by_model.setdefault(Path(of.system).resolve(), []).append(of.result)
    own = by_model.get(directory.resolve(), [])
    if by_model and not own:
        raise InputError(f"{path} has results of {', '.join(map(str, by_model))}, not of {directory}")
    return own


def _runs(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of single models in a record, which has those of several under "runs"."""
    if "runs" not in record:
        return [record]
    head = {key: value for key, value in record.items() if key not in ("runs", "against")}
    return [head | run for side in (record, record.get("against", {})) for run in side.get("runs", [])]


def of_training(
    record: Mapping[str, Any], data: str, command: str, classification: str = "Text classification"
) -> list[EvalResult]:
    """The known validation results in a record of metrics.jsonl.

    Args:
        record: the record of one validation.
        data: its sentences, in words.
        command: the training command.
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


def name_of_held_out(source: str, held_out: float, seed: int | None, unit: str = "sentences") -> str:
    """The name of the sentences that a run holds out.

    Args:
        source: the text.
        held_out: the number of units, or a share below 1.
        seed: of the choice; None for a stream, of which all runs hold out the same.
        unit: "sentences" or "documents".
    """
    share = f"{held_out:g} {unit}" if held_out >= 1 else f"{100 * held_out:g}% of the {unit}"
    return f"{source}: {share} held out" + (f", seed {seed}" if seed is not None else "")


def first_of(limit: int | None, unit: str = "sentences") -> str:
    """The end of the name of a text of which only the beginning is read; "" without a limit."""
    return "" if limit is None else f", the first {limit:,} {unit}"


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
    data = record["data"]
    if record.get("held_out") is not None:
        data = name_of_held_out(data, record["held_out"], record["held_out_seed"])
    elif record.get("split") not in (None, "test"):
        data += f", split {record['split']}"
    if record.get("column") is not None:
        data += f", column {record['column']}"
    if record.get("segmentation") is not None:
        data += f", segmentation {record['segmentation']}"
    data += first_of(record.get("limit"))
    return [
        _perplexity(key, record | counts, "", data, record["command"]) | {"model": record["model"]}
        for key in _PERPLEXITY
        if record.get(key) is not None  # earlier versions lack bits_per_byte; sentences of one word, inner_perplexity
    ]


def _name_of_f1(record: Mapping[str, Any], system: Mapping[str, Any]) -> str:
    """The name of an F1 score with its settings, so that scores of several decoders and rules can coexist."""
    how = [f"convention {record['convention']}"]
    if record.get("parameters"):
        how.append(f"parameters of {Path(record['parameters']).name}")
    if record["changes"]:
        how.append("but " + ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in record["changes"].items()))
    if record.get("max_length") is not None:
        how.append(f"at most {record['max_length']} words")
    how += [system[key] for key in ("signal", "decoder") if system.get(key)]
    if system.get("punctuation") == "removed before parsing":
        how.append("punctuation removed before parsing")
    return ", ".join(["F1", *how, *_reading(system)])


def _reading(record: Mapping[str, Any]) -> list[str]:
    """The settings, other than the defaults, by which a command reads the strengths of words."""
    how = []
    if record.get("layer") is not None:
        how.append(f"layer {record['layer']}")
    if record.get("word_strength", "last") != "last":
        how.append(f"word strength {record['word_strength']}")
    if record.get("dropout_samples"):
        how.append(f"{record['dropout_samples']} dropout samples of {record['dropout']:g}")
    return how


def name_with_prior(ensemble: Mapping[str, Any]) -> str:
    """The name of an ensemble's score with a prior, from its record."""
    votes = ensemble.get("prior_votes", 1)
    return f"ensemble, {ensemble.get('prior')} voting too" + (f" ({votes} votes)" if votes > 1 else "")


def _of_f1(record: dict[str, Any]) -> list[dict[str, Any]]:
    systems = record["systems"]
    first: dict[str, Any] = next(iter(systems), {})
    together = {key: value for key, value in first.items() if all(of.get(key) == value for of in systems)}
    ensemble = record.get("ensemble") or {}
    votes = {"ensemble": "votes", name_with_prior(ensemble): "votes_with_prior"}
    return [
        *(_f1(record, of, of) | {"model": of["system"]} for of in systems),
        *(_f1(record, together, ensemble[key]) | {"trees": name} for name, key in votes.items() if key in ensemble),
        *(_f1(record, {}, of) | {"trees": f"baseline: {name}"} for name, of in (record.get("baselines") or {}).items()),
    ]


def _f1(record: Mapping[str, Any], how: Mapping[str, Any], scored: Mapping[str, Any]) -> dict[str, Any]:
    """A result of trees.

    Args:
        record: the record of the command.
        how: the settings of these trees.
        scored: their scores.
    """
    return _result(
        {"task_type": "parsing", "task_name": "Unsupervised parsing"},
        record["treebank"],
        "f1",
        scored["f1"],
        _name_of_f1(record, how),
        {
            "convention": record["convention"],
            "changes": {key: str(value) for key, value in record["changes"].items()} or None,
            "interval_95": _interval(scored.get("interval")),
            "sentences": scored.get("n_sentences"),
            "signal": how.get("signal"),
            "decoder": how.get("decoder"),
            "command": record["command"],
        },
    )


def _of_choices(name: str, sets: str = "") -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """The reader of a command's records; `sets` is the property whose values are the sets of a suite, if it has any."""

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
        if names := list(record.get(f"by_{sets}", ())):  # which may be some of a suite
            data += f" ({', '.join(names) if len(names) <= _MOST_NAMED else f'{len(names)} {sets}s'})"
        metric = "accuracy, %"
        if record["oov"] == "wrong":
            metric += ", unknown words count as wrong"
        if record.get("method") == "prefix":
            metric += ", after prefixes"
        results = [_result(task, data, "accuracy", record["accuracy"], metric, arguments)]
        mean = record.get("mean_over", {}).get(sets)
        if mean is not None and round(mean["accuracy"] - record["accuracy"], 4):  # sets of one size have one score
            arguments |= {"interval_95": _interval(mean["interval"]), "items": mean["n"]}
            arguments |= {"majority": None, "by_attractors": None}
            results.append(_result(task, data, "accuracy", mean["accuracy"], f"{metric}, mean over {sets}s", arguments))
        return [result | {"model": record["model"]} for result in results]

    return read


def _of_strengths(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Means by group, the spread over all words, and the differences between groups."""
    signal, groups = record["signal"].replace("_", " "), record["groups"]
    scored = [
        *((name, of["mean"], {"sd": round(of["std"], 4), "words": of["n"]}) for name, of in groups.items()),
        *(("sd of all words", of["std"], {}) for name, of in groups.items() if name == "all words"),
        *(
            (
                f"{of['first']} less {of['second']}",
                of["difference"],
                {"interval_95": _interval([of["low"], of["high"]])},
            )
            for of in record["contrasts"]
        ),
    ]
    task = {"task_type": "text-generation", "task_name": "Strengths by part of speech"}
    data = record["data"] + first_of(record.get("limit"))
    results = []
    for name, value, arguments in scored:
        metric = ", ".join([signal, name, *_reading(record)])
        known = {"unit": "elements", **arguments, "command": record["command"]}
        results.append(_result(task, data, "strength", value, metric, known) | {"model": record["model"]})
    return results


def _rounded(values: dict[str, float] | None) -> dict[str, float] | None:
    return None if values is None else {key: round(value, 4) for key, value in values.items()}


def _interval(bounds: Any) -> list[float] | None:
    return None if bounds is None else [round(bound, 4) for bound in bounds]


_READERS: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
    "perplexity": _of_perplexity,
    "parse-f1": _of_f1,
    "agreement": _of_choices("Subject-verb agreement"),
    "minimal-pairs": _of_choices("Minimal pairs", "construction"),
    "strengths": _of_strengths,
}
