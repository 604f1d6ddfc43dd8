"""Initial weights other than torch's own.

"normal_rows", from the released code of Hao et al. (2018): weights are drawn from N(0, 1/n), where n is the number of
rows of their matrix. In that code, the linear layers on the controller's output (the head, the actions and the
strengths of buffers) are one layer, so n is their total number of rows.

"xavier", from the released code of DuSell and Chiang (2020): the controller's weights and biases are drawn from U(-0.1,
0.1). Those of linear layers come from Glorot and Bengio's uniform distribution, with the gain of the next function.
All strengths are one layer, and each other action is one. The actions of a memory with weights, such as the
nondeterministic stack, are drawn like the controller's weights, including biases; so are the logits of its learned
initial state.

"normal", from GPT-2: weights of linear layers and embeddings are drawn from a normal distribution with standard
deviation `initializer_range`.

"truncated_normal", from the released code of Delétang et al. (2023): weights are drawn from N(0, 1/n), and redrawn if
beyond two standard deviations; n is the number of a layer's inputs. An RNN or GRU has one layer on `[x_t; r_{t-1}]` and
one on `h_{t-1}`, an LSTM one on all three.

With all four, biases of linear layers are zero, except those that the configuration sets, as by `pop_strength_init`.

NOTE: the paper of Hao et al. does not say how weights are drawn, and that of DuSell and Chiang does not give the gains.
    The embeddings of transformers are drawn from U(-0.1, 0.1) with "xavier". Other embeddings and learned first states,
    which their code does not have, keep their own initialisation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import init
from transformers.initialization import copy_

from ..memory import Weights
from ..memory.controls import ActionProjection, Controls, LearnedStart
from .controllers import Controller, LSTMController

# Of the weights of a controller with "xavier".
CONTROLLER_BOUND = 0.1


def draw_weights(model: nn.Module, module: nn.Module, initialization: str) -> None:
    """Initialise a module of a model according to a configuration's `initialization`; "torch" changes nothing.

    Within transformers' `init_weights`, weights that were just loaded do not change.

    Args:
        model: the model, with a head or without.
        module: any of its modules; those of kinds that the initialisation does not cover are left alone.
        initialization: "torch", "normal_rows", "xavier", "truncated_normal" or "normal".
    """
    if initialization == "normal_rows":
        draw_normal_rows(model, module)
    elif initialization == "xavier":
        draw_xavier(model, module)
    elif initialization == "truncated_normal":
        draw_truncated_normal(module)
    elif initialization == "normal" and isinstance(module, (nn.Linear, nn.Embedding)):
        with torch.no_grad():
            init.normal_(module.weight, std=model.config.initializer_range)  # type: ignore[union-attr, arg-type]
            _reset_biases(module)


@torch.no_grad()
def draw_xavier(model: nn.Module, module: nn.Module) -> None:
    """Initialise a controller or a linear layer; see `draw_weights`."""
    of_memory = (each for each in model.modules() if isinstance(each, Controls) and each.projection is module)
    # None also for the actions of the buffers of a buffered network: only strengths, which are one layer.
    controls = next(of_memory, None) if isinstance(module, ActionProjection) else None
    of_weights = controls is not None and any(isinstance(field, Weights) for field in controls.memory.actions)
    if of_weights or isinstance(module, Controller | LearnedStart):
        for parameter in module.parameters(recurse=False):
            init.uniform_(parameter, -CONTROLLER_BOUND, CONTROLLER_BOUND)
    elif isinstance(module, nn.Linear):
        if controls is None:
            init.xavier_uniform_(module.weight)
        else:
            copy_(module.weight, _xavier_actions(controls, module.weight))
        _reset_biases(module)


def _xavier_actions(controls: Controls, like: torch.Tensor) -> torch.Tensor:
    """New weights of a layer of actions."""
    weight = torch.empty_like(like)
    fields, layers = controls.memory.actions, Counter[str]()
    for field, width in zip(fields, controls.widths, strict=True):
        layers[field.layer] += width
    for field, part in zip(fields, weight.split(controls.widths), strict=True):
        gain = init.calculate_gain(controls.emission(field.name).nonlinearity)
        bound = gain * math.sqrt(6 / (weight.shape[1] + layers[field.layer]))
        part.uniform_(-bound, bound)
    return weight


@torch.no_grad()
def raise_forget_bias(controller: LSTMController, bias: float) -> None:
    """Add a number to the biases of an LSTM's forget gates, in all its layers."""
    size = controller.hidden_size
    for layer in range(controller.num_layers):
        parameter = controller.parameter_of("bias_ih", layer)
        raised = parameter.clone()
        raised[size : 2 * size] += bias
        copy_(parameter, raised)


@torch.no_grad()
def draw_truncated_normal(module: nn.Module) -> None:
    """Initialise a controller or a linear layer; see `draw_weights`."""
    if isinstance(module, Controller):
        for layer in range(module.num_layers):
            of_inputs = [module.parameter_of("weight_ih", layer), module.parameter_of("weight_skip", layer)]
            if layer == 0 and module.reading_entry == "input":
                of_inputs.append(module.weight_reading)
            of_state = [module.parameter_of("weight_hh", layer)]
            layers = [of_inputs + of_state] if isinstance(module, LSTMController) else [of_inputs, of_state]
            if layer == 0 and module.reading_entry == "hidden_state":
                layers.append([module.weight_reading])
            for together in layers:
                weights = [weight for weight in together if weight is not None]
                _draw_truncated(weights, sum(weight.shape[1] for weight in weights))
        _reset_biases(module)
    elif isinstance(module, nn.Linear):
        _draw_truncated([module.weight], module.in_features)
        _reset_biases(module)


def _draw_truncated(weights: Iterable[torch.Tensor], inputs: int) -> None:
    for weight in weights:
        deviation = 1 / math.sqrt(inputs)
        init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


@torch.no_grad()
def draw_normal_rows(model: nn.Module, module: nn.Module) -> None:
    """Initialise a controller or a linear layer; a layer on the controller's output counts as one with the others."""
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
    _reset_biases(module)


def _reset_biases(module: nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        if parameter.dim() == 1:
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
