"""The compiled scan of nondeterministic stacks equals the reference: outputs, readings, last states, every gradient."""

import pytest
import torch
from kernels.comparison import check, check_layer, make_cell, random_state, some_mask
from torch.utils.checkpoint import checkpoint

from stack_lm import MemoryLayer

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
STACKS = {
    "RNS": {"memory_states": 2, "memory_symbols": 3},
    "RNS of 2022": {"memory_states": 3, "memory_symbols": 2, "bottom": "fixed"},
    "NS": {"memory_states": 2, "memory_symbols": 2, "normalize_actions": True, "read_states": False, "bottom": "fixed"},
    "VRNS": {"memory_states": 2, "memory_symbols": 2, "memory_size": 3, "push_value_activation": "tanh"},
    "VRNS without states": {"memory_symbols": 3, "memory_size": 2, "read_states": False, "bottom_vector": "zeros"},
    "learned bottom": {"memory_symbols": 2, "memory_size": 2, "bottom_vector": "learned"},
    "learned bottom, window": {"memory_symbols": 2, "memory_size": 2, "bottom_vector": "learned", "memory_window": 3},
    "learned bottom of 2022": {"memory_symbols": 2, "memory_size": 2, "bottom_vector": "learned", "bottom": "fixed"},
    "window": {"memory_states": 2, "memory_symbols": 2, "memory_window": 4},
    "narrow": {"memory_states": 1, "memory_symbols": 3, "memory_window": 2, "memory_size": 1},
    "wide window": {"memory_states": 2, "memory_symbols": 1, "memory_window": 40, "memory_size": 1},
    "counter": {"memory_states": 1, "memory_symbols": 1},
}


def results(layer, inputs):
    """Readings and the gradients of their sum, by the reference and compiled."""
    found = []
    for layer.scan_backend in ("reference", "numba"):
        inputs = inputs.detach().clone().requires_grad_()
        readings = layer(inputs)[0]
        weights = torch.arange(readings.numel(), dtype=readings.dtype).sin().view_as(readings)
        wanted = [inputs, *layer.parameters()]
        gradients = torch.autograd.grad((readings * weights).sum(), wanted, allow_unused=True, materialize_grads=True)
        found.append((readings.detach(), gradients))
    return found


def cell_of(name, dtype=torch.float64, **fields):
    return make_cell(dtype, **{"memory": "nondeterministic", "memory_size": 0} | STACKS[name] | fields)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize(("masked", "carried"), [(False, False), (True, True)], ids=["plain", "padded, carried"])
def test_every_stack(stack, masked, carried):
    cell = cell_of(stack, controller="rnn")
    state = random_state(cell, 3, torch.float64) if carried else None
    check(cell, state=state, mask=some_mask(3, 7) if masked else None, tolerance=1e-9)


@pytest.mark.parametrize("given_vectors", [False, True])
def test_a_batch_whose_precision_is_at_risk_runs_on_the_reference(given_vectors):
    """Here a weight is 0, of whose logarithm nothing is left."""
    stack = {"memory_states": 2, "memory_symbols": 2}
    module = MemoryLayer(5, "nondeterministic", **stack).double() if given_vectors else cell_of("RNS")
    with torch.no_grad():
        module.controls.projection.bias[module.memory.pairs**2 + 1] = -torch.inf
    if given_vectors:
        check_layer(module, 7, tolerance=1e-300)
    else:
        check(module, tolerance=1e-300)


@pytest.mark.parametrize("stack", ["RNS", "VRNS", "window", "wide window", "RNS of 2022"])
@pytest.mark.parametrize("spread", [10.0, 60.0])
def test_given_vectors_of_longer_sequences_with_extreme_weights(stack, spread):
    """The weights are so far apart that the reference has to run some batches."""
    layer = MemoryLayer(5, "nondeterministic", **STACKS[stack]).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(spread)
    mask = torch.arange(17) < torch.tensor([[17], [9], [1]])
    check_layer(layer, 17, mask=mask, tolerance=1e-8)
    check_layer(layer, 17, mask=mask.flip(1), tolerance=1e-8)


def test_a_replacement_beneath_which_nothing_is_remembered_has_no_effect():
    """Its weight may be 700 orders of e above all others: infinite, times a share of 0."""
    layer = MemoryLayer(2, "nondeterministic", memory_states=1, memory_symbols=2, bottom="fixed").double()
    weight, inputs = layer.controls.projection.weight, torch.tensor([[[1.0, 0], [0, 1], [0, 1], [0, 1]]]).double()
    with torch.no_grad():
        for parameter in layer.controls.parameters():
            parameter.zero_()
        weight[:, 0] = torch.tensor([200.0, -300, 0, 0, 0, 500, 0, 0, 0, 0])
        weight[5, 1] = weight[7, 1] = 20
    (expected, of_expected), (found, of_found) = results(layer, inputs)
    assert expected[0, 1:, 1].tolist() == pytest.approx([1, 1, 1])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(of_found, of_expected)


@pytest.mark.parametrize("options", [{}, {"memory_size": 2}], ids=["symbols", "vectors"])
@pytest.mark.parametrize(
    "kind", [{"bottom": "fixed"}, {"memory_window": 2}, {"bottom": "fixed", "memory_window": 4}], ids=str
)
def test_weights_that_overflow(kind, options):
    for seed in range(3):
        torch.manual_seed(seed)
        layer = MemoryLayer(3, "nondeterministic", memory_states=2, memory_symbols=2, **kind, **options).double()
        with torch.no_grad():
            layer.controls.projection.weight.mul_(1000)
        inputs = torch.randn(2, 25, 3).double()
        (expected, of_expected), (found, of_found) = results(layer, inputs)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        torch.testing.assert_close(of_found, of_expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("stack", ["RNS", "VRNS"])
def test_float32_survives_log_weights_of_200(stack):
    layer = MemoryLayer(5, "nondeterministic", **STACKS[stack])
    with torch.no_grad():
        layer.controls.projection.weight.mul_(300)
    inputs = torch.randn(3, 20, 5)
    exact, _ = results(layer.double(), inputs.double())[0]
    found, gradients = results(layer.float(), inputs)[1]
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-3)
    assert all(torch.isfinite(part).all() for part in gradients)


def test_float32():
    check(cell_of("VRNS", torch.float32), dtype=torch.float32, mask=some_mask(3, 7), tolerance=2e-4)


def test_activation_checkpointing_and_no_gradients():
    cell = cell_of("VRNS")
    cell.scan_backend = "numba"
    inputs = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    run = lambda inputs: cell.scan(inputs).outputs  # noqa: E731
    plain = run(inputs)
    (expected,) = torch.autograd.grad(plain.square().sum(), inputs)
    saved = checkpoint(run, inputs, use_reentrant=False)
    (found,) = torch.autograd.grad(saved.square().sum(), inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    with torch.no_grad():
        torch.testing.assert_close(run(inputs), plain, rtol=0, atol=0)


def test_weights_that_are_no_number_are_passed_on():
    cell = cell_of("RNS")
    cell.scan_backend = "numba"
    with torch.no_grad():
        cell.controls.projection.bias[3] = torch.nan
    assert cell.scan(torch.randn(2, 4, 5, dtype=torch.float64)).outputs[:, -1].isnan().all()
