"""RegBench: documents of strings of one random automaton, whose language is learned in context (Akyürek et al. 2024).

All numbers are those of the released code (github.com/berlino/seq_icl: src/dataloaders/dfa.py and
configs/dataset/icl_dfa.yaml), whose limits of 4 arcs, 50 symbols and 20 strings exclude these numbers themselves.

NOTE: automata are not minimised, which changes neither their strings nor the probabilities: equivalent states have the
    same symbols, and those of a state are equally likely. There, a document has no separator at its ends, so its first
    symbol is no answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated, ClassVar

from ...core.checks import Integer
from ..automata import Automaton
from ..base import AnnotatedExample, Example, Split, SplitChanges, Task
from ..registry import register_task

SEPARATOR = "|"


@register_task("akyurek2024/regbench")
class RegBench(Task):
    """Predict each next symbol of strings of an automaton that is new in each document.

    The size of a document is its number of strings. `|` begins and ends each string; it is no answer. A symbol is right
    if it may come next.

    Args:
        states: the largest number of states of an automaton; the smallest is 4.
        symbols: the largest number of symbols of an automaton, and those of the task; the smallest is 4.
        longest: the largest length of a string; all from 1 on are equally likely.
        splits: changes of the plan (see `Task`).
    """

    unit = "number of strings"
    any_continuation = True
    default_plan: ClassVar = {
        "train": Split(5_000, 10, 19),
        "validation": Split(250, 10, 19),
        "test": Split(250, 10, 19),
    }

    def __init__(
        self,
        *,
        states: Annotated[int, Integer(4, 100)] = 12,
        symbols: Annotated[int, Integer(4, 26)] = 18,
        longest: Annotated[int, Integer(1, 1000)] = 49,
        splits: SplitChanges | None = None,
    ) -> None:
        super().__init__(splits=splits)
        self.states, self.longest = states, longest
        self.vocabulary = (*(chr(ord("a") + number) for number in range(symbols)), SEPARATOR)

    def automaton(self, rng: random.Random) -> Automaton:
        """Draw an automaton. All states accept, and each has one to three arcs to others, all different."""
        states = range(rng.randint(4, self.states))
        alphabet = rng.sample(self.vocabulary[:-1], rng.randint(4, len(self.vocabulary) - 1))
        arcs = {}
        for state in states:
            others = [other for other in states if other != state]
            number = rng.randint(1, 3)
            arcs[state] = dict(zip(rng.sample(alphabet, number), rng.sample(others, number), strict=True))
        return Automaton(0, arcs, states, self.vocabulary[:-1])

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw an automaton, and a number of its strings."""
        separator = len(self.vocabulary) - 1
        automaton, document, following = self.automaton(rng), [separator], []
        for _ in range(length):
            state = automaton.start
            for left in reversed(range(rng.randint(1, self.longest) + 1)):
                symbols = list(automaton.arcs[state])
                following.append(frozenset(map(self.vocabulary.index, symbols)))
                symbol = rng.choice(symbols)
                document.append(self.vocabulary.index(symbol) if left else separator)
                state = automaton.arcs[state][symbol]
        source, target = tuple(document[:-1]), tuple(document[1:])
        example = Example(source, target, tuple(symbol != separator for symbol in target))
        return AnnotatedExample.of(example, following=following)

    def continuations(self, example: Example) -> Sequence[frozenset[int]]:
        """The symbols of a document's automaton that may follow each prefix, `|` aside; nothing if it was not drawn."""
        return example.following
