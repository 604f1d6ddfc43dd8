"""A compiled scan beside the reference: the same cell, inputs and state, and how far the two are apart."""

from contextlib import contextmanager

import numpy as np
import torch

from stack_lm import MemoryLayer, StackRNNConfig
from stack_lm.memory import NondeterministicState, map_tensors
from stack_lm.memory.nondeterministic import ZERO
from stack_lm.nn.cell import StackRNNCell


@contextmanager
def threads(number):
    """Run with so many of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_cell(dtype=torch.float64, *, spread=2.0, seed=0, **fields):
    """A small cell of odd sizes whose weights are larger than at the start of training, so that actions differ."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 5, "embedding_size": 5, "hidden_size": None if fields.get("controller") == "direct" else 7}
    if fields.get("memory") != "none":
        sizes["memory_size"] = 3
    return spread_out(StackRNNCell(StackRNNConfig(**sizes | fields)).to(dtype), spread)


def spread_out(module, spread):
    """A module with weights so many times as large."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(spread)
    return module


def leaves(tree):
    """The tensors of nested tuples."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [leaf for part in tree or () for leaf in leaves(part)]


def random_state(cell, batch_size, dtype, steps=4):
    """A state that some steps have led to, as leaves that want gradients."""
    inputs = torch.randn(batch_size, steps, cell.controller.input_size, dtype=dtype)
    cell.scan_backend = "reference"
    with torch.no_grad():
        state = cell.scan(inputs).state
    return map_tensors(lambda tensor: tensor.detach().clone().requires_grad_(), state)


def living(state):
    """A state without what dead elements hold, or what is under tops that no run has, which no step can ever see."""
    if isinstance(state.memory, NondeterministicState):
        under, top, values = state.memory
        nothing = under < ZERO / 2
        values = values.masked_fill(nothing.unsqueeze(-1), 0)
        top = top.masked_fill(top < ZERO / 2, 0)
        return state._replace(memory=NondeterministicState(under.masked_fill(nothing, 0), top, values))
    strengths = getattr(state.memory, "strengths", None)
    if strengths is None:
        return state
    values = state.memory.values.masked_fill(strengths.unsqueeze(-1) == 0, 0)
    return state._replace(memory=state.memory._replace(values=values))


def compare(module, inputs, backend, state=None, mask=None, readings=True):
    """Largest differences of a backend from the reference, for a cell or a memory layer.

    Args:
        readings: whether a cell's are among the results.

    Returns:
        Of outputs, readings, actions and last states, and of all gradients (inputs, parameters, first state); relative
        to each one's largest entry where that is above 1.
    """
    inputs = inputs.detach().clone().requires_grad_(inputs.is_floating_point())
    wanted = [leaf for leaf in (inputs, *module.parameters(), *leaves(state)) if leaf.requires_grad]
    found, gradients = [], []
    for module.scan_backend in ("reference", backend):
        torch.manual_seed(4)  # of the noise of choices
        if isinstance(module, MemoryLayer):
            read, last, actions = module(inputs, state, mask, output_actions=True)
            differentiated = [read, *leaves(living(last))]
        else:
            scan = module.scan(inputs, state, mask, output_actions=True, output_readings=readings)
            differentiated, actions = [scan.outputs, *leaves(scan.readings), *leaves(living(scan.state))], scan.actions
        results = [*differentiated, *(part for _, part in sorted(actions.items()))]
        found.append([result.detach() for result in results if result.numel()])
        torch.manual_seed(5)
        loss = sum(
            (part * torch.randn(part.shape, dtype=part.dtype, device=part.device)).sum() for part in differentiated
        )
        gradients.append(torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True))
    module.scan_backend = None
    assert [(part.shape, part.dtype) for part in found[0]] == [(part.shape, part.dtype) for part in found[1]]
    return _furthest(*found), _furthest(*gradients)


def _furthest(expected, found):
    differences = [
        float((a - b).masked_fill(a == b, 0).abs().max() / max(1.0, float(a[a != -torch.inf].abs().max())))
        for a, b in zip(expected, found, strict=True)  # logarithms of weights are minus infinity at padding
        if (a != -torch.inf).any()
    ]
    return float(np.max(differences))  # NaN if one is


def check(cell, length=7, batch_size=3, dtype=torch.float64, state=None, mask=None, tolerance=1e-10, one_hot=False):
    """Assert that a cell's compiled scan equals the reference on random inputs."""
    torch.manual_seed(1)
    size = cell.controller.input_size
    if one_hot:
        inputs = torch.randint(0, size, (batch_size, length))
    else:
        inputs = torch.randn(batch_size, length, size, dtype=dtype)
    for readings in (True, False):
        assert max(compare(cell, inputs, "numba", state, mask, readings)) < tolerance


def some_mask(batch_size, length, seed=2):
    """A random mask whose first sequence is padding alone."""
    mask = torch.rand(batch_size, length, generator=torch.Generator().manual_seed(seed)) > 0.3
    mask[0] = False
    return mask


def check_layer(layer, length, batch_size=3, mask=None, first_steps=0, tolerance=1e-10, backend="numba"):
    """Assert that a layer's compiled scan of given vectors equals the reference in results and every gradient."""
    torch.manual_seed(1)
    size, some = layer.input_size, {"dtype": layer.reference_tensor.dtype, "device": layer.reference_tensor.device}
    hidden = torch.randn(batch_size, length, size, **some)
    state = None
    if first_steps:
        layer.scan_backend = "reference"
        with torch.no_grad():
            _, state, _ = layer(torch.randn(batch_size, first_steps, size, **some))
        state = map_tensors(lambda tensor: tensor.clone().requires_grad_(), state)
    assert max(compare(layer, hidden, backend, state, mask)) < tolerance
