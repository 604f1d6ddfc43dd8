"""The base of the tasks of Delétang et al. (2023): an input, and an answer after it.

Definitions and distributions are those of the released code where it differs from the paper.
NOTE: our choices: each string has its own length, the validation strings have the lengths of training, and each test
    length has eight strings.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from ...core.errors import InputError
from ..base import Example, Split, Task

String = tuple[int, ...]
BITS = ("0", "1")
# After a number or a stack of variable length; zeros follow.
TERMINATOR = 2


class AnsweredTask(Task):
    """An input and its answer, one function of the other. All lengths of a window are equally likely.

    Training uses the whole answer; symbols after a terminator are not scored.
    """

    paper = "Delétang et al. 2023"
    kind = "delayed"
    online = True
    further_scores = ("length_accuracy",)
    vocabulary: tuple[str, ...] = BITS
    default_plan: ClassVar = {
        "train": Split(12_800, 1, 40),
        "validation": Split(10, 1, 40, balanced=True),
        "test": Split(8, 41, 500, balanced=True),
    }
    answers: ClassVar[tuple[str, ...]] = BITS
    terminated: ClassVar[bool] = False

    @property
    def target_vocabulary(self) -> tuple[str, ...]:
        """The symbols of answers."""
        return self.answers

    def sample(self, rng: random.Random, length: int) -> Example:
        """Draw an input of a length, with its answer."""
        return self.example(self.draw_input(rng, length))

    def example(self, string: Sequence[int]) -> Example:
        """The example of an input."""
        string = tuple(string)
        answer = self.answer(string) if string else None
        if answer is None:
            raise InputError(f"not an input of {self}: {self.write(string) or 'the empty string'}")
        scored = answer.index(TERMINATOR) + 1 if self.terminated else len(answer)
        return Example(string, answer, tuple(place < scored for place in range(len(answer))))

    def add_scores(self, scores: dict[str, Any], examples: Sequence[Example], split: str) -> dict[str, Any]:
        """Add the paper's `length_accuracy`: the accuracy of each length, averaged over lengths."""
        by_length = scores["by_length"]["accuracy"]
        mean = sum(accuracy for accuracy, _ in by_length.values()) / len(by_length)
        return scores | {"length_accuracy": mean, "by_length": {**scores["by_length"], "length_accuracy": by_length}}

    def draw_input(self, rng: random.Random, length: int) -> String:
        """Draw an input of a length: by default symbols of the vocabulary, all equally likely."""
        return tuple(rng.choices(range(len(self.vocabulary)), k=length))

    @abstractmethod
    def answer(self, string: String) -> String | None:
        """The answer to an input of one symbol or more; None for a string that is not an input."""
