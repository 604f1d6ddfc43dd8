"""The softmax of the loss, compiled and in Triton: torch's, in every type, at the edges of numbers, and on threads."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.compiling import run_compiling
from torch.nn import functional as F

from stack_lm.kernels.cpu import cross_entropy
from stack_lm.kernels.cpu.cross_entropy import DTYPES, CompiledSoftmax
from stack_lm.models import loss

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-6}
ON_GPU = torch.cuda.is_available()
INTERPRETED = not ON_GPU or os.environ.get("TRITON_INTERPRET") == "1"


class Runs:
    """A softmax, the device of its tensors, and whether it truncates to bfloat16, as Triton's interpreter does."""

    def __init__(self, kind, device="cpu", *, truncates=False):
        self.kind, self.device, self.truncates = kind, device, truncates

    def __call__(self, logits, bias, labels, counted=None, with_gradient=True):
        """Losses, the logits' gradient and that of the bias."""
        logits, labels = logits.to(self.device), labels.to(self.device)
        bias = None if bias is None else bias.to(self.device)
        classes, whole = logits.shape[1], F.pad(logits, (0, 5), value=7.0)  # columns of no class
        if self.kind is CompiledSoftmax:
            logits = whole[:, :classes]
            softmax = CompiledSoftmax(logits, bias, with_gradient)
        else:
            logits, softmax = whole, self.kind(whole, bias, classes, with_gradient)
        losses, gradient = softmax(logits, labels, labels >= 0 if counted is None else counted.to(self.device))
        assert gradient is logits
        assert not with_gradient or (whole[:, classes:] == (7 if self.kind is CompiledSoftmax else 0)).all()
        return losses.cpu(), gradient[:, :classes].cpu(), softmax.grad_bias().cpu()


@pytest.fixture(scope="module", params=["numba", "triton", pytest.param("cuda", marks=pytest.mark.gpu)])
def run(request):
    if request.param == "numba":
        yield Runs(CompiledSoftmax)
        return
    pytest.importorskip("triton", reason="triton is not installed")
    if (request.param == "triton") != INTERPRETED:
        pytest.skip("kernels are interpreted on the CPU or compiled for a GPU; TRITON_INTERPRET=1 interprets them")
    with pytest.MonkeyPatch.context() as patch:
        if INTERPRETED:
            patch.setenv("TRITON_INTERPRET", "1")
        from stack_lm.kernels.gpu.cross_entropy import TritonSoftmax

        yield Runs(TritonSoftmax, "cpu" if INTERPRETED else "cuda", truncates=INTERPRETED)


def reference(logits, bias, labels):
    """Losses, gradients of the logits and their sum, computed in float64."""
    exact = (logits.double() + (0 if bias is None else bias.double())).requires_grad_()
    losses = F.cross_entropy(exact, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(losses, exact)
    return losses.detach(), gradient, gradient.sum(0)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.integers(1, 6),
    classes=st.integers(1, 200),
    scale=st.sampled_from([0.0, 1.0, 10.0, 60.0]),
    bias=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
def test_losses_and_gradients(run, rows, classes, scale, bias, dtype, seed):
    check(run, rows, classes, scale, bias, dtype, seed)


def test_more_classes_than_a_program_holds(run):
    check(run, 70, 9000, 1.0, True, torch.float32, 0)


def check(run, rows, classes, scale, bias, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale).to(dtype)
    added = torch.randn(classes, generator=generator, dtype=torch.float64).to(dtype) if bias else None
    labels = torch.randint(classes, (rows,), generator=generator)
    losses, gradient, of_bias = reference(logits, added, labels)
    without, kept, _ = run(logits.clone(), added, labels, with_gradient=False)
    assert torch.equal(kept, logits)
    found, result, sums = run(logits, added, labels)
    assert torch.equal(without, found)
    total = found.sum()
    assert total.dtype == sums.dtype == torch.promote_types(dtype, torch.float32)
    tolerance = TOLERANCE[dtype] * max(1, scale)
    torch.testing.assert_close(total.double(), losses, rtol=tolerance, atol=tolerance * rows)
    rounding = 2 ** -(7 if run.truncates else 8) if dtype == torch.bfloat16 else 0
    torch.testing.assert_close(result.double(), gradient, rtol=rounding + tolerance, atol=tolerance)
    if bias:
        torch.testing.assert_close(
            sums.double(), of_bias, rtol=rounding + tolerance, atol=(rounding + tolerance) * rows
        )


def test_bfloat16_is_rounded_as_torch_rounds(run):
    if run.truncates:
        pytest.skip("Triton's interpreter cuts digits off")
    # One class has all but nothing of the probability, so that the others' gradients are exp(logit) to rounding.
    generator = torch.Generator().manual_seed(0)
    logits = torch.cat([torch.zeros(1), torch.rand(4095, generator=generator) * -40 - 30]).bfloat16()[None]
    labels = torch.tensor([0])
    _, single, _ = run(logits.float(), None, labels)
    _, gradient, _ = run(logits, None, labels)
    assert torch.equal(gradient, single.bfloat16())


def test_rows_that_do_not_count(run):
    logits, labels = torch.randn(5, 9), torch.tensor([1, 2, 3, 0, 0])
    logits[3:] = torch.nan
    _, expected, sums = run(logits[:3].clone(), torch.ones(9), labels[:3])
    losses, gradient, found = run(logits, torch.ones(9), labels, torch.tensor([1, 1, 1, 0, 0]).bool())
    assert torch.equal(losses[3:], torch.zeros(2))
    assert torch.equal(gradient[:3], expected)
    torch.testing.assert_close(found, sums)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")  # NumPy's, in Triton's interpreter
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_edges_of_numbers(run, dtype):
    labels = torch.tensor([0, 1, 0, 2, 0, 0])
    rows = [
        [1e30, 0.0, -1e30],  # a loss of nothing
        [3e38, 0.0, -3e38],  # a loss that float32 can just hold
        [0.0, -torch.inf, -torch.inf],  # words that cannot be
        [torch.nan, 0.0, 0.0],
        [-torch.nan, 0.0, 0.0],
        [torch.inf, 0.0, 0.0],
    ]
    logits = torch.tensor(rows, dtype=torch.float64).to(dtype)
    precise = torch.promote_types(dtype, torch.float32)
    exact = logits.clone().to(precise).requires_grad_()
    losses = F.cross_entropy(exact, labels, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), exact)
    for row, label, of_row, expected in zip(logits, labels, losses, gradient, strict=True):
        actual, own, _ = run(row[None].clone(), None, label[None])
        torch.testing.assert_close(actual[0], of_row.detach(), equal_nan=True, rtol=1e-6, atol=0)
        torch.testing.assert_close(own[0].to(precise), expected, equal_nan=True, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_share_the_rows(dtype, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 50, generator=generator).to(dtype)
    bias, labels = torch.randn(50, generator=generator).to(dtype), torch.randint(50, (7,), generator=generator)
    alone = logits.clone()
    one = CompiledSoftmax(alone, bias, True)
    expected, _ = one(alone, labels, labels >= 0)
    ran = []

    def run_parts(of_part, parts):
        ran.append(parts)
        for part in reversed(range(parts)):
            of_part(part)

    monkeypatch.setattr(cross_entropy, "available", lambda: 3)
    monkeypatch.setattr(cross_entropy, "run_parts", run_parts)
    monkeypatch.setattr(cross_entropy, "_MIN_LOGITS", 1)
    shared = CompiledSoftmax(logits, bias, True)
    losses, _ = shared(logits, labels, labels >= 0)
    assert ran == [3]
    assert torch.equal(logits, alone)
    assert torch.equal(losses, expected)
    torch.testing.assert_close(shared.grad_bias(), one.grad_bias())
    few = torch.zeros(2, 50, dtype=dtype)  # a last chunk with fewer rows than threads
    few[:, 3] = 1
    shared(few, labels[:2], labels[:2] >= 0)
    assert torch.equal(few[0].argmin(), labels[0])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
def test_the_loss_runs_in_triton(run, monkeypatch, dtype, bias):
    """With classes that are rounded up, in chunks, and rows that do not count."""
    if run.kind is CompiledSoftmax:
        pytest.skip("tests/models/test_loss.py has the loss on the CPU")
    used = []
    if dtype != torch.float16:
        monkeypatch.setattr(loss, "runs_in_triton", lambda device, dtype: used.append(dtype) or True)
    generator = torch.Generator().manual_seed(0)
    sizes, exact = ((7, 5), (70, 5), (70,)), torch.float64 if dtype == torch.float64 else torch.float32
    inputs = [torch.randn(size, generator=generator, dtype=exact).to(run.device).requires_grad_() for size in sizes]
    labels = torch.tensor([3, 69, -100, 0, 3, -100, 9], device=run.device)
    hidden, weight, added = inputs if bias else (*inputs[:2], None)
    leaves = inputs if bias else inputs[:2]
    expected = F.cross_entropy(F.linear(hidden, weight, added), labels)
    found = loss.linear_cross_entropy(hidden, weight, added, labels, dtype=dtype, chunk_rows=4)
    gradients = [torch.autograd.grad(of, leaves) for of in (found, expected)]
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 0.02)
    for of_triton, of_torch in zip((found, *gradients[0]), (expected, *gradients[1]), strict=True):
        torch.testing.assert_close(of_triton, of_torch, rtol=tolerance, atol=tolerance)
    assert set(used) == {dtype} - {torch.float16}


def test_nothing_waits_for_the_device(run):
    if run.device != "cuda":
        pytest.skip("needs a CUDA device")
    sizes, labels = ((70, 5), (70,)), torch.tensor([3, 69, -100], device="cuda")
    hidden, weight, bias = (torch.randn(size, device="cuda", requires_grad=True) for size in ((3, 5), *sizes))
    for mode in ("default", "error"):  # compiled first
        torch.cuda.set_sync_debug_mode(mode)
        try:
            loss.linear_cross_entropy(hidden, weight, bias, labels, dtype=torch.bfloat16).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


COMPILES = """
import re
import torch
from kernels.compiling import Compiled, compiled, pretend_gpu
from stack_lm.kernels.gpu import cross_entropy

pretend_gpu(ARCHITECTURE)
for name in ("_softmax", "_add_columns"):
    setattr(cross_entropy, name, Compiled(getattr(cross_entropy, name)))
for dtype in cross_entropy.DTYPES:
    for bias in (None, torch.zeros(16003)):
        logits = torch.zeros(3, 16064, dtype=dtype)
        softmax = cross_entropy.TritonSoftmax(logits, bias, 16003, True)
        softmax(logits, torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.bool))
wide = [each.asm["ptx"] for each in compiled if each.kernel is cross_entropy._softmax.kernel]
print(len(compiled), all(".v4.b32" in ptx or ".v2.b64" in ptx for ptx in wide))
# The logit of the label is loaded before threads meet: after that, one of them may overwrite it.
print(all(ptx.index("bar.sync") > max(load.start() for load in re.finditer(r"ld.global.b\\d", ptx)) for ptx in wide))
"""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_kernels_compile_for_gpus(tmp_path, architecture):
    """To machine code that loads 16 bytes at a time."""
    pytest.importorskip("triton", reason="triton is not installed")
    assert run_compiling(COMPILES.replace("ARCHITECTURE", str(architecture)), tmp_path).split() == ["9", "True", "True"]
