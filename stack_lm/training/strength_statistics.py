"""Statistics of the strengths that a language model emits, and warnings of a collapse, without any trees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..memory import NeuralStack
from ..memory.emission import ExpectedValue, Fixed
from ..nn import memories, strengths_of
from ..nn.controlled import ControlledMemory
from .validation import sum_processes

# A fraction of the range of a strength: a value this near to 0 or to the maximum is at an end.
AT_AN_END = 0.05
# Shares of the range. A strength that spreads less than CONSTANT is the same at every word. One whose mean is nearer to
# an end than NEAR has collapsed with twice that spread too.
CONSTANT, NEAR = 1 / 60, 0.1
# If a smaller share of a stack's readings comes from earlier words, it holds nothing that the controller lacks.
SHALLOW = 0.01


class StrengthStatistics:
    """Mean, standard deviation and shares at the ends of each strength that a model emits, over all words.

    Fixed strengths have none; a memory in superposition, or no memory, has no strengths. Heads count as words. For a
    stack of one head that reads after its push, there is also the share of the read strength from below the element
    just pushed: sum_t relu(min(read_t, total_t) - push_t) over sum_t min(read_t, total_t).

    Args:
        model: any, with or without memory layers.
    """

    def __init__(self, model: nn.Module) -> None:
        layers = memories(model)
        self._layers = [_LayerStatistics(each, str(i) if len(layers) > 1 else "") for i, each in enumerate(layers)]

    def add(self, actions: Sequence[Mapping[str, Tensor]], inside: Tensor) -> None:
        """Count the words of a batch.

        Args:
            actions: the actions of each memory layer, each strength [B, T].
            inside: [B, T] bool, False at padding.
        """
        for layer, layer_actions in zip(self._layers, actions, strict=True):
            layer.add(layer_actions, inside)

    def reduce(self, accelerator: Accelerator) -> None:
        """Combine the words of all processes."""
        for layer in self._layers:
            layer.reduce(accelerator)

    def record(self) -> dict[str, float]:
        """Statistics for metrics.jsonl: eval_push_mean, _sd (elements), _low, _high (shares) and eval_read_below_top.

        With several memory layers, the keys are eval_push_0_mean and so on, by the number of the layer.
        """
        return {name: value for layer in self._layers for name, value in layer.record().items()}

    def summary(self) -> str:
        """One line for people; empty without strengths."""
        return "; ".join(layer.where + layer.summary() for layer in self._layers if layer.summary())

    def warnings(self) -> dict[str, str]:
        """The signs of a collapse, and their numbers: a strength that does not depend on the word, a stack without
        depth."""
        return {layer.where + sign: about for layer in self._layers for sign, about in layer.warnings().items()}


class _LayerStatistics:
    """The statistics of one memory layer.

    Args:
        layer: the layer.
        number: the number of the layer, if there are several.
    """

    def __init__(self, layer: ControlledMemory, number: str) -> None:
        self._maxima = {
            name: emission.width - 1 if isinstance(emission, ExpectedValue) else 1
            for name, emission in strengths_of(layer).items()
            if not isinstance(emission, Fixed)
        }
        self._key, self.where = (f"_{number}", f"memory {number}: ") if number else ("", "")
        self._heads = getattr(layer.memory, "num_heads", 1)
        # A stack that reads before it pushes reads earlier words only.
        self._is_stack = (
            isinstance(layer.memory, NeuralStack) and layer.memory.read_order == "after_push" and self._heads == 1
        )
        # For each strength: its sum, that of its squares, words at 0, words at the maximum. Then the number of words,
        # and what they read from below the top and in all.
        self._sums = torch.zeros(4 * len(self._maxima) + 3, dtype=torch.float64)

    def add(self, actions: Mapping[str, Tensor], inside: Tensor) -> None:
        sums = []
        for name, maximum in self._maxima.items():
            values = actions[name][inside].double()
            margin = AT_AN_END * maximum
            low, high = (values < margin).sum(), (values > maximum - margin).sum()
            sums += [values.sum(), values.square().sum(), low, high]
        sums.append(inside.sum() * self._heads)
        if self._is_stack:
            push, read, total = (actions[f"{name}_strength"][inside].double() for name in ("push", "read", "total"))
            reached = torch.minimum(read, total)
            sums += [torch.relu(reached - push).sum(), reached.sum()]
        else:
            sums += [inside.new_zeros((), dtype=torch.float64)] * 2
        self._sums += torch.stack([part.double() for part in sums]).cpu()

    def reduce(self, accelerator: Accelerator) -> None:
        self._sums = self._sums.new_tensor(sum_processes(self._sums, accelerator))

    def _moments(self) -> Iterator[tuple[str, int, list[float]]]:
        """For each strength its short name, its maximum, and its mean, standard deviation, and shares at both ends."""
        words = float(self._sums[-3])
        for (name, maximum), sums in zip(
            self._maxima.items(), self._sums[:-3].view(len(self._maxima), 4).tolist(), strict=True
        ):
            mean, squares, low, high = (part / words for part in sums)
            sd = math.sqrt(max(0.0, squares - mean**2))
            yield name.replace("_strength", ""), maximum, [mean, sd, low, high]

    def _below_top(self) -> float | None:
        """The share of the readings that comes from below the top; None for no stack, or one with fixed strengths."""
        *_, below, read = self._sums.tolist()
        return (below / read if read else 0.0) if self._is_stack and self._maxima else None

    def record(self) -> dict[str, float]:
        record: dict[str, float] = {}
        for name, _, moments in self._moments():
            parts = zip(("mean", "sd", "low", "high"), moments, strict=True)
            record |= {f"eval_{name}{self._key}_{part}": value for part, value in parts}
        below = self._below_top()
        return record if below is None else record | {f"eval_read_below_top{self._key}": below}

    def summary(self) -> str:
        parts = [
            f"{name} {mean:.2f} (sd {sd:.2f}; {low:.0%} at 0, {high:.0%} at {maximum})"
            for name, maximum, (mean, sd, low, high) in self._moments()
        ]
        below = self._below_top()
        return ", ".join(parts if below is None else [*parts, f"{below:.0%} of what is read lies below the top"])

    def warnings(self) -> dict[str, str]:
        signs = {}
        for name, maximum, (mean, sd, *_) in self._moments():
            at_an_end = min(mean, maximum - mean) < NEAR * maximum
            if sd < CONSTANT * maximum * (2 if at_an_end else 1):
                about = f"it is {mean:.2f} (sd {sd:.3f}) at every word, common with little text"
                signs[f"the {name} strength has collapsed"] = about
        share = self._below_top()
        if share is not None and share < SHALLOW:
            about = f"{share:.1%} of what is read lies below the top element, so older ones get hardly any gradient"
            signs["the stack is used as a register"] = (
                f"{about}; model.read_order=before_push reads them from the start"
            )
        return signs
