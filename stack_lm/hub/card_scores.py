"""The scores of several models, from their cards, the output of commands, or tables, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import EvalResult

from ..core.checks import is_number
from ..core.errors import InputError, fail
from ..core.messages import shortened
from ..text.formats import read_rows
from .card import CARD, read_card
from .evaluations import decimals_of, format_score, read_results

_OUTPUT, _TABLES = (".json", ".jsonl"), (".csv", ".tsv")
_MODEL = "model"  # the column of a table that has the names of the models
_MOST_DECIMALS = 12


class Value(NamedTuple):
    """A score of one model: the value, the decimals that are printed, and its 95% interval if available."""

    value: float
    decimals: int
    interval: list[float] | None = None

    def __str__(self) -> str:
        return format_score(self.value, self.decimals)


@dataclass
class ScoreOfModels:
    """One score of several models.

    Attributes:
        task: the name of the task, such as "Subject-verb agreement"; "" for a table's score.
        data: the name of the data, or the path of the table.
        metric: the name of the metric, with its convention, or of the table's column.
        values: the values by model; one without this score is left out.
    """

    task: str
    data: str
    metric: str
    values: dict[str, Value] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The task and the data."""
        return f"{self.task}: {self.data}" if self.task else self.data

    @property
    def full_name(self) -> str:
        """The name that patterns are matched with; of a table's score only the column's name."""
        return f"{self.heading}, {self.metric}" if self.task else self.metric


_Key = tuple[str, str, str]  # task, data and metric


def _find_card(path: str | Path) -> Path | None:
    """The card of a model directory, or the file itself if it is Markdown; None if there is none."""
    path = Path(path)
    card = path if path.suffix == ".md" else path / CARD
    return card if card.is_file() else None


def has_scores(path: str | Path) -> bool:
    """True if there may be scores at a path: a model's card, the output of a command in JSON, or a table."""
    return _is_file(path, *_OUTPUT, *_TABLES) or _find_card(path) is not None


def read_scores(paths: Sequence[str | Path]) -> tuple[list[str], list[ScoreOfModels]]:
    """Read the scores of models, ordered by task, data and position in their cards.

    Args:
        paths: model directories, cards, files of commands' `--json` output, or CSV and TSV files with a column "model"
            and one for each score. Files may be of several models, and a model may have scores in several of them.

    Returns:
        The models, as paths without the ending of a card; ensembles and baselines in the output of `parse-f1` count,
        too. And their scores.

    Raises:
        InputError: if a model has no card, a card no scores, a table a cell that is no number, or a model different
            values of a score.
    """
    names: dict[str, None] = {}
    scores: dict[_Key, ScoreOfModels] = {}
    for path in paths:
        for name, key, value in _read(path):
            names[name] = None
            if scores.setdefault(key, ScoreOfModels(*key)).values.setdefault(name, value).value != value.value:
                raise InputError(f"{path} has another {key[2]!r} of {name} than a file before it")
    places = {key: i for i, key in enumerate(dict.fromkeys(key[:part] for key in scores for part in (1, 2)))}
    return list(names), sorted(scores.values(), key=lambda score: (places[score.task,], places[score.task, score.data]))


def _is_file(path: str | Path, *endings: str) -> bool:
    return Path(path).suffix in endings and Path(path).is_file()


def _read(path: str | Path) -> Iterator[tuple[str, _Key, Value]]:
    """The scores at a path, each with the name of its model."""
    if _is_file(path, *_TABLES):
        yield from _read_table(path)
        return
    results: Iterable[tuple[str, EvalResult]]
    if _is_file(path, *_OUTPUT):
        results = ((system.rstrip("/"), result) for system, result, _ in read_results(Path(path)))
    else:
        results = _read_card(path)
    for name, result in results:
        yield from ((name, *value) for value in _values(result))


def _read_table(path: str | Path) -> Iterator[tuple[str, _Key, Value]]:
    """The scores in a table; an empty cell has none."""
    seen, any_score = set(), False
    for line, row in read_rows(path, None, fail, None)[1]:
        if isinstance(row, str):
            continue  # an empty line
        if _MODEL not in row:
            raise InputError(f"{path} has no column {_MODEL!r}; its columns are {', '.join(row)}")
        name = row.pop(_MODEL).strip()
        where = f"{path}, row {line}"
        if not name or name in seen:
            raise InputError(f"{where}: {f'a second row of {name}' if name else 'no name of a model'}")
        seen.add(name)
        for column, cell in row.items():
            text = cell.strip()
            if text:
                any_score = True
                if not (is_number(text) and math.isfinite(float(text))):
                    raise InputError(f"{where}: {column!r} must be a number; got {shortened(text, 40)!r}")
                decimals = min(len(text.partition(".")[2]), _MOST_DECIMALS)
                yield name, ("", str(path), column), Value(float(text), decimals)
    if not any_score:
        raise InputError(f"{path} has no scores")


def _read_card(path: str | Path) -> list[tuple[str, EvalResult]]:
    card = _find_card(path)
    if card is None:
        if Path(path).is_file():
            endings = ", ".join((*_OUTPUT, *_TABLES))
            raise InputError(f"{path} must be a model's card (.md), or a file that ends in {endings}")
        raise InputError(f"{path} has no card ({CARD}); `stack-lm card {path}` writes one")
    name = str(path).removesuffix(".md").rstrip("/")
    results = [(name, result) for result in read_card(card).eval_results or () if any(_values(result))]
    if not results:
        raise InputError(f"{card} has no scores; `stack-lm card --results` puts them in")
    return results


def _values(result: EvalResult) -> Iterator[tuple[_Key, Value]]:
    """The score of a result, and the scores by number of attractors."""
    if not isinstance(result.metric_value, int | float):
        return
    arguments = result.metric_args if isinstance(result.metric_args, dict) else {}
    key = (result.task_name or result.task_type, result.dataset_name, result.metric_name or result.metric_type)
    decimals = decimals_of(key[2])
    yield key, Value(float(result.metric_value), decimals, arguments.get("interval_95"))
    for attractors, value in (arguments.get("by_attractors") or {}).items():
        name = f"{key[2]}, {attractors} attractor{'s' * (str(attractors) != '1')}"
        yield (*key[:2], name), Value(float(value), decimals)
