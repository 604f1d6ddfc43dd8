"""A stack RNN between an input and an output buffer, which runs for a given number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.utils import ModelOutput, can_return_tuple

from ..memory import StackState
from ..memory.buffers import read_off
from ..memory.controls import ActionProjection
from ..memory.fields import control_from_config
from ..nn.buffered import Buffers, run_buffered
from ..nn.controlled import Actions
from .arguments import refuse_unknown
from .configuration_buffered import BufferedStackRNNConfig
from .modeling_stack_rnn import StackRNNModel, StackRNNPreTrainedModel


@dataclass
class BufferedStackRNNOutput(ModelOutput):
    """The output of a buffered network.

    Attributes:
        loss: mean cross-entropy over the labelled positions, in nats.
        logits: the output sequence [B, M, V], read off the output buffer.
        output_strength: total strength pushed to the output buffer, [B], in elements: the output's length plus
            `config.output_delay`.
        actions: see `stack_lm.nn.controlled.Actions`, over the steps [B, K]; in addition to those of the memory
            `input_pop_strength`, `output_push_strength` and `input_strength`, the strength left in the input buffer,
            all in elements.
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    output_strength: Tensor | None = None
    actions: Actions | None = None


class BufferedStackRNNForTransduction(StackRNNPreTrainedModel):
    """A network that maps a sequence to another of any length (Hao et al. 2018, section 2.3, figure 2).

    A step pops i_{t-1} from the input buffer and reads x_t from it; runs the controller and its memory on x_t; and
    pushes y_t = W_y o_t + b_y to the output buffer with strength o_t. After the last step the output is read off the
    output buffer, one element's worth at a time. i_t and o_t are emitted from the controller's output, like the
    memory's actions, so the network decides at each step how much it reads and writes. Once the input has been popped,
    x_t is zero. With both strengths fixed to 1 and one step per symbol, this is the network without buffers. Outputs
    are not fed back, so there is no `generate`.

    NOTE: the vectors in the output buffer are logits, as in the paper. A position that mixes elements therefore mixes
        logits, and a position without any output predicts all symbols equally.

    Args:
        config: sizes, controller, memory, controls and number of steps.
    """

    config_class = BufferedStackRNNConfig
    supports_gradient_checkpointing = False

    def __init__(self, config: BufferedStackRNNConfig) -> None:
        super().__init__(config)
        config.complete()
        self.model = StackRNNModel(config)
        self.buffer_strengths = (
            control_from_config(config, "input_pop"),
            control_from_config(config, "output_push"),
        )
        widths = [control.width for control in self.buffer_strengths]
        biases = [control.initial_bias() for control in self.buffer_strengths]
        self.buffer_projection = (
            ActionProjection(config.hidden_size, widths, biases, bias=config.bias) if any(widths) else None
        )
        self.dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(
            config.head_input_size, config.target_vocab_size or config.vocab_size, bias=config.bias
        )
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear | None:
        """The output layer; None if its symbols are not those of the input, so that these can be resized alone."""
        return self.lm_head if self.config.target_vocab_size is None else None

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        target_length: int | None = None,
        output_actions: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> BufferedStackRNNOutput:
        """Run the network and read its output off the output buffer.

        Args:
            input_ids: [B, N].
            attention_mask: [B, N], zero at padding, left or right, which is then not in the input buffer.
            inputs_embeds: [B, N, E], in place of input_ids.
            labels: output symbols [B, M], not shifted: label j belongs to position j. -100 is ignored.
            target_length: positions to read, M; by default the number of labels, or else of steps, which are
                `steps_per_token` for each token that is not padding, plus `extra_steps`.
            output_actions: return the actions on memory and buffers.
            num_items_in_batch: divisor of the summed loss; by default the loss is a mean.

        Raises:
            ValueError: unless exactly one of input_ids and inputs_embeds is given, and for shapes that do not fit.
            TypeError: for an unknown argument.
        """
        refuse_unknown(kwargs, mask=attention_mask)
        buffer, actions = self._run(input_ids, attention_mask, inputs_embeds, output_actions)
        batch_size, steps = buffer.strengths.shape
        if labels is not None:
            if labels.dim() != 2 or labels.shape[0] != batch_size or target_length not in (None, labels.shape[1]):
                wanted = f"[{batch_size}, {'M' if target_length is None else target_length}]"
                raise ValueError(f"labels must be {wanted}; got {list(labels.shape)}")
            target_length = labels.shape[1]
        length = steps if target_length is None else target_length
        logits = read_off(buffer, length, self.config.output_delay)
        loss = None
        if labels is not None:
            loss = _cross_entropy(logits, labels, num_items_in_batch)
        return BufferedStackRNNOutput(loss, logits, buffer.strengths.sum(-1), actions)

    @torch.no_grad()
    def transduce(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        max_length: int | None = None,
    ) -> list[list[int]]:
        """The most probable output symbols of each sequence.

        An output has as many symbols as there are whole elements in the output buffer (half an element or more counts
        as one), and ends with the first `eos_token_id` if the configuration has one.

        Args:
            input_ids: as of `forward`.
            attention_mask: as of `forward`.
            max_length: maximum number of symbols to read; None: all.
        """
        buffer, _ = self._run(input_ids, attention_mask, None, False)
        delay = self.config.output_delay
        lengths = (buffer.strengths.sum(-1) + 0.5 - delay).clamp(min=0).long().tolist()
        if max_length is not None:
            lengths = [min(length, max_length) for length in lengths]
        symbols = read_off(buffer, max(lengths), delay).argmax(-1).tolist()
        outputs = [row[:length] for row, length in zip(symbols, lengths, strict=True)]
        eos = self.config.eos_token_id
        ends = set(eos) if isinstance(eos, list) else {eos}
        for output in outputs:
            end = next((i for i, symbol in enumerate(output) if symbol in ends), len(output))
            del output[end + 1 :]
        return outputs

    def _run(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        output_actions: bool,
    ) -> tuple[StackState, Actions | None]:
        """Run all steps: return the output buffer, values [B, K, V] and strengths [B, K], and the actions."""
        inputs_embeds = self.model.embed(input_ids, inputs_embeds)
        batch_size, length = inputs_embeds.shape[:2]
        mask = self.model._step_mask(attention_mask, batch_size, length)
        per_token, extra = self.config.steps_per_token, self.config.extra_steps
        steps, active = per_token * length + extra, None
        if mask is not None:  # a sequence takes steps for its own tokens only
            active = torch.arange(steps, device=mask.device) < (per_token * mask.sum(1) + extra).unsqueeze(1)
        values = self.model.embedding_dropout(inputs_embeds)
        scan = run_buffered(self.model.cell, self.buffering, values, mask, steps, active, output_actions)
        # Nothing reads the output buffer while the network runs, so it is written all at once.
        hidden = self.model.transform(scan.outputs)
        buffer = StackState(self.lm_head(self.dropout(hidden)), scan.pushed)
        return buffer, scan.actions if output_actions else None

    @property
    def buffering(self) -> Buffers:
        """The emissions of the buffers' strengths, and the projection of outputs."""
        return Buffers(*self.buffer_strengths, self.buffer_projection)


def _cross_entropy(logits: Tensor, labels: Tensor, num_items: Tensor | int | None) -> Tensor:
    """The mean over the labelled positions; over `num_items` where a Trainer accumulates several batches."""
    flat = logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32))
    targets = labels.flatten().to(logits.device)
    if num_items is None:
        return F.cross_entropy(flat, targets)
    return F.cross_entropy(flat, targets, reduction="sum") / num_items
