"""Number prediction items from text: the words before a present-tense verb, and its number (Linzen et al. 2016).

As in Linzen et al. (2016), section 3: the subject's head is a common noun; subject and verb agree, and the text often
has both forms of each. One random verb of a sentence is taken. Words are in lower case, and those outside the most
frequent 10,000 are replaced by their part-of-speech tag. Attractors are common nouns of the other number between
subject and verb.

NOTE: they parsed Wikipedia. Here a tagger and rules find the subject (`stack_lm.text.subjects`).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .inflection import inflected_words
from .subjects import Dependency, find_dependencies

AGREEING = {"VBZ": "NN", "VBP": "NNS"}
_INFLECTED = {"NN", "NNS", "VBZ", "VBP"}
MOST_ATTRACTORS = 5  # of the files by attractors, as in Linzen et al.
# Neighbouring sentences, often of one article, go to the same part.
BLOCK = 1000


@dataclass(frozen=True)
class NumberItem:
    """A verb's number, and the words before it.

    Attributes:
        label: "VBZ" if the verb is singular, "VBP" if plural.
        prefix: the words before it, in lower case, rare ones as tags.
        subject: the head of its subject, in lower case.
        verb: the verb, in lower case.
        distance: number of words from the subject to the verb.
        intervening: the tags of the common nouns between the two, NN or NNS.
        sentence: the sentence's number in the text, from 0.
    """

    label: str
    prefix: tuple[str, ...]
    subject: str
    verb: str
    distance: int
    intervening: tuple[str, ...]
    sentence: int

    @property
    def attractors(self) -> int:
        """The number of common nouns of the other number between subject and verb."""
        return sum(tag != AGREEING[self.label] for tag in self.intervening)

    @property
    def homogeneous(self) -> bool:
        """True if all common nouns between subject and verb are attractors, as in the test files by attractors."""
        return self.attractors == len(self.intervening)

    def line(self) -> str:
        """The item in the format of the task: its label, a tab, the words."""
        return f"{self.label}\t{' '.join(self.prefix)}\n"


class NumberItemCollector:
    """A collector of items in tagged sentences; `items` then applies the rules that depend on the whole text."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.forms: Counter[tuple[str, str]] = Counter()
        self.sentences = 0
        self._found: list[tuple[int, list[tuple[str, str]], list[Dependency]]] = []

    def add(self, words: Sequence[str], tags: Sequence[str]) -> None:
        """Take the next sentence of the text.

        Args:
            words: the words of the sentence.
            tags: the tags of the words, from the Penn Treebank.
        """
        pairs = [(sys.intern(word.lower()), sys.intern(tag)) for word, tag in zip(words, tags, strict=True)]
        self.words.update(word for word, _ in pairs)
        self.forms.update(pair for pair in pairs if pair[1] in _INFLECTED)
        dependencies = find_dependencies(words, tags)
        agreeing = [d for d in dependencies if AGREEING[tags[d.verb]] == tags[d.subject]]
        if agreeing:
            self._found.append((self.sentences, pairs[: agreeing[-1].verb + 1], agreeing))
        self.sentences += 1

    def items(self, vocab_size: int = 10_000, minimum: int = 10, seed: int = 0) -> Iterator[NumberItem]:
        """The items of the sentences, at most one of each, in order.

        Args:
            vocab_size: number of the most frequent words to keep; ties are broken alphabetically.
            minimum: number of times that the text must have both forms of subject and verb, with their tags.
            seed: the seed of the choice among the verbs of a sentence.
        """
        kept = {word for word, _ in sorted(self.words.items(), key=lambda item: (-item[1], item[0]))[:vocab_size]}
        forms = inflected_words(self.forms, minimum)
        for number, pairs, dependencies in self._found:
            inflected = [d for d in dependencies if pairs[d.subject] in forms and pairs[d.verb] in forms]
            if inflected:
                chosen = random.Random(f"{seed}/{number}").choice(inflected)
                yield NumberItem(
                    label=pairs[chosen.verb][1],
                    prefix=tuple(word if word in kept else tag for word, tag in pairs[: chosen.verb]),
                    subject=pairs[chosen.subject][0],
                    verb=pairs[chosen.verb][0],
                    distance=chosen.verb - chosen.subject,
                    intervening=chosen.intervening,
                    sentence=number,
                )


def part_of(item: NumberItem, shares: Mapping[str, float], seed: int = 0) -> str:
    """The part of an item, by the block that contains its sentence.

    Args:
        item: any.
        shares: the shares of each part; the rest, up to 1, is "train".
        seed: the seed of the choice.
    """
    draw = random.Random(f"{seed}/block/{item.sentence // BLOCK}").random()
    for part, share in shares.items():
        if draw < share:
            return part
        draw -= share
    return "train"
