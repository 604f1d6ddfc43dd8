"""The scores in the cards of several models, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import EvalResult

from ..errors import InputError
from .card import CARD, read_card


@dataclass
class ScoreOfModels:
    """One score of several models.

    Attributes:
        task: the name of the task, such as "Subject-verb agreement".
        data: the name of the data.
        metric: the name of the metric, with its convention.
        values: by model index, from 0; a model without this score is left out.
        intervals: 95% confidence intervals, likewise, if available.
    """

    task: str
    data: str
    metric: str
    values: dict[int, float] = field(default_factory=dict)
    intervals: dict[int, list[float]] = field(default_factory=dict)


def find_card(path: str | Path) -> Path | None:
    """The card of a model directory, or the file itself if it is Markdown; None if there is none."""
    path = Path(path)
    card = path if path.suffix == ".md" else path / CARD
    return card if card.is_file() else None


def scores_of_cards(paths: Sequence[str | Path]) -> list[ScoreOfModels]:
    """Read the scores in model cards, ordered by task, data and position in the cards.

    Args:
        paths: model directories, or cards.

    Raises:
        InputError: if one has no card, or its card has no scores.
    """
    found: dict[tuple[str, str, str], ScoreOfModels] = {}
    for model, path in enumerate(paths):
        card = find_card(path)
        if card is None:
            raise InputError(f"{path} has no card ({CARD}); `stack-lm card {path}` writes one")
        results = [score for result in read_card(card).eval_results or () for score in _scores(result)]
        if not results:
            raise InputError(f"{card} has no scores; `stack-lm card --results` puts them in")
        for key, value, interval in results:
            score = found.setdefault(key, ScoreOfModels(*key))
            score.values[model] = value
            if interval is not None:
                score.intervals[model] = interval
    places = {key: i for i, key in enumerate(dict.fromkeys(key[:part] for key in found for part in (1, 2)))}
    return sorted(found.values(), key=lambda score: (places[score.task,], places[score.task, score.data]))


def _scores(result: EvalResult) -> Iterator[tuple[tuple[str, str, str], float, list[float] | None]]:
    """The score of a result, and the scores by number of attractors."""
    if not isinstance(result.metric_value, int | float):
        return
    arguments = result.metric_args if isinstance(result.metric_args, dict) else {}
    key = (result.task_name or result.task_type, result.dataset_name, result.metric_name or result.metric_type)
    yield key, float(result.metric_value), arguments.get("interval_95")
    for attractors, value in (arguments.get("by_attractors") or {}).items():
        yield (*key[:2], f"{key[2]}, {attractors} attractor{'s' * (str(attractors) != '1')}"), float(value), None
