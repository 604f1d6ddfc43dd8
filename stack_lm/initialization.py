"""Initial weights other than torch's own: those of the released code of Hao et al. (2018).

Weights are drawn from N(0, 1/n), where n is the number of rows of their matrix; biases are zero, except those that the
configuration sets, as by `pop_strength_init`. The linear layers on the controller's output (the head, the actions and
the strengths of buffers) are one layer there, so n is the number of rows of all of them together.

NOTE: the paper does not say how weights are drawn. Embeddings and learned first states, which that code does not have,
keep their own initialisation.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import init

from .controllers import Controller
from .controls import ActionProjection


@torch.no_grad()
def draw_normal_rows(model: nn.Module, module: nn.Module) -> None:
    """Initialise a controller or a linear layer; with a layer on the controller's output the others: they are one.

    Within transformers' `init_weights` weights that were just loaded are left alone.

    Args:
        model: with a head or without.
        module: any of its modules; those of other kinds are left alone.
    """
    as_one = _output_layers(model)
    if module in as_one:
        for layer in as_one:
            _draw(layer, sum(each.out_features for each in as_one))
    elif isinstance(module, (Controller, nn.Linear)):
        _draw(module)


def _draw(module: nn.Module, rows: int | None = None) -> None:
    for parameter in module.parameters(recurse=False):
        if parameter.dim() == 2:
            init.normal_(parameter, std=1 / math.sqrt(rows or parameter.shape[0]))
        else:
            init.zeros_(parameter)
    if isinstance(module, ActionProjection):
        module.set_initial_biases()


def _output_layers(model: nn.Module) -> list[nn.Linear]:
    """The linear layers on the controller's output: neither that on the reading nor, with a tanh layer before it, the
    head."""
    base = getattr(model, "model", model)
    layers = [module for module in model.modules() if isinstance(module, nn.Linear) and module is not base.reading_exit]
    if base is model or base.output_layer is None:
        return layers
    heads = {child for child in model.children() if type(child) is nn.Linear}
    return [layer for layer in layers if layer not in heads]
