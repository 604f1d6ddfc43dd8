"""The interface of a formal task: a vocabulary, and randomly drawn examples, independent of models."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ..core.checks import Count, CountOrZero, build, check_of
from ..core.errors import InputError
from .stream import Stream

if TYPE_CHECKING:
    from datasets import DatasetDict

Target = int | frozenset[int]
SplitChanges = Mapping[str, Mapping[str, Any]]
Kind = Literal["per_step", "next_symbols", "language", "transduction", "delayed", "classification"]
# The maximum number of consecutive draws that repeat earlier examples, if distinct ones are requested.
_MAX_REPEATS = 10_000


class Example(NamedTuple):
    """A string with its targets, in symbol ids.

    Attributes:
        source: the T symbols that a network reads.
        target: the targets: symbols, or sets of possible next symbols. A transduction and a delayed task have any
            number of them, a classification one, every other task T.
        mask: one entry for each target: whether it is scored. Scored targets are also trained on; a language and a
            delayed task train on all targets.
    """

    source: tuple[int, ...]
    target: tuple[Target, ...]
    mask: tuple[bool, ...]

    @property
    def edits(self) -> int | None:
        """The number of edits that turned a member of a language into this non-member; None if unknown."""
        return None

    @property
    def following(self) -> Sequence[frozenset[int]]:
        """If known, the symbols that may follow each prefix in the language of this example alone."""
        return ()


class AnnotatedExample(Example):
    """An example with what is known of its language; it equals one without.

    Attributes:
        edits: the number of edits that turned a member into it, or the fewest that turn it into a member; None if
            unknown.
        following: see `Example.following`.
    """

    edits: int | None = None
    following: Sequence[frozenset[int]] = ()

    @classmethod
    def of(cls, example: Example, **annotations: Any) -> AnnotatedExample:
        """Annotate an example."""
        made = cls(*example)
        vars(made).update(annotations)
        return made

    def _replace(self, **changes: Any) -> AnnotatedExample:
        return self.of(super()._replace(**changes), **vars(self))


@dataclass(frozen=True)
class Split:
    """A part of a task's data: the number and sizes of its examples.

    Attributes:
        number: the number of examples; if `balanced`, of each possible size.
        shortest, longest: the window of sizes, both included, in the task's `unit`.
        balanced: whether all possible sizes come, one after the other, instead of sizes drawn at random.
    """

    number: Count
    shortest: CountOrZero
    longest: CountOrZero
    balanced: bool = False


class Task(ABC):
    """A distribution over examples.

    Attributes:
        name: the name by which `make_task` made it; "" for a task made otherwise.
        paper: its source, such as "Hao et al. 2018".
        kind: the relation of sources and targets:
            "per_step": a target symbol at each step that the mask selects;
            "next_symbols": the set of possible next symbols at each step; a string is right if every set is;
            "language": the source is `<s>` and a string, the target the string and `</s>`: again a symbol at each step,
                whose distribution is to be learned;
            "transduction": from a source to a target of any length, through one of the formats;
            "delayed": from a source to a target of any length, a symbol of it at each blank after the source; the
                network does not read its own outputs;
            "classification": one target, a label of the whole source.
        vocabulary: the symbols of sources; the position of a symbol is its id.
        aliases: other spellings of symbols, as in the released files of a paper.
        default_plan: the paper's splits, by name: "train", "test" and, if the paper has one, "validation".
        plan: the splits of this task: the paper's, with any changes from its constructor.
        unit: the unit of sizes: "length" in symbols, "depth" of a derivation, or a letter that a paper gives a number.
        distinct: whether all sources of a split differ.
        online: whether the paper trains on a stream of new examples, as from `stream`, and not on a fixed set. The
            number of training examples is then that between two evaluations.
        any_continuation: whether an answer is right if it is one of `continuations`, not only if it is the target.
        digest: a digest of the content of the task's files, if any.
        further_scores: further scores of the task, in addition to those of its kind.
        step_reduction: for a "per_step" task whose loss is a sum over steps: the "mean" or the "sum" over the scored
            positions of a batch at one step. None where the loss is the mean over all scored positions.
    """

    name: str = ""
    paper: ClassVar[str] = ""
    kind: Kind = "per_step"
    vocabulary: tuple[str, ...]
    aliases: ClassVar[Mapping[str, str]] = {}
    default_plan: ClassVar[Mapping[str, Split]] = {}
    unit: ClassVar[str] = "length"
    distinct: ClassVar[bool] = False
    online: ClassVar[bool] = False
    any_continuation: ClassVar[bool] = False
    digest: str = ""
    further_scores: ClassVar[tuple[str, ...]] = ()
    step_reduction: ClassVar[Literal["mean", "sum"] | None] = None

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        """Make the task.

        Args:
            splits: changes to the plan: fields of `Split` by the name of the split. A new name adds a split.

        Raises:
            InputError: for a field that a split does not have, or a value that it cannot have.
        """
        self.plan = dict(self.default_plan)
        self.change(splits or {})

    def change(self, splits: SplitChanges) -> None:
        """Change the plan, like the argument of the constructor.

        Raises:
            InputError: for a field that a split does not have, or a value that it cannot have.
        """
        check_changes(splits)
        for name, changes in splits.items():
            self.plan[name] = changed(name, self.plan.get(name), changes)

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        """The symbols of targets, by default those of sources; the position of a symbol is its id."""
        return self.vocabulary

    @abstractmethod
    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw an example of a size.

        Args:
            rng: the only source of randomness, so that a seed gives the same examples everywhere.
            length: the size of the source, in the task's `unit`; one of those in `length_weights`.
        """

    def example(self, string: Sequence[int]) -> Example:
        """The example of an input string; the blanks and `<s>` of sources are added.

        Raises:
            InputError: if the string is not of the task's language, or the task cannot compute targets.
        """
        raise InputError(f"{self} draws strings with their targets, and cannot compute the targets of a given one")

    def continuations(self, example: Example) -> Sequence[frozenset[int]]:
        """Return the symbols that may follow each prefix of a member of a language to recognise; else nothing.

        The end has the id of `<s>`, which begins the source and follows no symbol.

        Raises:
            InputError: if the task is not such a language.
        """
        raise InputError(f"{self} does not say which symbols may follow a prefix, as languages to recognise do")

    def length_weights(self, shortest: int, longest: int) -> Mapping[int, float]:
        """The possible sizes in a window, each with its weight in `draw`; equal weights by default.

        Args:
            shortest: the smallest size in the window, in the task's `unit`.
            longest: the largest.
        """
        return dict.fromkeys(range(shortest, longest + 1), 1.0)

    def draw(
        self,
        rng: random.Random,
        number: int,
        shortest: int,
        longest: int,
        *,
        distinct: bool = False,
        balanced: bool = False,
    ) -> list[Example]:
        """Draw examples whose sizes lie in a window.

        Args:
            rng: source of randomness.
            number: the number of examples; if `balanced`, of each possible size.
            shortest: the smallest size, in the task's `unit`.
            longest: the largest.
            distinct: whether all sources must differ.
            balanced: whether all possible sizes come, one after the other, instead of sizes drawn at random.

        Raises:
            InputError: if no size in the window is possible, or too few distinct examples are found.
        """
        sizes, weights = self.sizes(shortest, longest)
        examples: list[Example] = []
        seen: set[tuple[int, ...]] = set()
        repeats = 0
        while len(examples) < number * (len(sizes) if balanced else 1):
            size = sizes[len(examples) // number] if balanced else rng.choices(sizes, weights)[0]
            example = self.sample(rng, size)
            if distinct and example.source in seen:
                repeats += 1
                if repeats == _MAX_REPEATS:
                    found = f"{len(examples)} distinct strings of {self.unit}s from {shortest} to {longest}"
                    raise InputError(f"{found}, not {number}: {_MAX_REPEATS} draws in a row gave no new one")
                continue
            repeats = 0
            seen.add(example.source)
            examples.append(example)
        return examples

    def sizes(self, shortest: int, longest: int) -> tuple[list[int], list[float]]:
        """The possible sizes in a window, and the weight of each in `draw`.

        Raises:
            InputError: if there are none.
        """
        weights = self.length_weights(shortest, longest) if 0 <= shortest <= longest else {}
        if not weights:
            raise InputError(f"{self} has no string of a {self.unit} from {shortest} to {longest}")
        return list(weights), list(weights.values())

    def splits(self, seed: int) -> dict[str, list[Example]]:
        """The data of the plan, the same for a seed on every machine and in every process.

        Args:
            seed: seed of all splits; each has its own generator, so that changing one split does not affect the others.

        Raises:
            InputError: if a split's window has no strings, or too few.
        """
        return {name: self.split(name, seed) for name in self.plan}

    def split(self, name: str, seed: int) -> list[Example]:
        """One of `splits`.

        Raises:
            InputError: if the plan has no such split, and as `splits` does.
        """
        plan = self.planned(name)
        # A generator seeded with a string depends only on its characters, in every process.
        rng = random.Random(f"{seed}/{name}")
        return self.draw(rng, plan.number, plan.shortest, plan.longest, distinct=self.distinct, balanced=plan.balanced)

    def check_plan(self, seed: int) -> None:
        """Check that such strings exist, drawing no more of them than necessary.

        Raises:
            InputError: if a split's window has no strings, or too few.
        """
        for name, plan in self.plan.items():
            self.sizes(plan.shortest, plan.longest)
            if self.distinct:
                self.split(name, seed)

    def stream(self, name: str, seed: int) -> Stream:
        """An endless stream of examples with the sizes of a split, for training; they may repeat.

        Raises:
            InputError: if the plan has no such split, or its window no strings.
        """
        plan = self.planned(name)
        return Stream(self.sample, *self.sizes(plan.shortest, plan.longest), f"{seed}/{name}/stream")

    def window(self, size: int) -> int:
        """The longest size of the smallest split that contains a size; the size itself if there is none."""
        return min((split.longest for split in self.plan.values() if split.longest >= size), default=size)

    def fill(self, example: Example, longest: int) -> Example:
        """The form of an example in a split of this longest size: unchanged unless padding is part of the task."""
        return example

    def add_scores(self, scores: dict[str, Any], examples: Sequence[Example], split: str) -> dict[str, Any]:
        """Add `further_scores` to a model's scores on examples of a split, also by length."""
        return scores

    def planned(self, name: str) -> Split:
        """A split of the plan.

        Raises:
            InputError: if there is none of that name.
        """
        if name not in self.plan:
            raise InputError(f"{self} has no split {name!r}; it has {', '.join(self.plan) or 'none'}")
        return self.plan[name]

    def datasets(self, seed: int) -> DatasetDict:
        """`splits` as datasets with the columns source, target and mask; sets of symbols are sorted lists."""
        from datasets import Dataset, DatasetDict

        def row(example: Example) -> dict[str, list[Any]]:
            target = [sorted(target) if isinstance(target, frozenset) else target for target in example.target]
            return {"source": list(example.source), "target": target, "mask": list(example.mask)}

        return DatasetDict({name: Dataset.from_list(list(map(row, part))) for name, part in self.splits(seed).items()})

    def read(self, text: str) -> tuple[int, ...]:
        """The ids of symbols separated by spaces.

        Raises:
            InputError: for a symbol that is not in the vocabulary.
        """
        ids = {symbol: number for number, symbol in enumerate(self.vocabulary)}
        string = []
        for symbol in text.split():
            known = self.aliases.get(symbol, symbol)
            if known not in ids:
                raise InputError(f"{symbol!r} is not a symbol of {self}; it has {' '.join(self.vocabulary)}")
            string.append(ids[known])
        return tuple(string)

    def write(self, string: Sequence[int]) -> str:
        """The symbols of ids, separated by spaces."""
        return " ".join(self.vocabulary[number] for number in string)

    def write_targets(self, targets: Sequence[Target]) -> list[str]:
        """The symbols of targets; those of a set are joined like `a/b`, in the order of the vocabulary."""
        sets = [sorted(target) if isinstance(target, frozenset) else [target] for target in targets]
        return ["/".join(self.target_vocabulary[number] for number in numbers) for numbers in sets]

    def __str__(self) -> str:
        return self.name or type(self).__name__


def check_changes(splits: SplitChanges) -> None:
    """Check the form of changes to a plan.

    Raises:
        InputError: if they are not fields and values by name.
    """
    for name, changes in check_of(dict)("splits", splits).items():
        check_of(dict)(f"splits.{name}", changes)


def changed(name: str, split: Split | None, changes: Mapping[str, Any]) -> Split:
    """A split with other values in some fields.

    Args:
        name: its name, for messages.
        split: the split; None for a new one, for which all but `balanced` must be given.
        changes: the values.

    Raises:
        InputError: for a field that a split does not have, or a value that it cannot have.
    """
    result = build(Split, (asdict(split) if split else {}) | dict(changes), f"splits.{name}.")
    if result.shortest > result.longest:
        raise InputError(f"the sizes of {name} must not decrease; got {result.shortest} to {result.longest}")
    return result


class Language(Task):
    """Strings whose next symbols are predicted, from `<s>` to `</s>`; their ids come after those of the other symbols.

    Args:
        symbols: the symbols of the strings.
        splits: changes to the plan (see `Task`).
    """

    kind = "language"

    def __init__(self, symbols: Sequence[str], *, splits: SplitChanges | None = None) -> None:
        super().__init__(splits=splits)
        self.vocabulary = (*symbols, "<s>", "</s>")

    def example(self, string: Sequence[int]) -> Example:
        """See `language_example`."""
        return language_example(self, string)


def unscored_example(task: Task, source: Sequence[int]) -> Example:
    """A source whose targets are unknown: none is scored. A language has its next symbols."""
    if task.kind == "language":
        return language_example(task, source)
    number = {"classification": 1, "transduction": 0, "delayed": 0}.get(task.kind, len(source))
    nothing = frozenset[int]() if task.kind == "next_symbols" else 0
    return Example(tuple(source), (nothing,) * number, (False,) * number)


def language_example(task: Task, string: Sequence[int]) -> Example:
    """A string after `<s>`, and before `</s>`, the last two symbols of the task's vocabulary; all of it is scored.

    Raises:
        InputError: if the string has one of the two.
    """
    begin, end = len(task.vocabulary) - 2, len(task.vocabulary) - 1
    for number in string:
        if number >= begin:
            raise InputError(f"{task.vocabulary[number]} must not occur in a string of {task}")
    return Example((begin, *string), (*string, end), (True,) * (len(string) + 1))
