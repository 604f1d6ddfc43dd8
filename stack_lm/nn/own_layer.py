"""A causal layer from outside this package, such as another architecture's, in a transformer of this package."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn

from ..core.errors import InputError
from ..core.messages import first_line
from ..core.plugins import import_object
from ..memory.base import numbers_hidden
from .controlled import Actions


def layer_class(path: str, where: str) -> type[nn.Module]:
    """The class of a layer, by its import path, such as "my_layers.Mixer".

    Args:
        path: the import path.
        where: the key that has it, for messages.

    Raises:
        InputError: if it cannot be imported, or is not a class of torch modules.
    """
    found = import_object(path, where)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise InputError(f"{where} must be the import path of a torch module; got {path!r}")
    return found


class OwnLayer(nn.Module):
    """A causal module from [B, T, d] to [B, T, d] of any class, called with one tensor.

    Its state is all vectors so far, on which it runs again at each call: a step of generation takes as long as the
    prefix. Padding is moved behind each sequence's end first, so that it changes nothing.

    Args:
        size: d.
        path: the import path of its class, which is called as `Class(size, **settings)`; or, if its first argument is
            annotated with a configuration of transformers, with that, of `hidden_size=size` and the settings.
        settings: see `path`.
        where: the key of the layer, for messages.

    Raises:
        InputError: if there is no such class, or it does not take the settings.
    """

    def __init__(self, size: int, path: str, settings: dict[str, Any], where: str) -> None:
        super().__init__()
        kind = layer_class(path, f"{where}.module")
        try:
            (first, *_), parameters = inspect.signature(kind).parameters, inspect.signature(kind).parameters
            config: Any = inspect.get_annotations(kind.__init__, eval_str=True).get(first)
            if hasattr(config, "from_pretrained"):
                index = {"layer_idx": 0} if "layer_idx" in parameters else {}
                self.mixer = kind(config(hidden_size=size, **settings), **index)
            else:
                self.mixer = kind(size, **settings)
        except (TypeError, ValueError, NameError, StrictDataclassError) as error:
            raise InputError(f"{where}.settings are not for {path}: {first_line(error)}") from error
        for module in self.mixer.modules():
            module.initialises_itself = True  # type: ignore[assignment]
        self._where, self._checked = where, False

    def forward(
        self, hidden: Tensor, state: tuple[Tensor, Tensor] | None = None, mask: Tensor | None = None, **_: Any
    ) -> tuple[Tensor, tuple[Tensor, Tensor], Actions]:
        """Run a sequence from a state and with a mask; see `StackAttention.forward`.

        Raises:
            ValueError: if an output depends on a later vector, or has another shape.
        """
        real = hidden.new_ones(hidden.shape[:2], dtype=torch.bool) if mask is None else mask
        if state is not None:
            hidden, real = torch.cat((state[0], hidden), dim=1), torch.cat((state[1], real), dim=1)
        if not self._checked and not numbers_hidden():
            self._check(hidden)
        # Real vectors first: what comes behind them has no effect on a causal layer.
        order = (~real).long().argsort(dim=1, stable=True).unsqueeze(-1).expand_as(hidden)
        moved = self._run(hidden.gather(1, order))
        outputs = torch.zeros_like(moved).scatter(1, order, moved).masked_fill(~real.unsqueeze(-1), 0)
        length = hidden.shape[1] - (0 if state is None else state[0].shape[1])
        return outputs[:, -length:], (hidden, real), Actions()

    def _run(self, hidden: Tensor) -> Tensor:
        outputs = self.mixer(hidden)
        result: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
        return result

    @torch.no_grad()
    def _check(self, hidden: Tensor) -> None:
        """Check once that the layer is causal, on vectors whose last one changes."""
        training, self._checked = self.mixer.training, True
        self.mixer.eval()
        probe = torch.linspace(-1, 1, 4 * hidden.shape[-1], device=hidden.device, dtype=hidden.dtype)
        probe = probe.view(1, 4, -1).repeat(2, 1, 1)
        probe[1, -1] += 1
        outputs = self._run(probe)
        self.mixer.train(training)
        if outputs.shape != probe.shape:
            raise ValueError(f"{self._where} must keep the shape {list(probe.shape)}; got {list(outputs.shape)}")
        if not torch.allclose(outputs[0, :-1], outputs[1, :-1], rtol=1e-3, atol=1e-3):
            raise ValueError(f"{self._where} must be causal: its output depends on a later vector")
