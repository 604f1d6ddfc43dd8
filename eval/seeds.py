"""Several training runs of one model on the same items: their spread, and a test against the runs of another model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from stack_lm.core.errors import InputError

from .choices import ChoiceResult, in_order

Key = tuple[str, str | int]  # a property of items and its value
ALL: Key = ("all", "")
# Below any possible difference, in percentage points or nats; means of thirds differ by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spread:
    """A score of several runs: accuracies are in percent.

    Attributes:
        runs: the score of each run; accuracies are on the items that it scored.
        mean, sd, min, median, max: over the runs; the sd is that of a sample, NaN for one run.
    """

    runs: tuple[float, ...]
    mean: float
    sd: float
    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Compute the spread of at least one value."""
        scores = np.asarray(values, dtype=float)
        sd = float(scores.std(ddof=1)) if len(scores) > 1 else float("nan")
        return cls(tuple(scores.tolist()), float(scores.mean()), sd, *np.quantile(scores, (0, 0.5, 1)).tolist())


@dataclass(frozen=True)
class MeanDifference:
    """A difference of two models, with Student's t.

    Attributes:
        difference: the first model's mean minus the second's.
        low, high: its interval of 95%; NaN if the models differ, but neither runs nor items have any variance.
        p_value: two-sided; NaN likewise.
        degrees: degrees of freedom of Student's t.
    """

    difference: float
    low: float
    high: float
    p_value: float
    degrees: float


@dataclass(frozen=True)
class SeedComparison(MeanDifference):
    """The mean accuracies of two models' runs on the same items, in percentage points.

    Attributes:
        n_items: items that all runs scored.
    """

    n_items: int


def spreads(results: Sequence[ChoiceResult]) -> dict[Key, Spread]:
    """The spread of accuracies over runs, for all items and by property and value.

    Args:
        results: the results of each run, on the same items.
    """
    spread: dict[Key, Spread] = {ALL: Spread.of([result.accuracy for result in results])}
    for name, value in _groups(results):
        values = [result.groups[name][value].accuracy for result in results if value in result.groups.get(name, {})]
        spread[name, value] = Spread.of(values)
    return spread


def compare_runs(first: Sequence[ChoiceResult], second: Sequence[ChoiceResult]) -> dict[Key, SeedComparison]:
    """Compare the runs of two models, on all items and by property and value; see `compare_seeds`.

    Args:
        first: results of the first model's runs.
        second: results of the second model's runs, on the same items.

    Raises:
        InputError: as `compare_seeds`.
    """
    codes = [np.stack([result.correct for result in side]) for side in (first, second)]
    comparisons: dict[Key, SeedComparison] = {ALL: compare_seeds(*codes)}
    for name, value in _groups(first):
        values = next(result.properties[name] for result in first if name in result.properties)
        among = np.array([item == value for item in values])
        if (np.concatenate(codes)[:, among] >= 0).all(axis=0).sum() >= 2:
            comparisons[name, value] = compare_seeds(*(part[:, among] for part in codes))
    return comparisons


def compare_seeds(first: np.ndarray, second: np.ndarray) -> SeedComparison:
    """Test whether two models differ in accuracy, over training runs and items: the quasi-F ratio min F' (Clark 1973).

    Runs and items are both samples: other runs and other items would give another difference D. F1 = D^2 / SE1^2 is for
    means over runs (Welch's test, because the runs of two models are not paired), F2 = D^2 / SE2^2 for means over items
    (paired), and min F' = D^2 / (SE1^2 + SE2^2). Its root is compared with Student's t, with degrees of freedom by
    Satterthwaite. The common variance of runs and items is in both errors, so the test is conservative.

    Args:
        first: for each run and item [runs, items], 1 if correct, 0 if not, -1 if not scored.
        second: likewise for the other model's runs.

    Raises:
        InputError: if a model has only one run, or fewer than two items were scored by all runs.
    """
    first, second = np.asarray(first), np.asarray(second)
    if min(len(first), len(second)) < 2:
        raise InputError(
            f"a test over training runs needs two runs or more of each model; got {len(first)} and {len(second)}"
        )
    scored = (np.concatenate((first, second)) >= 0).all(axis=0)
    if scored.sum() < 2:
        raise InputError(f"fewer than two items were scored by all {len(first) + len(second)} runs")
    sides = [100.0 * side[:, scored] for side in (first, second)]
    by_item = sides[0].mean(axis=0) - sides[1].mean(axis=0)
    test = quasi_f([side.mean(axis=1) for side in sides], by_item)
    low, high = np.clip((test.low, test.high), -100, 100).tolist()  # with few runs Student's t goes beyond
    return SeedComparison(test.difference, low, high, test.p_value, test.degrees, int(scored.sum()))


def quasi_f(by_run: Sequence[np.ndarray], by_item: np.ndarray) -> MeanDifference:
    """Test a difference of two models over runs and items by min F'; see `compare_seeds`.

    Args:
        by_run: for each model, the mean score of each run [runs]. For models with one run the test is over items alone.
        by_item: for each of two or more items, the difference of the models' means over runs [items].
    """
    difference = float(by_item.mean())
    # Variances of the mean, each with its degrees of freedom.
    parts = [(float(means.var(ddof=1)) / len(means), len(means) - 1) for means in by_run if len(means) > 1]
    parts.append((float(by_item.var(ddof=1)) / len(by_item), len(by_item) - 1))
    variance = sum(part for part, _ in parts)
    if variance < _ROUNDING**2:
        # Runs and items without any variance do not show how much others would vary.
        differs = abs(difference) > _ROUNDING
        bound, p_value = (float("nan"), float("nan")) if differs else (difference, 1.0)
        return MeanDifference(difference, bound, bound, p_value, np.inf)
    degrees = variance**2 / sum(part**2 / df for part, df in parts)
    error = variance**0.5
    margin = float(stdtrit(degrees, 0.975)) * error
    p_value = 2 * float(stdtr(degrees, -abs(difference) / error))
    return MeanDifference(difference, difference - margin, difference + margin, p_value, float(degrees))


def record(entries: dict[Key, Any]) -> dict[str, Any]:
    """Spreads or comparisons for JSON: those for all items, and the others under "by"."""
    by: dict[str, dict[str, Any]] = {}
    for (name, value), entry in entries.items():
        if (name, value) != ALL:
            by.setdefault(name, {})[str(value)] = asdict(entry)
    return asdict(entries[ALL]) | {"by": by}


def _groups(results: Sequence[ChoiceResult]) -> Iterator[Key]:
    """The properties and values of all runs."""
    for name in dict.fromkeys(name for result in results for name in result.groups):
        values = dict.fromkeys(value for result in results for value in result.groups.get(name, ()))
        yield from ((name, value) for value in sorted(values, key=in_order))
