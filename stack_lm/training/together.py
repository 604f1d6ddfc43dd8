"""Several models of one configuration, trained at once in one process.

An update of a small model is mostly overhead of torch and Python: for the 200 parameters of Suzgun et al. (2019) the
network takes a tenth of the time. Ten seeds at once pay the overhead once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pad_sequence

from ..core.errors import InputError
from ..core.labels import IGNORED
from ..nn import recurrent_layers
from ..nn.controlled import ControlledMemory

Inputs = Mapping[str, Tensor]


def loss_of(model: Any, inputs: Inputs) -> Tensor:
    """The model's own loss."""
    return model(**inputs).loss


def check_scan(model: nn.Module) -> None:
    """Check that several models like this one can run at once: in the compiled scan, or with an own memory in torch.

    Args:
        model: on the CPU, or without numbers ("meta").

    Raises:
        InputError: if it cannot.
    """
    for layer in recurrent_layers(model):
        reference = layer.reference_tensor
        inputs = torch.empty(0, dtype=reference.dtype) if reference.is_meta else reference
        chosen = layer.choose_backend(inputs, several_models=True)
        if chosen.name != "numba" and not _has_own_memory(layer):
            raise InputError(f"models are trained together in the compiled scan only; {chosen.reason}")


def _has_own_memory(layer: ControlledMemory) -> bool:
    """True for a memory from outside the package whose steps torch can run for several models at once."""
    memory = layer.memory
    actions = {field.name: torch.zeros(2, 1, *field.shape) for field in memory.actions}

    def step(actions: dict[str, Tensor]) -> Tensor:
        return memory.update(memory.initial_state(1), memory.action_type(**actions))[1]

    try:
        return not type(memory).__module__.startswith("stack_lm.") and vmap(step)(actions) is not None
    except RuntimeError:  # of a step that looks at numbers
        return False


class Together:
    """Models whose weights are slices of common tensors, with one forward and backward pass for all.

    Each is trained as it would be alone, on its own batches, up to the rounding of sums. The models stay usable, for
    evaluation and saving: their parameters share the memory of the common ones. Anything else, such as a temperature or
    the training mode, is that of the first model. Noise and dropout are drawn for all at once, so they differ from
    those of a model alone, unless `layers.with_noise` in the loss gives each its own, for actions and for dropout
    between the controller's layers.

    Args:
        models: models on the CPU, of one class and configuration, with scans that can run at once (see `check_scan`).
            Language models are not supported, because their loss over a large vocabulary cannot run for several.
        loss: function from a model and its inputs to a number.

    Raises:
        InputError: if they differ, or their scans cannot run at once.

    Example:
        >>> together = Together([StackRNNForKHotPrediction(config) for _ in range(10)])
        >>> optimizer = torch.optim.Adam(together.parameters(), fused=True)
        >>> together.losses(stack_batches(batches)).sum().backward()  # a batch for each
        >>> optimizer.step()
    """

    def __init__(self, models: Sequence[Any], loss: Callable[[Any, Inputs], Tensor] = loss_of) -> None:
        first = models[0]
        for model in models:
            if type(model) is not type(first) or model.config.to_diff_dict() != first.config.to_diff_dict():
                raise InputError("models that are trained together must be of one class and configuration")
        check_scan(first)
        self.models = list(models)
        own = [dict(model.named_parameters()) for model in models]
        self._weights: dict[str, nn.Parameter] = {
            name: nn.Parameter(torch.stack([part[name].detach() for part in own])) for name in own[0]
        }
        for i, parameters in enumerate(own):
            for name, parameter in parameters.items():
                parameter.data = self._weights[name].data[i]
        known = {id(parameter): name for name, parameter in first.named_parameters()}
        # Each name, also the second one of a tied weight, with that of its common tensor.
        self._names = {name: known[id(weight)] for name, weight in first.named_parameters(remove_duplicate=False)}
        self._module = _Loss(first, loss)
        self._losses = vmap(self._call, randomness="different")

    def parameters(self) -> list[nn.Parameter]:
        """The common parameters [S, ...], for an optimizer that treats each number by itself, such as Adam."""
        return list(self._weights.values())

    def losses(self, inputs: Inputs) -> Tensor:
        """The losses of all models [S] on their stacked batches [S, B, ...]; their sum gives each its own gradient."""
        weights: dict[str, Tensor] = dict(self._weights)
        return self._losses(weights, dict(inputs))

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scale each model's gradient down to a norm, as torch's `clip_grad_norm_`; returns the norms before [S]."""
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(part.flatten(1), dim=1) for part in gradients]).norm(dim=0)
        factors = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, [_beside(factors, part) for part in gradients])
        return norms

    @torch.no_grad()
    def step(self, optimizer: torch.optim.Optimizer, rates: Sequence[float]) -> None:
        """An update with a learning rate for each model.

        Args:
            optimizer: optimizer of `parameters`, with updates proportional to its learning rate, which becomes 1.
            rates: learning rate of each of the S models; one with 0 keeps its weights.
        """
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        weights = [parameter.data for parameter in self.parameters()]
        before = [part.clone() for part in weights]
        optimizer.step()
        for part, old in zip(weights, before, strict=True):
            rate = _beside(part.new_tensor(rates), part)
            # A model with rate 0 keeps its weights even if its update is not finite.
            torch.where(rate == 0, old, torch.lerp(old, part, rate), out=part)

    def _call(self, weights: dict[str, Tensor], inputs: dict[str, Tensor]) -> Tensor:
        named = {f"model.{name}": weights[common] for name, common in self._names.items()}
        return functional_call(self._module, named, (inputs,), tie_weights=False)


class _Loss(nn.Module):
    """A function of a model as a module, for `functional_call`."""

    def __init__(self, model: nn.Module, loss: Callable[[Any, Inputs], Tensor]) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self._loss(self.model, inputs)


def _beside(numbers: Tensor, part: Tensor) -> Tensor:
    """Numbers [S], reshaped to broadcast with a tensor [S, ...]."""
    return numbers.view(-1, *[1] * (part.dim() - 1))


def stack_batches(batches: Sequence[Inputs]) -> dict[str, Tensor]:
    """One batch [S, B, T, ...] of several [B, T, ...], padded on the right to the longest (labels: with -100).

    Args:
        batches: the batches, with an attention mask if their lengths differ.

    Raises:
        InputError: if lengths differ and there is no attention mask.
    """
    if "attention_mask" not in batches[0]:
        for name in batches[0]:
            if len({batch[name].shape[1] for batch in batches}) > 1:
                raise InputError(f"{name} of different lengths need an attention_mask")
    values = {"labels": IGNORED}
    return {name: stack_padded([batch[name] for batch in batches], values.get(name, 0)) for name in batches[0]}


def stack_padded(parts: Sequence[Tensor], value: float = 0) -> Tensor:
    """Tensors [B, T, ...] as one [S, B, T, ...], padded on the right with a value to the longest."""
    return pad_sequence([part.transpose(0, 1) for part in parts], True, value).transpose(1, 2).contiguous()
