"""Several models in one compiled scan, by `torch.func.vmap`: each equals its own scan."""

import pytest
import torch
from hypothesis import given, settings
from kernels.comparison import leaves, make_cell, random_state, some_mask, threads
from kernels.cpu.test_nondeterministic_scan import STACKS
from kernels.cpu.test_superposition_scan import MEMORIES, cases
from torch.func import functional_call, vmap

from stack_lm.memory import map_tensors

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")


class Run(torch.nn.Module):
    """A cell's scan as a module's call."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, inputs, state, mask):
        scan = self.cell.scan(inputs, state, mask)
        return [scan.outputs, *leaves(scan.state)]


def check(cells, inputs, states=None, mask=None, shared=False):
    """Outputs, states and all gradients of several cells at once are those of each alone.

    Args:
        inputs: for each cell; or for all of them, if `shared`.
    """
    own = [dict(cell.named_parameters()) for cell in cells]
    weights = {f"cell.{name}": torch.stack([part[name].detach() for part in own]).requires_grad_() for name in own[0]}
    stacked = zip(*map(leaves, states), strict=True) if states else ()
    stacked = [torch.stack(parts).detach().requires_grad_() for parts in stacked]
    run = Run(cells[0])

    def call(weights, inputs, parts):
        places = iter(parts)
        state = map_tensors(lambda _: next(places), states[0]) if states else None
        return functional_call(run, weights, (inputs, state, mask))

    found = vmap(call, in_dims=(0, None if shared else 0, 0))(weights, inputs, stacked)
    alone = [
        call({k: v[i] for k, v in weights.items()}, inputs if shared else inputs[i], [part[i] for part in stacked])
        for i in range(len(cells))
    ]
    expected = [torch.stack(parts) for parts in zip(*alone, strict=True)]
    wanted = [*weights.values(), *stacked, *([inputs] if inputs.requires_grad else [])]
    factors = [torch.randn_like(part) for part in found]
    gradients = []
    for results in (found, expected):
        loss = sum((part * factor).sum() for part, factor in zip(results, factors, strict=True))
        gradients.append(torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True))
    torch.testing.assert_close(list(found), expected, atol=1e-12, rtol=1e-12, equal_nan=True)
    torch.testing.assert_close(*gradients, atol=1e-11, rtol=1e-11)


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
    fields, shape, flags, seed, spread = case
    if fields.get("operation_control") == "gumbel_softmax":  # noise is drawn for each
        fields["operation_control"] = "softmax_temperature"
    check_case(fields, shape, flags["masked"], flags["carried"], seed, spread)


@pytest.mark.parametrize("memory", [*MEMORIES, "VRNS"])
def test_every_memory(memory):
    check_case(MEMORIES.get(memory) or {"memory": "nondeterministic"} | STACKS[memory], masked=True, carried=True)


def test_inputs_that_all_share():
    cells = [make_cell(seed=i, controller="gru", num_layers=2, input_skip_connections=True) for i in range(3)]
    check(cells, torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True), shared=True)


def test_one_hot_inputs():
    cells = [make_cell(seed=i, num_layers=2, input_skip_connections=True) for i in range(3)]
    check(cells, torch.randint(5, (3, 2, 6)))


@pytest.mark.parametrize("rows", [1, 4])
def test_threads_share_the_models(rows, monkeypatch):
    monkeypatch.setattr("stack_lm.kernels.cpu.plan._WORK_OF_A_THREAD", 1)
    with threads(3):
        check_case({"memory": "deque"}, (rows, 6), True, True, count=7)


def test_dropout_is_drawn_for_each_model():
    cell = make_cell(num_layers=2, hidden_dropout=0.5).train()
    weights = {f"cell.{name}": part.detach().expand(3, *part.shape) for name, part in cell.named_parameters()}
    inputs = torch.randn(2, 5, 5, dtype=torch.float64)
    run = Run(cell)
    outputs = vmap(lambda own: functional_call(run, own, (inputs, None, None))[0], randomness="different")(weights)
    assert not torch.equal(outputs[0], outputs[1])
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda own: functional_call(run, own, (inputs, None, None))[0])(weights)
