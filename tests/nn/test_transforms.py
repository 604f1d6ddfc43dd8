"""Scans under the transforms of `torch.func`: for every memory, the results are those of plain autograd."""

import pytest
import torch
from kernels.comparison import make_cell
from torch.func import grad, hessian, jacfwd, jacrev, vmap

# torch's own rules for jacfwd are scripted when they are first needed.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
MEMORIES = {
    "stack": {"memory": "stack"},
    "deque": {"memory": "deque"},
    "superposition": {"memory": "superposition", "num_stacks": 2, "empty_value": -1.0, "memory_depth": 6},
    "multipop": {"memory": "multipop_superposition", "max_pop": 2},
    "tape": {"memory": "baby_ntm", "memory_depth": 4},
    "none": {"memory": "none", "controller": "lstm", "num_layers": 2},
}
INPUTS = torch.randn(3, 1, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def each(function):
    return lambda inputs: torch.stack([function(own) for own in inputs])


def autograd_gradient(function):
    def gradient(inputs):
        leaf = inputs.detach().requires_grad_()
        return torch.autograd.grad(function(leaf), leaf)[0]

    return gradient


def autograd_hessian(function):
    return lambda inputs: torch.autograd.functional.hessian(function, inputs)


# By name: the transform, whether it runs on several inputs, and the same without torch.func.
TRANSFORMS = {
    "vmap": (vmap, True, each),
    "vmap in vmap": (
        lambda function: vmap(lambda inputs: vmap(lambda row: function(row.unsqueeze(0)))(inputs).sum()),
        True,
        each,
    ),
    "grad": (grad, False, autograd_gradient),
    "grad of vmap": (
        lambda function: grad(lambda inputs: vmap(function)(inputs).sum()),
        True,
        lambda function: each(autograd_gradient(function)),
    ),
    "autograd of vmap": (
        lambda function: autograd_gradient(lambda inputs: vmap(function)(inputs).sum()),
        True,
        lambda function: each(autograd_gradient(function)),
    ),
    "vmap of grad": (lambda function: vmap(grad(function)), True, lambda function: each(autograd_gradient(function))),
    "jacrev": (jacrev, False, autograd_gradient),
    "jacfwd": (jacfwd, False, autograd_gradient),
    "hessian": (hessian, False, autograd_hessian),
    "jacrev twice": (lambda function: jacrev(jacrev(function)), False, autograd_hessian),
}
COMPILED = ("vmap", "autograd of vmap")


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_every_transform_of_every_memory(memory, transform, backend):
    cell = make_cell(**MEMORIES[memory])

    def function(inputs):
        return cell.scan(inputs, output_readings=memory != "none").outputs.square().sum()

    transformed, several, plain = TRANSFORMS[transform]
    inputs = INPUTS if several else INPUTS[0]
    cell.scan_backend = "reference"
    expected = plain(function)(inputs)
    cell.scan_backend = backend
    torch.testing.assert_close(transformed(function)(inputs), expected)


@pytest.mark.parametrize("transform", [name for name in TRANSFORMS if name not in COMPILED])
def test_the_compiled_scan_is_refused_where_it_is_named(transform):
    cell = make_cell(memory="superposition")
    cell.scan_backend = "numba"
    transformed, several, _ = TRANSFORMS[transform]
    with pytest.raises(ValueError, match=r"scan_backend='numba', as set, .* only vmap, one at a time"):
        transformed(lambda inputs: cell.scan(inputs).outputs.sum())(INPUTS if several else INPUTS[0])


def test_models_that_nothing_tells_apart():
    cell = make_cell(memory="stack")
    cell.scan_backend = "numba"

    def function(number):
        return number + cell.scan(INPUTS[0]).outputs.sum()

    with pytest.raises(RuntimeError, match=r'nothing differs between them: set_scan_backend\(model, "reference"\)'):
        vmap(function)(torch.zeros(2))
    cell.scan_backend = "reference"
    assert vmap(function)(torch.zeros(2)).shape == (2,)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_state_long_enough_to_be_compacted(backend):
    cell = make_cell(memory="stack")
    cell.scan_backend = backend
    states = torch.randn(2, 1, 40, 5, dtype=torch.float64)

    def function(earlier):
        return cell.scan(INPUTS[0], cell.scan(earlier).state).outputs

    torch.testing.assert_close(vmap(function)(states), each(function)(states))
