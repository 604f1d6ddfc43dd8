"""The scan compiled with Numba equals the reference: outputs, actions, states and every gradient."""

import multiprocessing
import threading

import numpy as np
import pytest
import torch
from conftest import thinned
from kernels.comparison import check, leaves, make_cell, random_state, some_mask, threads
from kernels.cpu.test_superposition_scan import MEMORIES as CELLS

from stack_lm.kernels.cpu import plan
from stack_lm.kernels.cpu import threads as torch_threads

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")
CONTROLLERS = ("linear", "sigmoid", "rnn", "rnn_relu", "rnn_sigmoid", "gru", "lstm")
MEMORIES = ("stack", "queue", "deque")
CONTROLS = ("sigmoid", "expected_value", 0.0, 1.0)
ALL = CELLS | {memory: {"memory": memory} for memory in MEMORIES}


# What ties and empty memories are made of: whole and half numbers, and none.
@pytest.mark.parametrize(
    ("controller", "memory", "sequences", "begin"),
    thinned(CONTROLLERS, MEMORIES, ["full", "padded"], ["empty", "carried"]),
)
def test_every_controller_and_memory(controller, memory, sequences, begin):
    cell = make_cell(controller=controller, memory=memory)
    state = random_state(cell, 3, torch.float64) if begin == "carried" else None
    check(cell, state=state, mask=some_mask(3, 7) if sequences == "padded" else None)


@pytest.mark.parametrize(("memory", "push", "pop"), thinned(MEMORIES, CONTROLS, CONTROLS))
def test_every_pair_of_controls(memory, push, pop):
    for read in (0.0, 1.0, 2.0, "sigmoid"):
        cell = make_cell(memory=memory, push_control=push, pop_control=pop, read_control=read)
        check(cell, length=9, mask=some_mask(3, 9), state=random_state(cell, 3, torch.float64))


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    "strengths",
    [(1.0, 0.5, 1.0), (0.5, 1.0, 1.0), (0.25, 0.75, 0.5), (1.0, 1.0, 2.0), (0.0, 1.0, 1.0), (3.0, 1.0, 1.0)],
)
def test_exact_ties(memory, strengths):
    names = ("push_control", "pop_control", "read_control")
    for order in ("after_push", "before_push"):
        check(make_cell(memory=memory, read_order=order, **dict(zip(names, strengths, strict=True))), length=12)


@pytest.mark.parametrize("memory", MEMORIES)
def test_reads_before_pushes(memory):
    cell = make_cell(memory=memory, pop_control="sigmoid", read_order="before_push")
    check(cell, mask=some_mask(3, 7), state=random_state(cell, 3, torch.float64))


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize(("controller", "memory"), thinned(CONTROLLERS, [*MEMORIES, "none"]))
def test_several_layers(controller, memory, skips):
    cell = make_cell(controller=controller, memory=memory, num_layers=3, input_skip_connections=skips)
    check(cell, mask=some_mask(3, 7), state=random_state(cell, 3, torch.float64))


@pytest.mark.parametrize("memory", MEMORIES)
def test_saturated_strengths(memory):
    check(make_cell(memory=memory, spread=60.0, push_control="sigmoid", pop_control="sigmoid"))


@pytest.mark.parametrize("logit", [-85.0, -88.5, -95.0, -120.0, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("control", ["sigmoid", "expected_value"])
def test_strengths_reach_zero_where_the_references_do(control, dtype, logit):
    """What is dead then gets no gradient: an element of strength zero of the state, and one pushed with none."""
    if dtype == torch.float64:
        logit *= 8
    cell = make_cell(dtype, push_control=control, pop_control=control, read_control=1.0, max_push=1, max_pop=1)
    with torch.no_grad():  # no strength depends on the hidden state
        projection, width = cell.controls.projection, {"sigmoid": 1, "expected_value": 2}[control]
        projection.weight[3:].zero_()
        projection.bias[3:].zero_()
        for last in (width, 2 * width):
            projection.bias[2 + last] = logit
    state = random_state(cell, 2, dtype)
    with torch.no_grad():
        state.memory.strengths[:, 1::2] = 0
    check(cell, 6, 2, dtype, state=state, tolerance=1e-10 if dtype == torch.float64 else 1e-5)
    cell.scan_backend = "reference"
    expected = cell.scan(torch.zeros(1, 1, 5, dtype=dtype), output_actions=True).actions.push_strength
    cell.scan_backend = "numba"
    assert (expected == 0) == (cell.scan(torch.zeros(1, 1, 5, dtype=dtype)).state.memory.strengths == 0)


@pytest.mark.parametrize(("controller", "memory"), thinned(CONTROLLERS, ALL, every=2))
def test_single_precision(controller, memory):
    cell = make_cell(torch.float32, spread=1.0, controller=controller, hidden_size=33, **ALL[memory])
    state = random_state(cell, 9, torch.float32)
    check(cell, 40, 9, torch.float32, state=state, mask=some_mask(9, 40), tolerance=1e-5)


@pytest.mark.parametrize("memory", [*MEMORIES, "none", "superposition", "tape"])
@pytest.mark.parametrize("length", [1, 6])
def test_a_batch_of_no_rows(memory, length):
    """Results are empty, in the reference's shapes; gradients are zeros."""
    cell = make_cell(num_layers=2, **ALL.get(memory, {"memory": memory}))
    inputs = torch.randn(0, length, 5, dtype=torch.float64, requires_grad=True)
    shapes = []
    for cell.scan_backend in ("reference", "numba"):
        scan = cell.scan(inputs, mask=torch.ones(0, length, dtype=torch.bool), output_readings=True)
        results = [scan.outputs, scan.readings, *leaves(scan.state)]
        shapes.append([part.shape for part in results])
        loss = sum(part.sum() for part in results)
        gradients = torch.autograd.grad(loss, [inputs, *cell.parameters()], allow_unused=True, materialize_grads=True)
        assert not any(part.any() for part in gradients)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("memory", ["stack", "several, with all settings", "tape"])
def test_sizes_beyond_one_tile_and_one_thread(memory):
    """More rows than a tile has, more columns than a panel has, and enough work for several threads."""
    sizes = {"embedding_size": 21, "hidden_size": 100, "memory_size": 17}
    cell = make_cell(torch.float32, spread=1.0, **sizes, **ALL[memory])
    with threads(3):
        check(cell, 30, 37, torch.float32, mask=some_mask(37, 30), tolerance=1e-5)


@pytest.mark.parametrize("rows", [1, 5, 12])
@pytest.mark.parametrize("controller", ["gru", "lstm"])
def test_gradients_of_weights_are_added_up_piece_by_piece(controller, rows, monkeypatch):
    monkeypatch.setattr(plan, "ROWS_OF_A_PRODUCT", rows)
    cell = make_cell(controller=controller, num_layers=2, memory="deque")
    check(cell, 11, 3, mask=some_mask(3, 11), state=random_state(cell, 3, torch.float64))


@pytest.mark.parametrize(("controller", "memory"), thinned(["gru", "lstm"], ALL, every=2))
def test_gradcheck(controller, memory):
    cell = make_cell(controller=controller, hidden_size=3, embedding_size=2, **ALL[memory] | {"memory_size": 2})
    state = random_state(cell, 2, torch.float64, steps=2)
    if hasattr(state.memory, "strengths"):
        with torch.no_grad():
            state.memory.strengths.clamp_(min=0.3)  # at zero there is no derivative, only a convention
    if hasattr(state.memory, "lost"):
        state.memory.lost.requires_grad_(False)
    cell.scan_backend = "numba"
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    parameters = list(cell.parameters())

    def run(*arguments):
        scan = cell.scan(arguments[0], state, torch.tensor([[True] * 3, [True, False, True]]))
        return (scan.outputs, *(leaf for leaf in leaves(scan.state) if leaf.requires_grad and leaf.numel()))

    assert torch.autograd.gradcheck(run, (inputs, *parameters, *(leaf for leaf in leaves(state) if leaf.requires_grad)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_what_is_not_finite_ends_as_nan(controller, memory, bad):
    for push in ("expected_value", "sigmoid"):
        cell = make_cell(controller=controller, memory=memory, push_control=push, pop_control="sigmoid", spread=0.5)
        cell.scan_backend = "numba"
        inputs = torch.randn(2, 8, 5, dtype=torch.float64)
        inputs[0, 3, 1] = bad
        inputs.requires_grad_()
        scan = cell.scan(inputs)
        scan.outputs.sum().backward()
        assert torch.isfinite(scan.outputs[1]).all()  # the other sequence
        assert torch.isfinite(inputs.grad[1]).all()
        if bad != bad:
            assert scan.outputs[0, 3:].isnan().all()
            assert torch.isfinite(scan.outputs[0, :3]).all()


def test_memory_that_nobody_wrote_to_is_nan_here():
    """So that the tests of this file see it if the scan reads any."""
    assert np.isnan(np.empty(3)).all()
    assert torch.empty(3).isnan().all()


@pytest.mark.parametrize("memory", ["deque", "several, with all settings", "tape"])
def test_backwards_twice_through_one_forward_pass_and_never_with_a_graph(memory):
    """Also where the gradient given needs none, as that of a sum: it would be taken for a constant."""
    cell = make_cell(**ALL[memory])
    cell.scan_backend = "numba"
    inputs = torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True)
    for loss in (cell.scan(inputs).outputs.square().sum(), cell.scan(inputs).outputs.sum()):
        first = torch.autograd.grad(loss, inputs, retain_graph=True)[0]
        assert torch.equal(torch.autograd.grad(loss, inputs, retain_graph=True)[0], first)
        with pytest.raises(RuntimeError, match="cannot be differentiated twice.*scan_backend"):
            torch.autograd.grad(loss, inputs, create_graph=True)
    cell.scan_backend = "reference"
    curvature = torch.autograd.functional.hessian(lambda y: cell.scan(y).outputs.sum(), inputs[:1, :3])
    assert curvature.abs().max() > 1e-3


@pytest.mark.parametrize("memory", ["stack", "superposition"])
def test_dropout_between_layers_is_drawn_and_has_gradients(memory):
    cell = make_cell(num_layers=2, hidden_dropout=0.5, memory=memory)
    cell.scan_backend = "numba"
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    first, second = (cell.scan(inputs).outputs for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.autograd.gradcheck(lambda x: (torch.manual_seed(3), cell.scan(x).outputs)[1], inputs.requires_grad_())
    cell.eval()
    check(cell)


def _outputs(cell, inputs, queue):
    # torch's threads do not survive a fork: its own operations would wait for them, so a DataLoader's workers have one.
    available = torch_threads.available()
    torch.set_num_threads(1)
    queue.put((cell.scan(inputs).outputs.detach().numpy(), available))


def test_works_in_a_forked_process_after_it_ran_in_this_one():
    cell = make_cell(torch.float32, hidden_size=100, embedding_size=50)
    cell.scan_backend = "numba"
    inputs = torch.randn(64, 40, 50)
    with threads(2), torch.no_grad():
        here = cell.scan(inputs).outputs
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_outputs, args=(cell, inputs, queue))
        child.start()
        there, available = queue.get(timeout=60)
        child.join(timeout=60)
    assert child.exitcode == 0
    assert torch.equal(here, torch.from_numpy(there))
    assert available == 1


def test_runs_in_several_python_threads_at_once():
    cell = make_cell(torch.float32)
    cell.scan_backend = "numba"
    batches = [torch.randn(5, 20, 5) for _ in range(8)]
    expected = [cell.scan(batch).outputs for batch in batches]
    found = [None] * len(batches)

    def run(i):
        found[i] = cell.scan(batches[i]).outputs

    workers = [threading.Thread(target=run, args=(i,)) for i in range(len(batches))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("fields", [{"controller": "gru", "num_layers": 2}, {"reading_entry": "hidden_state"}], ids=str)
def test_products_end_with_the_last_text_that_goes_on(fields, one_hot, monkeypatch):
    """The longest first, so that products shrink from step to step; and with a text that begins late."""
    monkeypatch.setattr(plan, "ROWS_OF_A_PRODUCT", 50)
    cell = make_cell(memory="stack", **fields)
    mask = torch.arange(40) < torch.tensor([40, 40, 31, 12, 12, 12, 5, 2, 1]).unsqueeze(1)
    late = mask.clone()
    late[7, 20:] = True
    for given in (mask, late):
        check(cell, 40, 9, mask=given, state=random_state(cell, 9, torch.float64), one_hot=one_hot)
