"""Action fields: the actions that a memory takes at each step, each of one kind.

A kind is one class. It owns an action's shape, checks, emission from logits, settings of that emission, and report.
Nothing else knows the kinds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.checks import Integer, NotNegative
from ..core.errors import InputError
from .emission import Activation, Emission, HiddenState, LogWeights, OfHeads, OperationChoice, make_control

# The limits are far beyond any use: with larger sizes a program would hang, and never fit.
Size = Annotated[int, Integer(1, 2**20)]  # of vectors and memories
ValueActivation = Literal["tanh", "sigmoid", "exp", "identity", "hidden"]
Parts = Annotated[int, Integer(1, 1_000)]  # side by side, or layers
Elements = Annotated[int, Integer(1, 10_000)]  # of a memory, in one operation
StrengthControl = Literal["sigmoid", "expected_value"] | NotNegative


class Setting(NamedTuple):
    """A setting that a memory declares; None in a configuration means its default.

    Attributes:
        default: its value if none is given.
        kind: the allowed values, as `core.checks` describes them: a type, or a check such as `Integer(1, 100)`.
    """

    default: Any
    kind: Any


def control_settings(
    control: str, default: str | float, *, maximum: int = 3, strength_init: float | None = None
) -> dict[str, Setting]:
    """The settings of a strength's control, for a memory to declare among its `settings`.

    Args:
        control: its name, as in `Strength`; "push", "pop", "read", or one of the memory's own.
        default: default of `{control}_control`: "sigmoid", "expected_value", or a number, which is a fixed strength.
        maximum: default of `max_{control}`, the largest value of the expected-value support.
        strength_init: default of `{control}_strength_init`, the expected strength at the start.
    """
    return {
        f"{control}_control": Setting(default, StrengthControl),
        f"max_{control}": Setting(maximum, Elements),
        f"{control}_strength_init": Setting(strength_init, float | None),
    }


class ActionField(ABC):
    """One action that a memory takes at each step.

    Attributes:
        name: the field's name in the memory's actions, such as "push_strength".
        shape: the shape of the action of one sequence.
        settings: names of the settings that control its emission; the memory has to declare them.
        reported: whether it is among the actions that models report.
        padding: the number reported where a sequence does not take the step.
        bound: of the logits at first, if it is a learned part of the first state.
        layer: fields with the same name here are one linear layer to initialisations that depend on a layer's size.
    """

    name: str
    reported: ClassVar[bool] = True
    padding: ClassVar[float] = 0.0
    bound: float = 0.0

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one sequence's action."""

    @property
    def layer(self) -> str:
        """See the class."""
        return self.name

    @property
    def settings(self) -> tuple[str, ...]:
        """See the class."""
        return ()

    @abstractmethod
    def emission(self, settings: Any) -> Emission:
        """Return the action's emission for the settings, which are attributes of a configuration."""

    def check_settings(self, settings: Any) -> None:  # noqa: B027 - most have nothing to check
        """Reject settings that are incompatible.

        Raises:
            ValueError: with the settings and the reason.
        """

    def check(self, action: Tensor) -> None:
        """Reject numbers that are not a valid action [B, *shape].

        Raises:
            ValueError: with the first invalid number.
        """
        if not bool(torch.isfinite(action).all()):
            raise ValueError(f"{self.name} must be finite; got {float(action[~torch.isfinite(action)][0])}")

    def report(self, action: Tensor, distribution: Tensor | None) -> dict[str, Tensor]:
        """Return the reported values of an emitted action, by name."""
        return {self.name: action}


@dataclass(frozen=True)
class Strength(ActionField):
    """A number of at least 0, in elements: [B], or [B, heads].

    Args:
        control: names the action and the settings of its emission: "push" is the action `push_strength`, with
            `push_control`, `max_push` and `push_strength_init`. The distribution of an expected value is also reported,
            as `push_distribution`.
        end: the end of the memory, if it works at several: the actions are then `push_strength_top` and so on.
        heads: memories side by side; if there are several, each has its own strength: [B, heads].
        start: a further setting, the strength at the start if it is not None, in place of `{control}_strength_init`.
    """

    control: str
    end: str = ""
    heads: int = 1
    start: str | None = None
    name: str = field(init=False)
    distribution: str = field(init=False)

    def __post_init__(self) -> None:
        for name in ("strength", "distribution"):
            attribute = "name" if name == "strength" else name
            object.__setattr__(self, attribute, f"{self.control}_{name}{self.end and '_'}{self.end}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.heads,) if self.heads > 1 else ()

    @property
    def layer(self) -> str:
        return "strengths"

    @property
    def settings(self) -> tuple[str, ...]:
        return (*control_settings(self.control, 0.0), *([self.start] if self.start else ()))

    def emission(self, settings: Any) -> Emission:
        emission = control_from_config(settings, self.control, self.start)
        return OfHeads(emission, self.heads) if self.heads > 1 else emission

    def check_settings(self, settings: Any) -> None:
        check_strength_init(settings, self.control, self.start)

    def check(self, action: Tensor) -> None:
        super().check(action)
        _check_not_negative(self.name, action)

    def report(self, action: Tensor, distribution: Tensor | None) -> dict[str, Tensor]:
        return {self.name: action} if distribution is None else {self.name: action, self.distribution: distribution}


@dataclass(frozen=True)
class Choice(ActionField):
    """Distributions over operations: [B, S, O].

    Args:
        name: the name of the action.
        operations: their names, O of them.
        groups: number of parallel choices, S: one for each stack.
    """

    name: str
    operations: tuple[str, ...]
    groups: int = 1
    settings = ("operation_control", "temperature", "evaluation_noise", "evaluation_argmax")

    @property
    def shape(self) -> tuple[int, int]:
        return self.groups, len(self.operations)

    def emission(self, settings: Any) -> Emission:
        return OperationChoice(
            settings.operation_control,
            settings.temperature,
            shape=self.shape,
            evaluation_noise=settings.evaluation_noise,
            evaluation_argmax=settings.evaluation_argmax,
        )

    def check_settings(self, settings: Any) -> None:
        if settings.operation_control == "softmax" and settings.temperature != 1.0:
            raise ValueError(
                f"temperature={settings.temperature} does not go with operation_control='softmax', which has none; "
                "'softmax_temperature' and 'gumbel_softmax' have one"
            )
        if settings.evaluation_noise and settings.operation_control != "gumbel_softmax":
            raise ValueError(
                f"evaluation_noise=True needs operation_control='gumbel_softmax'; got {settings.operation_control!r}"
            )

    def check(self, action: Tensor) -> None:
        super().check(action)
        _check_not_negative(self.name, action)
        off = (action.sum(-1) - 1).flatten()
        if bool((off.abs() > 1e-3).any()):
            total = 1 + float(off[off.abs().argmax()])
            raise ValueError(f"{self.name} must sum to 1 over {', '.join(self.operations)}; got {total:g}")


@dataclass(frozen=True)
class Value(ActionField):
    """A vector to store: [B, D]. It is not reported.

    Args:
        name: the name of the action.
        size: D.
        at_start: whether it is a learned part of the first state. If pushed vectors are exponentials, it is a sigmoid,
            as in DuSell & Chiang (2024); otherwise it has the activation of pushed vectors.
        bound: the logits of such a part are at first between -bound and bound, all equally likely.

    Raises:
        InputError: for a size below 1.
    """

    name: str
    size: int
    at_start: bool = False
    bound: float = 0.0
    reported: ClassVar[bool] = False
    settings = ("push_value_activation",)

    def __post_init__(self) -> None:
        """Check the size, which memories are made with."""
        if self.size < 1:
            raise InputError(f"the size of {self.name} must be at least 1; got {self.size}")

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def emission(self, settings: Any) -> Emission:
        activation = settings.push_value_activation
        if self.at_start:
            activation = {"exp": "sigmoid", "hidden": "identity"}.get(activation, activation)
        if activation != "hidden":
            return Activation(self.size, activation)
        if self.size != settings.hidden_size:
            raise InputError(
                f"push_value_activation='hidden' pushes vectors of hidden_size={settings.hidden_size}; the memory's "
                f"have {self.size}"
            )
        return HiddenState()


@dataclass(frozen=True)
class Weights(ActionField):
    """Non-negative numbers given as logarithms, not normalised: [B, *shape]. Minus infinity is a weight of 0.

    Args:
        name: the name of the action.
        of_shape: the shape.
    """

    name: str
    of_shape: tuple[int, ...]
    padding: ClassVar[float] = -math.inf

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of_shape

    def emission(self, settings: Any) -> Emission:
        return LogWeights(self.of_shape)

    def check(self, action: Tensor) -> None:
        wrong = action[~(action < math.inf)]  # NaN too
        if wrong.numel():
            raise ValueError(f"{self.name} must be logarithms of weights, below infinity; got {float(wrong[0])}")


def control_from_config(config: Any, control: str, start: str | None = None) -> Emission:
    """The emission of a strength: "push" has the settings `push_control`, `max_push` and `push_strength_init`.

    The setting `start` replaces the last if it is not None.
    """
    return make_control(
        getattr(config, f"{control}_control"),
        getattr(config, f"max_{control}"),
        getattr(config, _start(config, control, start)),
    )


def _start(config: Any, control: str, start: str | None) -> str:
    return start if start and getattr(config, start) is not None else f"{control}_strength_init"


def check_strength_init(config: Any, control: str, start: str | None = None) -> None:
    """Reject an initial strength that a control cannot have: it has no bias, or the strength is out of its range.

    Raises:
        ValueError: with the two settings.
    """
    name, setting = _start(config, control, start), getattr(config, f"{control}_control")
    value = getattr(config, name)
    if value is not None and not isinstance(setting, str):
        raise ValueError(f"{name}={value} does not go with {control}_control={setting}: a fixed strength has no start")
    if value is not None and not config.bias:
        raise ValueError(f"{name}={value} needs bias=True; got bias={config.bias}")
    maximum = getattr(config, f"max_{control}") if setting == "expected_value" else 1
    if value is not None and not 0 < value < maximum:
        limit = f"max_{control}={maximum}" if setting == "expected_value" else "1"
        raise ValueError(
            f"{name} must be above 0 and below {limit}, the range of {control}_control={setting!r}; got {value}"
        )


def check_fields(memory: str, fields: tuple[ActionField, ...], settings: Mapping[str, Any]) -> None:
    """Reject a memory with a field whose settings it does not declare.

    Raises:
        ValueError: with the field and the setting.
    """
    for action in fields:
        missing = [name for name in action.settings if name not in settings]
        if missing:
            raise ValueError(f"memory={memory!r} has an action {action.name!r}, but no setting {missing[0]!r} for it")


def _check_not_negative(name: str, action: Tensor) -> None:
    if bool((action < 0).any()):
        raise ValueError(f"{name} must be at least 0; got {float(action.min()):g}")
