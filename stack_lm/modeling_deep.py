"""Recurrent layers that read each other, with or without a memory, and losses on the outputs of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults

from .arguments import refuse_unknown
from .cache import MemoryCache
from .configuration_deep import DeepStackRNNConfig, PlannedLayer
from .layers.cell import Scan, StackRNNCell
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

        It predicts what the head of that layer's loss predicts. Losses on layers before stay, with heads of their own,
        also those that shared the model's. Weights are copied.

        Args:
            layer: number of the last layer that is kept.

        Raises:
            ValueError: if the layer has no loss with a head of its own.
        """
        heads = [head.loss.layer for head in self._heads if head.lm_head is not None]
        if layer not in heads:
            raise ValueError(
                f"layer must be one with a loss and a head of its own, {heads or 'and none has'}; got {layer}"
            )
        kept = [i for i, head in enumerate(self._heads) if head.loss.layer < layer]
        own = next(i for i, head in enumerate(self._heads) if head.loss.layer == layer)
        # The shared head of the new model is another one.
        losses = [self.config.auxiliary_losses[i] | {"head": "own"} for i in kept]
        fields = self.config.to_dict() | {
            "layers": self.config.layers[: layer + 1],
            "auxiliary_losses": losses,
            "output_size": self._heads[own].loss.output_size,
            "tie_word_embeddings": False,
        }
        model: Any = type(self)(self.config_class(**fields))
        sources = {"lm_head.": f"auxiliary_heads.{own}.lm_head."}
        sources["model.output_layer."] = f"auxiliary_heads.{own}.output_layer."
        sources |= {f"auxiliary_heads.{new}.": f"auxiliary_heads.{old}." for new, old in enumerate(kept)}
        weights = self.state_dict() | self._own_heads(kept)
        for name, parameter in model.state_dict().items():
            start = next((start for start in sources if name.startswith(start)), None)
            parameter.copy_(weights[name if start is None else sources[start] + name.removeprefix(start)])
        made: DeepStackRNNForCausalLM = model.to(device=self.device, dtype=self.dtype).train(self.training)
        return made

    @torch.no_grad()
    def _own_heads(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """The weights of output layers that predict as these heads do with the model's."""
        weights: dict[str, Tensor] = {}
        for number in numbers:
            shared, head = self.lm_head, self._heads[number]
            if head.lm_head is not None:
                continue
            of_layer, name = head.projection, f"auxiliary_heads.{number}.lm_head"
            weights[f"{name}.weight"] = shared.weight if of_layer is None else shared.weight @ of_layer.weight
            if shared.bias is not None:
                more = 0 if of_layer is None else shared.weight @ of_layer.bias
                weights[f"{name}.bias"] = shared.bias + more
        return weights
