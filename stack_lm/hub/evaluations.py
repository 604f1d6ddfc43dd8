"""Convert the results of `stack-lm` commands to evaluation results of a model card, with convention and interval."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult

from ..core.errors import InputError
from ..core.messages import explaining
from ..text.plain import json_record, read_lines

_MOST_NAMED = 3  # sets of a suite in the name of its score; of more, the number
# All of an absolute path except its last part.
_DIRECTORIES = re.compile(r"(?<![^\s=:'\"])~?/(?:[^\s/:'\"]+/)*(?=[^\s/:'\"])")
_MODELLING = ("text-generation", "Language modelling")
_PARSING = ("parsing", "Unsupervised parsing")
_AGREEMENT = ("text-generation", "Subject-verb agreement")
_PAIRS = ("text-generation", "Minimal pairs")
_STRENGTHS = ("text-generation", "Strengths by part of speech")
# The numbers of a perplexity result by their names in records: the kind of metric; the unit of its denominator, of
# which records have the number; and the convention of counting.
_PERPLEXITY = {
    "perplexity": (
        "perplexity",
        "tokens",
        "per predicted token, first words and ends of sentences included where the model predicts them",
    ),
    "word_perplexity": ("perplexity", "words", "per predicted word; ends of sentences add loss, and no words"),
    "bits_per_byte": (
        "bits_per_byte",
        "bytes",
        "per byte of UTF-8, spaces and ends of lines included; unknown words flatter it",
    ),
    "inner_perplexity": (
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


def row_of(result: EvalResult) -> list[str]:
    """The cells of a score in the table of a card."""
    cells = (
        f"{result.task_name}, {result.dataset_name}",
        result.metric_name,
        format_score(result.metric_value, decimals_of(result.metric_name or "")),
        " to ".join(f"{bound:.2f}" for bound in (result.metric_args or {}).get("interval_95", "")),
    )
    return [str(cell).replace("|", "\\|") for cell in cells]


class SystemResult(NamedTuple):
    """One evaluation result in the output of a command.

    Attributes:
        system: the model's path as given; or the name of an ensemble or a baseline.
        result: what a card takes.
        is_model: false for an ensemble or a baseline.
    """

    system: str
    result: EvalResult
    is_model: bool = True


def read_results(path: Path) -> list[SystemResult]:
    """The evaluation results in a file of a command's `--json` output, of one model or several.

    Args:
        path: the file: one JSON object, or one on each line.

    Raises:
        InputError: if the file holds no such result.
    """
    results: list[SystemResult] = []
    for number, line in read_lines(path):
        record = json_record(line, f"{path}, line {number}")
        words = str(record.get("command", "")).split()
        name = words[1] if len(words) > 1 and words[0] == "stack-lm" else ""
        if name not in _READERS:
            known = ", ".join(_READERS)
            raise InputError(f"{path} must hold what --json of {known} prints; it is of {name or 'no such command'}")
        with explaining(f"{path} must hold results of models", KeyError, TypeError, AttributeError, ValueError):
            results += [result for run in _runs(record) for result in _READERS[name](run)]
    return results


def read_evaluations(path: Path, directory: Path) -> list[EvalResult]:
    """The evaluation results of one model in a file of a command's `--json` output, which may have those of others.

    Args:
        path: see `read_results`.
        directory: the directory of the model that the card is for.

    Raises:
        InputError: if the file holds no result of this model.
    """
    by_model: dict[Path, list[EvalResult]] = {}
    for result in read_results(path):
        if result.is_model:
            by_model.setdefault(Path(result.system).resolve(), []).append(result.result)
    if by_model and directory.resolve() not in by_model:
        raise InputError(f"{path} has results of {', '.join(map(str, by_model))}, not of {directory}")
    return by_model.get(directory.resolve(), [])


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
    scores = {key.removeprefix("eval_"): value for key, value in record.items() if key.startswith("eval_")}
    counts = {counted: scores.get(counted) for _, counted, _ in _PERPLEXITY.values()}
    results = _perplexities(scores, counts, data, command)
    if "accuracy" in scores:
        task = ("text-classification", classification)
        results.append(_result(task, data, "accuracy", scores["accuracy"], "accuracy, %", command))
    return results


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
    results = (*earlier, *new)
    return list({(each.task_name, each.dataset_name, each.metric_name): each for each in results}.values())


def without_directories(value: Any) -> Any:
    """A JSON or YAML value with absolute paths cut to their last part, since paths differ between machines."""
    if isinstance(value, dict):
        return {key: without_directories(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_directories(item) for item in value]
    return _DIRECTORIES.sub("", value) if isinstance(value, str) else value


def _result(
    task: tuple[str, str], data: str, metric: str, value: float | None, name: str, command: str, **arguments: Any
) -> EvalResult:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{metric}={value}")
    data, name, arguments = without_directories([data, name, arguments | {"command": command}])
    return EvalResult(
        task_type=task[0],
        dataset_type=data,  # results of one type would be filed under one name
        dataset_name=data,
        metric_type=metric,
        metric_value=None if value is None else round(value, 4),
        task_name=task[1],
        metric_name=name,
        metric_args={key: argument for key, argument in arguments.items() if argument is not None},
    )


def convention_of(result: EvalResult) -> str:
    """The convention of counting behind a score: that of its arguments, or, for a perplexity, of its name."""
    convention = (result.metric_args or {}).get("convention")
    return str(convention or _PERPLEXITY.get(str(result.metric_name).replace(" ", "_"), ("", "", ""))[2])


def _perplexities(scores: Mapping[str, Any], counts: Mapping[str, Any], data: str, command: str) -> list[EvalResult]:
    results = []
    for key, (metric, counted, _) in _PERPLEXITY.items():
        # Earlier versions lack bits_per_byte; sentences of one word, inner_perplexity.
        if (value := scores.get(key)) is not None:
            about = {counted.rpartition("_")[2]: counts[counted]}
            bounds = (scores.get("intervals") or {}).get(key, [None])
            about["interval_95"] = None if None in bounds else _rounded(bounds)  # of one sentence there is none
            results.append(_result(_MODELLING, data, metric, value, key.replace("_", " "), command, **about))
    return results


def _of_perplexity(record: dict[str, Any]) -> Iterator[SystemResult]:
    data = record["data"]
    if record.get("held_out") is not None:
        data = name_of_held_out(data, record["held_out"], record["held_out_seed"])
    elif record.get("split") not in (None, "test"):
        data += f", split {record['split']}"
    for key in ("column", "segmentation"):
        if record.get(key) is not None:
            data += f", {key} {record[key]}"
    data += first_of(record.get("limit"))
    counts = {counted: record.get(f"n_{counted}") for _, counted, _ in _PERPLEXITY.values()}
    for result in _perplexities(record, counts, data, record["command"]):
        yield SystemResult(record["model"], result)


def _name_of_f1(record: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The name of an F1 score with its settings, so that scores of several decoders and rules can coexist."""
    parts = ["F1", f"convention {record['convention']}"]
    if record.get("parameters"):
        parts.append(f"parameters of {Path(record['parameters']).name}")
    if record["changes"]:
        changes = (f"{key.replace('_', ' ')}: {value}" for key, value in record["changes"].items())
        parts.append(f"but {', '.join(changes)}")
    if record.get("max_length") is not None:
        parts.append(f"at most {record['max_length']} words")
    parts += [settings[key] for key in ("signal", "decoder") if settings.get(key)]
    if settings.get("punctuation") == "removed before parsing":
        parts.append("punctuation removed before parsing")
    return ", ".join(parts + _reading(settings))


def _reading(record: Mapping[str, Any]) -> list[str]:
    """The settings, other than the defaults, by which a command reads the strengths of words."""
    parts = []
    if record.get("layer") is not None:
        parts.append(f"layer {record['layer']}")
    if record.get("word_strength", "last") != "last":
        parts.append(f"word strength {record['word_strength']}")
    if record.get("dropout_samples"):
        parts.append(f"{record['dropout_samples']} dropout samples of {record['dropout']:g}")
    return parts


def name_with_prior(ensemble: Mapping[str, Any]) -> str:
    """The name of an ensemble's score with a prior, from its record."""
    votes = ensemble.get("prior_votes", 1)
    return f"ensemble, {ensemble.get('prior')} voting too" + (f" ({votes} votes)" if votes > 1 else "")


def _of_f1(record: dict[str, Any]) -> Iterator[SystemResult]:
    systems = record["systems"]
    for system in systems:
        yield SystemResult(system["system"], _f1(record, system, system))
    shared = {key: value for key, value in next(iter(systems), {}).items() if all(s.get(key) == value for s in systems)}
    ensemble = record.get("ensemble") or {}
    for name, key in (("ensemble", "votes"), (name_with_prior(ensemble), "votes_with_prior")):
        if key in ensemble:
            yield SystemResult(name, _f1(record, shared, ensemble[key]), is_model=False)
    for name, scores in (record.get("baselines") or {}).items():
        yield SystemResult(f"baseline: {name}", _f1(record, {}, scores), is_model=False)


def _f1(record: Mapping[str, Any], settings: Mapping[str, Any], scores: Mapping[str, Any]) -> EvalResult:
    return _result(
        _PARSING,
        record["treebank"],
        "f1",
        scores["f1"],
        _name_of_f1(record, settings),
        record["command"],
        convention=record["convention"],
        changes={key: str(value) for key, value in record["changes"].items()} or None,
        interval_95=_rounded(scores.get("interval")),
        sentences=scores.get("n_sentences"),
        signal=settings.get("signal"),
        decoder=settings.get("decoder"),
    )


def _of_choices(task: tuple[str, str], sets: str | None = None) -> Callable[[dict[str, Any]], Iterator[SystemResult]]:
    """The reader of a command's records; `sets` is the property whose values are the sets of a suite, if it has any."""

    def read(record: dict[str, Any]) -> Iterator[SystemResult]:
        data = f"{record['format']}: {', '.join(record['data'])}"
        if names := list(record.get(f"by_{sets}", ())):  # which may be some of a suite
            data += f" ({', '.join(names) if len(names) <= _MOST_NAMED else f'{len(names)} {sets}s'})"
        metric = "accuracy, %"
        if record["oov"] == "wrong":
            metric += ", unknown words count as wrong"
        if record.get("method") == "prefix":
            metric += ", after prefixes"

        def result(scores: Mapping[str, Any], name: str, **more: Any) -> SystemResult:
            about = {"convention": f"unknown words: {record['oov']}", "interval_95": _rounded(scores["interval"])}
            about |= {"items": scores["n"], **more}
            of_task = _result(task, data, "accuracy", scores["accuracy"], name, record["command"], **about)
            return SystemResult(record["model"], of_task)

        attractors = record.get("by_attractors")
        yield result(record, metric, majority=record.get("majority"), by_attractors=_rounded(attractors))
        mean = record.get("mean_over", {}).get(sets)
        if mean is not None and round(mean["accuracy"] - record["accuracy"], 4):  # sets of one size have one score
            yield result(mean, f"{metric}, mean over {sets}s")

    return read


def _of_strengths(record: dict[str, Any]) -> Iterator[SystemResult]:
    """Means by group, the spread over all words, and the differences between groups."""
    signal, data = record["signal"].replace("_", " "), record["data"] + first_of(record.get("limit"))

    def result(name: str, value: float, **about: Any) -> SystemResult:
        metric = ", ".join([signal, name, *_reading(record)])
        of_group = _result(_STRENGTHS, data, "strength", value, metric, record["command"], unit="elements", **about)
        return SystemResult(record["model"], of_group)

    groups = record["groups"]
    for name, group in groups.items():
        yield result(name, group["mean"], sd=round(group["std"], 4), words=group["n"])
    if "all words" in groups:
        yield result("sd of all words", groups["all words"]["std"])
    for pair in record["contrasts"]:
        name = f"{pair['first']} less {pair['second']}"
        yield result(name, pair["difference"], interval_95=_rounded([pair["low"], pair["high"]]))


def _rounded(values: Any) -> Any:
    """Numbers of a list or a mapping, to four decimals."""
    if isinstance(values, Mapping):
        return {key: round(value, 4) for key, value in values.items()}
    return None if values is None else [round(value, 4) for value in values]


_READERS: dict[str, Callable[[dict[str, Any]], Iterable[SystemResult]]] = {
    "perplexity": _of_perplexity,
    "parse-f1": _of_f1,
    "agreement": _of_choices(_AGREEMENT),
    "minimal-pairs": _of_choices(_PAIRS, "construction"),
    "strengths": _of_strengths,
}
