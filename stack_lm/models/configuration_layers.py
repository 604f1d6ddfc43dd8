"""Common parts of the configurations of models of several layers: recurrent layers, and losses on layers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from ..core.checks import Count, CountOrZero, NotNegative, build
from ..core.errors import InputError
from ..core.messages import unknown_key
from ..memory import make_memory, memory_class
from ..memory.fields import Size
from ..memory.settings import MemoryName, layer_settings, setting_names
from .configuration_stack_rnn import UNDECIDED, LanguageModelConfig


@dataclass(frozen=True)
class RecurrentLayer:
    """One recurrent layer: a single-layer controller with a memory.

    Attributes:
        memory: "none" (a plain recurrent layer) or the name of a registered memory.
        controller: kind of controller; see `StackRNNConfig`.
        hidden_size: size of the layer's output; in a transformer d unless given.
        detach: pass no gradient on: in a deep model to the layers that this one reads (the embedding still gets one),
            in a transformer from the layers above, so that the cell learns only from its auxiliary loss.
    """

    memory: MemoryName = "stack"
    controller: Literal["linear", "sigmoid", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm"] = "lstm"
    hidden_size: Size = 100
    detach: bool = False


@dataclass(frozen=True)
class Decay:
    """A linear schedule of a weight.

    Attributes:
        start: weight at the first update.
        end: weight after `steps` updates and later.
        steps: number of updates between the two.
    """

    steps: Count
    start: NotNegative = 1.0
    end: NotNegative = 0.0

    def at(self, step: int) -> float:
        """The weight after `step` updates."""
        return self.start + (self.end - self.start) * min(1.0, step / self.steps)


@dataclass(frozen=True)
class AuxiliaryLoss:
    """A language model's loss on the output of one layer.

    Attributes:
        layer: number of the layer, from 0.
        weight: weight in the sum of losses: a number, or a `Decay`.
        head: "own" (an output layer of its own) or "shared" (the model's, through a linear map where sizes differ).
        output_size: size of a layer `tanh(W o_t + b)` before an own output layer; None for no such layer.
    """

    layer: CountOrZero
    weight: NotNegative | Decay = 1.0
    head: Literal["own", "shared"] = "own"
    output_size: Size | None = None

    def weight_at(self, step: int) -> float:
        """The weight after `step` updates."""
        return self.weight.at(step) if isinstance(self.weight, Decay) else self.weight


class LayeredConfig(LanguageModelConfig):
    """The base of configurations of a list of layers, some of which have a memory, and some a loss.

    Args:
        layers: an entry for each layer, from the first to the last.
        auxiliary_losses: for a language model, a mapping for each, of the fields of `AuxiliaryLoss`. The training loss
            is that of the model's head plus the weighted sum of these losses; in evaluation it is that of the head
            alone. `weight` may be {start: 1.0, end: 0.0, steps: N}, a linear schedule over the first N updates.
    """

    # Read by stack RNN models; there is no other value here.
    input_encoding = "embedding"
    forget_bias = 0.0

    layers: list[Any] = UNDECIDED
    auxiliary_losses: list[dict[str, Any]] = UNDECIDED

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers."""
        return len(self.layers)

    def losses(self) -> list[AuxiliaryLoss]:
        """The auxiliary losses.

        Raises:
            InputError: for a field that is not allowed, with its key, a layer that does not exist or has another loss,
                and incompatible settings.
        """
        losses = [
            build(AuxiliaryLoss, entry, f"auxiliary_losses[{i}].") for i, entry in enumerate(self.auxiliary_losses)
        ]
        for i, loss in enumerate(losses):
            where = f"auxiliary_losses[{i}]"
            if loss.layer >= len(self.layers):
                raise InputError(
                    f"{where}.layer must be the number of a layer, below {len(self.layers)}; got {loss.layer}"
                )
            if any(other.layer == loss.layer for other in losses[:i]):
                raise InputError(f"{where}.layer must not have another loss; got {loss.layer} again")
            if loss.head == "shared" and loss.output_size is not None:
                raise InputError(f"{where}.output_size is of an own head; got {loss.output_size} with head='shared'")
        return losses


Layer = TypeVar("Layer", bound=RecurrentLayer)


def split_layer(entry: dict[str, Any], kind: type[Layer], where: str) -> tuple[Layer, dict[str, Any]]:
    """Split an entry of `layers` into its own fields and the settings of its memory.

    Args:
        entry: fields and settings together.
        kind: the class of the fields.
        where: the entry's key.

    Raises:
        InputError: for a key that is neither, or a field with an invalid value.
    """
    names = [each.name for each in fields(kind)]
    settings = {name: value for name, value in entry.items() if name not in names}
    made: Layer = build(kind, {name: value for name, value in entry.items() if name in names}, f"{where}.")
    known = memory_class(made.memory).settings
    # A baseline may keep the settings of a memory that it lacks.
    spare = setting_names() if made.memory == "none" else {}
    unknown = next((name for name in settings if name not in known and name not in spare), None)
    if unknown is not None:
        raise unknown_key(f"{where}.", unknown, (*names, *known))
    return made, {name: value for name, value in settings.items() if name in known}


def plan_cell(
    layer: RecurrentLayer, settings: dict[str, Any], input_size: int, bias: bool, where: str
) -> tuple[SimpleNamespace, int]:
    """The settings of a layer's `StackRNNCell`, and the size of its memory's reading, 0 without a memory.

    Args:
        layer: its fields.
        settings: the settings of its memory.
        input_size: the size of the vectors that it reads.
        bias: whether controller and controls have biases.
        where: the key of the entry.

    Raises:
        InputError: for settings that are not allowed, or are incompatible.
    """
    try:
        sizes = {"embedding_size": input_size, "hidden_size": layer.hidden_size}
        cell = layer_settings(layer.memory, settings, controller=layer.controller, bias=bias, **sizes)
        return cell, make_memory(cell).reading_size
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error
