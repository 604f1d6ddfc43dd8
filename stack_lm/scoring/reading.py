"""Sequences of tokens read by a language model: log-probabilities, uncertainty and the actions on memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..core.errors import InputError
from ..models.kinds import body_and_head, kind_of
from ..nn import actions_by_layer
from .batches import finite, length_batches, token_logprobs
from .memory_layers import MemoryLayers
from .windows import windows

Progress = Callable[[int], None]
# Logits that a separate head computes at a time, on a CPU and on a GPU; and the most that another model may make for a
# sequence (4 GB). On a CPU, 8 MB stay in the cache, and score a third faster than 128 MB.
_LOGITS, _LOGITS_ON_GPU, _MOST_LOGITS = 2**21, 2**25, 2**30
_LONGEST = 2**18  # tokens: a longer sequence is a text without line breaks
_SPACES = ("\u0120", "\u2581")  # the space at the beginning of a token, of byte-level tokenizers and of SentencePiece


class Reading(NamedTuple):
    """A model's numbers for the tokens of a sequence.

    Attributes:
        scores: [T] by name: `logprob`, the log-probability of each token, in nats, NaN for the first; and if requested,
            for the distribution after each token, `entropy`, in nats, and `word_end`, the log-probability that a word
            begins or the text ends.
        actions: those on each memory layer, by name, [T, ...].
    """

    scores: dict[str, np.ndarray]
    actions: list[dict[str, np.ndarray]]

    def part(self, start: int, stop: int) -> Reading:
        """The tokens from `start` to `stop`. `entropy` and `word_end` have one more, first: those before `start`."""
        scores = {}
        for name, values in self.scores.items():
            before = values[:0] if name == "logprob" else values[start - 1 : start] if start else [np.nan]
            scores[name] = np.concatenate([before, values[start:stop]])
        return Reading(scores, [{name: values[start:stop] for name, values in each.items()} for each in self.actions])


class SequenceReader(MemoryLayers):
    """A language model that reads sequences of token ids, in batches and in windows.

    Args:
        model: any causal language model.
        tokenizer: its fast tokenizer.
        batch_tokens: tokens in a batch, padding included; bounds the memory for the logits.
        layer: see `MemoryLayers`.
        window: maximum number of tokens that a model with attention reads at once; None takes its positions. A
            recurrent model carries its state through the whole sequence.

    Raises:
        InputError: for a window below 2 or above the model's positions, and as `MemoryLayers`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        batch_tokens: int,
        layer: int | None,
        window: int | None,
    ) -> None:
        super().__init__(model.eval(), layer)
        self.tokenizer = tokenizer
        self.batch_tokens = batch_tokens
        self._body, self._head = body_and_head(model)
        kind = kind_of(model.config)
        self._stops_early = kind is not None and kind.actions_only
        recurrent = model._is_stateful or (kind is not None and kind.continuous)
        self._positions: int | None = getattr(model.config, "max_position_embeddings", None)
        if window is not None and not 2 <= window <= (self._positions or window):
            most = f"2 to {self._positions}" if self._positions else "at least 2"
            raise InputError(f"window must be {most} tokens; got {window}")
        self.window = None if recurrent else window or self._positions

    @torch.inference_mode()
    def read(
        self,
        sequences: Sequence[list[int]],
        *,
        logprobs: bool = True,
        uncertainty: bool = False,
        members: Sequence[int] = (),
        progress: Progress | None = None,
    ) -> list[Reading]:
        """Read sequences; those longer than `window` in windows, each with at least half of it as context.

        Args:
            sequences: token ids.
            logprobs: compute the scores.
            uncertainty: also compute the entropies, and the log-probabilities that words end.
            members: the sequence of each sentence, whose number `progress` is called with.
            progress: called batch by batch.
        """
        found = windows([len(ids) for ids in sequences], self.window)
        pieces: dict[int, Reading] = {}
        sizes = Counter(members)
        for batch, ids in self._batches([sequences[each.sequence][each.start : each.stop] for each in found]):
            outputs = self._run(ids, logits=logprobs)
            actions = [
                {name: finite(values, name) for name, values in layer_actions.items()}
                for layer_actions in self._actions(outputs)
            ]
            scores = self._scores(outputs, ids, uncertainty) if logprobs else {}
            for row, i in enumerate(batch):
                kept = slice(found[i].keep - found[i].start, found[i].stop - found[i].start)
                pieces[i] = Reading(
                    {name: values[row, kept] for name, values in scores.items()},
                    [{name: values[row, kept] for name, values in of_layer.items()} for of_layer in actions],
                )
            if progress is not None:
                progress(sum(sizes[found[i].sequence] for i in batch if found[i].keep == 0))
        parts: list[list[Reading]] = [[] for _ in sequences]
        for i, window in enumerate(found):
            parts[window.sequence].append(pieces[i])
        return list(map(_joined, parts))

    @cached_property
    def begins_word(self) -> np.ndarray | None:
        """True for tokens that begin a word, by a space, or end a text [V]; None if tokens do not begin with spaces."""
        if not any(token.startswith(_SPACES) for token in self.tokenizer.tokenize("a a")):
            return None
        begins = np.zeros(self.model.config.get_text_config().vocab_size, dtype=bool)
        tokens = self.tokenizer.convert_ids_to_tokens([*range(min(len(begins), len(self.tokenizer)))])
        begins[: len(tokens)] = [(token or "").startswith(_SPACES) for token in tokens]
        begins[self.tokenizer.all_special_ids] = True
        return begins

    def _check_room(self, length: int, name: str) -> None:
        """Reject a sequence with more tokens than would fit in memory."""
        if length > _LONGEST:
            raise InputError(f"{name} has {length:,} tokens to read; {_LONGEST:,} can be read at most")
        size = getattr(self.model.config.get_text_config(), "vocab_size", 1)
        if min(length, self.window or length) * size > _MOST_LOGITS and self._head is None:
            most = _MOST_LOGITS // size
            raise InputError(f"{name} has {length:,} tokens to read; {most:,} fit into memory (vocabulary: {size:,})")

    def _logits(self, outputs: Any, steps: slice) -> Tensor:
        """Logits of some steps [B, T', V]: those from the model's output, or computed now by a separate head."""
        if self._head is None:
            return outputs.logits[:, steps]
        return self._head(outputs.last_hidden_state[:, steps])

    def _last_logits(self, outputs: Any, lengths: Sequence[int]) -> Tensor:
        """Logits at the last token of each sequence [B, V]."""
        at = list(range(len(lengths))), [length - 1 for length in lengths]
        return outputs.logits[at] if self._head is None else self._head(outputs.last_hidden_state[at])

    def _scores(self, outputs: Any, ids: Tensor, uncertainty: bool) -> dict[str, np.ndarray]:
        """`Reading.scores` of a batch [B, T].

        The logits of a long sequence need not fit into memory all at once.
        """
        n_rows, n = ids.shape
        scores = {"logprob": np.full((n_rows, n), np.nan)}
        if uncertainty:
            scores |= {name: np.full((n_rows, n), np.nan) for name in ("entropy", "word_end")}
        at_once = _LOGITS if ids.device.type == "cpu" else _LOGITS_ON_GPU
        size = max(1, at_once // (n_rows * self.model.config.get_text_config().vocab_size))
        for start in range(0, n if uncertainty else n - 1, size):
            stop = min(start + size, n)
            logits, targets = self._logits(outputs, slice(start, stop)), ids[:, start + 1 : stop + 1]
            scores["logprob"][:, start + 1 : stop + 1] = token_logprobs(logits[:, : targets.shape[1]], targets)
            if uncertainty:
                probabilities = logits.float().softmax(-1)
                scores["entropy"][:, start:stop] = finite(torch.special.entr(probabilities).sum(-1), "entropy")
                if self.begins_word is not None:
                    begins = torch.from_numpy(self.begins_word).to(probabilities)
                    scores["word_end"][:, start:stop] = finite((probabilities @ begins).log(), "word end")
        return scores

    def _batches(self, sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Tensor]]:
        """Batches of sequences of similar length: their indices, and their ids padded on the right [B, T]."""
        for batch in length_batches([len(ids) for ids in sequences], self.batch_tokens):
            ids = pad_sequence([torch.tensor(sequences[i]) for i in batch], batch_first=True)
            yield batch, ids.to(self.model.device)

    def _run(self, ids: Tensor, *, logits: bool = True) -> Any:
        """The model's outputs with the actions, without logits where its head is apart (see `_logits`); without
        `logits` perhaps only the actions."""
        arguments: dict[str, Any] = {"use_cache": False}
        if self.memories:
            arguments["output_actions" if logits or not self._stops_early else "actions_only"] = True
        return self._body(ids, **arguments)

    def _actions(self, outputs: Any) -> Sequence[Mapping[str, Tensor]]:
        """The actions on each memory layer [B, T, ...]."""
        return actions_by_layer(outputs.actions) if self.memories else ()


def _joined(pieces: Sequence[Reading]) -> Reading:
    """The numbers of a sequence, from those that its windows keep."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    scores = {name: np.concatenate([piece.scores[name] for piece in pieces]) for name in first.scores}
    actions = [
        {name: np.concatenate([piece.actions[i][name] for piece in pieces]) for name in of_layer}
        for i, of_layer in enumerate(first.actions)
    ]
    return Reading(scores, actions)
