"""Recurrent layers that read each other, each with a memory or none, and losses on the outputs of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults

from .arguments import refuse_unknown
from .cache import MemoryCache
from .configuration_deep import AuxiliaryLoss, DeepStackRNNConfig, PlannedLayer
from .layers.cell import Scan, StackRNNCell
from .layers.controlled import Actions
from .loss import causal_lm_loss, is_plain_linear
from .modeling_stack_rnn import (
    StackRNNCausalLMOutput,
    StackRNNForCausalLM,
    StackRNNModelOutput,
    StackRNNPreTrainedModel,
)


@dataclass
class DeepStackRNNModelOutput(StackRNNModelOutput):
    """Outputs of `DeepStackRNNModel`.

    Attributes:
        last_hidden_state: the last layer's outputs [B, T, H], or with an output layer `tanh(W_o o_t + b_o)`; zeros at
            padding.
        past_key_values: the states of all layers after the last token.
        hidden_states: the embeddings [B, T, E], then each layer's outputs, if asked for.
        actions: of the one layer with a memory; of several a tuple, in their order. If asked for.
        layer_outputs: each layer's outputs [B, T, H].
    """

    layer_outputs: tuple[Tensor, ...] | None = None


@dataclass
class DeepStackRNNCausalLMOutput(StackRNNCausalLMOutput):
    """`StackRNNCausalLMOutput` with the parts of the loss.

    Attributes:
        loss: in training mode that of the head and the weighted auxiliary losses; otherwise that of the head.
        loss_parts: in training mode, without weights and gradients and in nats: "main", of the head, and such as
            "auxiliary_0", by the number of the layer.
    """

    loss_parts: dict[str, Tensor] | None = None


class DeepStackRNNModel(StackRNNPreTrainedModel):
    """Token embeddings and recurrent layers that read each other.

    Args:
        config: sizes, and the layers.
    """

    config_class = DeepStackRNNConfig

    def __init__(self, config: DeepStackRNNConfig) -> None:
        super().__init__(config)
        config.complete()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.embedding_size)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.hidden_dropout = nn.Dropout(config.hidden_dropout)
        self._plan: Sequence[PlannedLayer] = config.plan()
        self._read = {source.layer for layer in self._plan for source in layer.sources if source.reading}
        self.layers = nn.ModuleList(StackRNNCell(layer.cell) for layer in self._plan)
        self.output_layer = (
            None if config.output_size is None else nn.Linear(config.hidden_size, config.output_size, bias=config.bias)
        )
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    @merge_with_config_defaults
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_actions: bool = False,
        **kwargs: Any,
    ) -> DeepStackRNNModelOutput:
        """Run token ids, or embeddings, through the network.

        Args, Raises: as `StackRNNModel.forward`.
        """
        refuse_unknown(kwargs)
        inputs_embeds = self.embed(input_ids, inputs_embeds)
        batch_size, length = inputs_embeds.shape[:2]
        cache = self._cache(past_key_values, use_cache)
        mask = self._step_mask(attention_mask, batch_size, length)
        scans = self._run(self.embedding_dropout(inputs_embeds), cache, mask, output_actions)
        outputs = tuple(scan.outputs for scan in scans)
        hidden = outputs[-1]
        if self.output_layer is not None:
            hidden = torch.tanh(self.output_layer(hidden))
            hidden = hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(-1), 0)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return DeepStackRNNModelOutput(
            last_hidden_state=hidden,
            past_key_values=cache,
            hidden_states=(inputs_embeds, *outputs) if output_hidden_states else None,
            actions=_of_memories(scans) if output_actions else None,
            layer_outputs=outputs,
        )

    def _run(
        self, embedded: Tensor, cache: MemoryCache | None, mask: Tensor | None, output_actions: bool
    ) -> list[Scan]:
        """The scans of all layers, each of which updates its state in the cache."""
        scans: list[Scan] = []
        cells: Any = self.layers
        for number, (cell, layer) in enumerate(zip(cells, self._plan, strict=True)):
            scan = self._scan(
                cell,
                self._gather(layer, embedded, scans),
                cache,
                mask,
                number,
                output_actions=output_actions,
                output_layers=False,
                output_readings=number in self._read,
            )
            scans.append(scan)
        return scans

    def _gather(self, layer: PlannedLayer, embedded: Tensor, scans: Sequence[Scan]) -> Tensor:
        """Concatenate a layer's sources, [B, T, E]."""
        parts = []
        for source in layer.sources:
            if source.layer is None:
                parts.append(embedded)
                continue
            below = scans[source.layer]
            part = below.readings if source.reading else below.outputs
            assert part is not None
            parts.append(self.hidden_dropout(part.detach() if layer.fields.detach else part))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


class AuxiliaryHead(nn.Module):
    """Makes of one layer's outputs the hidden states that an output layer predicts tokens from.

    Args:
        loss: whose head it is.
        size: of the layer's outputs.
        config: of the model.

    Attributes:
        lm_head: the output layer; None where it is the model's.
    """

    def __init__(self, loss: AuxiliaryLoss, size: int, config: DeepStackRNNConfig) -> None:
        super().__init__()
        self.loss = loss
        self.output_layer: nn.Linear | None = None
        self.projection: nn.Linear | None = None
        self.lm_head: nn.Linear | None = None
        if loss.head == "own":
            if loss.output_size is not None:
                self.output_layer = nn.Linear(size, loss.output_size, bias=config.bias)
            self.lm_head = nn.Linear(loss.output_size or size, config.vocab_size, bias=config.bias)
        elif size != config.head_input_size:
            self.projection = nn.Linear(size, config.head_input_size, bias=config.bias)

    def forward(self, outputs: Tensor) -> Tensor:
        """From a layer's outputs [B, T, H] to hidden states [B, T, H']."""
        if self.output_layer is not None:
            return torch.tanh(self.output_layer(outputs))
        return outputs if self.projection is None else self.projection(outputs)


class DeepStackRNNForCausalLM(StackRNNForCausalLM):
    """A language model of recurrent layers that read each other, some of which learn from a loss of their own.

    Called as `StackRNNForCausalLM`. In training mode its loss is the sum of the head's and of the auxiliary losses,
    which are parts of the output too (`DeepStackRNNCausalLMOutput`). In evaluation mode it is the head's alone, and
    nothing is computed of the others.

    Args:
        config: sizes, layers and losses.

    Attributes:
        updates: of the weights so far, which the weights of auxiliary losses go by: see `begin_update`.
    """

    config_class = DeepStackRNNConfig
    body_class = DeepStackRNNModel

    def __init__(self, config: DeepStackRNNConfig) -> None:
        super().__init__(config)
        sizes = [layer.fields.hidden_size for layer in config.plan()]
        self.auxiliary_heads = nn.ModuleList(AuxiliaryHead(loss, sizes[loss.layer], config) for loss in config.losses())
        self.updates = 0
        self.post_init()

    @property
    def _heads(self) -> list[AuxiliaryHead]:
        return list(self.auxiliary_heads)  # type: ignore[arg-type]

    def begin_update(self, step: int) -> None:
        """Say which update of the weights comes next: `step` of them have been made."""
        self.updates = step

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Change the size of the vocabulary, also of auxiliary heads of their own; see transformers."""
        before = self.config.vocab_size
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        if self.config.vocab_size != before:
            for head in self._heads:
                if head.lm_head is not None:
                    head.lm_head = self._get_resized_lm_head(head.lm_head, self.config.vocab_size, mean_resizing=False)
        return embeddings

    def _answer(
        self, outputs: StackRNNModelOutput, loss: Tensor | None, logits: Tensor | None, **of_loss: Any
    ) -> DeepStackRNNCausalLMOutput:
        answer = outputs.answered(DeepStackRNNCausalLMOutput, loss, logits)
        if loss is None or not self.training:
            return answer
        parts = {"main": loss.detach()}
        assert isinstance(outputs, DeepStackRNNModelOutput)
        assert outputs.layer_outputs is not None
        for head in self._heads:
            part = self._auxiliary_loss(head, outputs.layer_outputs[head.loss.layer], **of_loss)
            parts[f"auxiliary_{head.loss.layer}"] = part.detach()
            loss = loss + head.loss.weight_at(self.updates) * part
        answer.loss, answer.loss_parts = loss, parts
        return answer

    def _auxiliary_loss(self, head: AuxiliaryHead, outputs: Tensor, **of_loss: Any) -> Tensor:
        hidden = self.dropout(head(outputs))
        lm_head = self.lm_head if head.lm_head is None else head.lm_head
        if is_plain_linear(lm_head):
            return causal_lm_loss(hidden, lm_head, **of_loss)
        logits = lm_head(hidden)  # through what an adapter or a hook has put there
        of_loss.pop("loss_dtype")
        loss: Tensor = ForCausalLMLoss(logits, vocab_size=self.config.vocab_size, **of_loss)
        return loss


def _of_memories(scans: Sequence[Scan]) -> Actions | tuple[Actions, ...]:
    """The actions of the layers with a memory: of one alone, or of several."""
    actions = tuple(scan.actions for scan in scans if scan.actions)
    return actions[0] if len(actions) == 1 else actions or Actions()
