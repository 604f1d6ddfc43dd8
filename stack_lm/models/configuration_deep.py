"""DeepStackRNNConfig: recurrent layers, some with a memory, that read each other, some with a loss of their own."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

from ..core.checks import Check, ListOf, Probability
from ..core.errors import InputError
from ..memory import memory_class
from ..memory.fields import Size
from .configuration_layers import AuxiliaryLoss, LayeredConfig, RecurrentLayer, plan_cell, split_layer
from .configuration_stack_rnn import UNDECIDED

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
    """

    bias: bool = True
    inputs: Annotated[list[Any], ListOf(SourceName())] = field(default_factory=lambda: [BELOW])


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


class DeepStackRNNConfig(LayeredConfig):
    """Configuration of recurrent layers that read each other, each with a memory or none.

    By default a stack RNN of 100 units lies under an LSTM of 400 units, which reads its output and the embedding. The
    stack learns from its own loss, because the LSTM passes no gradient to it.

    Args:
        embedding_size: size of a token embedding.
        layers: a mapping for each layer, of the fields of `LayerConfig` and the settings of its memory (see
            `StackRNNConfig`). `inputs` is a list of sources: "embedding"; "below", the output of the layer before, of
            the first layer the embedding (the default); the number of a layer before, from 0; or the reading of its
            memory after the same token, such as "0.reading".
        output_size: size of a layer `tanh(W_o o_t + b_o)` between the last layer's output and the head; None omits it.
        bias: whether heads have biases.
        initialization: initial weights: "torch" or "xavier"; see `StackRNNConfig`.
        embedding_dropout: dropout on token embeddings.
        hidden_dropout: dropout on the inputs that a layer reads from other layers.

    Raises:
        ValueError: for a value that its field does not allow, incompatible values, or an unknown keyword argument.

    Example:
        >>> config = DeepStackRNNConfig(
        ...     layers=[{"hidden_size": 50}, {"memory": "none", "hidden_size": 200, "inputs": ["below", "embedding"]}],
        ...     auxiliary_losses=[{"layer": 0, "weight": 0.5}],
        ... )
    """

    model_type = "deep_stack_rnn"
    embedding_size: Size = 50
    layers: list[dict[str, Any]] = UNDECIDED
    output_size: Size | None = None
    bias: bool = True
    initialization: Literal["torch", "xavier"] = "torch"
    embedding_dropout: Probability = 0.0
    hidden_dropout: Probability = 0.0

    @property
    def memory_names(self) -> list[str]:
        return [layer.get("memory", "stack") for layer in self.layers or ()]

    @property
    def hidden_size(self) -> int:
        """Size of the last layer's output."""
        size: int = self.layers[-1]["hidden_size"]
        return size

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
        self._check_tied_embeddings(self.embedding_size)


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
        raise InputError(f"{where} must be the number of a layer before this one; got {name!r}")
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
