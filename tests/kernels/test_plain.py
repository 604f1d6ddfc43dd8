"""What a user hangs on a cell is not ignored: compiled scans, which would not see it, leave such a cell alone."""

import pytest
import torch
from comparison import make_cell
from torch import nn

from stack_lm import explain_backend


class Adapted(nn.Module):
    """In the place of a linear layer, as adapters are."""

    def __init__(self, base):
        super().__init__()
        self.base, self.low = base, nn.Linear(base.in_features, base.out_features, bias=False).to(base.weight.dtype)

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, hidden):
        return self.base(hidden) + self.low(hidden)


class Quantised(nn.Parameter):
    """A weight that is not what it looks like."""


def hook(path, kind, function):
    """Hang a hook of a kind on a part of a cell."""
    return lambda cell: getattr(cell.get_submodule(path), f"register_{kind}_hook")(function)


def double(module, args, output):
    return output * 2


def double_first(module, args):
    return args[0] * 2, *args[1:]


def double_gradients(module, *gradients):
    return tuple(None if part is None else part * 2 for part in gradients[0])


def adapt(cell):
    cell.controls.projection = Adapted(cell.controls.projection)


def quantise(cell):
    weight = cell.controls.projection.weight
    cell.controls.projection.weight = Quantised(weight.detach())


def patch(cell):
    projection = cell.controls.projection
    projection.forward = lambda hidden: nn.Linear.forward(projection, hidden) * 2


def normalise(cell):
    projection = nn.utils.parametrizations.weight_norm(cell.controls.projection)
    with torch.no_grad():
        projection.parametrizations.weight.original0.mul_(2)


class Half(nn.Module):
    def forward(self, weight):
        return weight / 2


ALTERATIONS = {
    "forward hook": (hook("controls.projection", "forward", double), "projection has hooks"),
    "backward pre-hook": (hook("controls.projection", "full_backward_pre", double_gradients), "projection has hooks"),
    "hook on the controls": (hook("controls", "forward_pre", double_first), "controls has hooks"),
    "backward hook on the controller": (hook("controller", "full_backward", double_gradients), "controller has hooks"),
    "weight norm": (normalise, "projection is a Parametrized"),
    "parametrised controller": (
        lambda cell: nn.utils.parametrize.register_parametrization(cell.controller, "weight_hh_l0", Half()),
        "controller has parametrizations",
    ),
    "adapter": (adapt, "controls.projection is a Adapted, no ActionProjection"),
    "quantised": (quantise, "controls.projection has a weight that is a Quantised"),
    "patched": (patch, "forward method of its own"),
}


def computed(cell, inputs):
    """Outputs, and their gradient to the inputs."""
    inputs = inputs.clone().requires_grad_()
    outputs = cell.scan(inputs).outputs
    return outputs, *torch.autograd.grad(outputs.square().sum(), inputs)


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.parametrize("memory", ["stack", "superposition"])
def test_an_altered_cell_runs_in_the_reference(memory, name):
    cell = make_cell(memory=memory)
    alter, reason = ALTERATIONS[name]
    inputs = torch.randn(2, 4, 5, dtype=torch.float64)
    before = computed(cell, inputs)
    alter(cell)
    explained = explain_backend(cell)
    assert explained.startswith("reference: numba cannot run this: ")
    assert reason in explained
    altered = computed(cell, inputs)
    assert name == "quantised" or max(map(torch.dist, altered, before)) > 1e-3
    cell.scan_backend = "reference"
    assert all(map(torch.equal, altered, computed(cell, inputs)))
    for backend in ("numba", "triton"):
        cell.scan_backend = backend
        with pytest.raises(ValueError, match=f"scan_backend='{backend}', as set, cannot run this: .*{reason}"):
            cell.scan(inputs)
