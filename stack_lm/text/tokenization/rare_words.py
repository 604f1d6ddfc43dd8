"""The replacement of rare words by their part-of-speech tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The key in the tokenizer's configuration file for the replacement of rare words by tags.
TAG_KEY = "tag_rare_words"


class RareWordTags:
    """A replacement of a sentence's rare words by their part-of-speech tags, if the tokenizer was trained this way.

    Args:
        tokenizer: any tokenizer; one that does not come from `train_word_tokenizer` leaves words unchanged.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.active: bool = tokenizer.init_kwargs.get(TAG_KEY, False)
        self._vocabulary = frozenset(tokenizer.get_vocab()) if self.active else frozenset()
        self._normalizer = tokenizer.backend_tokenizer.normalizer if self.active else None

    def __call__(self, words: Sequence[str], tags: Sequence[str] | None = None) -> Sequence[str]:
        """Replace words outside the vocabulary by their tags.

        Args:
            words: the sentence.
            tags: part-of-speech tags.

        Raises:
            InputError: if the numbers of words and tags differ.
        """
        if tags is None or not self.active or not words:
            return words
        if len(tags) != len(words):
            raise InputError(f"a sentence has {len(words)} words but {len(tags)} tags: {' '.join(words)!r}")
        known = self._vocabulary
        looked_up_words = words
        if self._normalizer is not None:
            normalized = self._normalizer.normalize_str(" ".join(words)).split(" ")
            looked_up_words = normalized if len(normalized) == len(words) else words
        return [
            word if looked_up in known or tag not in known else tag
            for word, looked_up, tag in zip(words, looked_up_words, tags, strict=True)
        ]
