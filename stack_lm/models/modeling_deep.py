"""Recurrent layers that read each other, with or without a memory, and losses on the outputs of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults

from ..nn.cell import Scan, StackRNNCell
from .arguments import refuse_unknown
from .cache import MemoryCache
from .configuration_deep import DeepStackRNNConfig, PlannedLayer
from .modeling_layers import LayeredForCausalLM, LayeredModelOutput, of_memories, refuse_cache, up_to_last_memory
from .modeling_stack_rnn import StackRNNPreTrainedModel


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
        cache: MemoryCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_actions: bool = False,
        actions_only: bool = False,
        **kwargs: Any,
    ) -> LayeredModelOutput:
        """Run token ids, or embeddings, through the network.

        Args, Raises: as `StackRNNModel.forward`. `actions_only` returns only the actions, and does not run the layers
            after the last memory; a cache is then an error.
        """
        refuse_unknown(kwargs)
        inputs_embeds = self.embed(input_ids, inputs_embeds)
        batch_size, length = inputs_embeds.shape[:2]
        cache = self._cache(cache, use_cache)
        mask = self._step_mask(attention_mask, batch_size, length)
        if actions_only:
            refuse_cache(cache)
            scans = self._run(self.embedding_dropout(inputs_embeds), cache, mask, up_to_last_memory(self.layers), True)
            return LayeredModelOutput(actions=of_memories([scan.actions for scan in scans]))
        scans = self._run(self.embedding_dropout(inputs_embeds), cache, mask, self.layers, output_actions)
        outputs = tuple(scan.outputs for scan in scans)
        hidden = outputs[-1]
        if self.output_layer is not None:
            hidden = torch.tanh(self.output_layer(hidden))
            hidden = hidden if mask is None else hidden.masked_fill(~mask.unsqueeze(-1), 0)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return LayeredModelOutput(
            hidden,
            cache,
            hidden_states=(inputs_embeds, *outputs) if output_hidden_states else None,
            actions=of_memories([scan.actions for scan in scans]) if output_actions else None,
            layer_outputs=outputs,
        )

    def _run(
        self,
        embedded: Tensor,
        cache: MemoryCache | None,
        mask: Tensor | None,
        cells: Any,
        output_actions: bool,
    ) -> list[Scan]:
        """The scans of the first layers, each of which updates its state in the cache."""
        scans: list[Scan] = []
        for number, (cell, layer) in enumerate(zip(cells, self._plan, strict=False)):
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


class DeepStackRNNForCausalLM(LayeredForCausalLM):
    """A language model of recurrent layers that read each other, some with their own loss.

    Args:
        config: sizes, layers and losses.
    """

    config_class = DeepStackRNNConfig
    body_class = DeepStackRNNModel

    def up_to(self, layer: int) -> DeepStackRNNForCausalLM:
        """A new model of the first layers, up to one with a head of its own, which becomes the model's head.

        It predicts what the head of that layer's loss predicts. Losses on layers before go. Weights are copied.

        Args:
            layer: number of the last layer that is kept.

        Raises:
            ValueError: if the layer has no loss with a head of its own.
        """
        heads = {head.loss.layer: i for i, head in enumerate(self._heads) if head.lm_head is not None}
        if layer not in heads:
            raise ValueError(
                f"layer must be one with a loss and a head of its own, {[*heads] or 'and none has'}; got {layer}"
            )
        fields = self.config.to_dict() | {
            "layers": self.config.layers[: layer + 1],
            "auxiliary_losses": [],
            "output_size": self._heads[heads[layer]].loss.output_size,
            "tie_word_embeddings": False,
        }
        model: Any = type(self)(self.config_class(**fields))
        weights, head = self.state_dict(), f"auxiliary_heads.{heads[layer]}."
        weights |= {
            name.replace(head + "output_layer", "model.output_layer").removeprefix(head): part
            for name, part in weights.items()
            if name.startswith(head)
        }
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
        made: DeepStackRNNForCausalLM = model.to(device=self.device, dtype=self.dtype).train(self.training)
        return made
