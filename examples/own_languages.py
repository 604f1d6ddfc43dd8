"""Two formal languages of your own: one from a grammar, one from functions.

    stack-lm tasks show my/anbn --import examples/own_languages.py -n 2
    stack-lm train task dusell2023/lstm my/anbncn --import examples/own_languages.py training.epochs=2

Scores include the difference from the exact lower bound of the cross-entropy.
"""

import math
from typing import ClassVar

from stack_lm.tasks import BoundedLanguage, GrammarLanguage, Split, register_task
from stack_lm.tasks.grammars import Grammar


@register_task("my/anbn")
class AnBn(GrammarLanguage):
    """n times a, then n times b."""

    symbols = "a b"
    grammar = Grammar({"S": {"a S b": 0.8, "a b": 0.2}})  # the first symbol begins; the weights of its rules sum to 1
    default_plan: ClassVar = {"train": Split(200, 2, 20), "validation": Split(50, 2, 20), "test": Split(50, 22, 40)}


@register_task("my/anbncn")
class AnBnCn(BoundedLanguage):
    """n times a, n times b, n times c: one string of each length that 3 divides. No context-free grammar has it."""

    default_plan: ClassVar = {
        "train": Split(200, 3, 30),
        "validation": Split(50, 3, 30),
        "test": Split(5, 33, 60, balanced=True),
    }

    def __init__(self, *, splits=None):
        super().__init__("abc", splits=splits)

    def possible(self, length):
        return length % 3 == 0

    def string(self, rng, length):
        return [symbol for symbol in "abc" for _ in range(length // 3)]

    def contains(self, string):
        return list(string) == self.string(None, len(string))

    def log_given_length(self, strings):
        return [0.0 if self.contains(string) else -math.inf for string in strings]
