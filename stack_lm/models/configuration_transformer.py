"""StackTransformerConfig: a transformer with a memory or a recurrent cell for self-attention in some layers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any, Literal

from ..core.checks import NotNegative, Positive, Probability, build
from ..core.errors import InputError
from ..memory import memory_class
from ..memory.fields import Parts, Size
from ..memory.settings import stack_attention_settings
from ..nn.own_layer import layer_class
from .configuration_layers import LayeredConfig, RecurrentLayer, plan_cell, split_layer
from .configuration_stack_rnn import UNDECIDED

ATTENTION = "attention"
_DEFAULT_LAYERS = (ATTENTION, ATTENTION, "stack", ATTENTION, ATTENTION)


@dataclass(frozen=True)
class OwnLayerEntry:
    """A layer from outside this package: its import path, and the arguments of its class."""

    module: str
    settings: dict[str, Any] = field(default_factory=dict)


class StackTransformerConfig(LayeredConfig):
    """Configuration of a causal transformer with layers of self-attention, of stack attention, and recurrent ones.

    By default the third of five layers has a stack of strengths. Without a memory it is a plain transformer: with
    `position_encoding="learned"`, `hidden_act="gelu_new"`, `tie_word_embeddings=True` and `head_bias=False` it is that
    of GPT-2.

    Args:
        hidden_size: size of the vectors between layers, d.
        layers: layers from the first to the last: "attention"; stack attention, by the name of a memory or as a mapping
            of `memory`, its name, and its settings (see `StackRNNConfig`; the defaults are those of `StackAttention`);
            a recurrent cell, as a mapping with `controller` (see `RecurrentLayer`); or a causal layer of your own, as a
            mapping with `module`, the import path of its class, and `settings` (see `stack_lm.nn.own_layer`).
        auxiliary_losses: see `LayeredConfig`; on the output of a layer's self-attention or of its replacement.
        num_attention_heads: heads of each layer of self-attention; they divide hidden_size.
        intermediate_size: size of the feed-forward networks: 4 d unless given.
        hidden_act: activation of the feed-forward networks, "relu", "gelu" or "gelu_new" (with tanh, as in GPT-2).
        position_encoding: encoding of positions: "sinusoidal", "learned", "rotary" (in self-attention) or "none".
        max_position_embeddings: longest sequence with learned positions.
        scale_embeddings: multiply embeddings by the root of d, as with sinusoids.
        layer_norm_epsilon: epsilon of layer norms.
        bias: whether self-attention, recurrent cells, feed-forward networks and layer norms have biases. Stack
            attention has none.
        head_bias: whether heads have biases.
        dropout: dropout on embeddings, in feed-forward networks, and on the outputs of sublayers.
        attention_dropout: dropout on the weights of self-attention.
        initialization: initial weights: "normal" (with a standard deviation of `initializer_range`, as GPT-2), "torch"
            (the defaults of torch's own modules) or "xavier" (see `stack_lm.nn.initialization`).
        initializer_range: standard deviation of the "normal" initialization.

    Raises:
        ValueError: for a value that its field does not allow, incompatible values, or an unknown keyword argument.

    Example:
        >>> stack = {"memory": "superposition", "memory_size": 32}
        >>> config = StackTransformerConfig(hidden_size=64, layers=["attention", stack, "attention"])
        >>> parser = {"controller": "lstm", "memory": "stack", "hidden_size": 100, "detach": True}
        >>> config = StackTransformerConfig(layers=[parser, "attention"], auxiliary_losses=[{"layer": 0}])
    """

    model_type = "stack_transformer"
    hidden_size: Size = 128
    num_attention_heads: Parts = 4
    intermediate_size: Size = UNDECIDED
    hidden_act: Literal["relu", "gelu", "gelu_new"] = "relu"
    position_encoding: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    max_position_embeddings: Size = 1024
    scale_embeddings: bool = True
    layer_norm_epsilon: Positive = 1e-5
    bias: bool = True
    head_bias: bool = True
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    initialization: Literal["normal", "torch", "xavier"] = "normal"
    initializer_range: NotNegative = 0.02

    @property
    def memory_names(self) -> list[str]:
        return [layer["memory"] for layer in self.layers or () if isinstance(layer, dict) and "memory" in layer]

    @property
    def layer_sizes(self) -> list[int]:
        """Sizes of the inputs of auxiliary losses: the outputs of recurrent cells, and of the sublayers otherwise."""
        return [layer["hidden_size"] if is_recurrent(layer) else self.hidden_size for layer in self.layers]

    def cell(self, number: int) -> SimpleNamespace:
        """The settings of the `StackRNNCell` of a recurrent layer, by the layer's number."""
        return self._recurrent(self.layers[number], f"layers[{number}]")[1]

    def _recurrent(self, layer: dict[str, Any], where: str) -> tuple[RecurrentLayer, SimpleNamespace]:
        """A recurrent layer's own fields, and the settings of its cell."""
        fields, settings = split_layer({"hidden_size": self.hidden_size} | layer, RecurrentLayer, where)
        return fields, plan_cell(fields, settings, self.hidden_size, self.bias, where)[0]

    def complete(self) -> None:
        size, heads = self.hidden_size, self.num_attention_heads
        if self.intermediate_size is None:
            self.intermediate_size = 4 * size
        self.layers = [self._complete_layer(i, layer) for i, layer in enumerate(self.layers or _DEFAULT_LAYERS)]
        self.auxiliary_losses = self.auxiliary_losses or []
        losses = self.losses()
        self.auxiliary_losses = [asdict(loss) for loss in losses]
        for i, layer in enumerate(self.layers):
            if is_recurrent(layer) and layer["detach"] and all(loss.layer != i for loss in losses):
                raise InputError(
                    f"layers[{i}] has no loss to learn from: it is detached, and has no auxiliary loss (to leave it "
                    "untrained, add one of weight 0)"
                )
        if ATTENTION not in self.layers:
            return
        if size % heads:
            raise InputError(f"num_attention_heads must divide hidden_size={size}; got {heads}")
        if self.position_encoding == "rotary" and size // heads % 2:
            raise InputError(
                f"position_encoding='rotary' needs heads of an even size; hidden_size={size} and "
                f"num_attention_heads={heads} make it {size // heads}"
            )

    def _complete_layer(self, number: int, layer: Any) -> str | dict[str, Any]:
        """A layer: "attention", or a memory or recurrent cell with all its settings."""
        where = f"layers[{number}]"
        if layer == ATTENTION:
            return ATTENTION
        if is_own(layer):
            own = build(OwnLayerEntry, layer, f"{where}.")
            layer_class(own.module, f"{where}.module")
            return asdict(own)
        if is_recurrent(layer):
            fields, cell = self._recurrent(layer, where)
            return asdict(fields) | {name: getattr(cell, name) for name in memory_class(fields.memory).settings}
        settings = {"memory": layer} if isinstance(layer, str) else dict(layer) if isinstance(layer, dict) else {}
        name = settings.pop("memory", None)
        if not isinstance(name, str):
            raise InputError(
                f"{where} must be {ATTENTION!r}, the name of a memory, or a mapping with the key 'memory', "
                f"'controller' or 'module'; got {layer!r}"
            )
        try:
            return {"memory": name} | stack_attention_settings(name, settings, self.hidden_size)
        except ValueError as error:
            raise InputError(f"{where} must be {ATTENTION!r} or have a memory: {error}") from error


def is_own(layer: Any) -> bool:
    """True if an entry of `layers` is a layer from outside this package."""
    return isinstance(layer, dict) and "module" in layer


def is_recurrent(layer: Any) -> bool:
    """True if an entry of `layers` is a recurrent cell."""
    return isinstance(layer, dict) and "controller" in layer
