"""StackTransformerConfig: a transformer with a memory or a recurrent cell for self-attention in some layers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any, Literal

from .checks import CountOrZero, NotNegative, Positive, Probability
from .configuration_layers import AuxiliaryLoss, RecurrentLayer, auxiliary_losses, plan_cell, split_layer
from .configuration_stack_rnn import ModelConfig, Tokens
from .errors import InputError
from .memory import memory_class
from .memory.fields import Parts, Size
from .memory.settings import stack_attention_settings
from .messages import did_you_mean, unknown_key

ATTENTION = "attention"
_DEFAULT_LAYERS = (ATTENTION, ATTENTION, "stack", ATTENTION, ATTENTION)
_UNDECIDED: Any = None


@dataclass(frozen=True)
class RecurrentSublayer(RecurrentLayer):
    """A recurrent cell in place of self-attention; the settings of its memory are given beside these fields.

    Attributes:
        memory: "none" (a plain recurrent cell) or the name of a registered memory.
        controller: kind of controller; see `StackRNNConfig`.
        hidden_size: size of the cell's output: d unless given.
        detach: pass no gradient back from the layers above: the cell learns only from its auxiliary loss.
    """

    detach: bool = False


class StackTransformerConfig(ModelConfig):
    """Configuration of a causal transformer with layers of self-attention, of stack attention, and recurrent ones.

    By default the third of five layers has a stack of strengths. Without a memory it is a plain transformer: with
    `position_encoding="learned"`, `hidden_act="gelu_new"`, `tie_word_embeddings=True` and `head_bias=False` it is that
    of GPT-2.

    Args:
        vocab_size: number of token ids.
        hidden_size: size of the vectors between layers, d.
        layers: layers from the first to the last: "attention"; stack attention, by the name of a memory or as a mapping
            of `memory`, its name, and its settings (see `StackRNNConfig`; the defaults are those of `StackAttention`);
            or a recurrent cell, as a mapping with `controller` (see `RecurrentSublayer`).
        auxiliary_losses: for a language model, a mapping for each, of the fields of `AuxiliaryLoss`, on the output of a
            layer's self-attention or of its replacement. The training loss is that of the model's head plus the
            weighted sum of these losses; in evaluation it is that of the head alone.
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
        output_dropout: dropout on the inputs of heads.
        initialization: initial weights: "normal" (with a standard deviation of `initializer_range`, as GPT-2), "torch"
            (the defaults of torch's own modules) or "xavier" (see `stack_lm.initialization`).
        initializer_range: standard deviation of the "normal" initialization.
        tie_word_embeddings: share input and output embeddings.
        use_cache: return keys, values and states in `cache`.
        pad_token_id: the token that pads sequences.
        bos_token_id: the token that begins sequences.
        eos_token_id: the token, or tokens, that end sequences.

    Raises:
        ValueError: for a value that its field does not allow, incompatible values, or an unknown keyword argument.

    Example:
        >>> stack = {"memory": "superposition", "memory_size": 32}
        >>> config = StackTransformerConfig(hidden_size=64, layers=["attention", stack, "attention"])
        >>> parser = {"controller": "lstm", "memory": "stack", "hidden_size": 100, "detach": True}
        >>> config = StackTransformerConfig(layers=[parser, "attention"], auxiliary_losses=[{"layer": 0}])
    """

    model_type = "stack_transformer"
    # Read by stack RNN models; there is no other value here.
    input_encoding = "embedding"
    forget_bias = 0.0

    vocab_size: Tokens = 10_000
    hidden_size: Size = 128
    layers: list[Any] = _UNDECIDED
    auxiliary_losses: list[dict[str, Any]] = _UNDECIDED
    num_attention_heads: Parts = 4
    intermediate_size: Size = _UNDECIDED
    hidden_act: Literal["relu", "gelu", "gelu_new"] = "relu"
    position_encoding: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    max_position_embeddings: Size = 1024
    scale_embeddings: bool = True
    layer_norm_epsilon: Positive = 1e-5
    bias: bool = True
    head_bias: bool = True
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    output_dropout: Probability = 0.0
    initialization: Literal["normal", "torch", "xavier"] = "normal"
    initializer_range: NotNegative = 0.02
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: CountOrZero | None = None
    bos_token_id: CountOrZero | None = None
    eos_token_id: CountOrZero | list[CountOrZero] | None = None

    @property
    def memory_names(self) -> list[str]:
        return [layer["memory"] for layer in self.layers or () if isinstance(layer, dict) and "memory" in layer]

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def head_input_size(self) -> int:
        """Size of the head's input vectors."""
        return self.hidden_size

    @property
    def layer_sizes(self) -> list[int]:
        """Sizes of the inputs of auxiliary losses: the outputs of recurrent cells, and of the sublayers otherwise."""
        return [layer["hidden_size"] if is_recurrent(layer) else self.hidden_size for layer in self.layers]

    def losses(self) -> list[AuxiliaryLoss]:
        """The auxiliary losses.

        Raises:
            InputError: as `stack_lm.configuration_layers.auxiliary_losses`.
        """
        return auxiliary_losses(self.auxiliary_losses, len(self.layers))

    def cell(self, number: int) -> SimpleNamespace:
        """The settings of the `StackRNNCell` of a recurrent layer, by the layer's number."""
        return self._recurrent(self.layers[number], f"layers[{number}]")[1]

    def _recurrent(self, layer: dict[str, Any], where: str) -> tuple[RecurrentSublayer, SimpleNamespace]:
        """A recurrent layer's own fields, and the settings of its cell."""
        fields, settings = split_layer({"hidden_size": self.hidden_size} | layer, RecurrentSublayer, where)
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
        if is_recurrent(layer):
            fields, cell = self._recurrent(layer, where)
            return asdict(fields) | {name: getattr(cell, name) for name in memory_class(fields.memory).settings}
        given = {"memory": layer} if isinstance(layer, str) else layer
        if not isinstance(given, dict) or not isinstance(given.get("memory"), str):
            raise InputError(
                f"{where} must be {ATTENTION!r}, the name of a memory, or a mapping with the key 'memory' or "
                f"'controller'; got {layer!r}"
            )
        name = given["memory"]
        try:
            own = memory_class(name).settings
        except InputError as error:
            near = did_you_mean(name, [ATTENTION])
            raise InputError(f"{where} must be {ATTENTION!r} or have a memory: {error}{near}") from error
        unknown = next((key for key in given if key not in ("memory", *own)), None)
        if unknown is not None:
            raise unknown_key(f"{where}.", unknown, ("memory", *own))
        settings = {key: value for key, value in given.items() if key != "memory"}
        try:
            return {"memory": name} | stack_attention_settings(name, settings, self.hidden_size)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error


def is_recurrent(layer: Any) -> bool:
    """True if an entry of `layers` is a recurrent cell."""
    return isinstance(layer, dict) and "controller" in layer
