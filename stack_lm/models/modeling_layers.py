"""Language models of several layers, some with their own loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.utils import can_return_tuple, logging
from transformers.utils.generic import merge_with_config_defaults

from ..core.labels import IGNORED
from ..nn import memories
from ..nn.controlled import Actions
from ..nn.packing import Texts
from .arguments import is_plain_linear, prepare_labels, refuse_unknown
from .cache import MemoryCache
from .configuration_layers import AuxiliaryLoss
from .loss import causal_lm_loss
from .modeling_stack_rnn import (
    StackRNNCausalLMOutput,
    StackRNNForCausalLM,
    StackRNNModelOutput,
    StackRNNPreTrainedModel,
)
from .packing import keep_apart

logger = logging.get_logger(__name__)


@dataclass
class LayeredModelOutput(StackRNNModelOutput):
    """Outputs of a network of layers, which may have losses.

    Attributes:
        last_hidden_state: the input of heads [B, T, H]; zeros at padding.
        cache: the states of all layers after the last token, also called `past_key_values`.
        hidden_states: the vectors before the first layer and after each, if requested.
        actions: the actions of the layer with a memory, or a tuple if there are several, in their order; if requested.
        layer_outputs: the outputs of each layer [B, T, H] to which auxiliary losses apply; in a transformer those of
            self-attention or its replacement, in training mode, if it has such losses.
    """

    layer_outputs: tuple[Tensor, ...] | None = None


@dataclass
class LayeredCausalLMOutput(StackRNNCausalLMOutput):
    """`StackRNNCausalLMOutput` with the parts of the loss.

    Attributes:
        loss: that of the head, in nats. In training mode its gradient is that of its sum with the weighted auxiliary
            losses.
        loss_parts: in training mode, unweighted, without gradients and in nats: "main" for the head, and "auxiliary_0"
            and so on, by the number of the layer.
    """

    loss_parts: dict[str, Tensor] | None = None


def of_memories(actions: Sequence[Actions]) -> Actions | tuple[Actions, ...]:
    """The actions of the layers with a memory, which are not empty: of a single one, or a tuple of several."""
    there = tuple(each for each in actions if each)
    return there[0] if len(there) == 1 else there or Actions()


def up_to_last_memory(layers: nn.ModuleList) -> nn.ModuleList:
    """The layers that decide the actions: those up to the last one with a memory."""
    last = max((i for i, layer in enumerate(layers) if memories(layer)), default=-1)
    return layers[: last + 1]


class LayerInputs(NamedTuple):
    """The inputs of a run of layers.

    Attributes:
        embedded: the token embeddings [B, T, E].
        mask: [B, T] bool, False at padding; or None.
        cache: the cache of the tokens before, which is updated; or None.
        output_actions: collect the actions.
        position_ids: the positions of the tokens [B, T] or [1, T]; None: their numbers.
        attentions: collects the weights [B, heads, T, S] of each layer of self-attention; or None.
        texts: of packed rows, if `takes_texts`; or None.
    """

    embedded: Tensor
    mask: Tensor | None
    cache: MemoryCache | None
    output_actions: bool
    position_ids: Tensor | None
    attentions: list[Tensor] | None
    texts: Texts | None


class _WithGradient(torch.autograd.Function):
    """Hidden states as they are, whose backward pass also is that of a loss."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, loss: Tensor) -> Tensor:
        ctx.like = loss
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.ones_like(ctx.like)


class LayeredModel(StackRNNPreTrainedModel):
    """Token embeddings and a list of layers, some with a memory, which a subclass runs in `_run`.

    Attributes:
        losses_of: the weighted auxiliary losses of layers' outputs, input ids and mask; the model with a head sets it.
    """

    layers: nn.ModuleList
    losses_of: Callable[[Sequence[Tensor], Tensor, Tensor | None], Tensor] | None = None

    @can_return_tuple
    @merge_with_config_defaults
    @keep_apart
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cache: MemoryCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        output_actions: bool = False,
        position_ids: Tensor | None = None,
        actions_only: bool = False,
        auxiliary_losses: bool = True,
        texts: Texts | None = None,
        **kwargs: Any,
    ) -> LayeredModelOutput:
        """Run token ids, or embeddings, through the network.

        Args, Raises: as `StackRNNModel.forward`. In a transformer, `position_ids` [B, T] or [1, T] replace the numbers
            of the tokens, from 0 without padding; they do not change the order in which memories and recurrent cells
            read. With learned positions a sequence that is longer is an error too. `actions_only` returns only the
            actions, and does not run the layers after the last memory; a cache is then an error. In training mode the
            gradient of `last_hidden_state` brings that of the auxiliary losses with it, as of a language model of
            input_ids, for trainers that compute losses from it; `auxiliary_losses=False` leaves it out.
            `texts` comes from `keep_apart`.
        """
        refuse_unknown(kwargs | {"position_ids": position_ids}, mask=attention_mask)
        embedded = self.embed(input_ids, inputs_embeds)
        cache = self._cache(cache, use_cache)
        if actions_only and cache is not None:
            raise ValueError("actions_only does not run all layers, so it takes use_cache=False and no past_key_values")
        mask = self._step_mask(attention_mask, *embedded.shape[:2])
        layers = up_to_last_memory(self.layers) if actions_only else self.layers
        output_actions = output_actions or actions_only
        attentions = self._attentions(output_attentions)
        given = LayerInputs(embedded, mask, cache, output_actions, position_ids, attentions, texts)
        states, own, actions = self._run(layers, given)
        done = of_memories(actions) if output_actions else None
        if actions_only:
            return LayeredModelOutput(actions=done)
        hidden = self.transform(states[-1])
        if hidden is not states[-1] and mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0)
        if auxiliary_losses and self.training and torch.is_grad_enabled() and self.config.auxiliary_losses:
            if texts is not None:
                own, mask = [texts.apart(each) for each in own], texts.mask_with(mask)
                input_ids = None if input_ids is None else texts.apart(input_ids)
            hidden = self._with_losses(hidden, own, input_ids, mask)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        of_layers = tuple(states) if output_hidden_states else None
        weights = None if attentions is None else tuple(attentions)
        return LayeredModelOutput(
            hidden,
            cache,
            hidden_states=of_layers,
            attentions=weights,
            actions=done,
            layer_outputs=tuple(own) or None,
        )

    def _run(self, layers: nn.ModuleList, given: LayerInputs) -> tuple[list[Tensor], list[Tensor], list[Actions]]:
        """Run the first layers, each of which updates its state in the cache.

        Returns:
            The vectors before the first layer and after each; the outputs to which losses of layers apply, if there are
            any; and the actions of each layer.
        """
        raise NotImplementedError

    def _attentions(self, wanted: bool | None) -> list[Tensor] | None:
        """An empty list for the weights of self-attention, if they are wanted.

        Raises:
            ValueError: if the model has none.
        """
        refuse_unknown({"output_attentions": wanted})
        return None

    def _with_losses(
        self, hidden: Tensor, outputs: Sequence[Tensor], input_ids: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """The hidden states, with the gradient of the auxiliary losses: see `forward`."""
        if self.losses_of is None or input_ids is None:
            if not torch.compiler.is_compiling():
                logger.warning_once(
                    "Auxiliary losses need the heads and the input_ids of a language model; in this training they do "
                    "not arise, and layers that only they reach (detach: true) keep their weights."
                )
            return hidden
        return _WithGradient.apply(hidden, self.losses_of(outputs, input_ids, mask))

    def transform(self, outputs: Tensor) -> Tensor:
        """Return the input of the heads [..., H], from the outputs of the last layer."""
        return outputs


class AuxiliaryHead(nn.Module):
    """The map from one layer's outputs to the hidden states from which an output layer predicts tokens.

    Args:
        loss: the loss that it serves.
        size: the size of the layer's outputs.
        config: the configuration of the model.

    Attributes:
        lm_head: the output layer; None if it is the model's.
    """

    def __init__(self, loss: AuxiliaryLoss, size: int, config: Any) -> None:
        super().__init__()
        self.loss = loss
        self.output_layer: nn.Linear | None = None
        self.projection: nn.Linear | None = None
        self.lm_head: nn.Linear | None = None
        if loss.head == "own":
            if loss.output_size is not None:
                self.output_layer = nn.Linear(size, loss.output_size, bias=config.head_bias)
            self.lm_head = nn.Linear(loss.output_size or size, config.vocab_size, bias=config.head_bias)
        elif size != config.head_input_size:
            self.projection = nn.Linear(size, config.head_input_size, bias=config.head_bias)

    def forward(self, outputs: Tensor) -> Tensor:
        """From a layer's outputs [B, T, H] to hidden states [B, T, H']."""
        if self.output_layer is not None:
            return torch.tanh(self.output_layer(outputs))
        return outputs if self.projection is None else self.projection(outputs)


class LayeredForCausalLM(StackRNNForCausalLM):
    """A language model of several layers, some of which may have their own loss.

    Called like `StackRNNForCausalLM`, its loss is the head's. In training mode the gradient is that of the sum with the
    auxiliary losses, which are in the output (`LayeredCausalLMOutput`). Without labels, as under a trainer with a loss
    of its own, they take the input ids as labels: see `LayeredModel.forward`.

    Args:
        config: the configuration of the layers, `layer_sizes`, and of the losses, `losses()`.

    Attributes:
        updates: number of updates so far, on which the weights of auxiliary losses depend: see `begin_update`.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.auxiliary_heads = nn.ModuleList(
            AuxiliaryHead(loss, config.layer_sizes[loss.layer], config) for loss in config.losses()
        )
        self.updates = 0
        if self._heads:
            self.model.losses_of = self._losses_of_ids  # type: ignore[assignment]
        self.post_init()

    @property
    def _heads(self) -> list[AuxiliaryHead]:
        return list(self.auxiliary_heads)  # type: ignore[arg-type]

    def begin_update(self, step: int) -> None:
        """Record that `step` updates of the weights have been made."""
        self.updates = step

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Change the size of the vocabulary, also in the heads of auxiliary losses; see transformers."""
        before = self.config.vocab_size
        embeddings = super().resize_token_embeddings(new_num_tokens, *args, **kwargs)
        if self.config.vocab_size != before:
            for head in self._heads:
                if head.lm_head is not None:
                    head.lm_head = self._get_resized_lm_head(head.lm_head, self.config.vocab_size, mean_resizing=False)
        return embeddings

    def _of_network(self, has_labels: bool) -> dict[str, Any]:
        return {"auxiliary_losses": not has_labels}  # with labels, `_answer` computes them

    def _answer(
        self, outputs: StackRNNModelOutput, loss: Tensor | None, logits: Tensor | None, **of_loss: Any
    ) -> LayeredCausalLMOutput:
        answer = outputs.answered(LayeredCausalLMOutput, loss, logits)
        if not self.training or not self._heads or loss is None:
            return answer
        parts = {"main": loss.detach()}
        assert isinstance(outputs, LayeredModelOutput)
        assert outputs.layer_outputs is not None
        labels, steps = of_loss.get("shift_labels", of_loss.get("labels")), outputs.layer_outputs[0].shape[1]
        if isinstance(labels, Tensor) and labels.shape[1] != steps:  # those of logits_to_keep
            raise ValueError(
                f"auxiliary losses are of all {steps} steps, so in training mode labels must be too; got "
                f"{list(labels.shape)}: leave out logits_to_keep"
            )
        for head in self._heads:
            part = self._auxiliary_loss(head, outputs.layer_outputs[head.loss.layer], **of_loss)
            parts[f"auxiliary_{head.loss.layer}"] = part.detach()
            # The gradient of the sum, but the value of the head's loss, which compares with evaluation.
            loss = loss + head.loss.weight_at(self.updates) * (part - part.detach())
        answer.loss, answer.loss_parts = loss, parts
        return answer

    def _losses_of_ids(self, outputs: Sequence[Tensor], input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """The weighted auxiliary losses of a language model of the input ids, of `layer_outputs`; 0 without a label."""
        labels = input_ids
        if mask is not None:
            labels, _ = prepare_labels(input_ids.masked_fill(~mask, IGNORED), mask, {})  # type: ignore[assignment]
        count = (labels[:, 1:] != IGNORED).sum().clamp(min=1)
        parts = (
            head.loss.weight_at(self.updates)
            * self._auxiliary_loss(head, outputs[head.loss.layer], labels=labels, num_items_in_batch=count)
            for head in self._heads
        )
        return torch.stack(list(parts)).sum()

    def _auxiliary_loss(self, head: AuxiliaryHead, outputs: Tensor, **of_loss: Any) -> Tensor:
        hidden = self.dropout(head(outputs))
        lm_head = self.lm_head if head.lm_head is None else head.lm_head
        if is_plain_linear(lm_head):
            return causal_lm_loss(hidden, lm_head, **of_loss)
        logits = lm_head(hidden)  # through any adapter or hook on it
        for name in ("loss_dtype", "softmax_samples"):
            of_loss.pop(name, None)
        loss: Tensor = ForCausalLMLoss(logits, vocab_size=self.config.vocab_size, **of_loss)
        return loss
