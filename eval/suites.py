"""Suites of regions: predictions about surprisals, in SyntaxGym's format (Gauthier et al. 2020; Hu et al. 2020)."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stack_lm.core.errors import InputError, fail
from stack_lm.core.messages import check_name, shortened, unknown_name
from stack_lm.core.trace import SentenceModel
from stack_lm.text.formats import format_of, read_rows
from stack_lm.text.plain import json_value, read_text

from .choices import Accuracy, mean_of
from .significance import binomial_interval

METRICS = ("sum", "mean")
"""A region's surprisal: the sum or the mean over its tokens."""
# The circuits of Hu et al. (2020), by how the names of their suites begin.
_CIRCUITS = {
    "number": "agreement",
    "npi": "licensing",
    "reflexive": "licensing",
    "fgd_": "long-distance dependencies",
    "cleft": "long-distance dependencies",
    "npz": "garden-path effects",
    "mvrr": "garden-path effects",
    "subordination": "gross syntactic state",
    "center_embed": "center embedding",
}
_CSV_COLUMNS = ("item_number", "condition_name", "region_number", "content")
_REGION = re.compile(r"\(\s*(\d+|\*)\s*;\s*%([^%]+)%\s*\)")
_OPERATORS = {"[": "(", "]": ")", "&": " and ", "|": " or ", "=": "=="}
_COMPARE: dict[type, Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    # SyntaxGym's tolerance, in bits.
    ast.Eq: lambda a, b: abs(a - b) <= 1e-3 + 1e-5 * abs(b),
}


class Formula:
    """A prediction: comparisons of sums and differences of regions' surprisals, joined by & and |, grouped by [ ].

    Args:
        text: such as "(7;%match%) < (7;%mismatch%)"; the region * is the whole sentence.

    Attributes:
        text: the same.
        regions: region and condition of each term, in order.

    Raises:
        InputError: for a text that is no such formula.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.regions = _REGION.findall(text)
        # The rest is Python's own syntax of expressions, once each term is a name.
        names = iter(range(len(self.regions)))
        source = _REGION.sub(lambda _: f" r{next(names)} ", text)
        source = re.sub(r"[\[\]&|]|(?<![<>=])=(?!=)", lambda match: _OPERATORS[match[0]], source)
        try:
            self._tree = ast.parse(source.strip(), mode="eval").body
            self([0.0] * len(self.regions))
        except (SyntaxError, ValueError, LookupError, RecursionError):
            raise InputError(f"not a formula: {shortened(text, 200)!r}; one is '(2;%good%) < (2;%bad%)'") from None

    def __call__(self, values: Sequence[float]) -> bool:
        """Whether the prediction holds, given the surprisal of each of `regions`, in bits."""

        def number(node: ast.AST) -> float:
            match node:
                case ast.Name(id=name):
                    return values[int(name[1:])]
                case ast.Constant(value=int() | float() as value):
                    return value
                case ast.BinOp(left=left, op=ast.Add(), right=right):
                    return number(left) + number(right)
                case ast.BinOp(left=left, op=ast.Sub(), right=right):
                    return number(left) - number(right)
            raise ValueError

        def holds(node: ast.AST) -> bool:
            match node:
                case ast.BoolOp(op=op, values=parts):
                    return (all if isinstance(op, ast.And) else any)([holds(part) for part in parts])
                case ast.Compare(left=left, ops=[op], comparators=[right]):
                    return _COMPARE[type(op)](number(left), number(right))
            raise ValueError

        return holds(self._tree)


@dataclass(frozen=True)
class SuiteItem:
    """An item: the text of each region, by its number, of each condition, by its name."""

    number: str
    conditions: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Suite:
    """Items, and predictions about them.

    Attributes:
        name: the name of the file, without its ending.
        metric: one of `METRICS`.
        formulas: the predictions.
        items: at least one.
    """

    name: str
    metric: str
    formulas: tuple[Formula, ...]
    items: tuple[SuiteItem, ...]

    @property
    def circuit(self) -> str | None:
        """The circuit in Hu et al. (2020); None for a suite that they do not count."""
        return next((circuit for start, circuit in _CIRCUITS.items() if self.name.startswith(start)), None)


@dataclass(frozen=True, eq=False)
class SuiteResult:
    """The predictions of a suite that hold.

    Attributes:
        suite: the suite.
        surprisals: of each item, by condition and region, in bits.
        holds: whether each prediction of each item holds [items, predictions].
        unknown: whether a region of a prediction has a word outside the vocabulary [items].
    """

    suite: Suite
    surprisals: Sequence[Mapping[str, Mapping[str, float]]]
    holds: np.ndarray
    unknown: np.ndarray

    @property
    def accuracy(self) -> Accuracy:
        """The share of items whose predictions all hold, in percent, with its exact binomial interval."""
        n_right, n = int(self.holds.all(1).sum()), len(self.holds)
        return Accuracy(100 * n_right / n, *binomial_interval(n_right, n), n, None)

    @property
    def by_prediction(self) -> float:
        """The mean over predictions of the share of items for which each holds, in percent."""
        return 100 * float(self.holds.mean())


def mean_accuracy(results: Sequence[SuiteResult]) -> Accuracy:
    """The mean of suites' accuracies, each with the same weight, with the interval of stratified sampling."""
    accuracies = [result.accuracy for result in results]
    return accuracies[0] if len(accuracies) == 1 else mean_of(accuracies)


def evaluate_suite(model: SentenceModel, suite: Suite, *, progress: Callable[[int], None] | None = None) -> SuiteResult:
    """Test the predictions of a suite.

    A region's surprisal is that of its words in the sentence, which is the regions joined by spaces; 0 for an empty
    region. Without a beginning token the first word counts nothing.

    Args:
        model: a `SentenceModel`.
        suite: see `read_suite`.
        progress: called with the number of items, at the end.
    """
    places = [(i, condition) for i, item in enumerate(suite.items) for condition in item.conditions]
    regions = [suite.items[i].conditions[condition] for i, condition in places]
    traces = model.trace([" ".join(texts.values()).split() for texts in regions])
    surprisals: list[dict[str, dict[str, float]]] = [{} for _ in suite.items]
    unknown: list[dict[tuple[str, str], bool]] = [{} for _ in suite.items]
    for (i, condition), texts, trace in zip(places, regions, traces, strict=True):
        bits, counts = np.nan_to_num(-trace.logprobs / math.log(2)), trace.n_tokens
        stops = np.cumsum([len(text.split()) for text in texts.values()])
        parts = {name: slice(start, stop) for name, start, stop in zip(texts, [0, *stops], stops, strict=False)}
        values = surprisals[i][condition] = {}
        for name, part in (parts | {"*": slice(None)}).items():
            size = 1 if suite.metric == "sum" else max(1, int(counts[part].sum()))
            values[name] = float(bits[part].sum()) / size
            unknown[i][name, condition] = bool(trace.unknown[part].any())
    if progress is not None:
        progress(len(suite.items))
    holds = [
        [formula([of_item[condition][region] for region, condition in formula.regions]) for formula in suite.formulas]
        for of_item in surprisals
    ]
    terms = {term for formula in suite.formulas for term in formula.regions}
    return SuiteResult(suite, surprisals, np.array(holds), np.array([any(map(of.get, terms)) for of in unknown]))


def read_suite(path: str | Path, formulas: Sequence[str] = ()) -> Suite:
    """Read a suite.

    Args:
        path: SyntaxGym's JSON; or a .csv with the columns item_number, condition_name, region_number and content.
        formulas: the predictions; none takes those of the file, and a .csv has none.

    Raises:
        InputError: for another format, an unknown metric, a formula that is none, or one that names a condition or
            region that an item lacks.
    """
    metric, given, items = (_read_csv if format_of(path) == "csv" else _read_json)(path)
    check_name(f"{path}: metric", metric, METRICS)
    predictions = tuple(_formula(path, text) for text in formulas or given)
    if not predictions:
        raise InputError(f"{path} has no formula" + ("; give one by --formula" if not given else ""))
    for item in items:
        where = f"{path}, item {item.number}"
        for region, condition in (term for formula in predictions for term in formula.regions):
            if condition not in item.conditions:
                raise unknown_name(f"{where}: the condition of a formula", condition, item.conditions)
            if region not in ("*", *item.conditions[condition]):
                raise unknown_name(f"{where}: the region of a formula", region, item.conditions[condition])
    return Suite(Path(path).name.split(".")[0], metric, predictions, items)


def _formula(path: str | Path, text: str) -> Formula:
    try:
        return Formula(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _read_json(path: str | Path) -> tuple[str, list[str], tuple[SuiteItem, ...]]:
    content = json_value(read_text(path), str(path))
    try:
        rows = [
            (str(item["item_number"]), condition["condition_name"], str(region["region_number"]), region["content"])
            for item in content["items"]
            for condition in item["conditions"]
            for region in condition["regions"]
        ]
        metric = content.get("meta", {}).get("metric", "sum")
        formulas = [prediction["formula"] for prediction in content["predictions"]]
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"no {error}" if isinstance(error, KeyError) else "it is built otherwise"
        raise InputError(f"{path} is not a suite of SyntaxGym: {missing}") from None
    return metric, formulas, _items(path, rows)


def _read_csv(path: str | Path) -> tuple[str, list[str], tuple[SuiteItem, ...]]:
    rows = []
    for number, row in read_rows(path, None, fail, "csv")[1]:
        if not isinstance(row, dict):  # an empty row
            continue
        if missing := [name for name in _CSV_COLUMNS if name not in row]:
            raise InputError(f"{path}, row {number}: a suite needs the column {missing[0]!r}")
        rows.append(tuple(row[name] or "" for name in _CSV_COLUMNS))
    return "sum", [], _items(path, rows)


def _items(path: str | Path, rows: Sequence[tuple[Any, ...]]) -> tuple[SuiteItem, ...]:
    """The items of rows of item, condition, region and text."""
    items: dict[str, dict[str, dict[str, str]]] = {}
    for item, condition, region, text in rows:
        if not all(isinstance(value, str) for value in (condition, text)):
            raise InputError(f"{path}, item {item}: a condition and a region's content must be texts")
        regions = items.setdefault(item, {}).setdefault(condition, {})
        if region in regions:
            raise InputError(f"{path}, item {item}, condition {condition!r}: two regions {region}")
        regions[region] = text
    for item, conditions in items.items():
        for condition, regions in conditions.items():
            if not " ".join(regions.values()).strip():
                raise InputError(f"{path}, item {item}: the condition {condition!r} has no words")
    if not items:
        raise InputError(f"{path} has no items")
    return tuple(SuiteItem(number, conditions) for number, conditions in items.items())
