"""A parser that scores spans with a bidirectional LSTM, taught by trees or by the votes of other parsers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers.utils import ModelOutput, can_return_tuple

from .arguments import refuse_unknown
from .configuration_span_parser import SpanParserConfig
from .modeling_base import MemoryPreTrainedModel

_MOST_UNITS = 2**24  # of spans, computed at once: the spans of a text of 2,000 words would take gigabytes


@dataclass
class SpanParserOutput(ModelOutput):
    """Outputs of `SpanParserModel`.

    Attributes:
        loss: the cross-entropy of votes and spans in nats, over the spans that can differ.
        logits: for each span [start, stop), that it is in the tree [B, n + 1, n + 1]; 0 unless stop is above start.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None


class SpanParserModel(MemoryPreTrainedModel):
    """A model of the probability that each span of a sentence is in its tree.

    Between two words the forward LSTM has read the words before, and the backward LSTM the words after. A span is
    scored from the differences of both between its ends (Cross & Huang 2016, section 3.1; Stern et al. 2017, section
    3).

    NOTE: those parsers are trained on one tree with a margin. This one takes each span's share of votes as its target,
        so disagreement among voters is kept; the tree is decoded like the votes themselves
        (`stack_lm.parsing.ensemble.vote_tree`).

    Args:
        config: sizes.
    """

    config_class = SpanParserConfig
    base_model_prefix = "model"

    def __init__(self, config: SpanParserConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.lstm = nn.LSTM(
            config.embedding_size,
            config.hidden_size,
            config.num_layers,
            batch_first=True,
            dropout=config.dropout if config.num_layers > 1 else 0.0,
            bidirectional=True,
        )
        self.dropout = nn.Dropout(config.dropout)
        self.ends = nn.Linear(2 * config.hidden_size, config.span_size, bias=False)
        self.span_bias = nn.Parameter(torch.zeros(config.span_size))
        self.score = nn.Linear(config.span_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        fences: Tensor,
        attention_mask: Tensor | None = None,
        votes: Tensor | None = None,
        num_items_in_batch: float | None = None,
        **kwargs: Any,
    ) -> SpanParserOutput:
        """Score spans.

        Args:
            input_ids: token ids with a token that begins each sentence and one that ends it [B, T].
            fences: for each place between words, including both ends, the position of the last token before it
                [B, n + 1]; -1 after the end of a shorter sentence.
            attention_mask: 1 for tokens, 0 for padding after them [B, T].
            votes: share of the votes that each span has [B, n + 1, n + 1], from 0 to 1. Spans of fewer than two words
                and whole sentences are in all trees and do not count.
            num_items_in_batch: divisor of the loss; None is the number of spans that count.

        Raises:
            TypeError: for an unknown argument.
        """
        of_call = {key: value for key, value in kwargs.items() if key != "use_cache"}
        refuse_unknown(of_call, mask=attention_mask)
        real = fences >= 0
        sides = self.dropout(self._read(input_ids, fences.clamp(min=0), attention_mask))
        between = self.ends(sides)
        there = torch.triu(real.unsqueeze(1) & real.unsqueeze(2), diagonal=1)
        logits = self._score(between).masked_fill(~there, 0)
        if votes is None:
            return SpanParserOutput(logits=logits)
        counted = spans_that_count(real)
        targets = votes[counted].to(logits.dtype)
        losses = nn.functional.binary_cross_entropy_with_logits(logits[counted], targets, reduction="sum")
        number = counted.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        return SpanParserOutput(loss=losses / number, logits=logits)

    def _score(self, between: Tensor) -> Tensor:
        """The scores by start and stop [B, n + 1, n + 1], from the states between the words [B, n + 1, S].

        A span's features are the state at its stop minus that at its start, and the reverse for the backward LSTM.
        """
        starts = max(1, _MOST_UNITS // max(1, between.numel()))
        parts = [
            self.score(torch.relu(between.unsqueeze(1) - some.unsqueeze(2) + self.span_bias)).squeeze(-1)
            for some in between.split(starts, dim=1)
        ]
        return torch.cat(parts, dim=1)

    def _read(self, input_ids: Tensor, fences: Tensor, mask: Tensor | None) -> Tensor:
        """The LSTM's states on both sides of each fence, [B, n + 1, 2 H]; the backward part is negated."""
        embedded = self.embedding_dropout(self.embed_tokens(input_ids))
        if mask is None:
            outputs, _ = self.lstm(embedded)
        else:
            lengths = mask.sum(1).clamp(min=1).cpu()
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            outputs, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=input_ids.shape[1])
        forward, backward = outputs.chunk(2, dim=-1)
        place = fences.unsqueeze(-1).expand(-1, -1, forward.shape[-1])
        behind = (place + 1).clamp(max=input_ids.shape[1] - 1)
        return torch.cat((forward.gather(1, place), -backward.gather(1, behind)), dim=-1)


def spans_that_count(real: Tensor) -> Tensor:
    """The spans in which trees of a sentence can differ: of two words or more, and not the whole sentence.

    Args:
        real: whether a fence belongs to the sentence [B, n + 1].

    Returns:
        [B, n + 1, n + 1], bool.
    """
    inside = torch.triu(real.unsqueeze(1) & real.unsqueeze(2), diagonal=2)
    rows = torch.arange(len(real), device=real.device)
    inside[rows, 0, real.sum(1) - 1] = False
    return inside
