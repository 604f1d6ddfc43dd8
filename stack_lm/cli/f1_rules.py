"""The convention of `stack-lm parse-f1` with the changes of `--rule`, and notes where it does not fit the treebank."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..core.config_files import parse_overrides
from ..core.console import print_note
from ..core.errors import InputError
from ..core.messages import check_name
from ..parsing.conventions import CONVENTIONS, Convention, get_convention
from ..parsing.evalb import read_parameters
from ..parsing.f1 import GoldTree

_SPANS = ("removed", "removed_by", "gold", "whole_sentence", "average", "labels", "min_words", "without_spans")
_PUNCTUATION = ("kept", "before", "after")
RULES = (*_SPANS, "heads", "punctuation", "parameters")


class Rules(NamedTuple):
    """The rules by which trees are scored.

    Attributes:
        convention: with the changes.
        changes: the changed fields of the convention.
        parameters: EVALB's parameter file; None for none.
        before: punctuation is removed before a model parses, not from its trees.
    """

    convention: Convention
    changes: dict[str, Any]
    parameters: str | None
    before: bool


def read_rules(name: str | None, pairs: Sequence[str]) -> Rules:
    """The rules of a convention with changes.

    Args:
        name: of the convention.
        pairs: KEY=VALUE, with the keys of `RULES`.

    Raises:
        InputError: for an unknown name, key or value, or a change that the convention does not allow.
    """
    if name is None:
        names = ", ".join(CONVENTIONS.registered)
        raise InputError(f"--convention is required, as F1 depends on it: one of {names} (docs/parse_f1.md)")
    base, changes = get_convention(name), parse_overrides(pairs)
    for key, value in changes.items():
        check_name("--rule", key, RULES)
        kind = int if key == "min_words" else str
        if not isinstance(value, kind):
            raise InputError(f"--rule {key} must be {'a whole number' if kind is int else 'a name'}; got {value!r}")
    parameters, punctuation = changes.pop("parameters", None), changes.pop("punctuation", None)
    if parameters:
        if base.name != "evalb":
            raise InputError(f"--rule parameters needs --convention evalb; got {base.name}")
        base = read_parameters(parameters)
    if punctuation is not None:
        check_name("--rule punctuation", punctuation, _PUNCTUATION)
        if punctuation == "kept" and "removed" in changes:
            raise InputError(f"--rule punctuation=kept and removed={changes['removed']} contradict each other")
        if punctuation == "kept":
            changes["removed"] = "nothing"
        elif base.removed == "nothing":
            changes.setdefault("removed", "punctuation+currency")
    changes = {key: value for key, value in changes.items() if value != getattr(base, key)}
    convention = dataclasses.replace(base, **changes)
    if "removed_by" in changes and convention.removed == "nothing":
        raise InputError(f"--rule removed_by is for words that are removed; {base.name} with these rules removes none")
    return Rules(convention, changes, parameters, punctuation == "before")


def note_unknown_marks(gold: Sequence[GoldTree], convention: Convention) -> None:
    """Print a note if the convention does not know most of the tags of the punctuation that it removes."""
    if not convention.removed.startswith("punctuation") or convention.removed_by != "tags":
        return
    by_token, marks = dataclasses.replace(convention, removed_by="tokens"), 0
    counted: Counter[str] = Counter()
    for item in gold:
        if (tags := item.annotated.word_tags) is not None:
            for tag, kept, is_word in zip(tags, item.kept, by_token.kept(item.annotated.words, tags), strict=True):
                marks += not is_word
                counted.update([tag] * (kept and not is_word))
    if 2 * counted.total() > marks:
        print_note(
            f"the convention does not know the tags ({', '.join(tag for tag, _ in counted.most_common(5))}) of "
            f"{counted.total():,} of {marks:,} punctuation marks, which count as words; --rule removed_by=tokens "
            "removes them by their form"
        )
