"""Recurrent layers that read each other, with or without a memory, and losses on the outputs of some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..nn.cell import Scan, StackRNNCell
from ..nn.controlled import Actions
from .configuration_deep import DeepStackRNNConfig, PlannedLayer
from .modeling_layers import LayeredForCausalLM, LayeredModel, LayerInputs


class DeepStackRNNModel(LayeredModel):
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

    def _run(self, layers: nn.ModuleList, given: LayerInputs) -> tuple[list[Tensor], list[Tensor], list[Actions]]:
        scans: list[Scan] = []
        embedded = self.embedding_dropout(given.embedded)
        for number, (cell, layer) in enumerate(zip(layers, self._plan, strict=False)):
            scan = self._scan(
                cell,  # type: ignore[arg-type]
                self._gather(layer, embedded, scans),
                given.cache,
                given.mask,
                number,
                output_actions=given.output_actions,
                output_layers=False,
                output_readings=number in self._read,
            )
            scans.append(scan)
        outputs = [scan.outputs for scan in scans]
        return [given.embedded, *outputs], outputs, [scan.actions for scan in scans]

    def transform(self, outputs: Tensor) -> Tensor:
        return outputs if self.output_layer is None else torch.tanh(self.output_layer(outputs))

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
        # Assigned, because copies into a new model's float32 would round weights in float64.
        model.load_state_dict({name: weights[name].clone() for name in model.state_dict()}, assign=True)
        made: DeepStackRNNForCausalLM = model.to(self.device).train(self.training)
        return made
