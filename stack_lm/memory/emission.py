"""Emissions: from logits to one action of a memory.

A strength is a fixed number, a sigmoid, or the expected value of a softmax over {0, ..., max} (Merrill et al. 2019,
section 2.2). Operations are chosen by a softmax, optionally with a temperature or Gumbel noise (Suzgun et al. 2019,
section 3.4). Weights are given by their logarithms.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Emission:
    """The emission of one action from logits.

    Attributes:
        width: number of logits it takes.
        nonlinearity: its function, by its name in `torch.nn.init.calculate_gain`.
    """

    width: int
    nonlinearity: Literal["linear", "tanh", "sigmoid"] = "linear"

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Turn logits [B, width] into the action [B, ...], and the distribution [B, K + 1] behind it if it has one.

        Args:
            logits: any floating type; all actions but values are at least float32.
            noise: from `draw_noise`, [B, ...]; None to draw it here.
        """
        raise NotImplementedError

    def draw_noise(
        self, shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None
    ) -> Tensor | None:
        """The noise [*shape, ...] of steps, at least float32 on the device of `like`; None if there is none now."""
        return None

    def initial_bias(self) -> list[float]:
        """Initial biases of its logits [width]; empty if the linear layer decides."""
        return []

    @property
    def of_one(self) -> Emission:
        """The emission of one head: this one, if it is not of several."""
        return self


def _wide(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Fixed(Emission):
    """A constant strength. It has no parameters."""

    width = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The number [B]; see `Emission.emit`."""
        return _wide(logits).new_full(logits.shape[:1], self.value), None


class Sigmoid(Emission):
    """A strength in (0, 1), as in Grefenstette et al. (2015) and Hao et al. (2018).

    Args:
        strength_init: the strength for a zero projection of the controller's output; None leaves the bias to the linear
            layer.
    """

    width = 1

    def __init__(self, strength_init: float | None = None) -> None:
        self.strength_init = strength_init

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The strength [B]; see `Emission.emit`."""
        return torch.sigmoid(_wide(logits).squeeze(-1)), None

    def initial_bias(self) -> list[float]:
        return [] if self.strength_init is None else [bias_of_strength(self.strength_init, 1)]


class ExpectedValue(Emission):
    """The mean sum_i i p_i of p = softmax(logits) over {0, ..., K} (Merrill et al. 2019, section 2.2).

    Args:
        maximum: K.
        strength_init: the strength for a zero projection of the controller's output; logit i starts at i times
            `bias_of_strength`. None leaves all biases to the linear layer.
    """

    def __init__(self, maximum: int, strength_init: float | None = None) -> None:
        self.width = maximum + 1
        self.strength_init = strength_init

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The strength [B] and its distribution [B, K + 1]; see `Emission.emit`."""
        logits = _wide(logits)
        distribution = torch.softmax(logits, dim=-1)
        support = torch.arange(self.width, device=logits.device, dtype=logits.dtype)
        return (distribution * support).sum(-1), distribution

    def initial_bias(self) -> list[float]:
        if self.strength_init is None:
            return []
        slope = bias_of_strength(self.strength_init, self.width - 1)
        return [slope * i for i in range(self.width)]


class OfHeads(Emission):
    """A strength of each of several memories side by side.

    Args:
        of_one: the emission of one of them, with its own logits for each.
        heads: their number.
    """

    def __init__(self, of_one: Emission, heads: int) -> None:
        self._of_one, self.heads = of_one, heads
        self.width = heads * of_one.width

    @property
    def of_one(self) -> Emission:
        return self._of_one

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The strengths [B, heads] and their distributions [B, heads, K + 1]; see `Emission.emit`."""
        shape = (logits.shape[0], self.heads)  # under torch.export, len would be a fixed number
        strengths, distributions = self.of_one.emit(logits.reshape(shape[0] * shape[1], self.of_one.width))
        return strengths.view(shape), None if distributions is None else distributions.unflatten(0, shape)

    def initial_bias(self) -> list[float]:
        return self.of_one.initial_bias() * self.heads


def bias_of_strength(strength: float, maximum: int) -> float:
    """The b for which softmax(0, b, 2b, ..., K b) over {0, ..., K} has a given mean, which rises with b.

    This is the distribution of maximum entropy with that mean. With K = 1 its mean is sigmoid(b).

    Args:
        strength: the mean, in elements, above 0 and below K.
        maximum: K.
    """
    low, high = -700.0, 700.0
    for _ in range(200):  # until the two are adjacent, or both nearly 0
        b = (low + high) / 2
        weights = [math.exp(b * i - max(0.0, b * maximum)) for i in range(maximum + 1)]
        if sum(i * weight for i, weight in enumerate(weights)) < strength * sum(weights):
            low = b
        else:
            high = b
    return high


def make_control(setting: str | float, maximum: int, strength_init: float | None = None) -> Emission:
    """The emission of a strength, as named in a configuration: "sigmoid", "expected_value" or a fixed number."""
    if setting == "sigmoid":
        return Sigmoid(strength_init)
    if setting == "expected_value":
        return ExpectedValue(maximum, strength_init)
    return Fixed(float(setting))


class OperationChoice(nn.Module, Emission):
    """Parallel distributions over a memory's operations.

    softmax(z), softmax(z / T), or softmax((z + g) / T) with g ~ Gumbel(0, 1) (Jang et al. 2017).

    Args:
        kind: "softmax", "softmax_temperature" or "gumbel_softmax".
        temperature: initial T. It is a buffer, so a schedule can change it and a checkpoint keeps it.
            `first_temperature` stays unchanged.
        shape: choices side by side and operations of each, (S, O).
        evaluation_noise: keep the noise in evaluation.
        evaluation_argmax: in evaluation, give the most probable operation all the weight.
    """

    temperature: Tensor | None

    def __init__(
        self,
        kind: str,
        temperature: float = 1.0,
        *,
        shape: tuple[int, int],
        evaluation_noise: bool = False,
        evaluation_argmax: bool = False,
    ) -> None:
        super().__init__()
        self.shape, self.width = shape, shape[0] * shape[1]
        self.noisy = kind == "gumbel_softmax"
        self.evaluation_noise, self.evaluation_argmax = evaluation_noise, evaluation_argmax
        self.first_temperature = float(temperature)
        self.register_buffer("temperature", None if kind == "softmax" else torch.tensor(float(temperature)))

    def draw_noise(
        self, shape: tuple[int, ...], like: Tensor, generator: torch.Generator | None = None
    ) -> Tensor | None:
        """Gumbel noise [*shape, S, O]; see `Emission.draw_noise`."""
        if not (self.noisy and (self.training or self.evaluation_noise)):
            return None
        dtype = torch.promote_types(like.dtype, torch.float32)
        # Made from `like`, so that each of several models under vmap draws its own.
        empty = like.new_empty(()).to(dtype).expand(*shape, *self.shape)
        noise = torch.empty_like(empty, memory_format=torch.contiguous_format)
        return noise.exponential_(generator=generator).log_().neg_()

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The weights [B, S, O]; see `Emission.emit`. A module is called, so that hooks on it run."""
        return self(_wide(logits).unflatten(-1, self.shape), noise), None

    def forward(self, logits: Tensor, noise: Tensor | None = None) -> Tensor:
        """Turn logits [B, S, O] into weights [B, S, O] that sum to 1. Noise like them is drawn if it is not given."""
        noise = self.draw_noise(logits.shape[:-2], logits) if noise is None else noise
        if noise is not None:
            logits = logits + noise
        if self.evaluation_argmax and not self.training:
            return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
        if self.temperature is not None:
            logits = logits / self.temperature
        return torch.softmax(logits, dim=-1)


class Activation(Emission):
    """A vector [B, D]: tanh, sigmoid or exp of its logits, or the logits themselves.

    Args:
        size: D.
        name: "tanh", "sigmoid", "exp" or "identity".
    """

    functions: ClassVar = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "exp": torch.exp, "identity": lambda x: x}

    def __init__(self, size: int, name: Literal["tanh", "sigmoid", "exp", "identity"] = "tanh") -> None:
        self.width, self.name = size, name
        self.nonlinearity = name if name in ("tanh", "sigmoid") else "linear"

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The vector, of the logits' type; see `Emission.emit`."""
        return self.functions[self.name](logits), None


class HiddenState(Emission):
    """The hidden state itself, as a vector to push; it has no parameters. It takes that state in place of logits."""

    width = 0

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The given vector [B, H]."""
        return logits, None


class LogWeights(Emission):
    """Non-negative weights [B, *shape], not normalised, as their logarithms: the logits themselves.

    Args:
        shape: the shape of the weights of one sequence.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.width = shape, math.prod(shape)

    def emit(self, logits: Tensor, noise: Tensor | None = None) -> tuple[Tensor, None]:
        """The logarithms; see `Emission.emit`."""
        return _wide(logits).unflatten(-1, self.shape), None
