"""The kinds of tasks: a network's inputs and outputs for an example, and the scores, without tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..core.errors import InputError
from .base import Example, Task
from .formats import DelimitedFormat, Transduction
from .scores import Score, before_the_first_error, cross_entropy, of_first, of_strings, of_symbols

NULL, BEGIN, SEPARATOR, END, PAD = "#", "<s>", "|||", "</s>", "<pad>"


class PerStep:
    """Tasks with a target symbol at each step (Hao et al. 2018).

    Args:
        task: a task of the kind.

    Attributes:
        symbols: the symbols of the inputs; the position of a symbol is its token id.
        answers: the symbols of the outputs, likewise.
        scores: the scores, by name.
        shown: the scores of a table that names none; early stopping uses the first.
        distribution: whether a network learns the probabilities of all symbols, not only of the scored ones; lower
            values of the first score are then better.
        no_label: the label after a string's end.
    """

    scores: ClassVar[Mapping[str, Score]] = {"accuracy": of_symbols}
    shown: ClassVar[tuple[str, ...]] = ("accuracy",)
    distribution: ClassVar[bool] = False
    no_label: ClassVar[int] = 0

    def __init__(self, task: Task) -> None:
        self.symbols, self.answers = tuple(task.vocabulary), tuple(task.target_vocabulary)

    def row(self, example: Example) -> Example:
        """An example for a network: its inputs, a label for each of its outputs, and whether each counts."""
        return example

    def trained(self, example: Example, row: Example) -> Sequence[bool]:
        """Select the outputs of an example's row for training: those that count."""
        return row.mask


class NextSymbols(PerStep):
    """Tasks with the set of possible next symbols at each step; labels have 0 or 1 for each symbol.

    A string is right if every set is (Suzgun et al. 2019, section 4.1).
    """

    scores: ClassVar[Mapping[str, Score]] = {"accuracy": of_strings}
    no_label = False

    def row(self, example: Example) -> Example:
        symbols = range(len(self.answers))
        k_hot = [[symbol in following for symbol in symbols] for following in example.target]  # type: ignore[operator]
        return example._replace(target=tuple(k_hot))  # type: ignore[arg-type]


class NextSymbol(PerStep):
    """Languages: at each step the next symbol, or the end, is predicted.

    `nats` is the cross-entropy of a symbol; `accuracy` is the share of strings whose determined symbols are all the
    most probable ones (Joulin and Mikolov 2015, section 5.1).

    Args:
        task: a task of the kind.
        one_boundary: whether `<s>` also ends strings, so that there is one symbol fewer.
    """

    scores: ClassVar[Mapping[str, Score]] = {"nats": cross_entropy, "accuracy": of_strings}
    shown = ("nats",)
    distribution = True

    def __init__(self, task: Task, *, one_boundary: bool = False) -> None:
        super().__init__(task)
        self.one_boundary = one_boundary
        if one_boundary:
            self.symbols = self.answers = self.symbols[:-1]

    def row(self, example: Example) -> Example:
        if not self.one_boundary:
            return example
        return example._replace(target=(*example.target[:-1], len(self.symbols) - 1))

    def trained(self, example: Example, row: Example) -> Sequence[bool]:
        """Select all outputs."""
        return (True,) * len(row.mask)


class Joined(PerStep):
    """Transductions: `<s> source ||| target </s>`, each symbol of which is the answer to those before it.

    `coarse` is the share of targets, with their ends, that are right as a whole. `fine` is the mean share of a target,
    with its end, before the first error (Grefenstette et al. 2015, section 4.3). `first` is the share of targets whose
    first symbol is right (McCoy et al. 2020, section 3.4).
    NOTE: Grefenstette et al. (2015) have an input and an output vocabulary; a language model has one.
    """

    scores: ClassVar[Mapping[str, Score]] = {"coarse": of_strings, "fine": before_the_first_error, "first": of_first}
    shown = ("coarse", "fine")

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.symbols = self.answers = (*self.symbols, BEGIN, SEPARATOR, END)
        begin, separator, end = range(len(self.symbols) - 3, len(self.symbols))
        self.format = DelimitedFormat(separator, end, begin)

    def row(self, example: Example) -> Example:
        joined, _ = self.format.row(Transduction(example.source, example.target))  # type: ignore[arg-type]
        counted = (False,) * (len(joined) - len(example.mask) - 2) + (*example.mask, True)
        return Example(tuple(joined[:-1]), tuple(joined[1:]), counted)


class Delayed(PerStep):
    """Tasks that read the source, then a blank for each symbol of the target, and answer there.

    Training uses the whole target; scores use the positions in the mask (Delétang et al. 2023).
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.symbols = (*self.symbols, NULL)

    def row(self, example: Example) -> Example:
        source, target, mask = example
        unanswered = len(source)
        blanks = (len(self.symbols) - 1,) * len(target)
        return Example(source + blanks, (0,) * unanswered + target, (False,) * unanswered + mask)

    def trained(self, example: Example, row: Example) -> Sequence[bool]:
        """Select the outputs after the source."""
        return (False,) * len(example.source) + (True,) * len(example.target)


class Classified(PerStep):
    """Tasks with one label for the whole string, answered after its last symbol; `nats` is the label's cross-entropy.

    A separate symbol pads the strings of a batch, so that the model finds the last symbol.
    """

    scores: ClassVar[Mapping[str, Score]] = {"accuracy": of_symbols, "nats": cross_entropy}

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.symbols = (*self.symbols, PAD)


KINDS: dict[str, type[PerStep]] = {
    "per_step": PerStep,
    "next_symbols": NextSymbols,
    "language": NextSymbol,
    "transduction": Joined,
    "delayed": Delayed,
    "classification": Classified,
}


def check_declared(task: Task) -> None:
    """Reject a task of an unknown kind, or whose vocabulary is empty or has a symbol twice.

    Raises:
        InputError: naming the existing kinds, or the vocabulary.
    """
    kind = getattr(task, "kind", None)
    if kind not in KINDS:
        raise InputError(f"{task}: the kind of a task must be one of {', '.join(KINDS)}; got {kind!r}")
    symbols = getattr(task, "vocabulary", ())
    if not symbols or len(set(symbols)) < len(symbols):
        raise InputError(f"{task}: the vocabulary of a task must be different symbols; got {symbols!r}")


def score_names(task: Task) -> tuple[str, ...]:
    """The scores of a task's splits, by name."""
    return (*KINDS[task.kind].scores, *task.further_scores)
