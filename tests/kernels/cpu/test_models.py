"""Several models in one compiled scan, by `torch.func.vmap`: each equals its own scan."""

import pytest
import torch
from hypothesis import given, settings
from kernels.comparison import leaves, make_cell, random_state, some_mask
from kernels.cpu.test_scan import cases
from kernels.cpu.test_superposition_scan import MEMORIES
from torch.func import functional_call, vmap

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")


class Run(torch.nn.Module):
    """A cell's scan as a module's call."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, inputs, state, mask):
        return results(self.cell, inputs, state, mask)


def results(cell, inputs, state, mask):
    scan = cell.scan(inputs, state, mask)
    return [scan.outputs, *leaves(scan.state)]


def check(cells, inputs, states=None, mask=None, shared=False):
    """Outputs, states and all gradients of several cells at once are those of each alone.

    Args:
        inputs: for each cell; or for all of them, if `shared`.
    """
    weights = {
        f"cell.{name}": torch.stack([dict(cell.named_parameters())[name].detach() for cell in cells]).requires_grad_()
        for name, _ in cells[0].named_parameters()
    }
    stacked = None
    if states is not None:
        given = [torch.stack(parts).detach().requires_grad_() for parts in zip(*map(leaves, states), strict=True)]
        places = iter(given)
        stacked = torch.utils._pytree.tree_map(lambda _: next(places), states[0])
    run = Run(cells[0])
    found = vmap(
        lambda own, inputs, state: functional_call(run, own, (inputs, state, mask)),
        in_dims=(0, None if shared else 0, None if states is None else 0),
    )(weights, inputs, stacked)
    wanted = [*weights.values(), *(given if states is not None else []), *([inputs] if inputs.requires_grad else [])]
    factors = [torch.randn_like(part) for part in found]
    gradients = torch.autograd.grad(
        sum((part * factor).sum() for part, factor in zip(found, factors, strict=True)), wanted, allow_unused=True
    )
    of_shared = torch.zeros_like(inputs)
    for i, cell in enumerate(cells):
        own = inputs if shared else inputs[i]
        own_inputs = own.detach().clone().requires_grad_(inputs.requires_grad)
        state = None if states is None else states[i]
        alone = results(cell, own_inputs, state, mask)
        for expected, part in zip(alone, found, strict=True):
            torch.testing.assert_close(part[i], expected, atol=1e-12, rtol=1e-12, equal_nan=True)
        leaves_alone = [*cell.parameters(), *leaves(state), *([own_inputs] if inputs.requires_grad else [])]
        loss = sum((part * factor[i]).sum() for part, factor in zip(alone, factors, strict=True))
        expected = torch.autograd.grad(loss, leaves_alone, allow_unused=True)
        if shared and inputs.requires_grad:
            of_shared += expected[-1]
            expected = expected[:-1]
        for a, b in zip(expected, gradients, strict=False):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(b[i], a, atol=1e-11, rtol=1e-11)
    if shared and inputs.requires_grad:
        torch.testing.assert_close(gradients[-1], of_shared)


def check_case(fields, shape=(3, 7), masked=False, carried=False, seed=0, spread=2.0, count=3):
    batch_size, length = shape
    cells = [make_cell(seed=seed + i, spread=spread, **fields) for i in range(count)]
    states = [random_state(cell, batch_size, torch.float64) for cell in cells] if carried else None
    for cell in cells:
        cell.scan_backend = "numba"
    inputs = torch.randn(count, batch_size, length, cells[0].controller.input_size, dtype=torch.float64)
    check(cells, inputs.requires_grad_(), states, some_mask(batch_size, length, seed) if masked else None)


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_random_configurations(case):
    fields, shape, masked, carried, seed, spread = case
    check_case(fields, shape, masked, carried, seed, spread)


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_in_superposition(memory):
    check_case(MEMORIES[memory], masked=True, carried=True)


def test_inputs_that_all_share():
    cells = [make_cell(seed=i, controller="gru", num_layers=2, input_skip_connections=True) for i in range(3)]
    check(cells, torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True), shared=True)


def test_one_hot_inputs():
    cells = [make_cell(seed=i, num_layers=2, input_skip_connections=True) for i in range(3)]
    check(cells, torch.randint(5, (3, 2, 6)))


@pytest.mark.parametrize("rows", [1, 4])
def test_threads_share_the_models(rows, monkeypatch):
    monkeypatch.setattr("stack_lm.kernels.cpu.plan._WORK_OF_A_THREAD", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        check_case({"memory": "deque"}, (rows, 6), True, True, count=7)
    finally:
        torch.set_num_threads(threads)


def test_dropout_is_drawn_for_each_model():
    cell = make_cell(num_layers=2, hidden_dropout=0.5).train()
    weights = {f"cell.{name}": part.detach().expand(3, *part.shape) for name, part in cell.named_parameters()}
    inputs = torch.randn(2, 5, 5, dtype=torch.float64)
    run = Run(cell)
    outputs = vmap(lambda own: functional_call(run, own, (inputs, None, None))[0], randomness="different")(weights)
    assert not torch.equal(outputs[0], outputs[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda own: functional_call(run, own, (inputs, None, None))[0])(weights)
