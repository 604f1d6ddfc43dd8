"""The size of validation text in words and bytes, independent of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class TextSize:
    """Predicted text; `docs/evaluation.md` defines it, and `stack_lm.eval.perplexity` counts the same.

    Attributes:
        words: number of words of the corpus.
        bytes: size of its text in UTF-8: words, a space between two, and the end of a line for each end of a sentence.
        in_part: words with some predicted tokens but not the first, which are not counted: first words of several
            tokens, without a beginning token. The loss includes these tokens; the size does not.
    """

    words: int = 0
    bytes: int = 0
    in_part: int = 0

    def add(self, words: Sequence[str], *, first: bool, end: bool) -> None:
        """Count a sentence.

        Args:
            words: the words of the sentence.
            first: whether the first word is predicted.
            end: whether its end is predicted.
        """
        self.words += len(words) - (not first)
        self.bytes += len(" ".join(words).encode()) - (0 if first else len(words[0].encode())) + end
