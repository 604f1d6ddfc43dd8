"""Question formation and tense reinflection, whose training strings fit a linear and a hierarchical rule.

McCoy et al. (2020), sections 2 and 3; words, rules and weights are those of the released grammars. The split
`generalization` has only strings on which the two rules differ; the other splits have none of them.

NOTE: each sentence has either instruction, equally likely, before strings on which the rules differ are left out; that
    gives the released shares of questions (0.4) and of the present tense (0.42). Strings may repeat. Released questions
    of the generalization set have auxiliaries of one number, one of them negated, and no relative clause on the object.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from ...core.errors import InputError
from ..base import Example, Split, SplitChanges, Task
from ..grammars import ByLength, Grammar
from ..registry import register_task

GENERALIZATION = "generalization"
_SINGULAR = "newt orangutan peacock quail raven salamander tyrannosaurus unicorn vulture walrus xylophone".split()
_SINGULAR += ["yak", "zebra"]
_PLURAL = [noun + ("es" if noun.endswith("us") else "s") for noun in _SINGULAR]
_INTRANSITIVE = "giggle smile sleep swim wait move change read eat".split()
_TRANSITIVE = "entertain amuse high_five applaud confuse admire accept remember comfort".split()
_IRREGULAR = {"sleep": "slept", "swim": "swam", "read": "read", "eat": "ate"}
_PAST = {verb: _IRREGULAR.get(verb, verb.removesuffix("e") + "ed") for verb in (*_INTRANSITIVE, *_TRANSITIVE)}
_WORDS = {
    "D": "the some my your our her".split(),
    "P": "around near with upon by behind above below".split(),
    "R": ["who", "that"],
    "s": _SINGULAR,
    "p": _PLURAL,
}
_OTHER = {"s": "p", "p": "s"}
_Rules = Mapping[str, Mapping[str, float]]


class _Transformation(Task):
    """From a sentence and its instruction to a sentence. In the grammars a letter is a class of equally likely words.

    Args:
        splits: changes of the plan (see `Task`).
    """

    paper = "McCoy et al. 2020"
    kind = "transduction"
    default_plan: ClassVar = {
        "train": Split(100_000, 1, 20),
        "validation": Split(1_000, 1, 20),
        "test": Split(10_000, 1, 20),
        GENERALIZATION: Split(10_000, 1, 20),
    }
    words: ClassVar[Mapping[str, Sequence[str]]]
    others: ClassVar[Sequence[str]]
    rules: ClassVar[_Rules]
    # The sources of training, of generalization, and all, from these rules.
    roots: ClassVar[Mapping[str, Mapping[str, float]]]

    def __init__(self, *, splits: SplitChanges | None = None) -> None:
        super().__init__(splits=splits)
        classes = {word: letter for letter, words in self.words.items() for word in words}
        self.vocabulary = tuple(dict.fromkeys((*classes, *self.others)))
        self._classes = [classes.get(word, word) for word in self.vocabulary]

    @cached_property
    def _sources(self) -> dict[str, ByLength]:
        return {name: ByLength(Grammar({"ROOT": root, **self.rules})) for name, root in self.roots.items()}

    def length_weights(self, shortest: int, longest: int) -> dict[int, float]:
        """The lengths of training sources, with their probabilities."""
        return self._lengths("train", shortest, longest)

    def _lengths(self, name: str, shortest: int, longest: int) -> dict[int, float]:
        weights = {length: self._sources[name].weight(length) for length in range(shortest, longest + 1)}
        return {length: weight for length, weight in weights.items() if weight}

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw a source of training."""
        return self._draw(rng, "train", length)

    def _draw(self, rng: random.Random, name: str, length: int) -> Example:
        words = [rng.choice(self.words.get(letter, [letter])) for letter in self._sources[name].draw(rng, length)]
        return self._pair(words)

    def split(self, name: str, seed: int) -> list[Example]:
        """See `Task.split`; `generalization` has a grammar of its own."""
        if name != GENERALIZATION:
            return super().split(name, seed)
        plan, rng = self.planned(name), random.Random(f"{seed}/{name}")
        weights = self._lengths(name, plan.shortest, plan.longest)
        lengths = rng.choices(list(weights), list(weights.values()), k=plan.number)
        return [self._draw(rng, name, length) for length in lengths]

    def example(self, string: Sequence[int]) -> Example:
        """A sentence with its instruction, of any split."""
        if not self._sources["all"].grammar.derives([self._classes[number] for number in string]):
            raise InputError(f"not a sentence of {self} with its instruction: {self.write(string)}")
        return self._pair([self.vocabulary[number] for number in string])

    def _pair(self, words: list[str]) -> Example:
        letters = [self._classes[number] for number in self.read(" ".join(words))]
        # Auxiliaries come before each verb, in one of the tasks.
        extra = 4 + (self.auxiliaries if letters[2] == "R" else 0)
        end = {"P": 5, "R": extra if letters[extra - 1] == "I" else extra + 2}.get(letters[2], 2)
        target = self.read(" ".join(self.transform(words, letters, end)))
        return Example(self.read(" ".join(words)), target, (True,) * len(target))

    auxiliaries: ClassVar[int] = 0

    @abstractmethod
    def transform(self, words: list[str], letters: list[str], end: int) -> list[str]:
        """The target.

        Args:
            words: of the source.
            letters: their classes.
            end: the position after the subject.
        """


_AUXILIARIES = {"s": ("does", "doesn't"), "p": ("do", "don't")}
_BARE = {f"B{n}": {f"D {n}": 1 / 3, f"D {n} P D s": 1 / 6, f"D {n} P D p": 1 / 6} for n in "sp"}
_FULL = {f"N{n}": {f"B{n}": 1.0, f"D {n} R C{n}": 1 / 3} for n in "sp"}
_OBJECT = {"O": {"Ns": 0.5, "Np": 0.5}, "S": {f"N{n} V{n}": 0.5 for n in "sp"}, "n": {"s": 0.5, "p": 0.5}}


@register_task("mccoy2020/question")
class Question(_Transformation):
    """Front the main auxiliary (`quest`), or copy (`decl`).

    In training, the main auxiliary of a question is also the first.
    """

    auxiliaries = 1
    words = _WORDS | {"I": _INTRANSITIVE, "T": _TRANSITIVE}
    others = (*_AUXILIARIES["s"], *_AUXILIARIES["p"], ".", "?", "quest", "decl")
    rules: ClassVar = {
        "Q": {f"B{n} V{n}": 0.5 for n in "sp"},
        **{f"V{n}": {f"X{n} I": 0.5, f"X{n} T O": 0.5} for n in "sp"},
        **{f"X{n}": dict.fromkeys(words, 0.5) for n, words in _AUXILIARIES.items()},
        **{f"C{n}": {f"X{n} I": 1 / 3, "D s Xs T": 1 / 6, "D p Xp T": 1 / 6, f"X{n} T D n": 1 / 3} for n in "sp"},
        **_BARE,
        **_FULL,
        **_OBJECT,
        "G": {
            f"D {n} R {clause} {main} {phrase}": weight * share
            for n, (plain, negated) in _AUXILIARIES.items()
            for first, main in ((plain, negated), (negated, plain))
            for clause, weight in {f"{first} I": 2.0, f"{first} T D n": 2.0, f"D {n} {first} T": 1.0}.items()
            for phrase, share in {"I": 0.5, "T Bs": 0.25, "T Bp": 0.25}.items()
        },
    }
    roots: ClassVar = {
        "train": {"Q . quest": 0.5, "S . decl": 0.5},
        GENERALIZATION: {"G . quest": 1.0},
        "all": {"S . quest": 0.5, "S . decl": 0.5},
    }

    def transform(self, words: list[str], letters: list[str], end: int) -> list[str]:
        """See `_Transformation.transform`."""
        if words[-1] == "decl":
            return words[:-1]
        return [words[end], *words[:end], *words[end + 1 : -2], "?"]


@register_task("mccoy2020/tense")
class Tense(_Transformation):
    """Put the past tense into the present (`PRESENT`), or copy (`PAST`).

    In training, a verb in the present agrees with the noun right before it as well as with its subject.
    """

    words = _WORDS | {"I": [_PAST[verb] for verb in _INTRANSITIVE], "T": [_PAST[verb] for verb in _TRANSITIVE]}
    others = (*(verb + s for verb in _PAST for s in ("", "s")), ".", "PRESENT", "PAST")
    rules: ClassVar = {
        "A": {f"A{n} V": 0.5 for n in "sp"},
        "G": {f"G{n} V": 0.5 for n in "sp"},
        "S": {f"N{n} V": 0.5 for n in "sp"},
        "V": {"I": 0.5, "T O": 0.5},
        "O": _OBJECT["O"],
        "C": {"I": 1 / 3, "D n T": 1 / 3, "T D n": 1 / 3},
        "n": _OBJECT["n"],
        **_BARE,
        **{f"N{n}": {f"B{n}": 1.0, f"D {n} R C": 1 / 3} for n in "sp"},
        **{
            f"{name}{n}": bare | {f"D {n} P D {m}": 1 / 6, f"D {n} R D {m} T": 1 / 18, f"D {n} R T D {m}": 1 / 18}
            for n in "sp"
            for name, m, bare in (("A", n, {f"D {n}": 1 / 3, f"D {n} R I": 1 / 9}), ("G", _OTHER[n], {}))
        },
    }
    roots: ClassVar = {
        "train": {"A . PRESENT": 0.5, "S . PAST": 0.5},
        GENERALIZATION: {"G . PRESENT": 1.0},
        "all": {"S . PRESENT": 0.5, "S . PAST": 0.5},
    }

    def transform(self, words: list[str], letters: list[str], end: int) -> list[str]:
        """See `_Transformation.transform`."""
        present = {past: verb for verb, past in _PAST.items()}
        target = words[:-1]
        for place, letter in enumerate(letters if words[-1] == "PRESENT" else ()):
            if letter in "IT":
                after_noun = letters[place - 3] == "R" and letters[place - 1] in "sp"
                noun = 1 if place == end else place - 1 if after_noun else place - 2
                target[place] = present[words[place]] + "s" * (letters[noun] == "s")
        return target
