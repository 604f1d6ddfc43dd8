"""DeepStackRNNConfig: recurrent layers, some with a memory, that read each other, some with a loss of their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

from .checks import Check, CountOrZero, ListOf, Probability
from .configuration_layers import AuxiliaryLoss, RecurrentLayer, auxiliary_losses, plan_cell, split_layer
from .configuration_stack_rnn import ModelConfig, Tokens
from .errors import InputError
from .memory import memory_class
from .memory.fields import Size

EMBEDDING, BELOW, READING = "embedding", "below", ".reading"


class Source(NamedTuple):
    """A source that a layer reads.

    Attributes:
        layer: number of the layer whose output is read; None: the embedding.
        reading: whether the reading of that layer's memory is read instead of the output.
    """

    layer: int | None
    reading: bool = False


class SourceName(Check):
    """The names of sources: "embedding", "below", a layer's number, or a reading such as "0.reading"."""

    def accepts(self, value: Any) -> bool:
        if isinstance(value, int):
            return not isinstance(value, bool) and value >= 0
        number = str(value).removesuffix(READING)
        return isinstance(value, str) and (value in (EMBEDDING, BELOW) or (number != value and number.isdecimal()))

    def allowed(self, value: Any) -> str:
        return f"{EMBEDDING!r}, {BELOW!r}, the number of a layer, or its reading, such as '0{READING}'"


@dataclass(frozen=True)
class LayerConfig(RecurrentLayer):
    """One layer: a single-layer controller with a memory, whose settings are given beside these fields.

    Attributes:
        bias: whether controller and controls have biases.
        inputs: sources that the layer reads, side by side; see `DeepStackRNNConfig`.
        detach: pass no gradient to the layers that it reads; the embedding still gets one.
    """

    bias: bool = True
    inputs: Annotated[list[Any], ListOf(SourceName())] = field(default_factory=lambda: [BELOW])
    detach: bool = False


class PlannedLayer(NamedTuple):
    """A layer as a model builds it.

    Attributes:
        fields: its own.
        sources: what it reads, side by side.
        cell: the settings of its `StackRNNCell`.
        reading_size: the size of its memory's reading; 0 without a memory.
    """

    fields: LayerConfig
    sources: list[Source]
    cell: SimpleNamespace
    reading_size: int

    @property
    def own_settings(self) -> dict[str, Any]:
        """The complete settings of its memory."""
        return {name: getattr(self.cell, name) for name in memory_class(self.fields.memory).settings}

    def size(self, reading: bool) -> int:
        """The size of its output, or of its reading."""
        return self.reading_size if reading else self.fields.hidden_size


# The defaults of the lists: a small stack with a loss of its own under a larger network.
_LAYERS: tuple[dict[str, Any], ...] = (
    {"memory": "stack", "hidden_size": 100},
    {"memory": "none", "hidden_size": 400, "inputs": [0, EMBEDDING], "detach": True},
)
_LOSSES: tuple[dict[str, Any], ...] = ({"layer": 0},)
_UNDECIDED: Any = None


class DeepStackRNNConfig(ModelConfig):
    """Configuration of recurrent layers that read each other, each with a memory or none.

    By default a stack RNN of 100 units lies under an LSTM of 400 units, which reads its output and the embedding. The
    stack learns from its own loss, because the LSTM passes no gradient to it.

    Args:
        vocab_size: number of token ids.
        embedding_size: size of a token embedding.
        layers: a mapping for each layer, of the fields of `LayerConfig` and the settings of its memory (see
            `StackRNNConfig`). `inputs` is a list of sources: "embedding"; "below", the output of the layer before, of
            the first layer the embedding (the default); the number of a layer before, from 0; or the reading of its
            memory after the same token, such as "0.reading".
        auxiliary_losses: a mapping for each, of the fields of `AuxiliaryLoss`. The training loss is that of the model's
            head plus the weighted sum of these losses; in evaluation it is that of the head alone. `weight` may be
            {start: 1.0, end: 0.0, steps: N}, a linear schedule over the first N updates.
        output_size: size of a layer `tanh(W_o o_t + b_o)` between the last layer's output and the head; None omits it.
        bias: whether heads have biases.
        initialization: initial weights: "torch" or "xavier"; see `StackRNNConfig`.
        embedding_dropout: dropout on token embeddings.
        hidden_dropout: dropout on the inputs that a layer reads from other layers.
        output_dropout: dropout on the inputs of heads.
        tie_word_embeddings: share input and output embeddings; they must be of one size.
        use_cache: return the recurrent states in `cache`.
        pad_token_id: the token that pads sequences.
        bos_token_id: the token that begins sequences.
        eos_token_id: the token, or tokens, that end sequences.

    Raises:
        ValueError: for a value that its field does not allow, incompatible values, or an unknown keyword argument.

    Example:
        >>> config = DeepStackRNNConfig(
        ...     layers=[{"hidden_size": 50}, {"memory": "none", "hidden_size": 200, "inputs": ["below", "embedding"]}],
        ...     auxiliary_losses=[{"layer": 0, "weight": 0.5}],
        ... )
    """

    model_type = "deep_stack_rnn"
    # Read by stack RNN models; there is no other value here.
    input_encoding = "embedding"
    forget_bias = 0.0

    vocab_size: Tokens = 10_000
    embedding_size: Size = 50
    layers: list[dict[str, Any]] = _UNDECIDED
    auxiliary_losses: list[dict[str, Any]] = _UNDECIDED
    output_size: Size | None = None
    bias: bool = True
    initialization: Literal["torch", "xavier"] = "torch"
    embedding_dropout: Probability = 0.0
    hidden_dropout: Probability = 0.0
    output_dropout: Probability = 0.0
    tie_word_embeddings: bool = False
    use_cache: bool = True
    pad_token_id: CountOrZero | None = None
    bos_token_id: CountOrZero | None = None
    eos_token_id: CountOrZero | list[CountOrZero] | None = None

    @property
    def head_bias(self) -> bool:
        """True if heads have biases."""
        return self.bias

    @property
    def memory_names(self) -> list[str]:
        return [layer.get("memory", "stack") for layer in self.layers or ()]

    @property
    def hidden_size(self) -> int:
        """Size of the last layer's output."""
        size: int = self.layers[-1]["hidden_size"]
        return size

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    @property
    def head_input_size(self) -> int:
        """Size of the head's input vectors."""
        return self.hidden_size if self.output_size is None else self.output_size

    def plan(self) -> list[PlannedLayer]:
        """The layers, with all that a model needs to build them.

        Raises:
            InputError: for a field or a source that is not allowed, with its key.
        """
        planned: list[PlannedLayer] = []
        for entry in self.layers:
            planned.append(_plan(entry, planned, self.embedding_size))
        return planned

    @property
    def layer_sizes(self) -> list[int]:
        """Sizes of the layers' outputs."""
        return [layer["hidden_size"] for layer in self.layers]

    def losses(self) -> list[AuxiliaryLoss]:
        """The auxiliary losses.

        Raises:
            InputError: as `stack_lm.configuration_layers.auxiliary_losses`.
        """
        return auxiliary_losses(self.auxiliary_losses, len(self.layers))

    def complete(self) -> None:
        if self.auxiliary_losses is None:
            self.auxiliary_losses = [dict(entry) for entry in _LOSSES] if self.layers is None else []
        if self.layers is None:
            self.layers = [dict(entry) for entry in _LAYERS]
        if not self.layers:
            raise InputError("layers must have at least one layer; got []")
        planned, losses = self.plan(), self.losses()
        for i, loss in enumerate(losses):
            if loss.head == "shared" and loss.layer == len(planned) - 1:
                raise InputError(
                    f"auxiliary_losses[{i}].head must be 'own' on the last layer, whose shared head has a loss already"
                )
        _check_training(planned, losses)
        self.layers = [asdict(layer.fields) | layer.own_settings for layer in planned]
        self.auxiliary_losses = [asdict(loss) for loss in losses]
        if self.tie_word_embeddings and self.embedding_size != self.head_input_size:
            last = "hidden_size of the last layer, or output_size," if self.output_size is None else "output_size"
            raise InputError(
                f"tie_word_embeddings needs embedding_size == {last}; got {self.embedding_size} and "
                f"{self.head_input_size}".replace(",;", ";")
            )


def _plan(entry: dict[str, Any], before: list[PlannedLayer], embedding_size: int) -> PlannedLayer:
    """A layer, given the layers before it."""
    where = f"layers[{len(before)}]"
    fields, settings = split_layer(entry, LayerConfig, where)
    if not fields.inputs:
        raise InputError(f"{where}.inputs must name at least one source; got []")
    sources = [_source(name, f"{where}.inputs[{i}]", before) for i, name in enumerate(fields.inputs)]
    sizes = [
        embedding_size if source.layer is None else before[source.layer].size(source.reading) for source in sources
    ]
    cell, reading_size = plan_cell(fields, settings, sum(sizes), fields.bias, where)
    return PlannedLayer(fields, sources, cell, reading_size)


def _source(name: str | int, where: str, before: list[PlannedLayer]) -> Source:
    """A source by its name.

    Raises:
        InputError: for a layer that does not precede the one that reads it, or has no reading.
    """
    number = len(before)
    if name == EMBEDDING or (name == BELOW and not number):
        return Source(None)
    reading = str(name).endswith(READING)
    layer = number - 1 if name == BELOW else int(str(name).removesuffix(READING))
    if layer >= number:
        there = f"below {number}" if number else "and the first layer reads the embedding alone"
        raise InputError(f"{where} must be the number of a layer before this one, {there}; got {name!r}")
    if reading and not before[layer].reading_size:
        raise InputError(f"{where} must be of a layer with a reading; layer {layer} has memory='none'; got {name!r}")
    return Source(layer, reading)


def _check_training(planned: list[PlannedLayer], losses: list[AuxiliaryLoss]) -> None:
    """Reject a layer that no loss trains."""
    trained = {loss.layer for loss in losses} | {len(planned) - 1}
    for number in reversed(range(len(planned))):
        if number not in trained:
            raise InputError(
                f"layers[{number}] has no loss to learn from: no layer that learns reads it without detach, and it has "
                "no auxiliary loss (to leave it untrained, add one of weight 0)"
            )
        if not planned[number].fields.detach:
            trained |= {source.layer for source in planned[number].sources if source.layer is not None}
