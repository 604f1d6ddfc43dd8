"""Transduction: batches of pairs of sequences, and a model's own outputs.

A format places the source in a model's input and the target in its labels:

    DelimitedFormat  `<s> source ||| target </s>` in one sequence, for causal language models (Grefenstette et al. 2015)
    PerStepFormat    an answer at each step, or blanks to answer on, for per-step classification (Hao et al. 2018)
    BufferedFormat   the source in an input buffer, the target in an output buffer (Hao et al. 2018, section 2.3)

A format is a data collator, for transformers' Trainer and any other loop: the loss is only on the target. It also gets
a trained model's own outputs, greedily and without showing it the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.errors import InputError
from ..core.labels import IGNORED

if TYPE_CHECKING:
    from torch import Tensor


class Transduction(NamedTuple):
    """A source and its target, as symbol ids."""

    source: Sequence[int]
    target: Sequence[int]


class TransductionFormat(ABC):
    """See the formats of this module."""

    def __call__(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        """Collate a training batch.

        Args:
            pairs: B transductions, or plain pairs.

        Returns:
            `input_ids` and `attention_mask` [B, N], and `labels`, which are -100 without a target.

        Raises:
            InputError: for a source or target that the format cannot hold.
        """
        rows = [self.row(Transduction(*pair)) for pair in pairs]
        return {**_inputs([inputs for inputs, _ in rows]), "labels": padded([labels for _, labels in rows], IGNORED)}

    @abstractmethod
    def row(self, pair: Transduction) -> tuple[list[int], list[int]]:
        """The inputs and the labels of a pair.

        Raises:
            InputError: for a source or target that the format cannot hold.
        """

    @abstractmethod
    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        """The model's own output for each source, greedily. Only the lengths of the targets are used.

        Args:
            model: a model of the kind the format is for, in evaluation mode.
            pairs: a batch.
        """


def padded(rows: Iterable[Sequence[Any]], value: int, side: str = "right") -> Tensor:
    """Rows of numbers as a tensor [N, T, ...], padded with a value at the "right" or the "left"; bool if it is bool."""
    import numpy as np
    import torch

    rows = list(rows)
    lengths = np.array([len(row) for row in rows])[:, None]
    # All numbers at once, and in numpy, whose arrays of Python's numbers take a third of the time of torch's.
    numbers = np.array(list(chain.from_iterable(rows)), bool if isinstance(value, bool) else np.int64)
    longest = int(lengths.max())
    table = np.full((len(rows), longest, *numbers.shape[1:]), value, numbers.dtype)
    places = np.arange(longest)
    table[places < lengths if side == "right" else places >= longest - lengths] = numbers
    return torch.from_numpy(table)


def _inputs(rows: Sequence[Sequence[int]], side: str = "right", device: Any = "cpu") -> dict[str, Tensor]:
    """`input_ids` and `attention_mask`. The mask marks padding, so its id is arbitrary."""
    parts = {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}
    return {name: padded(part, 0, side).to(device) for name, part in parts.items()}


def _refuse_symbols(pair: Transduction, **special: int | None) -> None:
    for name, symbol in special.items():
        if symbol is not None and (symbol in pair.source or symbol in pair.target):
            raise InputError(f"symbol {symbol} is the {name}; it must not occur in a source or a target")


def _refuse_empty(pair: Transduction) -> None:
    if not len(pair.source):
        raise InputError("a source must have at least one symbol")


def _ended(output: list[int], end: int | None) -> list[int]:
    """Cut an output at the end symbol, if there is one."""
    return output[: output.index(end)] if end is not None and end in output else output


@dataclass(frozen=True)
class DelimitedFormat(TransductionFormat):
    """`begin source separator target end` in one sequence, for `StackRNNForCausalLM` and any causal language model.

    The labels are those of transformers' language models, which shift them: the tokens themselves in the target and at
    its end, and -100 up to the separator (Grefenstette et al. 2015, section 4).

    Args:
        separator: the id between source and target.
        end: the id after the target, at which an output ends.
        begin: the id before the source, if any.
    """

    separator: int
    end: int
    begin: int | None = None

    def prompt(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that a model reads before it answers."""
        return [*([] if self.begin is None else [self.begin]), *source, self.separator]

    def row(self, pair: Transduction) -> tuple[list[int], list[int]]:
        _refuse_symbols(pair, separator=self.separator, end=self.end)
        prompt, answer = self.prompt(pair.source), [*pair.target, self.end]
        return prompt + answer, [IGNORED] * len(prompt) + answer

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        prompts = _inputs([self.prompt(pair.source) for pair in pairs], "left", model.device)
        generated = model.generate(
            **prompts,
            # One more than the longest target: any longer output is wrong.
            max_new_tokens=max(len(pair.target) for pair in pairs) + 1,
            do_sample=False,
            num_beams=1,
            eos_token_id=self.end,
            pad_token_id=self.end,
        )
        return [_ended(row, self.end) for row in generated[:, prompts["input_ids"].shape[1] :].tolist()]


@dataclass(frozen=True)
class PerStepFormat(TransductionFormat):
    """An answer at each step, for `StackRNNForTokenClassification`, whose labels are not shifted.

    With a `blank` the answers are delayed: the input is the source and then a blank for each target symbol, where the
    answers are due (string reversal in Hao et al. 2018, section 4.1). Without one, target and source have the same
    length, and target symbol t is due at step t (XOR evaluation, section 4.2).

    A target symbol of -100 is neither trained on nor scored.

    Args:
        blank: the id that is read after the source, or None.
    """

    blank: int | None = None

    def row(self, pair: Transduction) -> tuple[list[int], list[int]]:
        _refuse_empty(pair)
        if self.blank is not None:
            late = [self.blank] * len(pair.target)
            return [*pair.source, *late], [IGNORED] * len(pair.source) + list(pair.target)
        if len(pair.source) != len(pair.target):
            sizes = f"{len(pair.source)} and {len(pair.target)}"
            raise InputError(f"without a blank, source and target must be of one length; they are of {sizes}")
        return list(pair.source), list(pair.target)

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        rows = [self.row(pair) for pair in pairs]
        symbols = model(**_inputs([inputs for inputs, _ in rows], device=model.device)).logits.argmax(-1).tolist()
        places = zip(symbols, rows, pairs, strict=True)
        return [row[len(labels) - len(pair.target) : len(labels)] for row, (_, labels), pair in places]


@dataclass(frozen=True)
class BufferedFormat(TransductionFormat):
    """The source for the input buffer, the target for the output buffer of `BufferedStackRNNForTransduction`.

    Args:
        end: an id added after each target, at which an output ends. Without one, an output is as long as the content of
            the output buffer, and the loss does not prevent outputs longer than the target.
    """

    end: int | None = None

    def row(self, pair: Transduction) -> tuple[list[int], list[int]]:
        _refuse_empty(pair)
        _refuse_symbols(Transduction((), pair.target), end=self.end)
        return list(pair.source), [*pair.target, *([] if self.end is None else [self.end])]

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        longest = max(len(pair.target) for pair in pairs) + 1
        inputs = _inputs([pair.source for pair in pairs], device=model.device)
        return [_ended(row, self.end) for row in model.transduce(**inputs, max_length=longest)]
