"""A small transformer with memories between its layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from stack_lm import (
    MemoryCache,
    MemoryGenerationMixin,
    MemoryLayer,
    MemoryPreTrainedModel,
    ModelClass,
    ModelKind,
    register_model,
)


class MemoryTransformerConfig(PreTrainedConfig):
    """One layer more than it has memories."""

    model_type = "memory_transformer"

    vocab_size: int = 100
    hidden_size: int = 32
    num_heads: int = 2
    max_position_embeddings: int = 256
    memories: list[str] | tuple[str, ...] = ("stack",)
    memory_size: int = 8
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None


class Layer(nn.Module):
    """Self-attention and a feed-forward network; its state in a cache has a number."""

    def __init__(self, config: MemoryTransformerConfig, number: int) -> None:
        super().__init__()
        size = config.hidden_size
        self.number, self.heads = number, config.num_heads
        self.norm, self.project, self.merge = nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.feed = nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, hidden: Tensor, visible: Tensor, cache: MemoryCache | None) -> Tensor:
        parts = self.project(self.norm(hidden)).unflatten(-1, (3, self.heads, -1))  # [B, T, 3, heads, d]
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            keys, values = cache.update(keys, values, self.number)
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=visible.unsqueeze(1))
        hidden = hidden + self.merge(mixed.transpose(1, 2).flatten(2))
        return hidden + self.feed(hidden)


@dataclass
class MemoryTransformerOutput(BaseModelOutputWithPast):
    actions: tuple[Any, ...] | None = None


@dataclass
class MemoryTransformerCausalLMOutput(CausalLMOutputWithPast):
    actions: tuple[Any, ...] | None = None


class MemoryTransformer(MemoryPreTrainedModel):
    config_class = MemoryTransformerConfig
    base_model_prefix = "model"

    def __init__(self, config: MemoryTransformerConfig) -> None:
        super().__init__(config)
        size, number = config.hidden_size, len(config.memories)
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        self.embed_positions = nn.Embedding(config.max_position_embeddings, size)
        self.stacks = nn.ModuleList(MemoryLayer(size, name, memory_size=config.memory_size) for name in config.memories)
        self.readers = nn.ModuleList(nn.Linear(stack.reading_size, size) for stack in self.stacks)
        self.layers = nn.ModuleList(Layer(config, number + i) for i in range(number + 1))
        self.norm = nn.LayerNorm(size)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        use_cache: bool | None = None,
        output_actions: bool = False,
        **kwargs: Any,
    ) -> MemoryTransformerOutput:
        batch, length = input_ids.shape
        cache = MemoryCache() if past_key_values is None and use_cache else past_key_values
        seen = 0 if cache is None else cache.get_seq_length()
        if attention_mask is None:
            attention_mask = input_ids.new_ones(batch, seen + length)
        real = attention_mask.bool()
        steps = torch.arange(seen + length, device=input_ids.device)
        queries = steps[seen:, None]
        visible = (steps <= queries) & real.unsqueeze(1) | (steps == queries)  # [B, T, seen + T]
        positions = (real.cumsum(1) - 1).clamp(min=0)[:, seen:]
        hidden = self.layers[0](self.embed_tokens(input_ids) + self.embed_positions(positions), visible, cache)
        actions = []
        for i, (stack, reader, layer) in enumerate(zip(self.stacks, self.readers, self.layers[1:], strict=True)):
            state = None if cache is None else cache.state(i, batch)
            readings, state, done = stack(hidden, state, real[:, seen:], output_actions=output_actions)
            if cache is not None:
                cache.update_state(i, state, length)
            actions.append(done)
            hidden = layer(hidden + reader(readings), visible, cache)
        return MemoryTransformerOutput(self.norm(hidden), cache, actions=tuple(actions) if output_actions else None)


class MemoryTransformerForCausalLM(MemoryPreTrainedModel, MemoryGenerationMixin):
    config_class = MemoryTransformerConfig
    base_model_prefix = "model"

    def __init__(self, config: MemoryTransformerConfig) -> None:
        super().__init__(config)
        self.model = MemoryTransformer(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: MemoryCache | None = None,
        use_cache: bool | None = None,
        output_actions: bool = False,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> MemoryTransformerCausalLMOutput:
        outputs = self.model(input_ids, attention_mask, past_key_values, use_cache, output_actions)
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
        return MemoryTransformerCausalLMOutput(loss, logits, outputs.past_key_values, actions=outputs.actions)


register_model(
    ModelKind(
        MemoryTransformerConfig,
        (
            ModelClass(MemoryTransformer, "AutoModel"),
            ModelClass(MemoryTransformerForCausalLM, "AutoModelForCausalLM", trains_on=("text",)),
        ),
        head_apart=True,
    )
)
