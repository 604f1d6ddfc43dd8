"""Many short sequences in two arrays each: thirty million words as lists of lists take over a gigabyte."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ..text import Sentence

_SEPARATOR = "\0"
Item = TypeVar("Item")


class _Packed(Sequence[Item]):
    """A sequence whose items are made when they are asked for."""

    @abstractmethod
    def _item(self, i: int) -> Item:
        """An item, by its number from 0."""

    def __getitem__(self, index: Any) -> Any:
        numbers = range(len(self))[index]
        return self._item(numbers) if isinstance(numbers, int) else list(map(self._item, numbers))


class TokenArray(_Packed[list[int]]):
    """Sentences as token ids, end to end in one array. An item is a list, but only the array is stored.

    Args:
        ids: the ids of all sentences, [tokens], uint16 or int32.
        ends: the end of each sentence, [sentences], int64.
    """

    def __init__(self, ids: np.ndarray, ends: np.ndarray) -> None:
        self.ids, self.ends = ids, ends

    @classmethod
    def pack(cls, parts: Iterable[Sequence[Sequence[int]]], vocab_size: int) -> TokenArray:
        """Build from sentences, some at a time."""
        dtype = np.uint16 if vocab_size <= 2**16 else np.int32
        ids, lengths = [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
        for sentences in parts:
            lengths.append(np.fromiter(map(len, sentences), np.int64, len(sentences)))
            ids.append(np.fromiter((i for ids in sentences for i in ids), dtype, lengths[-1].sum()))
        return cls(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens in each sentence."""
        return np.diff(self.ends, prepend=0)

    def contains(self, others: TokenArray) -> np.ndarray:
        """Find out which of some other sentences are here too, [others], bool."""
        same = others.ids.astype(self.ids.dtype, copy=False)
        sought = list(others._texts(same))
        wanted = set(sought)
        own = {text for text in self._texts(self.ids) if text in wanted}
        return np.array([text in own for text in sought], bool)

    def _texts(self, ids: np.ndarray) -> Iterator[bytes]:
        """The bytes of each sentence."""
        return (ids[end - length : end].tobytes() for length, end in zip(self.lengths, self.ends, strict=True))

    def __len__(self) -> int:
        return len(self.ends)

    def _item(self, i: int) -> list[int]:
        return self.ids[self.ends[i - 1] if i else 0 : self.ends[i]].tolist()


class SentenceStore(_Packed[Sentence]):
    """Sentences as the bytes of their words and tags: an object for each word would take ten times the memory."""

    def __init__(self, sentences: Iterable[Sentence]) -> None:
        self._text, self._tagged = bytearray(), bytearray()
        self._ends = array("q", [0])  # of each sentence's words, and of its tags
        for words, tags in sentences:
            self._text += _SEPARATOR.join(words).encode("utf-8", "surrogatepass")
            self._ends.append(len(self._text))
            self._text += _SEPARATOR.join(tags or ()).encode("utf-8", "surrogatepass")
            self._ends.append(len(self._text))
            self._tagged.append(tags is not None)

    def __len__(self) -> int:
        return len(self._tagged)

    def _item(self, i: int) -> Sentence:
        return Sentence(self._words(2 * i), self._words(2 * i + 1) if self._tagged[i] else None)

    def _words(self, i: int) -> list[str]:
        text = self._text[self._ends[i] : self._ends[i + 1]].decode("utf-8", "surrogatepass")
        return text.split(_SEPARATOR) if text else []
