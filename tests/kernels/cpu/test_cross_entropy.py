"""The compiled softmax of the loss: torch's, in every type, at the edges of numbers, and on several threads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from stack_lm.kernels.cpu import cross_entropy
from stack_lm.kernels.cpu.cross_entropy import DTYPES, CompiledSoftmax

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-6}


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
def test_losses_and_gradients(rows, classes, scale, bias, dtype, seed):
    check(rows, classes, scale, bias, dtype, seed)


def check(rows, classes, scale, bias, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, classes, generator=generator, dtype=torch.float64) * scale).to(dtype)
    added = torch.randn(classes, generator=generator, dtype=torch.float64).to(dtype) if bias else None
    labels = torch.randint(classes, (rows,), generator=generator)
    losses, gradient, of_bias = reference(logits, added, labels)
    kept = logits.clone()
    without = CompiledSoftmax(logits, added, with_gradient=False)
    assert torch.equal(
        without(logits, labels, labels >= 0)[0], CompiledSoftmax(logits, added, False)(logits, labels, labels >= 0)[0]
    )
    assert torch.equal(logits, kept)
    softmax = CompiledSoftmax(logits, added, with_gradient=True)
    found, result = softmax(logits, labels, labels >= 0)
    loss = found.sum()
    assert result is logits
    assert loss.dtype == softmax.grad_bias().dtype == torch.promote_types(dtype, torch.float32)
    tolerance = TOLERANCE[dtype] * max(1, scale)
    torch.testing.assert_close(loss.double(), losses, rtol=tolerance, atol=tolerance * rows)
    torch.testing.assert_close(softmax.grad_bias().double(), of_bias, rtol=tolerance, atol=tolerance * rows)
    rounding = 2**-8 if dtype == torch.bfloat16 else 0
    torch.testing.assert_close(logits.double(), gradient, rtol=rounding + tolerance, atol=tolerance)


def test_bfloat16_is_rounded_as_torch_rounds():
    # One class has all but nothing of the probability, so that the others' gradients are exp(logit) to rounding.
    generator = torch.Generator().manual_seed(0)
    logits = torch.cat([torch.zeros(1), torch.rand(4095, generator=generator) * -40 - 30]).bfloat16()[None]
    labels = torch.tensor([0])
    single = logits.float()
    CompiledSoftmax(single, None, True)(single, labels, labels >= 0)
    CompiledSoftmax(logits, None, True)(logits, labels, labels >= 0)
    assert torch.equal(logits, single.bfloat16())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_edges_of_numbers(dtype):
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
    for row, label, loss, expected in zip(logits, labels, losses, gradient, strict=True):
        own = row[None].clone()
        actual, _ = CompiledSoftmax(own, None, True)(own, label[None], label[None] >= 0)
        torch.testing.assert_close(actual[0], loss.detach(), equal_nan=True, rtol=1e-6, atol=0)
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

    def run_parts(run, parts):
        ran.append(parts)
        for part in reversed(range(parts)):
            run(part)

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
