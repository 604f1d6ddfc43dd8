"""Subject-verb agreement: a model's preference for the right form of a verb over the wrong one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .choices import ChoiceResult, ContinuationModel, OutOfVocabulary, score_in_blocks


@dataclass(frozen=True)
class AgreementItem:
    """One choice between two forms of a verb.

    Attributes:
        prefix: the words before the verb.
        correct, wrong: its two forms.
        n_attractors: number of nouns of the other number between subject and verb, if known.
        number: "singular" or "plural", of the subject, if known.
        construction: the kind of sentence, if there are several.
        distance: number of words from the subject to the verb, if known.
    """

    prefix: tuple[str, ...]
    correct: str
    wrong: str
    n_attractors: int | None = None
    number: str | None = None
    construction: str | None = None
    distance: int | None = None


def evaluate_agreement(
    model: ContinuationModel,
    items: Sequence[AgreementItem],
    *,
    oov: OutOfVocabulary = "skip",
    groups: Mapping[str, Sequence[str | int | None]] | None = None,
    progress: Callable[[int], None] | None = None,
) -> ChoiceResult:
    """Score items: correct means that the right form is strictly more probable than the wrong one.

    Args:
        model: a `SentenceModel`, or a number classifier, whose forms are VBZ and VBP.
        items: see `read_agreement`.
        oov: treatment of items with a form outside the model's vocabulary: "skip" leaves them out, "wrong" counts them
            as incorrect.
        groups: more properties to group by, in addition to attractors, number, construction and distance.
        progress: called with the number of items left out, if there are any, and with that of each block once it is
            scored.

    Raises:
        InputError: if no item is left to score.
    """

    def logprobs_of(block: list[int]) -> Any:
        chosen = [items[i] for i in block]
        return model.continuation_logprobs(
            [item.prefix for item in chosen], [(item.correct, item.wrong) for item in chosen]
        )

    return score_in_blocks(
        model,
        [[(form, not item.prefix) for form in (item.correct, item.wrong)] for item in items],
        [item.correct == item.wrong for item in items],
        logprobs_of,
        agreement_properties(items) | dict(groups or {}),
        oov,
        progress,
    )


def agreement_properties(items: Sequence[AgreementItem]) -> dict[str, Sequence[str | int | None]]:
    """The properties for grouping items: for each item a value, or None."""
    return {
        "attractors": [item.n_attractors for item in items],
        "number": [item.number for item in items],
        "construction": [item.construction for item in items],
        "distance": [item.distance for item in items],
    }
