"""The loss without logits: exact against torch's cross-entropy, in bounded memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from stack_lm.models import loss
from stack_lm.models.loss import (
    default_chunk_rows,
    linear_cross_entropy,
    multiplies_bfloat16,
    sampled_cross_entropy,
)

pytestmark = pytest.mark.usefixtures("uninitialised_is_nan")


def make_inputs(rows, hidden, classes, dtype=torch.float64, bias=True, ignored=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    labels = torch.randint(classes, (rows,), generator=generator)
    labels[torch.rand(rows, generator=generator) < ignored] = -100
    return random(rows, hidden), random(classes, hidden), random(classes) if bias else None, labels


def plain(hidden, weight, bias, labels, **options):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, **options)


def value_and_gradients(loss, hidden, weight, bias, labels, **options):
    leaves = [tensor for tensor in (hidden, weight, bias) if tensor is not None]
    value = loss(hidden, weight, bias, labels, **options)
    return value.detach(), torch.autograd.grad(value * 1.7, leaves)


def assert_same(actual, expected, rtol=1e-10, atol=1e-12):
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)


class Tensors(TorchDispatchMode):
    """Records what torch computes: the operations, and the memory of new tensors [rows, classes]."""

    def __init__(self, classes, *inputs):
        super().__init__()
        self.classes, self.inputs = classes, {id_of(tensor) for tensor in inputs}
        self.operations, self.wide = [], {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.operations.append(func.overloadpacket.__name__)
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.dim() == 2 and tensor.shape[1] == self.classes:
                # The tensor is kept, so that no address is given out twice.
                self.wide[id_of(tensor)] = tensor
        return result

    def elements(self):
        return sum(t.untyped_storage().nbytes() // 4 for key, t in self.wide.items() if key not in self.inputs)


def id_of(tensor):
    return tensor.untyped_storage().data_ptr()


# What the losses are compared over, besides sizes.
KINDS = {
    "bias": st.booleans(),
    "ignored": st.sampled_from([0.0, 0.4, 1.0]),
    "reduction": st.sampled_from(["mean", "sum"]),
    "seed": st.integers(0, 99),
}


@settings(deadline=None, max_examples=60)
@given(sizes=st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 7)), chunk_rows=st.integers(1, 12), **KINDS)
def test_value_and_every_gradient_equal_torch(sizes, chunk_rows, bias, ignored, reduction, seed):
    inputs = make_inputs(*sizes, bias=bias, ignored=ignored, seed=seed)
    actual = value_and_gradients(linear_cross_entropy, *inputs, reduction=reduction, chunk_rows=chunk_rows)
    expected = value_and_gradients(plain, *inputs, reduction=reduction)
    assert_same(actual, expected)  # where no label counts, a mean of NaN and gradients of zero


def test_float32_and_large_logits():
    inputs = make_inputs(40, 6, 30, ignored=0.2)
    for scale in (1.0, 1e4):
        scaled = [(t.detach() * scale).requires_grad_() for t in inputs[:2]] + list(inputs[2:])
        exact = value_and_gradients(plain, *scaled)
        single = [t.detach().float().requires_grad_() for t in scaled[:3]] + [scaled[3]]
        actual = value_and_gradients(linear_cross_entropy, *single, chunk_rows=7)
        assert actual[0].dtype == torch.float32
        torch.testing.assert_close(actual[0].double(), exact[0], rtol=1e-5, atol=0)
        if scale == 1.0:
            for one, two in zip(actual[1], exact[1], strict=True):
                torch.testing.assert_close(one.double(), two, rtol=1e-5, atol=1e-6)
        assert all(gradient.isfinite().all() for gradient in actual[1])


@pytest.mark.parametrize("ignored", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_reference_has_no_compiled_softmax(monkeypatch, ignored, reduction):
    monkeypatch.setenv("STACK_LM_SCAN_BACKEND", "reference")
    inputs = make_inputs(6, 3, 1000, ignored=ignored)
    expected = value_and_gradients(plain, *inputs, reduction=reduction)
    assert_same(value_and_gradients(linear_cross_entropy, *inputs, reduction=reduction), expected)
    with Tensors(1000, inputs[1]) as tensors:
        linear_cross_entropy(*inputs)
    assert tensors.elements() >= 2 * 6 * 1000


def test_gradcheck():
    hidden, weight, bias, labels = make_inputs(6, 3, 4, ignored=0.3)
    for reduction in ("mean", "sum"):
        assert torch.autograd.gradcheck(
            lambda *leaves, how=reduction: linear_cross_entropy(*leaves, labels, reduction=how, chunk_rows=4),
            (hidden, weight, bias),
        )


def test_differentiating_twice_is_refused():
    hidden, weight, bias, labels = make_inputs(6, 3, 4)
    loss = linear_cross_entropy(hidden, weight, bias, labels)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_backward_twice_through_a_retained_graph():
    inputs = make_inputs(6, 3, 4)
    loss = linear_cross_entropy(*inputs)
    first = torch.autograd.grad(loss, inputs[:3], retain_graph=True)
    assert_same(torch.autograd.grad(loss, inputs[:3]), first)


def test_nan_shows_where_it_counts_and_only_there():
    hidden, weight, bias, labels = make_inputs(6, 3, 4, torch.float32)
    with torch.no_grad():
        hidden[2] = torch.tensor([torch.nan, torch.inf, 0.0])
    assert linear_cross_entropy(hidden, weight, bias, labels).isnan()
    labels[2] = -100
    value, (to_hidden, to_weight, to_bias) = value_and_gradients(linear_cross_entropy, hidden, weight, bias, labels)
    assert value.isfinite()
    assert (to_hidden[2] == 0).all()
    assert to_weight.isfinite().all()
    assert to_bias.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    inputs = make_inputs(64, 16, 50, torch.float32, ignored=0.2)
    exact = value_and_gradients(plain, *inputs)
    with torch.autocast("cpu", dtype):
        value = linear_cross_entropy(*inputs, chunk_rows=10)
    gradients = torch.autograd.grad(value * 1.7, inputs[:3])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact[0], rtol=1e-2, atol=0)
    for actual, expected in zip(gradients, exact[1], strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 0.02 * expected.norm()
    doubles = make_inputs(5, 3, 4)
    with torch.autocast("cpu", dtype):  # leaves float64 alone, as it does elsewhere
        assert_same(linear_cross_entropy(*doubles), plain(*doubles))


def test_products_in_bfloat16():
    inputs = make_inputs(300, 16, 50, torch.float32, ignored=0.2)
    exact = value_and_gradients(plain, *inputs)
    value, gradients = value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.bfloat16, chunk_rows=7)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, exact[0], rtol=2e-3, atol=0)
    for actual, expected in zip(gradients, exact[1], strict=True):
        assert actual.dtype == torch.float32
        assert 0 < (actual - expected).norm() < 0.01 * expected.norm()
    # The same as of inputs that were rounded before, but for the type of the results.
    with torch.autocast("cpu", torch.bfloat16):
        same = value_and_gradients(linear_cross_entropy, *inputs, chunk_rows=7)
        single = value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.float32)
    assert_same((value, gradients), same)
    assert_same((single[0], single[1]), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-5), (torch.bfloat16, 2e-4)])
def test_rounding_to_bfloat16_makes_gradients_neither_larger_nor_smaller(dtype, tolerance):
    """The error of each number is up to 0.004, that of their mean is not: p - 1 of an improbable label is not -1."""
    factors = []
    for seed in range(4):
        hidden, weight, bias, labels = make_inputs(512, 16, 1000, torch.bfloat16, seed=seed)
        given = [part.detach() * scale for part, scale in ((hidden, 1.0), (weight, 0.25), (bias, 0.0))]
        actual, exact = (
            value_and_gradients(loss, *(part.to(own).requires_grad_() for part in given), labels, **options)[1]
            for loss, own, options in (
                (linear_cross_entropy, dtype, {"dtype": torch.bfloat16}),
                (plain, torch.float64, {}),
            )
        )
        factors.append([(one * two).sum() / two.square().sum() for one, two in zip(actual, exact, strict=True)])
    assert (torch.tensor(factors).mean(0) - 1).abs().max() < tolerance


def test_bfloat16_in_few_shapes():
    # oneDNN keeps memory for each shape: without blocks a process of training grew by gigabytes.
    shapes = set()

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_):
                shapes.add(tuple(tuple(tensor.shape) for tensor in args[:2]))
            return func(*args, **(kwargs or {}))

    for rows in range(1, 600, 7):
        inputs = make_inputs(rows, 5, 9, torch.float32, ignored=0.2)
        with Products():
            value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.bfloat16)
    assert len(shapes) <= 3 * 256 / 16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({"architecture": "aarch64", "bf16": True}, False),
    ],
)
def test_which_processors_multiply_bfloat16(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert multiplies_bfloat16() == (expected and torch.backends.mkldnn.is_available())
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: capabilities.get("avx512_bf16", False))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: capabilities.get("amx_bf16", False))
    assert multiplies_bfloat16() == (expected and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not multiplies_bfloat16()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_over_chunks_in_float32(dtype):
    exact = make_inputs(600, 4, 9)
    half = [t.detach().to(dtype).requires_grad_() for t in exact[:3]] + [exact[3]]
    exact = [t.detach().double().requires_grad_() for t in half[:3]] + [exact[3]]
    actual = value_and_gradients(linear_cross_entropy, *half, chunk_rows=3)
    expected = value_and_gradients(plain, *exact)
    assert actual[0].dtype == torch.float32
    for one, two in zip(actual[1], expected[1], strict=True):
        assert one.dtype == dtype
        # The products are rounded to the type; that 200 chunks were added must not show.
        assert (one.double() - two).norm() < 0.01 * two.norm()


def test_float16_keeps_gradients_that_its_range_does_not_have():
    # Class 1 has the probability exp(-18) = 1.5e-8, which float16 takes for zero.
    weight = torch.tensor([[0.0], [0.0]], dtype=torch.float16, requires_grad=True)
    bias = torch.tensor([18.0, 0.0], dtype=torch.float16)
    hidden = torch.full((1, 1), 60_000.0, dtype=torch.float16)
    linear_cross_entropy(hidden, weight, bias, torch.tensor([0])).backward()
    assert float(weight.grad[1, 0]) == pytest.approx(60_000 * 1.523e-8, rel=0.01)


def test_one_chunk_of_logits_is_all_that_exists():
    hidden, weight, bias, labels = make_inputs(48, 3, 1000, torch.float32, ignored=0.1)
    with Tensors(1000, weight) as tensors:
        linear_cross_entropy(hidden, weight, bias, labels, chunk_rows=5).backward()
    assert tensors.elements() == (5 + 2) * 1000  # and two rows to work with
    with Tensors(1000, weight) as tensors:  # the measure itself: the plain loss holds all of them more than once
        plain(hidden, weight, bias, labels).backward()
    assert tensors.elements() >= 2 * 48 * 1000


def test_nothing_is_computed_that_nobody_asked_for():
    hidden, weight, bias, labels = make_inputs(6, 3, 5, torch.float32)

    def products():
        with Tensors(5, weight) as tensors:
            linear_cross_entropy(hidden, weight, bias, labels, chunk_rows=6)
        return sum(name in ("mm", "addmm_", "mv") for name in tensors.operations)

    assert products() == 3  # the bias's gradient comes with the softmax
    weight.requires_grad_(False)
    assert products() == 2
    with torch.no_grad():
        assert products() == 1
    labels[1:] = -100  # padding costs nothing
    with Tensors(5, weight) as tensors:
        linear_cross_entropy(hidden, weight, bias, labels)
    assert tensors.elements() == (1 + 2) * 5


def test_chunks_are_bounded():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert default_chunk_rows(100, 10_000, cpu) == 256
    assert default_chunk_rows(650, 10_000, cpu) == 1296
    for device, limit in ((cpu, 64), (gpu, 512)):
        for classes in (10_000, 50_000, 250_000):
            assert default_chunk_rows(2048, classes, device) * classes * 4 <= limit * 2**20
        assert default_chunk_rows(100, 10**9, device) == 1
    assert default_chunk_rows(100, 2, gpu) * 64 * 4 <= 512 * 2**20  # classes are rounded up there
    assert default_chunk_rows(100, 16_003, gpu) % 64 == 0
    assert default_chunk_rows(100, 10**7, gpu) == 13


def test_bad_arguments():
    hidden, weight, bias, labels = make_inputs(4, 3, 5)
    with pytest.raises(ValueError, match="of one type; got torch.float64 and torch.float32"):
        linear_cross_entropy(hidden, weight.float(), None, labels)
    for wrong in (5, -1):
        labels[1] = wrong
        with pytest.raises(IndexError, match=rf"labels must be in \[0, 5\) or -100; got {wrong}"):
            linear_cross_entropy(hidden, weight, bias, labels)


# --- a softmax over a sample


@settings(deadline=None, max_examples=40)
@given(sizes=st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(2, 12)), samples=st.integers(1, 12), **KINDS)
def test_a_sampled_softmax_is_that_of_its_definition(sizes, samples, bias, ignored, reduction, seed):
    """A softmax over all classes, those of the batch as they are, those drawn V' / samples times, no other."""
    rows, hidden_size, classes = sizes
    hidden, weight, bias_vector, labels = make_inputs(rows, hidden_size, classes, bias=bias, ignored=ignored, seed=seed)
    present = labels[labels != -100].unique()
    others = [i for i in range(classes) if i not in present.tolist()]
    torch.manual_seed(seed)
    actual = value_and_gradients(
        sampled_cross_entropy, hidden, weight, bias_vector, labels, samples=samples, reduction=reduction
    )
    log_counts = torch.zeros(classes, dtype=torch.float64)
    if samples < len(others):
        torch.manual_seed(seed)
        drawn = torch.tensor(others)[torch.randperm(len(others))[:samples]]
        log_counts[others] = -torch.inf
        log_counts[drawn] = torch.tensor(len(others) / samples, dtype=torch.float64).log()

    def definition(hidden, weight, bias, labels):
        logits = F.linear(hidden, weight, bias) + log_counts
        return F.cross_entropy(logits, labels, reduction=reduction)

    assert_same(actual, value_and_gradients(definition, hidden, weight, bias_vector, labels))


def test_the_denominator_of_a_sampled_softmax_is_unbiased():
    """The mean of exp(loss), which is the denominator over exp(logit), is that of the full softmax."""
    hidden, weight, bias, _ = make_inputs(1, 3, 9)
    labels = torch.tensor([4])
    torch.manual_seed(0)
    ratios = torch.stack([sampled_cross_entropy(hidden, weight, bias, labels, 2).exp() for _ in range(2000)]).detach()
    expected = linear_cross_entropy(hidden, weight, bias, labels).exp()
    assert abs(ratios.mean() - expected) < 4 * ratios.std() / 2000**0.5
    assert ratios.std() > 0.1 * expected


@pytest.mark.parametrize(("samples", "drawn"), [(3, 3), (8, 11), (13, 19)])
def test_large_samples_grow_to_whole_blocks(monkeypatch, samples, drawn):
    monkeypatch.setattr(loss, "SAMPLED_BLOCK", 8)
    classes = []

    def recording(hidden, weight, *arguments, **options):
        classes.append(len(weight))
        return linear_cross_entropy(hidden, weight, *arguments, **options)

    monkeypatch.setattr(loss, "linear_cross_entropy", recording)
    hidden, weight, bias, _ = make_inputs(6, 3, 50)
    sampled_cross_entropy(hidden, weight, bias, torch.tensor([7, 8, 8, 9, 10, 11]), samples)
    assert classes == [5 + drawn]


@pytest.mark.parametrize("classes", [999, 1000, 1024])
def test_what_lies_beside_the_logits_in_memory_does_not_count(classes):
    """oneDNN reads bfloat16 in blocks, and so also what follows a row, times zero."""
    inputs = make_inputs(512, 16, classes, dtype=torch.float32)
    expected = value_and_gradients(linear_cross_entropy, *inputs)
    actual = value_and_gradients(linear_cross_entropy, *inputs, dtype=torch.bfloat16)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_a_sampled_softmax_never_holds_all_logits():
    hidden, weight, bias, labels = make_inputs(6, 3, 50)
    with Tensors(50, weight) as tensors:
        sampled_cross_entropy(hidden, weight, bias, labels, 4).backward()
    assert tensors.elements() == 0
