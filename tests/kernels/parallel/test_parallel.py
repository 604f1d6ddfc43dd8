"""Stack, queue and deque in parallel over time against the definition, step by step."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernels.comparison import check_layer, some_mask, spread_out

from stack_lm import MemoryLayer, StackRNNCell, StackRNNConfig, explain_backend
from stack_lm.kernels.parallel import backend, intervals, scan
from stack_lm.memory import NeuralDeque, NeuralQueue, NeuralStack, StackState, stack_weights

ORDERS = ("after_push", "before_push")
MEMORIES = [cls(3, order) for cls in (NeuralStack, NeuralQueue, NeuralDeque) for order in ORDERS]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
NAMES = [f"{memory.name}-{memory.read_order}" for memory in MEMORIES]
# Strengths whose sums are exact in float64, so that ties are ties for the reference too: down to very weak pushes, and
# up to pops far beyond the content.
GRIDS = (
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0],
    [float(np.float32(0.7)) * n for n in range(4)],
    [float(np.float32(x)) for x in (0.0, 1e-3, 0.3, 0.6180339887, 1.2345, 2.9, 1e9)],
)


def random_case(memory, batch_size, length, first, numbers, generator, dtype=torch.float64, device="cpu"):
    """A state of some elements, and actions: strengths from a list or a callable that draws them; pushes below 4."""
    where = {"dtype": dtype, "device": device}

    def draw(*shape, limit=torch.inf):
        if callable(numbers):
            return numbers(shape).to(**where)
        some = torch.tensor([number for number in numbers if number < limit], **where)
        return some[torch.randint(len(some), shape, generator=generator)]

    def vectors(*shape):
        return torch.randn(*shape, memory.size, generator=generator, dtype=torch.float64).to(**where)

    n = len(memory.ends)
    pushes = [draw(batch_size, length, limit=4) for _ in range(n)]
    others = [draw(batch_size, length) for _ in range(2 * n)]
    actions = memory.action_type(*(vectors(batch_size, length) for _ in range(n)), *pushes, *others)
    return StackState(vectors(batch_size, first), draw(batch_size, first, limit=4)), actions


def results(memory, state, actions, mask, run):
    """Readings, strengths and values of the living, and the gradients of all, under random weights."""
    given = [part.detach().clone().requires_grad_() for part in (*state, *actions)]
    state, actions = StackState(*given[:2]), memory.action_type(*given[2:])
    readings, last = run(memory, state, actions, mask)
    living = last.values * (last.strengths != 0).unsqueeze(-1)
    found = [readings, last.strengths, living]
    generator = torch.Generator().manual_seed(7)
    weights = (torch.randn(part.shape, generator=generator, dtype=torch.float64).to(part) for part in found)
    loss = sum((part * weight).sum() for part, weight in zip(found, weights, strict=True))
    return [*found, *torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)]


def in_steps(memory, state, actions, mask):
    scan = memory.scan(state, actions, mask)
    return scan.readings, scan.state


def in_parallel(memory, state, actions, mask):
    last, readings = backend.over_time(memory, state, actions, mask)
    return readings, last


def in_chunks(*lengths):
    """Run in pieces of these lengths, and carry the state."""

    def run(memory, state, actions, mask):
        readings, start = [], 0
        for length in lengths:
            part = slice(start, start + length)
            of_part = memory.action_type(*(action[:, part] for action in actions))
            state, read = backend.over_time(memory, state, of_part, None if mask is None else mask[:, part])
            readings.append(read)
            start += length
        return torch.cat(readings, dim=1), state

    return run


def furthest(expected, found):
    return max(float((a - b).detach().abs().max()) for a, b in zip(expected, found, strict=True) if a.numel())


@pytest.mark.parametrize("memory", MEMORIES, ids=NAMES)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(0, 4)),
    grid=st.sampled_from([*GRIDS, None]),
    block=st.sampled_from([1, 2, 3, 64]),
    masked=st.booleans(),
)
@example(seed=0, sizes=(1, 1, 0), grid=GRIDS[0], block=64, masked=True)
def test_it_equals_the_reference(memory, seed, sizes, grid, block, masked):
    """In readings, states and all gradients: at ties, at padding, with dead elements in the state, in any chunks."""
    batch_size, length, first = sizes
    generator = torch.Generator().manual_seed(seed)
    numbers = grid or (lambda shape: 2 * torch.rand(shape, generator=generator, dtype=torch.float64))
    state, actions = random_case(memory, batch_size, length, first, numbers, generator)
    mask = torch.rand(batch_size, length, generator=generator) > 0.3 if masked else None
    expected = results(memory, state, actions, mask, in_steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_STEPS", block)
        assert furthest(expected, results(memory, state, actions, mask, in_parallel)) < 1e-12
    if length > 1 and first == 0:
        found = results(
            memory, state, actions, mask, in_chunks(seed % (length - 1) + 1, length - 1 - seed % (length - 1))
        )
        # Chunks are exact in results; at ties, the reference of a chunk starts from a state whose dead are dropped.
        assert furthest(expected[:3], found[:3]) < 1e-12


@pytest.mark.parametrize("length", [2_049, pytest.param(65_537, marks=pytest.mark.slow)])
@pytest.mark.parametrize("memory", MEMORIES[::2], ids=NAMES[::2])
def test_a_long_sequence_is_exact(memory, length):
    """Heights do not grow with time."""
    generator = torch.Generator().manual_seed(3)
    numbers = lambda shape: torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    state, actions = random_case(memory, 1, length, 0, numbers, generator)
    pops = {name: 1.05 * part for name, part in actions._asdict().items() if name.startswith("pop")}
    actions = actions._replace(**pops)
    with torch.no_grad():
        whole, last = in_parallel(memory, state, actions, None)
        pieces, end = in_chunks(*[257] * 7, length - 7 * 257)(memory, state, actions, None)
        torch.testing.assert_close(whole, pieces, rtol=0, atol=1e-13)  # products sum in another order
        assert torch.equal(last.strengths, end.strengths)
        tail, state = length - 8, backend.over_time(memory, state, _part(memory, actions, 0, length - 8))[0]
        kept = memory.compact(state, length)
        assert kept.strengths.shape[1] < 400
        expected, _ = in_steps(memory, kept, _part(memory, actions, tail, length), None)
        torch.testing.assert_close(whole[:, tail:], expected, rtol=0, atol=1e-12)


def _part(memory, actions, start, stop):
    return memory.action_type(*(part[:, start:stop] for part in actions))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 0.05)], ids=str
)
@pytest.mark.parametrize("memory", ["stack", "queue", "deque"])
def test_a_layer_in_each_type(device, memory, dtype, tolerance):
    """With emission, padding of a whole sequence and a carried state; strengths stay in float32."""
    order = ORDERS[dtype == torch.float32]
    layer = MemoryLayer(5, memory, memory_size=3, pop_control="sigmoid", read_order=order).to(device, dtype)
    check_layer(
        spread_out(layer, 2.0),
        7,
        mask=some_mask(3, 7).to(device),
        first_steps=3,
        tolerance=tolerance,
        backend="parallel",
    )
    layer.scan_backend = "parallel"
    readings, state, _ = layer(torch.randn(2, 3, 5, dtype=dtype, device=device))
    assert readings.dtype == state.reading.dtype == state.memory.values.dtype == dtype
    assert state.memory.strengths.dtype == torch.promote_types(dtype, torch.float32)


def test_under_autocast_it_equals_the_loop():
    layer, hidden, found = MemoryLayer(7, memory_size=3), torch.randn(2, 5, 7), []
    for layer.scan_backend in ("reference", "parallel"):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(layer(hidden)[0])
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(*found, atol=0.03, rtol=0.03)


def test_activation_checkpointing_and_no_second_derivatives():
    layer, hidden = (
        MemoryLayer(5, memory_size=3).double(),
        torch.randn(2, 6, 5, dtype=torch.float64, requires_grad=True),
    )
    layer.scan_backend = "parallel"
    plain = torch.autograd.grad(layer(hidden)[0].square().sum(), hidden)[0]
    again = torch.utils.checkpoint.checkpoint(lambda part: layer(part)[0], hidden, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again.square().sum(), hidden)[0], plain)
    with pytest.raises(RuntimeError, match="the parallel scan cannot be differentiated twice .create_graph=True."):
        torch.autograd.grad(layer(hidden)[0].square().sum(), hidden, create_graph=True)


@pytest.mark.parametrize("memory", MEMORIES[:2], ids=NAMES[:2])
def test_the_stack_as_attention(memory):
    """The plain form of the documents, and that its gradients are those of the stack where there are no ties."""
    generator = torch.Generator().manual_seed(1)
    numbers = lambda shape: 2 * torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    state, actions = random_case(memory, 2, 20, 0, numbers, generator)

    def as_attention(memory, state, actions, mask):
        values, *strengths = actions
        return stack_weights(*strengths, memory.read_order) @ values, in_steps(memory, state, actions, mask)[1]

    assert (
        furthest(results(memory, state, actions, None, in_steps), results(memory, state, actions, None, as_attention))
        < 1e-12
    )


def test_on_a_gpu_few_blocks_mean_few_launches():
    """Their number depends on the number of sequences, not on the device at hand."""
    kind = intervals.Kind(True, False, False, False)
    for rows, blocks in ((8, 2), (128, 8), (4_096, 32)):
        none = torch.empty(rows, 2_048, device="meta")
        amounts = intervals.Amounts(none, None, none, None, none, None)
        sequence = scan.Sequence(kind, torch.empty(rows, 2_048, 3, device="meta"), none[:, :0], amounts, None)
        assert len(sequence.starts) == blocks


@pytest.mark.parametrize("memory", MEMORIES[::2], ids=NAMES[::2])
def test_what_is_kept_for_the_gradient_grows_linearly(memory):
    def kept(length):
        generator = torch.Generator().manual_seed(0)
        numbers = lambda shape: torch.rand(shape, generator=generator, dtype=torch.float64)  # noqa: E731
        state, actions = random_case(memory, 2, length, 0, numbers, generator)
        sizes = []

        def save(tensor):
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            in_parallel(memory, state, type(actions)(*(part.requires_grad_() for part in actions)), None)
        return sum(sizes)

    assert kept(1_024) < 4.4 * kept(256)


def test_what_is_not_finite_is_not_hidden():
    layer = MemoryLayer(5, memory_size=3)
    layer.scan_backend = "parallel"
    hidden = torch.randn(2, 4, 5)
    hidden[0, 1, 0] = torch.nan
    readings, _, _ = layer(hidden)
    assert readings[0].isnan().any()
    assert readings[1].isfinite().all()


def test_where_it_runs():
    layer = MemoryLayer(5)
    assert explain_backend(layer).startswith("numba: ")
    assert "parallel: the fastest on cuda" in _explained(layer, "cuda")
    assert "parallel: the fastest on xpu" in _explained(layer, "xpu")
    assert "reference: parallel cannot run this: heights are in float64" in _explained(layer, "mps")
    assert "reference: parallel cannot run this: it has no SuperpositionStack" in _explained(
        MemoryLayer(5, "superposition"), "cuda"
    )
    cell = StackRNNCell(StackRNNConfig(vocab_size=5))
    cell.scan_backend = "parallel"
    with pytest.raises(ValueError, match="a controller needs each reading before its next step"):
        explain_backend(cell)


def _explained(layer, device):
    name, reason = layer.choose_backend(layer.reference_tensor, device=torch.device(device))
    return f"{name}: {reason}"
