"""A causal transformer with layers of self-attention, stack attention (DuSell & Chiang 2024) and recurrent cells."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.nn import init
from transformers import GradientCheckpointingLayer
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..memory import under_transform
from ..nn.cell import CellState, Scan, StackRNNCell
from ..nn.controlled import Actions
from ..nn.initialization import CONTROLLER_BOUND
from ..nn.own_layer import OwnLayer
from ..nn.packing import Texts
from ..nn.stack_attention import StackAttention
from .cache import MemoryCache
from .configuration_transformer import ATTENTION, StackTransformerConfig, is_own, is_recurrent
from .modeling_heads import StackRNNForSequenceClassification, StackRNNForTokenClassification
from .modeling_layers import LayeredForCausalLM, LayeredModel, LayerInputs
from .modeling_stack_rnn import StackRNNPreTrainedModel

# Under this name a cache keeps the mask of all tokens so far, False at padding.
_REAL_TOKENS = "attention_mask"
# The longest wave of sinusoidal and rotary positions, over 2 pi.
_LONGEST_WAVE = 10_000.0


def _angles(positions: Tensor, size: int) -> Tensor:
    """The angles of positions [...] in waves of size / 2 different lengths: [..., size / 2], in float32."""
    waves = torch.arange(0, size, 2, device=positions.device, dtype=torch.float32)
    return positions.unsqueeze(-1).float() * torch.exp(waves * (-math.log(_LONGEST_WAVE) / size))


def sinusoids(positions: Tensor, size: int) -> Tensor:
    """The alternating sines and cosines of positions [...]: [..., size] (Vaswani et al. 2017, section 3.5)."""
    angles = _angles(positions, size + size % 2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :size]


def rotate(vectors: Tensor, angles: Tensor) -> Tensor:
    """Rotate vectors [..., B, heads, T, d] by angles [B, T, d / 2], pairs of their halves (Su et al. 2021)."""
    first, second = vectors.chunk(2, dim=-1)
    cosines, sines = (part.unsqueeze(1).to(vectors.dtype) for part in (angles.cos(), angles.sin()))
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1)


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Attention as in transformers' `attn_implementation="eager"`: its outputs [B, T, heads, d], and the weights."""
    weights = query @ key.transpose(2, 3) * settings["scaling"]
    weights = weights if mask is None else weights + mask
    weights = weights.softmax(-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(query.dtype)
    weights = nn.functional.dropout(weights, settings["dropout"], module.training)
    return (weights @ value).transpose(1, 2), weights


class SelfAttention(nn.Module):
    """Causal self-attention over several heads, through transformers' attention interface.

    Args:
        config: sizes.
        number: the number of its keys and values in a cache.
    """

    is_causal = True

    def __init__(self, config: StackTransformerConfig, number: int) -> None:
        super().__init__()
        size = config.hidden_size
        self.config, self.number = config, number
        self.heads, self.dropout = config.num_attention_heads, config.attention_dropout
        self.in_proj = nn.Linear(size, 3 * size, bias=config.bias)
        self.out_proj = nn.Linear(size, size, bias=config.bias)

    def forward(
        self,
        hidden: Tensor,
        visible: Any,
        angles: Tensor | None = None,
        cache: MemoryCache | None = None,
        attentions: list[Tensor] | None = None,
        texts: Texts | None = None,
    ) -> Tensor:
        """From [B, T, d] to [B, T, d].

        Args:
            hidden: the vectors of T tokens.
            visible: the mask from `create_causal_mask`; of packed rows that of their texts.
            angles: the angles of rotary positions [B, T, d / heads / 2]; likewise.
            cache: the cache of the tokens before; it is updated.
            attentions: gets the weights [B, heads, T, S], if it is given.
            texts: of packed rows.
        """
        parts = self.in_proj(hidden)
        parts = parts if texts is None else texts.apart(parts)
        parts = parts.unflatten(-1, (3, self.heads, -1))  # [B, T, 3, heads, d]
        parts = parts.permute(2, 0, 3, 1, 4)
        queries, keys = (parts[:2] if angles is None else rotate(parts[:2], angles)).unbind()
        values = parts[2]
        if cache is not None:
            keys, values = cache.update(keys, values, self.number)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, _eager)
        dropout = self.dropout if self.training else 0.0
        scaling = queries.shape[-1] ** -0.5
        if queries.shape[0] == 0:  # an empty batch, which not all of these functions can take
            return hidden
        mixed, weights = attend(self, queries, keys, values, visible, dropout=dropout, scaling=scaling)
        if attentions is not None:
            attentions.append(weights)
        return self.out_proj(mixed.flatten(2) if texts is None else texts.together(mixed.flatten(2)))


class Recurrence(nn.Module):
    """A recurrent cell in place of self-attention, with a linear map of its outputs: [B, T, d] to [B, T, d].

    Args:
        config: sizes.
        number: the number of the layer.
    """

    def __init__(self, config: StackTransformerConfig, number: int) -> None:
        super().__init__()
        self.cell = StackRNNCell(config.cell(number))
        self.output = nn.Linear(self.cell.output_size, config.hidden_size, bias=config.bias)
        self.detach: bool = config.layers[number]["detach"]

    def forward(self, hidden: Tensor, *given: Any, output_actions: bool) -> tuple[Tensor, Tensor, CellState, Actions]:
        """Run a sequence from a state and with a mask; see `StackAttention.forward`.

        Returns:
            The outputs [B, T, d], the cell's own [B, T, H], the last state, and the actions.
        """
        scan = Scan(*self.cell(hidden, *given, output_actions=output_actions))
        outputs = scan.outputs.detach() if self.detach else scan.outputs
        return self.output(outputs), scan.outputs, scan.state, scan.actions


class StackTransformerLayer(GradientCheckpointingLayer):
    """`y = x + dropout(attention(norm(x)))`, and `y + dropout(feed_forward(norm(y)))`.

    Args:
        config: sizes.
        layer: its number among the layers.
        number: the number of its state in a cache.

    Attributes:
        attention: self-attention, stack attention, a recurrent cell, or a layer from elsewhere.
    """

    def __init__(self, config: StackTransformerConfig, layer: int, number: int) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.bias
        kind = config.layers[layer]
        self.number = number
        self.attention_norm = nn.LayerNorm(size, config.layer_norm_epsilon, bias=bias)
        self.attention: nn.Module
        if kind == ATTENTION:
            self.attention = SelfAttention(config, number)
        elif is_own(kind):
            self.attention = OwnLayer(size, kind["module"], kind["settings"], f"layers[{layer}]")
        else:
            self.attention = Recurrence(config, layer) if is_recurrent(kind) else StackAttention(size, **kind)
        self.feed_forward_norm = nn.LayerNorm(size, config.layer_norm_epsilon, bias=bias)
        self.up, self.down = nn.Linear(size, inner, bias=bias), nn.Linear(inner, size, bias=bias)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        hidden: Tensor,
        visible: Any = None,
        angles: Tensor | None = None,
        mask: Tensor | None = None,
        cache: MemoryCache | None = None,
        output_actions: bool = False,
        attentions: list[Tensor] | None = None,
        texts: Texts | None = None,
    ) -> tuple[Tensor, Tensor, Actions]:
        """From [B, T, d] to [B, T, d], the input of losses on this layer, and the actions on its memory, if requested.

        Args:
            hidden: the vectors of T tokens.
            visible: see `SelfAttention`.
            angles: see `SelfAttention`.
            mask: [B, T] bool, False at padding; of packed rows that of their texts [N, L].
            cache: the cache of the tokens before; it is updated.
            output_actions: return the actions.
            attentions, texts: see `SelfAttention`.
        """
        normed, actions = self.attention_norm(hidden), Actions()
        if isinstance(self.attention, SelfAttention):
            mixed = own = self.attention(normed, visible, angles, cache, attentions, texts)
        else:
            first = None if cache is None else cache.state(self.number, hidden.shape[0])
            normed = normed if texts is None else texts.apart(normed)
            mixed, *of_cell, state, actions = self.attention(normed, first, mask, output_actions=output_actions)
            own = of_cell[0] if of_cell else mixed
            if texts is not None:
                mixed, own, actions = pytree.tree_map(texts.together, (mixed, own, actions))
            if cache is not None:
                cache.update_state(self.number, state, hidden.shape[1])
        hidden = hidden + self.dropout(mixed)
        inner = self.dropout(self.activation(self.up(self.feed_forward_norm(hidden))))
        return hidden + self.dropout(self.down(inner)), own, actions


class StackTransformerPreTrainedModel(StackRNNPreTrainedModel):
    """Loading, saving and initialising, shared by all stack transformers."""

    config_class = StackTransformerConfig
    takes_texts = True
    _no_split_modules = ["StackTransformerLayer"]  # noqa: RUF012
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if getattr(module, "initialises_itself", False):
            return
        super()._init_weights(module)
        if isinstance(module, nn.Embedding) and self.config.initialization == "xavier":
            init.uniform_(module.weight, -CONTROLLER_BOUND, CONTROLLER_BOUND)


class StackTransformerModel(StackTransformerPreTrainedModel, LayeredModel):
    """Token embeddings with positions, layers of self-attention and of stack attention, and a layer norm.

    Args:
        config: sizes and layers.
    """

    def __init__(self, config: StackTransformerConfig) -> None:
        super().__init__(config)
        config.complete()
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size)
        self.embed_positions = (
            nn.Embedding(config.max_position_embeddings, size) if config.position_encoding == "learned" else None
        )
        self.dropout = nn.Dropout(config.dropout)
        # In a cache the states of memories and recurrent cells come first.
        order = sorted(
            range(len(config.layers)), key=lambda i: config.layers[i] == ATTENTION or is_own(config.layers[i])
        )
        self.layers = nn.ModuleList(StackTransformerLayer(config, i, order.index(i)) for i in range(len(config.layers)))
        self.norm = nn.LayerNorm(size, config.layer_norm_epsilon, bias=config.bias)
        self.gradient_checkpointing = False
        self.post_init()

    def _run(self, layers: nn.ModuleList, given: LayerInputs) -> tuple[list[Tensor], list[Tensor], list[Actions]]:
        embedded, mask, cache, output_actions, position_ids, attentions, texts = given
        if cache is not None and self.gradient_checkpointing and self.training:
            raise ValueError("activation checkpointing cannot continue from past_key_values; got a cache")
        of_layers, like = mask, embedded
        if texts is not None:
            of_layers, like = texts.mask_with(mask), embedded.new_empty(*texts.mask.shape, 0)
        all_real = self._real_tokens(of_layers, cache, like)
        # Under a transform of torch.func nothing can find out whether the mask is needed.
        whole: dict[str, Any] = {"allow_is_causal_skip": False} if under_transform() else {}
        visible = create_causal_mask(self.config, like, all_real, cache, **whole)
        seen = 0 if cache is None else cache.get_seq_length(0)
        positions = self._positions(like, all_real, seen, position_ids)
        hidden, angles = self._add_positions(embedded, positions, texts)
        states, own, actions = [self.dropout(hidden)], [], []
        for layer in layers:
            hidden, of_layer, done = layer(
                states[-1], visible, angles, of_layers, cache, output_actions, attentions, texts
            )
            states.append(hidden)
            own.append(of_layer)
            actions.append(done)
        states[-1] = self.norm(states[-1])
        if mask is not None:
            states[-1] = states[-1].masked_fill(~mask.unsqueeze(-1), 0)
        return states, own if self.training and self.config.auxiliary_losses else [], actions

    def _attentions(self, wanted: bool | None) -> list[Tensor] | None:
        if wanted is None:
            wanted = self.config.output_attentions
        if wanted and self.config._attn_implementation != "eager":
            raise ValueError(
                "output_attentions needs attn_implementation='eager' (model.set_attn_implementation); it is "
                f"{self.config._attn_implementation!r}"
            )
        return [] if wanted else None

    def _real_tokens(self, mask: Tensor | None, cache: MemoryCache | None, embedded: Tensor) -> Tensor | None:
        """The mask without padding of all tokens so far, from that of this call's [B, T]; None without padding."""
        if cache is None:
            return mask
        batch_size, length = embedded.shape[:2]
        seen, earlier = cache.get_seq_length(0), cache.state(_REAL_TOKENS, batch_size)
        if mask is None and earlier is None:
            return None
        ones = embedded.new_ones(batch_size, seen + length, dtype=torch.bool)
        before = ones[:, :seen] if earlier is None else torch.cat((earlier, ones[:, earlier.shape[1] : seen]), dim=1)
        all_real = torch.cat((before, ones[:, seen:] if mask is None else mask), dim=1)
        cache.update_state(_REAL_TOKENS, all_real, seen + length - cache.get_seq_length(_REAL_TOKENS))
        return all_real

    def _positions(self, embedded: Tensor, all_real: Tensor | None, seen: int, given: Tensor | None) -> Tensor:
        """The positions of the tokens of this call, [B, T] or [1, T]."""
        batch_size, length = embedded.shape[:2]
        longest = self.config.max_position_embeddings
        if self.embed_positions is not None and seen + length > longest:
            raise ValueError(
                f"with learned positions a sequence has at most max_position_embeddings={longest} tokens; "
                f"got {seen + length}"
            )
        if given is not None:
            if given.dim() != 2 or given.shape[0] not in (1, batch_size) or given.shape[1] != length:
                raise ValueError(f"position_ids must be [{batch_size}, {length}]; got {list(given.shape)}")
            return given
        if all_real is None:
            return torch.arange(seen, seen + length, device=embedded.device).unsqueeze(0)
        return (all_real.cumsum(1)[:, seen:] - 1).clamp(min=0)

    def _add_positions(self, embedded: Tensor, positions: Tensor, texts: Texts | None) -> tuple[Tensor, Tensor | None]:
        """The input of the first layer [B, T, d], and the angles of rotary positions; see `SelfAttention`."""
        kind, size = self.config.position_encoding, self.config.hidden_size
        if self.config.scale_embeddings:
            embedded = embedded * math.sqrt(size)
        if kind == "rotary":
            return embedded, _angles(positions, size // self.config.num_attention_heads)
        positions = positions if texts is None else texts.together(positions)
        if kind == "sinusoidal":
            embedded = embedded + sinusoids(positions, size).to(embedded.dtype)
        elif self.embed_positions is not None:
            embedded = embedded + self.embed_positions(positions)
        return embedded, None


class StackTransformerForCausalLM(LayeredForCausalLM, StackTransformerPreTrainedModel):
    """A language model of self-attention, stack attention (DuSell & Chiang 2024) and recurrent cells.

    Called like `LayeredForCausalLM`. Without a memory among its layers it is a plain transformer.

    Args:
        config: sizes and layers.
    """

    config_class = StackTransformerConfig
    body_class = StackTransformerModel


class StackTransformerForSequenceClassification(StackRNNForSequenceClassification, StackTransformerPreTrainedModel):
    """A stack transformer that classifies a sequence by its last token, like `StackRNNForSequenceClassification`.

    Args:
        config: sizes and layers; `num_labels`.
    """

    config_class = StackTransformerConfig
    body_class = StackTransformerModel


class StackTransformerForTokenClassification(StackRNNForTokenClassification, StackTransformerPreTrainedModel):
    """A stack transformer that gives every step a class, like `StackRNNForTokenClassification`.

    Args:
        config: sizes and layers; `num_labels`.
    """

    config_class = StackTransformerConfig
    body_class = StackTransformerModel
