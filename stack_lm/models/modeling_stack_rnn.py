"""The transformers models: a stack RNN alone, and as a language model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.utils import ModelOutput, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults

from ..kernels.plain import forward_override
from ..memory.base import numbers_hidden
from ..nn.cell import CellState, Scan, StackRNNCell
from ..nn.controlled import Actions
from ..nn.controllers import LSTMController, OneHot
from ..nn.initialization import draw_weights, raise_forget_bias
from .arguments import check_ids, prepare_labels, refuse_unknown, token_mask, whole_numbers, why_logits
from .cache import CacheOutput, MemoryCache, MemoryGenerationMixin
from .configuration_stack_rnn import ModelConfig, StackRNNConfig
from .loss import causal_lm_loss
from .modeling_base import MemoryPreTrainedModel
from .packing import PackedRows, inside_texts, keep_apart, refuse_additive

Output = TypeVar("Output", bound=ModelOutput)


@dataclass
class StackRNNModelOutput(BaseModelOutputWithPast, CacheOutput):
    """Outputs of `StackRNNModel`.

    Attributes:
        last_hidden_state: the input of heads: the controller's outputs o_t [B, T, H], or with an output layer
            `tanh(W_o o_t + b_o)`, [B, T, output_size]; zeros at padding.
        cache: the state after the last token, also called `past_key_values`.
        hidden_states: the embeddings [B, T, E], then each controller layer's outputs [B, T, H], if requested.
        actions: see `stack_lm.nn.controlled.Actions`, if requested.
    """

    actions: Actions | tuple[Actions, ...] | None = None

    def answered(self, kind: type[Output], loss: Tensor | None, logits: Tensor | None) -> Output:
        """The outputs of a model with a head, from the network's outputs, the logits and perhaps a loss."""
        states = {"hidden_states": self.hidden_states, "attentions": self.attentions}
        return kind(loss, logits, self.cache, **states, actions=self.actions)


@dataclass
class StackRNNCausalLMOutput(CausalLMOutputWithPast, CacheOutput):
    """transformers' `CausalLMOutputWithPast` with the memory's `actions` (see `stack_lm.nn.controlled.Actions`)."""

    actions: Actions | tuple[Actions, ...] | None = None


class ModelArguments(TypedDict, total=False):
    """The arguments that a model with a head passes on: see `StackRNNModel.forward`.

    Attributes:
        position_ids: positions [B, T] for a stack transformer, in place of the numbers of its tokens; in packed rows,
            where texts begin, as with `cu_seqlens` and those after it.
        output_attentions: of a stack transformer with `attn_implementation="eager"`, return the weights of each layer
            of self-attention.
    """

    position_ids: Tensor | None
    use_cache: bool | None
    output_hidden_states: bool | None
    output_attentions: bool | None
    output_actions: bool


class HeadArguments(ModelArguments, PackedRows, total=False):
    """The further arguments of a model with a head: `StackRNNModel.forward`'s, and those of transformers' losses.

    Attributes:
        num_items_in_batch: divisor of the summed loss; by default the loss is a mean.
        ignore_index: the label that does not count, -100.
        shift_labels: for a language model alone, in place of labels: the state at step t predicts label t.
        return_dict: False for a tuple.
    """

    num_items_in_batch: Tensor | int | None
    ignore_index: int
    shift_labels: Tensor | None
    return_dict: bool | None


class StackRNNPreTrainedModel(MemoryPreTrainedModel):
    """Loading, saving and initialising, shared by all stack RNN models."""

    config_class: type[ModelConfig] = StackRNNConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    loss_arguments: ClassVar[tuple[str, ...]] = ("num_items_in_batch", "ignore_index")
    takes_texts: ClassVar[bool] = False
    _no_split_modules = ["StackRNNCell"]  # noqa: RUF012

    def embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """The input of the network, x_t [B, T, E]: `inputs_embeds`, or the tokens' embeddings or one-hot vectors.

        Raises:
            ValueError: unless exactly one of the two is given, with these dimensions, and has tokens.
            IndexError: for ids that are not in the vocabulary.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give exactly one of input_ids and inputs_embeds")
        if input_ids is not None and input_ids.dim() != 2:
            raise ValueError(f"input_ids must be [B, T]; got {list(input_ids.shape)}")
        if inputs_embeds is not None and inputs_embeds.dim() != 3:
            raise ValueError(f"inputs_embeds must be [B, T, E]; got {list(inputs_embeds.shape)}")
        if inputs_embeds is None:
            assert input_ids is not None
            check_ids(input_ids, self.config.vocab_size)
            tokens: Any = self.embed_tokens
            inputs_embeds = tokens(input_ids)
        if inputs_embeds.shape[1] == 0:
            raise ValueError("the input has no tokens (generate leaves out those that past_key_values has seen)")
        return inputs_embeds

    @staticmethod
    def _cache(given: MemoryCache | None, use_cache: bool | None) -> MemoryCache | None:
        """The cache that a call updates and returns: the given one, or a new one if the call needs one.

        Raises:
            ValueError: for a cache of another kind.
        """
        if not isinstance(given, MemoryCache | None):
            raise ValueError(f"past_key_values must be a MemoryCache; got {type(given).__name__}")
        return MemoryCache() if given is None and use_cache else given

    @staticmethod
    def _step_mask(attention_mask: Tensor | None, batch_size: int, length: int) -> Tensor | None:
        """[B, T] bool, or None if every step counts."""
        attention_mask = token_mask(attention_mask)
        if attention_mask is None:
            return None
        shape = tuple(attention_mask.shape)
        if len(shape) != 2 or shape[0] != batch_size or shape[1] < length:
            raise ValueError(
                f"attention_mask must be [{batch_size}, {length}] or longer in the second dimension; got {list(shape)}"
            )
        refuse_additive(attention_mask)
        mask = attention_mask[:, -length:].bool()
        # A mask of ones costs time for nothing. On a GPU, the check would cost a synchronisation.
        look = mask.device.type == "cpu" and not numbers_hidden()
        return None if look and bool(mask.all()) else mask

    def _scan(
        self,
        cell: StackRNNCell,
        inputs: Tensor,
        cache: MemoryCache | None,
        mask: Tensor | None,
        number: int = 0,
        **outputs: Any,
    ) -> Scan:
        """The scan of a cell from its state in a cache, under its number, which is then updated."""
        state = None if cache is None else cache.state(number, inputs.shape[0])
        scan = self._scan_from(cell, inputs, state, mask, **outputs)
        if cache is not None:
            cache.update_state(number, scan.state, inputs.shape[1])
        return scan

    def _scan_from(
        self, cell: StackRNNCell, inputs: Tensor, state: CellState | None, mask: Tensor | None, **outputs: Any
    ) -> Scan:
        """The scan of a cell, with gradient checkpointing if that is enabled."""
        if not (self.gradient_checkpointing and self.training):
            return Scan(*cell(inputs, state, mask, **outputs))  # its call, which FSDP wraps
        # Activation checkpointing over the sequence: pieces of sqrt(T) steps, of which only the states between them
        # are kept, so that memory grows with sqrt(T) instead of T.
        if getattr(self._gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
            raise ValueError("activation checkpointing of a stack RNN needs use_reentrant=False; got True")
        pieces = []
        length = max(1, math.isqrt(inputs.shape[1]))
        state = state if state is not None else cell.initial_state(inputs.shape[0])
        masks = [None] * inputs.shape[1] if mask is None else mask.split(length, dim=1)
        for piece, piece_mask in zip(inputs.split(length, dim=1), masks, strict=False):
            scan = self._gradient_checkpointing_func(
                lambda *args: Scan(*cell(*args, **outputs)), piece, state, piece_mask
            )
            pieces.append(scan)
            state = scan.state
        readings = torch.cat([p.readings for p in pieces], dim=1) if outputs["output_readings"] else None
        layers = None
        if outputs["output_layers"]:
            layers = tuple(torch.cat(parts, dim=1) for parts in zip(*(p.layers for p in pieces), strict=True))
        actions = {name: torch.cat([p.actions[name] for p in pieces], dim=1) for name in pieces[0].actions}
        outputs_of_all = torch.cat([p.outputs for p in pieces], dim=1)
        return Scan(outputs_of_all, readings, layers, Actions(actions), pieces[-1].state)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        draw_weights(self, module, self.config.initialization)
        if isinstance(module, LSTMController) and self.config.forget_bias:
            raise_forget_bias(module, self.config.forget_bias)
        if module is getattr(self.base_model, "reading_exit", None):
            nn.init.zeros_(module.weight)  # a trained model that gets an exit starts unchanged

    def run_model(
        self, arguments: HeadArguments, **inputs: Tensor | MemoryCache | None
    ) -> tuple[StackRNNModelOutput, dict[str, Any]]:
        """Run the model under a head: return its outputs, and the arguments that are not for it.

        Raises:
            TypeError: for arguments that nothing would use. A custom `loss_function` gets all of them.
        """
        rest: dict[str, Any] = dict(arguments)
        names = (*ModelArguments.__annotations__, *PackedRows.__annotations__)
        own = {name: rest.pop(name) for name in names if name in rest}
        if not hasattr(self, "_loss_function"):
            refuse_unknown(arguments, (*names, *self.loss_arguments))
        return self.model(**inputs, **own), rest


class StackRNNModel(StackRNNPreTrainedModel):
    """Token embeddings (or one-hot inputs), a recurrent cell with a memory, and an optional output layer.

    Args:
        config: sizes, controller, memory and controls.
    """

    def __init__(self, config: StackRNNConfig) -> None:
        super().__init__(config)
        config.complete()
        self.embed_tokens: nn.Module = (
            OneHot(config.vocab_size)
            if config.input_encoding == "one_hot"
            else nn.Embedding(config.vocab_size, config.embedding_size)
        )
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.cell = StackRNNCell(config)
        self.output_layer = (
            None if config.output_size is None else nn.Linear(config.hidden_size, config.output_size, bias=config.bias)
        )
        self.reading_exit = (
            nn.Linear(self.cell.memory.output_size, config.hidden_size, bias=False)
            if config.reading_exit == "output" and self.cell.memory.output_size
            else None
        )
        self.gradient_checkpointing = False
        self.post_init()

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
        output_actions: bool = False,
        **kwargs: Any,
    ) -> StackRNNModelOutput:
        """Run token ids, or embeddings, through the network.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T] or longer, zero at padding; the last T columns of a longer one count. Padding, left
                or right, changes nothing: the state is carried through it. A causal mask of pairs [B, T, T] or
                [B, 1, T, T] is taken too.
            cache: the state to continue from, which is updated; also called `past_key_values`.
            inputs_embeds: [B, T, E], in place of input_ids.
            use_cache: return the state. A given state is always updated and returned.
            output_hidden_states: return the embeddings and every layer's outputs.
            output_actions: return the actions on the memory.
            **kwargs: borders of packed rows, by which each text is read apart, from an empty memory, at the cost of
                padding to the longest: `position_ids` [B, T] that start again at 0, `cu_seqlens` [N + 1] of one row, or
                `seq_idx` [B, T]. There is then no cache. `torch.compile` does not look at `position_ids`: give it the
                others. What transformers passes to every model has no effect.

        Raises:
            ValueError: unless exactly one of input_ids and inputs_embeds is given, and for shapes that do not fit.
            TypeError: for an unknown argument.
        """
        refuse_unknown(kwargs, mask=attention_mask)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        if input_ids is not None and not output_hidden_states and self._takes_ids(input_ids, inputs_embeds):
            inputs = input_ids
        else:
            inputs_embeds = self.embed(input_ids, inputs_embeds)
            inputs = self.embedding_dropout(inputs_embeds)
        batch_size, length = inputs.shape[:2]
        cache = self._cache(cache, use_cache)
        mask = self._step_mask(attention_mask, batch_size, length)
        scan = self._scan(
            self.cell,
            inputs,
            cache,
            mask,
            output_actions=output_actions,
            output_layers=bool(output_hidden_states),
            output_readings=self.reading_exit is not None,
        )
        hidden = self.transform(scan.outputs, scan.readings)
        if hidden is not scan.outputs and mask is not None:
            hidden = hidden.masked_fill(~mask.unsqueeze(-1), 0)
        return StackRNNModelOutput(
            hidden,
            cache,
            hidden_states=None if scan.layers is None or inputs_embeds is None else (inputs_embeds, *scan.layers),
            actions=scan.actions if output_actions else None,
        )

    def _takes_ids(self, input_ids: Tensor, inputs_embeds: Tensor | None) -> bool:
        """True if the cell can take token ids for one-hot vectors, because nothing lies between the two."""
        return (
            inputs_embeds is None
            and input_ids.dim() == 2
            and input_ids.shape[1] > 0
            and type(self.embed_tokens) is OneHot
            and not (self.training and self.embedding_dropout.p > 0)
            and forward_override(self.embed_tokens) is None
            and forward_override(self.embedding_dropout) is None
        )

    def embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        embedded = super().embed(input_ids, inputs_embeds)
        is_one_hot = input_ids is not None and self.config.input_encoding == "one_hot"
        return embedded.to(self.cell.reference_tensor.dtype) if is_one_hot else embedded

    def transform(self, outputs: Tensor, readings: Tensor | None = None) -> Tensor:
        """Return the input of the heads [..., H], through the output layer if there is one.

        Args:
            outputs: the outputs of the controller, o_t [..., H].
            readings: the readings of the same steps, r_t [..., D], if the output sees them: `o_t + W [v_t; b_t]`.
        """
        if self.reading_exit is not None:
            assert readings is not None  # it requests them from the scan
            outputs = outputs + self.reading_exit(self.cell.output_features(outputs, readings))
        return outputs if self.output_layer is None else torch.tanh(self.output_layer(outputs))


class StackRNNForCausalLM(StackRNNPreTrainedModel, MemoryGenerationMixin):
    """A stack RNN language model: `softmax(W_y o_t + b_y)` predicts token t + 1 (Merrill et al. 2019, section 2.2).

    With `memory="none"` and `controller="lstm"` it is the LSTM baseline.

    Args:
        config: sizes, controller, memory and controls.
    """

    loss_arguments = (*StackRNNPreTrainedModel.loss_arguments, "shift_labels")
    body_class: ClassVar[type[StackRNNPreTrainedModel]] = StackRNNModel
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model: StackRNNPreTrainedModel = self.body_class(config)
        self.dropout = nn.Dropout(config.output_dropout)
        self.lm_head = nn.Linear(config.head_input_size, config.vocab_size, bias=config.head_bias)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        skip_logits: bool | None = None,
        loss_dtype: str | torch.dtype | None = None,
        softmax_samples: int | None = None,
        cache: MemoryCache | None = None,
        **kwargs: Unpack[HeadArguments],
    ) -> StackRNNCausalLMOutput:
        """Predict the next tokens; see `StackRNNModel.forward` for the arguments that are not listed here.

        Args:
            labels: [B, T], shifted inside, so `labels=input_ids` trains a language model. -100 is ignored, and so is a
                label that a padded step would predict, such as the first token's after left padding. The loss is the
                mean over predicted tokens, in nats.
            logits_to_keep: compute the logits [B, T', V] of the last T' steps only, or of the steps given; 0 is all.
            skip_logits: compute the loss without holding all logits, which is faster, and return None for them (see
                `stack_lm.models.loss`). This is the default in training mode with labels, unless something else needs
                logits: logits_to_keep, a custom `loss_function`, or an lm_head that an adapter or a hook has changed.
            loss_dtype: type of the matrix products of the loss without logits and of its gradients, "float32" or
                "bfloat16"; by default autocast's, or else the model's. The softmax and sums are still in float32.
            softmax_samples: estimate the loss without logits from the words of the batch and this number of others (see
                `stack_lm.models.loss.sampled_cross_entropy`); by default it is exact.
            **kwargs: see `HeadArguments`.

        Raises:
            ValueError: if skip_logits is True but logits are needed, or if loss_dtype or softmax_samples is given but
                logits are computed, and for labels that are not one integer for each token.
            TypeError: for an unknown argument, such as label_smoothing, which transformers' losses ignore.
        """
        has_labels = labels is not None or kwargs.get("shift_labels") is not None
        inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask, "cache": cache}
        inputs |= {"inputs_embeds": inputs_embeds} | self._of_network(has_labels)
        outputs, of_loss = self.run_model(kwargs, **inputs)
        hidden: Any = outputs.last_hidden_state
        own_loss = self.loss_function is not ForCausalLMLoss
        shifted = of_loss.get("shift_labels")
        if not own_loss:
            shape = hidden.shape[:2] if isinstance(logits_to_keep, int) and logits_to_keep == 0 else None
            if shifted is not None:
                of_loss["shift_labels"] = whole_numbers(shifted, shape)
            elif labels is not None:
                labels = whole_numbers(labels, shape)
        if has_labels:
            inside = inside_texts(kwargs, attention_mask, (hidden.shape[0], hidden.shape[1]), hidden.device)
            labels, of_loss = prepare_labels(labels, inside, of_loss)
        needed = why_logits(has_labels, logits_to_keep, own_loss, self.lm_head)
        if skip_logits and needed:
            raise ValueError(f"skip_logits=True cannot be used: {needed}")
        loss = logits = None
        if needed or not (self.training if skip_logits is None else skip_logits):
            if loss_dtype is not None or softmax_samples is not None:
                options = {"loss_dtype": str(loss_dtype), "softmax_samples": softmax_samples}
                name = "loss_dtype" if softmax_samples is None else "softmax_samples"
                reason = needed or "logits are computed; skip_logits=True skips them"
                raise ValueError(f"{name}={options[name]!r} cannot be used: {reason}")
            steps = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
            logits = self.lm_head(self.dropout(hidden[:, steps]))
            if has_labels:
                loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **of_loss)
        else:
            of_loss |= {"loss_dtype": loss_dtype, "softmax_samples": softmax_samples}
            loss = causal_lm_loss(self.dropout(hidden), self.lm_head, labels, **of_loss)
        return self._answer(outputs, loss, logits, labels=labels, **of_loss)

    def _of_network(self, has_labels: bool) -> dict[str, Any]:
        """Further arguments of the network under the head; `has_labels`: whether this call computes a loss."""
        return {}

    def _answer(
        self, outputs: StackRNNModelOutput, loss: Tensor | None, logits: Tensor | None, **of_loss: Any
    ) -> StackRNNCausalLMOutput:
        """The output, from that of the network; `of_loss` has the arguments of `causal_lm_loss`."""
        return outputs.answered(StackRNNCausalLMOutput, loss, logits)
