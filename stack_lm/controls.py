"""Controls: from the controller's output to the memory's actions.

One linear layer serves all actions of a memory; its rows are laid out in the order of the memory's action fields.
Each strength is then emitted by its own control: a fixed number, a sigmoid, or the expected value of a softmax over
{0, ..., max} (Merrill et al. 2019, section 2.2). Operations are chosen by a softmax, with a temperature or Gumbel noise
if wanted (Suzgun et al. 2019, section 3.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.initialization import copy_

from .memory import Memory

if TYPE_CHECKING:
    from .configuration_stack_rnn import StackRNNConfig


class Control(Protocol):
    """How one strength is emitted from `width` logits."""

    width: int

    def emit(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits [B, width] to the strength [B], in elements, and its distribution [B, K + 1] if it has one."""

    def initial_bias(self) -> list[float]:
        """Initial biases of its logits [width]; empty if the linear layer decides."""


class Fixed:
    """A strength that is always the same number. It has no parameters."""

    width = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def emit(self, logits: Tensor) -> tuple[Tensor, None]:
        return logits.new_full(logits.shape[:1], self.value), None

    def initial_bias(self) -> list[float]:
        return []


class Sigmoid:
    """A strength in (0, 1), as in Grefenstette et al. (2015) and Hao et al. (2018).

    Args:
        strength_init: the strength where the projection of the controller's output is zero; None leaves the bias to
            the linear layer.
    """

    width = 1

    def __init__(self, strength_init: float | None = None) -> None:
        self.strength_init = strength_init

    def emit(self, logits: Tensor) -> tuple[Tensor, None]:
        return torch.sigmoid(logits.squeeze(-1)), None

    def initial_bias(self) -> list[float]:
        return [] if self.strength_init is None else [bias_of_strength(self.strength_init, 1)]


class ExpectedValue:
    """The mean sum_i i p_i of p = softmax(logits) over {0, ..., K} (Merrill et al. 2019, section 2.2).

    Args:
        maximum: K.
        strength_init: the strength where the projection of the controller's output is zero; logit i starts at i times
            `bias_of_strength`. None leaves all biases to the linear layer.
    """

    def __init__(self, maximum: int, strength_init: float | None = None) -> None:
        self.width = maximum + 1
        self.strength_init = strength_init

    def emit(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        distribution = torch.softmax(logits, dim=-1)
        support = torch.arange(self.width, device=logits.device, dtype=logits.dtype)
        return (distribution * support).sum(-1), distribution

    def initial_bias(self) -> list[float]:
        if self.strength_init is None:
            return []
        slope = bias_of_strength(self.strength_init, self.width - 1)
        return [slope * i for i in range(self.width)]


def bias_of_strength(strength: float, maximum: int) -> float:
    """The b for which softmax(0, b, 2b, ..., K b) over {0, ..., K} has a mean, which rises with b.

    This is the distribution of maximum entropy with that mean. With K = 1 its mean is sigmoid(b).

    Args:
        strength: the mean, in elements, above 0 and below K.
        maximum: K.
    """
    low, high = -700.0, 700.0
    for _ in range(200):  # until the two are neighbours, or both nearly 0
        b = (low + high) / 2
        weights = [math.exp(b * i - max(0.0, b * maximum)) for i in range(maximum + 1)]
        if sum(i * weight for i, weight in enumerate(weights)) < strength * sum(weights):
            low = b
        else:
            high = b
    return high


def make_control(setting: str | float, maximum: int, strength_init: float | None = None) -> Control:
    """The control that a configuration names: "sigmoid", "expected_value" or a fixed number."""
    if setting == "sigmoid":
        return Sigmoid(strength_init)
    if setting == "expected_value":
        return ExpectedValue(maximum, strength_init)
    return Fixed(float(setting))


def control_from_config(config: Any, control: str) -> Control:
    """The control of a name: "push" has the settings `push_control`, `max_push` and `push_strength_init`."""
    return make_control(
        getattr(config, f"{control}_control"),
        getattr(config, f"max_{control}"),
        getattr(config, f"{control}_strength_init"),
    )


class OperationChoice(nn.Module):
    """A distribution over a memory's operations.

    softmax(z), softmax(z / T), or softmax((z + g) / T) with g ~ Gumbel(0, 1) (Jang et al. 2017).

    Args:
        kind: "softmax", "softmax_temperature" or "gumbel_softmax".
        temperature: T at first. It is a buffer, so that a schedule may change it and a checkpoint keeps it.
        evaluation_noise: keep the noise on in evaluation.
        evaluation_argmax: in evaluation, give the most probable operation all of the weight.
    """

    temperature: Tensor | None

    def __init__(
        self, kind: str, temperature: float = 1.0, *, evaluation_noise: bool = False, evaluation_argmax: bool = False
    ) -> None:
        super().__init__()
        self.noisy = kind == "gumbel_softmax"
        self.evaluation_noise, self.evaluation_argmax = evaluation_noise, evaluation_argmax
        self.register_buffer("temperature", None if kind == "softmax" else torch.tensor(float(temperature)))

    def draw_noise(self, like: Tensor, generator: torch.Generator | None = None) -> Tensor | None:
        """Gumbel noise of the shape, type and device of a tensor; None where there is none now."""
        if not (self.noisy and (self.training or self.evaluation_noise)):
            return None
        noise = torch.empty_like(like, memory_format=torch.contiguous_format)
        return noise.exponential_(generator=generator).log_().neg_()

    def forward(self, logits: Tensor, noise: Tensor | None = None) -> Tensor:
        """Logits [B, S, O], and noise like them, to weights [B, S, O] that sum to 1; noise is drawn if not given."""
        noise = self.draw_noise(logits) if noise is None else noise
        if noise is not None:
            logits = logits + noise
        if self.evaluation_argmax and not self.training:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        if self.temperature is not None:
            logits = logits / self.temperature
        return torch.softmax(logits, dim=-1)


class ActionProjection(nn.Linear):
    """The linear layer from the controller's output to the logits of all actions.

    Args:
        hidden_size: size of the controller's output, H.
        widths: number of logits of each action.
        initial_biases: for each action the biases that its logits start with; none leaves them to torch.
        bias: whether to have biases.
    """

    def __init__(
        self, hidden_size: int, widths: Sequence[int], initial_biases: Sequence[list[float]], *, bias: bool = True
    ) -> None:
        # nn.Linear resets its parameters when it is made.
        self.widths, self.initial_biases = tuple(widths), tuple(initial_biases)
        super().__init__(hidden_size, sum(widths), bias=bias)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Torch's default for a linear layer, except the given biases."""
        super().reset_parameters()
        self.set_initial_biases()

    @torch.no_grad()
    def set_initial_biases(self) -> None:
        """Give the logits that have initial biases these, and leave the other biases as they are."""
        if self.bias is None:
            return
        bias = self.bias.detach().clone()
        for part, values in zip(bias.split(self.widths), self.initial_biases, strict=True):
            if values:
                part.copy_(part.new_tensor(values))
        copy_(self.bias, bias)  # transformers' own, which leaves weights that were just loaded alone


class Controls(nn.Module):
    """Emits all actions of a memory from the controller's output.

    Args:
        hidden_size: size of the controller's output, H.
        memory: whose action fields to fill.
        strengths: a control for each field of kind "strength", by the field's name.
        choices: a control for each field of kind "choice", by the field's name.
        value_activation: "tanh" or "sigmoid", for fields of kind "value".
        bias: whether the linear layer has biases.

    Attributes:
        given_noise: what `draw_noise` returns instead, inside `with_noise`.
    """

    given_noise: Tensor | None = None

    def __init__(
        self,
        hidden_size: int,
        memory: Memory[Any, Any],
        strengths: Mapping[str, Control],
        choices: Mapping[str, OperationChoice] | None = None,
        *,
        value_activation: str = "tanh",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.memory = memory
        self.strengths = dict(strengths)
        self.choices = nn.ModuleDict(choices or {})
        self.value_activation = torch.tanh if value_activation == "tanh" else torch.sigmoid
        self.widths = [
            self.strengths[field.name].width if field.kind == "strength" else field.groups * field.size
            for field in memory.actions
        ]
        biases = [
            self.strengths[field.name].initial_bias() if field.kind == "strength" else [] for field in memory.actions
        ]
        self.projection = ActionProjection(hidden_size, self.widths, biases, bias=bias) if any(self.widths) else None

    @classmethod
    def from_config(cls, config: StackRNNConfig, memory: Memory[Any, Any]) -> Controls:
        """The controls of a memory that a configuration asks for."""
        strengths = {
            field.name: control_from_config(config, field.control)
            for field in memory.actions
            if field.kind == "strength"
        }
        choices = {
            field.name: OperationChoice(
                config.operation_control,
                config.temperature,
                evaluation_noise=config.evaluation_noise,
                evaluation_argmax=config.evaluation_argmax,
            )
            for field in memory.actions
            if field.kind == "choice"
        }
        return cls(
            config.hidden_size,
            memory,
            strengths,
            choices,
            value_activation=config.push_value_activation,
            bias=config.bias,
        )

    @contextmanager
    def with_noise(self, noise: Tensor | None) -> Iterator[None]:
        """Inside it this is the noise, such as each model's own where several are trained at once; None: as outside."""
        self.given_noise = noise
        try:
            yield
        finally:
            self.given_noise = None

    def draw_noise(
        self, shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None
    ) -> Tensor | None:
        """The noise of choices [*shape, S, O], at least float32; None where there is none.

        Args:
            shape: of hidden states, without H.
            like: of the device and type of hidden states.
            generator: to draw from; None is torch's own.
        """
        if self.given_noise is not None:
            return self.given_noise
        for field in self.memory.actions:
            if field.kind == "choice":
                dtype = torch.promote_types(like.dtype, torch.float32)
                empty = like.new_empty(()).to(dtype).expand(*shape, field.groups, field.size)
                choice = self.choices[field.name]
                return choice.draw_noise(empty, generator) if isinstance(choice, OperationChoice) else None
        return None

    def forward(self, hidden: Tensor, noise: Tensor | None = None) -> tuple[Any, dict[str, Tensor]]:
        """Emit one step's actions.

        Args:
            hidden: the controller's output [B, H].
            noise: of choices, as `draw_noise` drew it; None to draw it here.

        Returns:
            The memory's actions (strengths [B] and choices [B, S, O], at least float32; values [B, D]), and the
            distributions [B, K + 1] of strengths that are expected values, by `ActionField.distribution`.
        """
        actions, distributions = {}, {}
        logits_of_all = hidden[:, :0] if self.projection is None else self.projection(hidden)
        parts = logits_of_all.split(self.widths, dim=-1) if self.widths else ()
        for field, logits in zip(self.memory.actions, parts, strict=True):
            if field.kind == "value":
                actions[field.name] = self.value_activation(logits)
                continue
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            if field.kind == "choice":
                actions[field.name] = self.choices[field.name](logits.unflatten(-1, (field.groups, field.size)), noise)
                continue
            actions[field.name], distribution = self.strengths[field.name].emit(logits)
            if distribution is not None:
                distributions[field.distribution] = distribution
        return self.memory.action_type(**actions), distributions

    def report(self, actions: Any, distributions: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The reported part of emitted actions, by name: strengths, choices and distributions, not values."""
        reported = {field.name: getattr(actions, field.name) for field in self.memory.actions if field.kind != "value"}
        return reported | dict(distributions)
