"""Transduction: how pairs of sequences become batches, and how a model's own outputs are read.

A format places the source in a model's input and the target in its labels:

    DelimitedFormat  `<s> source ||| target </s>` in one sequence, for causal language models (Grefenstette et al. 2015)
    PerStepFormat    an answer at each step, or blanks to answer on, for per-step classification (Hao et al. 2018)
    BufferedFormat   the source in an input buffer, the target in an output buffer (Hao et al. 2018, section 2.3)

A format is a data collator, for transformers' Trainer and any other loop: its loss is on the target alone. And it asks
a trained model for its own outputs, greedily and without ever showing it the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import InputError
from ..labels import IGNORED


class Transduction(NamedTuple):
    """A source and the target it is to become, as symbol ids."""

    source: Sequence[int]
    target: Sequence[int]


class TransductionFormat(ABC):
    """See the formats of this module."""

    def __call__(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        """Collate a training batch.

        Args:
            pairs: B transductions; plain pairs will do.

        Returns:
            `input_ids` and `attention_mask` [B, N], and `labels`, which are -100 where there is no target.

        Raises:
            InputError: for a source or target that the format cannot hold.
        """
        batch = [Transduction(*pair) for pair in pairs]
        for pair in batch:
            self.check(pair)
        return self.collate(batch)

    @abstractmethod
    def check(self, pair: Transduction) -> None:
        """Find a pair that the format cannot hold."""

    @abstractmethod
    def collate(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        """A batch of pairs that `check` let pass."""

    @abstractmethod
    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        """The model's own output for each source, greedily. Of the targets only the lengths are looked at.

        Args:
            model: of the kind the format is for, in evaluation mode.
            pairs: a batch.
        """


def _pad(rows: Iterable[Sequence[int]], value: int, side: str = "right") -> Tensor:
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value, padding_side=side)


def _inputs(rows: Sequence[Sequence[int]], side: str = "right") -> dict[str, Tensor]:
    """`input_ids` and `attention_mask`. The mask marks padding, so any id will do there."""
    return {"input_ids": _pad(rows, 0, side), "attention_mask": _pad([[1] * len(row) for row in rows], 0, side)}


def _to(batch: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    return {name: tensor.to(model.device) for name, tensor in batch.items()}


def _refuse_symbols(pair: Transduction, **special: int | None) -> None:
    for name, symbol in special.items():
        if symbol is not None and (symbol in pair.source or symbol in pair.target):
            raise InputError(f"symbol {symbol} is the {name}; it must not occur in a source or a target")


def _refuse_empty(pair: Transduction) -> None:
    if not len(pair.source):
        raise InputError("a source must have at least one symbol")


@dataclass(frozen=True)
class DelimitedFormat(TransductionFormat):
    """`begin source separator target end` in one sequence, for `StackRNNForCausalLM` and any causal language model.

    The labels are those of transformers' language models, which shift them: each is the token itself in the target
    and at its end, and -100 up to the separator (Grefenstette et al. 2015, section 4).

    Args:
        separator: the id between source and target.
        end: the id after the target, at which an output ends.
        begin: the id before the source, if any.
    """

    separator: int
    end: int
    begin: int | None = None

    def check(self, pair: Transduction) -> None:
        _refuse_symbols(pair, separator=self.separator, end=self.end)

    def _prompt(self, pair: Transduction) -> list[int]:
        return [*([] if self.begin is None else [self.begin]), *pair.source, self.separator]

    def collate(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        prompts = [self._prompt(pair) for pair in pairs]
        answers = [[*pair.target, self.end] for pair in pairs]
        labels = [[IGNORED] * len(prompt) + answer for prompt, answer in zip(prompts, answers, strict=True)]
        rows = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
        return {**_inputs(rows), "labels": _pad(labels, IGNORED)}

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        prompts = _to(_inputs([self._prompt(pair) for pair in pairs], "left"), model)
        generated = model.generate(
            **prompts,
            # One more than the longest target: any longer output is wrong.
            max_new_tokens=max(len(pair.target) for pair in pairs) + 1,
            do_sample=False,
            num_beams=1,
            eos_token_id=self.end,
            pad_token_id=self.end,
        )
        rows = generated[:, prompts["input_ids"].shape[1] :].tolist()
        return [row[: row.index(self.end)] if self.end in row else row for row in rows]


@dataclass(frozen=True)
class PerStepFormat(TransductionFormat):
    """An answer at each step, for `StackRNNForTokenClassification`, whose labels are not shifted.

    With a `blank` the answers come late: the input is the source and then a blank for each target symbol, on which the
    answers are due (string reversal in Hao et al. 2018, section 4.1). Without one, target and source are of one
    length and target symbol t is due at step t (XOR evaluation, section 4.2).

    A target symbol of -100 is neither trained on nor scored.

    Args:
        blank: the id that is read once the source is over, or None.
    """

    blank: int | None = None

    def check(self, pair: Transduction) -> None:
        _refuse_empty(pair)
        if self.blank is None and len(pair.source) != len(pair.target):
            raise InputError(
                "without a blank, source and target must be of one length; "
                f"they are of {len(pair.source)} and {len(pair.target)}"
            )

    def _rows(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        late = [0 if self.blank is None else len(pair.target) for pair in pairs]
        return _inputs([[*pair.source, *[self.blank or 0] * blanks] for pair, blanks in zip(pairs, late, strict=True)])

    def collate(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        before = [0 if self.blank is None else len(pair.source) for pair in pairs]
        labels = [[IGNORED] * number + list(pair.target) for pair, number in zip(pairs, before, strict=True)]
        return {**self._rows(pairs), "labels": _pad(labels, IGNORED)}

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        symbols = model(**_to(self._rows(pairs), model)).logits.argmax(-1).tolist()
        starts = [0 if self.blank is None else len(pair.source) for pair in pairs]
        return [row[start : start + len(pair.target)] for row, start, pair in zip(symbols, starts, pairs, strict=True)]


@dataclass(frozen=True)
class BufferedFormat(TransductionFormat):
    """The source for the input buffer, the target for the output buffer of `BufferedStackRNNForTransduction`.

    Args:
        end: an id put after each target, at which an output ends. Without one, an output is as long as what is in the
            output buffer, and nothing in the loss says that it must not be longer than the target.
    """

    end: int | None = None

    def check(self, pair: Transduction) -> None:
        _refuse_empty(pair)
        _refuse_symbols(Transduction((), pair.target), end=self.end)

    def collate(self, pairs: Sequence[Transduction]) -> dict[str, Tensor]:
        end = [] if self.end is None else [self.end]
        labels = _pad([[*pair.target, *end] for pair in pairs], IGNORED)
        return {**_inputs([pair.source for pair in pairs]), "labels": labels}

    def outputs(self, model: Any, pairs: Sequence[Transduction]) -> list[list[int]]:
        longest = max(len(pair.target) for pair in pairs) + 1
        rows = model.transduce(**_to(_inputs([pair.source for pair in pairs]), model), max_length=longest)
        return [row[: row.index(self.end)] if self.end in row else row for row in rows]
