"""The scores of several models, from their cards or the output of commands, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import EvalResult

from ..errors import InputError
from .card import CARD, read_card
from .evaluations import read_results


@dataclass
class ScoreOfModels:
    """One score of several models.

    Attributes:
        task: the name of the task, such as "Subject-verb agreement".
        data: the name of the data.
        metric: the name of the metric, with its convention.
        values: the values by model index, from 0; a model without this score is left out.
        intervals: 95% confidence intervals, likewise, if available.
    """

    task: str
    data: str
    metric: str
    values: dict[int, float] = field(default_factory=dict)
    intervals: dict[int, list[float]] = field(default_factory=dict)


def _find_card(path: str | Path) -> Path | None:
    """The card of a model directory, or the file itself if it is Markdown; None if there is none."""
    path = Path(path)
    card = path if path.suffix == ".md" else path / CARD
    return card if card.is_file() else None


def has_scores(path: str | Path) -> bool:
    """True if there may be scores at a path: a model's card, or the output of a command in JSON."""
    return _is_output(path) or _find_card(path) is not None


def read_scores(paths: Sequence[str | Path]) -> tuple[list[str], list[ScoreOfModels]]:
    """Read the scores of models, ordered by task, data and position in their cards.

    Args:
        paths: model directories, cards, or files of commands' `--json` output, which may be of several models. A model
            may have scores in several of them.

    Returns:
        The models, as paths without the ending of a card; ensembles and baselines in the output of `parse-f1` count,
        too. And their scores.

    Raises:
        InputError: if a model has no card, a card no scores, or a model different values of a score.
    """
    names: dict[str, int] = {}
    found: dict[tuple[str, str, str], ScoreOfModels] = {}
    for path in paths:
        for name, result in _read_output(path) if _is_output(path) else _read_card(path):
            model = names.setdefault(name, len(names))
            for key, value, interval in _scores(result):
                score = found.setdefault(key, ScoreOfModels(*key))
                if score.values.setdefault(model, value) != value:
                    raise InputError(f"{path} has another {key[2]!r} of {name} than a file before it")
                if interval is not None:
                    score.intervals[model] = interval
    places = {key: i for i, key in enumerate(dict.fromkeys(key[:part] for key in found for part in (1, 2)))}
    return list(names), sorted(found.values(), key=lambda score: (places[score.task,], places[score.task, score.data]))


def _is_output(path: str | Path) -> bool:
    return Path(path).suffix in (".json", ".jsonl") and Path(path).is_file()


def _read_output(path: str | Path) -> list[tuple[str, EvalResult]]:
    return [(of.system.rstrip("/"), of.result) for of in read_results(Path(path))]


def _read_card(path: str | Path) -> list[tuple[str, EvalResult]]:
    card = _find_card(path)
    if card is None:
        raise InputError(f"{path} has no card ({CARD}); `stack-lm card {path}` writes one")
    name = str(path).removesuffix(".md").rstrip("/")
    results = [(name, result) for result in read_card(card).eval_results or () if any(_scores(result))]
    if not results:
        raise InputError(f"{card} has no scores; `stack-lm card --results` puts them in")
    return results


def _scores(result: EvalResult) -> Iterator[tuple[tuple[str, str, str], float, list[float] | None]]:
    """The score of a result, and the scores by number of attractors."""
    if not isinstance(result.metric_value, int | float):
        return
    arguments = result.metric_args if isinstance(result.metric_args, dict) else {}
    key = (result.task_name or result.task_type, result.dataset_name, result.metric_name or result.metric_type)
    yield key, float(result.metric_value), arguments.get("interval_95")
    for attractors, value in (arguments.get("by_attractors") or {}).items():
        yield (*key[:2], f"{key[2]}, {attractors} attractor{'s' * (str(attractors) != '1')}"), float(value), None
