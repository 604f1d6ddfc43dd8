"""EVALB's parameter files (.prm) as conventions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from stack_lm.data.text import read_lines
from stack_lm.errors import InputError
from stack_lm.messages import check_name

from .conventions import Convention, get_convention

# Keywords, and the number of values of each.
_KEYWORDS = {
    "DEBUG": 1,
    "MAX_ERROR": 1,
    "CUTOFF_LEN": 1,
    "LABELED": 1,
    "DISC_ONLY": 1,
    "DELETE_LABEL": 1,
    "DELETE_LABEL_FOR_LENGTH": 1,
    "QUOTE_LABEL": 1,
    "EQ_LABEL": 2,
    "EQ_WORD": 2,
}
_NUMBERS = ("DEBUG", "MAX_ERROR", "CUTOFF_LEN", "LABELED", "DISC_ONLY")


def read_parameters(path: str) -> Convention:
    """The convention `evalb` with the settings of a parameter file, such as EVALB's COLLINS.prm.

    DELETE_LABEL, EQ_LABEL, EQ_WORD, LABELED, CUTOFF_LEN and DELETE_LABEL_FOR_LENGTH have EVALB's meaning. DEBUG and
    MAX_ERROR are read and have no effect. Neither has QUOTE_LABEL: it handles words that are deleted by their tag in
    one tree only, and here the gold tree's tags decide for both trees.

    NOTE: labels that are equal to one label are equal to each other, even through EQ_LABEL lines that form a chain;
        EVALB compares pair by pair. Traces (-NONE-) never count, because they are left out when trees are read.

    Raises:
        InputError: for a missing file, an unknown keyword or an invalid value; the message names the line.
    """
    deleted, uncounted = set(), set()
    equal: dict[str, dict[str, str]] = {"EQ_LABEL": {}, "EQ_WORD": {}}
    changes: dict[str, Any] = {}
    for number, line in read_lines(path):
        where = f"{path}, line {number}"
        keyword, *values = line.split()
        if keyword.startswith("#"):
            continue
        check_name(f"{where}: keyword", keyword, _KEYWORDS)
        if len(values) != _KEYWORDS[keyword]:
            raise InputError(f"{where}: {keyword} takes {_KEYWORDS[keyword]} value(s); got {len(values)}")
        if keyword in _NUMBERS:
            if not re.fullmatch(r"-?\d{1,15}", values[0]):
                raise InputError(f"{where}: {keyword} must be a whole number; got {values[0]!r}")
            changes |= _setting(keyword, int(values[0]), where)
        elif keyword == "DELETE_LABEL":
            deleted.add(values[0])
        elif keyword == "DELETE_LABEL_FOR_LENGTH":
            uncounted.add(values[0])
        elif keyword in equal:
            _make_equal(equal[keyword], *values)
    labels = equal["EQ_LABEL"]
    return replace(
        get_convention("evalb"),
        source=f"EVALB with {path}",
        deleted_labels=frozenset(deleted | {labels.get(label, label) for label in deleted}),
        uncounted_tags=frozenset(uncounted),
        equal_labels=labels,
        equal_words=equal["EQ_WORD"],
        **changes,
    )


def _setting(keyword: str, value: int, where: str) -> dict[str, Any]:
    if keyword == "LABELED":
        return {"labels": "compared" if value else "ignored"}
    if keyword == "CUTOFF_LEN":
        return {"cutoff": value}
    if keyword == "DISC_ONLY" and value:
        raise InputError(f"{where}: DISC_ONLY must be 0: trees with discontinuous phrases cannot be read")
    return {}


def _make_equal(names: dict[str, str], one: str, other: str) -> None:
    """Map all names equal to either to the first."""
    first, second = names.get(one, one), names.get(other, other)
    for name in [name for name, stands_for in names.items() if stands_for == second]:
        names[name] = first
    names[one] = names[second] = names[other] = first
