"""EVALB's parameter files (.prm) as conventions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from stack_lm.core.errors import InputError
from stack_lm.text.plain import read_lines

from .conventions import Convention, get_convention


def read_parameters(path: str) -> Convention:
    """The convention `evalb` with the settings of a parameter file, such as EVALB's COLLINS.prm.

    DELETE_LABEL, EQ_LABEL, EQ_WORD, LABELED, CUTOFF_LEN and DELETE_LABEL_FOR_LENGTH have EVALB's meaning. DEBUG and
    MAX_ERROR are read and have no effect. Neither has QUOTE_LABEL, with a warning: it handles words that are deleted by
    their tag in one tree only, and here the gold tree's tags decide for both trees.

    NOTE: labels that are equal to one label are equal to each other, even through EQ_LABEL lines that form a chain;
        EVALB compares pair by pair. Traces (-NONE-) never count, because they are left out when trees are read.

    Raises:
        InputError: for a missing file, an unknown keyword, an invalid value, or DISC_ONLY (trees with discontinuous
            phrases cannot be read); the message names the line.
    """
    deleted, uncounted = set(), set()
    equal: dict[str, dict[str, str]] = {"EQ_LABEL": {}, "EQ_WORD": {}}
    changes: dict[str, Any] = {}
    for number, line in read_lines(path):
        match line.split():
            case ["LABELED", ("0" | "1") as compared]:
                changes["labels"] = "compared" if compared == "1" else "ignored"
            case ["CUTOFF_LEN", length] if length.isdecimal():
                changes["cutoff"] = int(length)
            case ["DELETE_LABEL", label]:
                deleted.add(label)
            case ["DELETE_LABEL_FOR_LENGTH", tag]:
                uncounted.add(tag)
            case [("EQ_LABEL" | "EQ_WORD") as keyword, first, second]:
                _make_equal(equal[keyword], first, second)
            case ["QUOTE_LABEL", label]:
                warnings.warn(f"{path}, line {number}: QUOTE_LABEL {label} has no effect", stacklevel=2)
            case ["DEBUG" | "MAX_ERROR", _] | ["DISC_ONLY", "0"]:
                pass
            case [keyword, *_] if not keyword.startswith("#"):
                raise InputError(f"{path}, line {number}: no setting of EVALB that can be used: {line.strip()!r}")
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


def _make_equal(names: dict[str, str], one: str, other: str) -> None:
    """Map all names equal to either to the first."""
    first, second = names.get(one, one), names.get(other, other)
    for name in [name for name, stands_for in names.items() if stands_for == second]:
        names[name] = first
    names[one] = names[second] = names[other] = first
