"""Cross-entropy of a linear layer's logits, a chunk of rows at a time.

A language model's softmax over 10,000 words costs more than its recurrent network. Written plainly, the logits, their
log-probabilities and the gradients of both are all held at once, [N, V] each. Here a chunk's logits become their own
gradient in place, which is multiplied into the gradients of the inputs at once, so only one chunk exists at a time.
"""

from __future__ import annotations

import importlib.util
import math
import os
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.labels import IGNORED
from ..kernels.derivatives import first_derivative_only

if TYPE_CHECKING:
    from ..kernels.cpu.cross_entropy import CompiledSoftmax
    from ..kernels.gpu.cross_entropy import TritonSoftmax

# Each chunk reads the weights and adds to their gradient, [V, H] both: fewer rows than 2 H, and that costs as much as a
# product in bfloat16; many more, and a chunk leaves the cache. `python benchmarks/loss.py` measures it.
MIN_CHUNK_ROWS = 256
# The maximum size of a chunk's logits, in bytes of float32. A GPU needs much work at a time.
CPU_CHUNK_BYTES = 64 * 2**20
GPU_CHUNK_BYTES = 512 * 2**20
# Rows of logits begin at multiples of this, in bfloat16 and on a GPU, where also their number is rounded down to one.
ROW_MULTIPLE = 64
# oneDNN, which multiplies bfloat16 on a CPU, keeps memory for each shape it has met, and the batches of a corpus have
# hundreds of numbers of words. In whole blocks the products have few shapes.
BFLOAT16_BLOCK_ROWS = 16
# For the same reason a large sample of classes grows until all of them are a multiple of this.
SAMPLED_BLOCK = 256

LOSS_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def multiplies_bfloat16() -> bool:
    """True if the processor has instructions for products of bfloat16, and this build of torch uses them.

    This means those of x86 (AVX512-BF16, AMX). Elsewhere bfloat16 also runs, but slower than float32.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    if hasattr(torch.cpu, "get_capabilities"):  # not before torch 2.13
        capabilities = torch.cpu.get_capabilities()
        return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def default_chunk_rows(hidden_size: int, vocab_size: int, device: torch.device) -> int:
    """Return the number of rows of logits that `linear_cross_entropy` holds at a time."""
    if device.type != "cpu":
        rows = max(1, GPU_CHUNK_BYTES // (4 * _rounded_up(max(1, vocab_size))))
        return _whole_blocks(rows, ROW_MULTIPLE)
    row_bytes = 4 * max(1, vocab_size)
    rows = max(1, min(max(MIN_CHUNK_ROWS, 2 * hidden_size), CPU_CHUNK_BYTES // row_bytes))
    return _whole_blocks(rows, BFLOAT16_BLOCK_ROWS)


def _whole_blocks(rows: int, block: int) -> int:
    """The largest multiple of a block of rows; all rows if they are fewer than one block."""
    return rows if rows < block else rows - rows % block


def _rounded_up(classes: int, multiple: int = ROW_MULTIPLE) -> int:
    return -(-classes // multiple) * multiple


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of -log softmax(hidden W^T + b)[label] over the rows that count.

    The forward pass computes the gradients with the loss, in `dtype`, and keeps them in place of the logits.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        counted: Tensor,
        chunk_rows: int,
        dtype: torch.dtype,
        with_gradients: bool,
    ) -> Tensor:
        needs_hidden, needs_weight, needs_bias = (with_gradients and needs for needs in ctx.needs_input_grad[:3])
        needs_any = needs_hidden or needs_weight or needs_bias
        classes, in_triton = len(weight), runs_in_triton(hidden.device, dtype)
        # cuBLAS is slow if rows do not begin at whole 16 bytes, or sums have an odd length. So columns are added there,
        # with weights of zero. oneDNN's products in bfloat16 take a quarter longer if they do not begin at whole cache
        # lines; there the added columns are only space, which it reads, times zero: so it must be finite.
        columns = _rounded_up(classes) if in_triton or dtype == torch.bfloat16 else classes
        # One buffer for all chunks: fresh pages for each would cost as much as the softmax.
        buffer = hidden.new_empty(min(chunk_rows, len(hidden)), columns, dtype=dtype)
        if not in_triton:
            buffer[:, classes:] = 0
            buffer = buffer[:, :classes]
        softmax: CompiledSoftmax | TritonSoftmax
        if in_triton:
            from ..kernels.gpu.cross_entropy import TritonSoftmax

            softmax = TritonSoftmax(buffer, bias, classes, needs_any, needs_bias)
        else:
            from ..kernels.cpu.cross_entropy import CompiledSoftmax

            softmax = CompiledSoftmax(buffer, bias, needs_any)
        added = buffer.shape[1] - classes
        matrix = F.pad(weight.to(dtype), (0, 0, 0, added)) if added else weight.to(dtype)
        total = hidden.new_zeros((), dtype=_precise(dtype))
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight: Tensor | None = None
        for start in range(0, len(hidden), chunk_rows):
            part = slice(start, start + chunk_rows)
            # Rows that do not count are zero from the start, so that even NaN there has no effect.
            chunk = hidden[part].to(dtype).masked_fill(~counted[part].unsqueeze(1), 0)
            logits = torch.mm(chunk, matrix.t(), out=buffer[: len(chunk)])
            label = labels[part].masked_fill(~counted[part], 0)
            losses, gradient = softmax(logits, label, counted[part])
            total += losses.sum()
            # bfloat16 has no numbers between -1 and -0.996, so p - 1 of an improbable label would always be -1.
            lost = _lost_at_labels(losses, gradient, label) if dtype == torch.bfloat16 and needs_any else None
            if grad_hidden is not None:
                of_labels = None if lost is None else matrix[label].mul_(lost)
                of_hidden = _add_product(of_labels, gradient, matrix, dtype)
                grad_hidden[part] = of_hidden.masked_fill(~counted[part].unsqueeze(1), 0)
            if needs_weight:
                grad_weight = _add_product(grad_weight, gradient.t(), chunk, _precise(weight.dtype))
                if lost is not None:
                    grad_weight.index_add_(0, label, (chunk * lost).to(grad_weight.dtype))
        if needs_weight:  # grad_weight is None if there were no rows
            grad_weight = torch.zeros_like(weight) if grad_weight is None else grad_weight[:classes]
        ctx.save_for_backward(
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            softmax.grad_bias().to(bias.dtype) if bias is not None and needs_bias else None,
            counted.any(),
        )
        return total

    @staticmethod
    @first_derivative_only(
        "this loss", "take the loss of the logits instead, with skip_logits=False where a model computes it"
    )
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        *saved, any_counts = ctx.saved_tensors
        # A mean over no rows divides by zero, and 0 * inf is NaN: a batch without labels would ruin every weight.
        grad_output = grad_output.masked_fill(~any_counts, 0)
        gradients = (None if grad is None else (grad * grad_output).to(grad.dtype) for grad in saved)
        return (*gradients, None, None, None, None, None)


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _lost_at_labels(losses: Tensor, gradient: Tensor, labels: Tensor) -> Tensor:
    """The rounding error [N, 1] in the gradient of the logits [N, V] at the labels [N]."""
    return torch.expm1(-losses).unsqueeze(1) - gradient.gather(1, labels.unsqueeze(1))


def _add_product(total: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """A sum over chunks, in `dtype`: in half precision each chunk would round the sum of those before it."""
    if total is None:
        return torch.mm(left, right).to(dtype)
    return total.addmm_(left, right) if left.dtype == dtype else total.add_(torch.mm(left, right))


def _runs_on_reference() -> bool:
    return os.environ.get("STACK_LM_SCAN_BACKEND") == "reference"


def runs_in_triton(device: torch.device, dtype: torch.dtype) -> bool:
    """True if the softmax of such logits is a Triton kernel on this device; never if scans run on the reference."""
    if device.type != "cuda" or _runs_on_reference() or importlib.util.find_spec("triton") is None:
        return False
    from ..kernels.gpu.cross_entropy import DTYPES

    return dtype in DTYPES


def _runs_in_numba(device: torch.device, dtype: torch.dtype) -> bool:
    """True if the softmax of such logits is compiled for the CPU; likewise never on the reference."""
    if device.type != "cpu" or _runs_on_reference():
        return False
    from ..kernels.cpu.cross_entropy import DTYPES

    return dtype in DTYPES


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    ignore_index: int = IGNORED,
    reduction: Literal["mean", "sum"] = "mean",
    dtype: torch.dtype | None = None,
    chunk_rows: int | None = None,
) -> Tensor:
    """`cross_entropy(linear(hidden, weight, bias), labels)`, without holding all logits at once.

    The gradients are exact, and are computed in the forward pass. They cannot be differentiated again. The products are
    in the precision of autocast, or of `dtype` if given; in float32 for float16. The softmax and all sums are in
    float32 even then: only the logits, their gradients, and the products of one chunk are rounded.

    Under torch.compile, and where no softmax is compiled (on the reference, and on other devices), all logits are held
    at once, and can be differentiated again.

    torch 2.13 has its own `linear_cross_entropy`, which was slower at every size (docs/appendix/performance.md).

    Args:
        hidden: [N, H].
        weight: [V, H].
        bias: [V], or None.
        labels: [N], class ids in [0, V), or `ignore_index`.
        ignore_index: rows with this label do not count, whatever they contain.
        reduction: "mean" (over the rows that count; NaN with gradients of zero if there are none) or "sum",
            in nats.
        dtype: the dtype of the matrix products; by default autocast's, or else that of the inputs.
        chunk_rows: rows of logits [chunk_rows, V] that exist at a time; by default `default_chunk_rows`.

    Returns:
        The loss [], in float32, or in float64 for products in float64.

    Raises:
        ValueError: for inputs and weights of different types without autocast.
        IndexError: for labels that are not classes, on the CPU. (On a GPU the check would have to wait for it.)
    """
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(hidden.shape[1], len(weight), hidden.device)
    device = hidden.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if not autocast and weight.dtype != hidden.dtype:
        raise ValueError(f"hidden and weight must be of one type; got {hidden.dtype} and {weight.dtype}")
    if dtype is None:
        dtype = torch.get_autocast_dtype(device) if autocast and hidden.dtype != torch.float64 else hidden.dtype
    if dtype == torch.float16:  # whose range has no small gradients
        dtype = torch.float32
    counted = labels != ignore_index
    count = counted.sum()
    if device == "cpu" and not torch.compiler.is_compiling():
        _check_classes(labels[counted], len(weight), ignore_index)
    compiled = runs_in_triton(hidden.device, dtype) or _runs_in_numba(hidden.device, dtype)
    if torch.compiler.is_compiling() or not compiled:
        rows = hidden.masked_fill(~counted.unsqueeze(1), 0).to(dtype)
        logits = F.linear(rows, weight.to(dtype), None if bias is None else bias.to(dtype)).to(_precise(dtype))
        total = F.cross_entropy(logits, labels, ignore_index=ignore_index, reduction="sum")
        if reduction == "sum":
            return total
        return (total / count.clamp(min=1)).masked_fill(count == 0, math.nan)  # whose gradient is zero
    if device == "cpu" and int(count) < len(labels):
        # Rows that do not count, such as padding, need no logits.
        hidden, labels, counted = hidden[counted], labels[counted], counted[counted]
    if device == "cpu" and dtype == torch.bfloat16:
        extra = -len(labels) % BFLOAT16_BLOCK_ROWS
        hidden, labels, counted = F.pad(hidden, (0, 0, 0, extra)), F.pad(labels, (0, extra)), F.pad(counted, (0, extra))
    arguments = (hidden, weight, bias, labels, counted, chunk_rows, dtype, torch.is_grad_enabled())
    with torch.autocast(device, enabled=False) if autocast else nullcontext():
        total = _LinearCrossEntropy.apply(*arguments)
    return total / count if reduction == "mean" else total


def _check_classes(labels: Tensor, classes: int, ignore_index: int) -> None:
    """Reject labels that count but are not classes; the check reads them, for which a GPU waits."""
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise IndexError(f"labels must be in [0, {classes}) or {ignore_index}; got {int(wrong)}")


@torch.compiler.disable  # the words of a batch are known only when it runs
def sampled_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    samples: int,
    *,
    ignore_index: int = IGNORED,
    **options: Any,
) -> Tensor:
    """`linear_cross_entropy` with a softmax over the classes of the batch's labels and a sample of the others.

    The other classes are sampled uniformly without replacement, and their exponentials are weighted by V' / samples,
    where V' is the number of others. The estimate of the softmax's denominator is therefore unbiased; that of its
    logarithm, and so of the loss, is slightly too low. With V' samples the loss is exact. Labels follow the classes'
    own distribution, so they nearly always include the classes with the largest terms of the denominator.

    NOTE: Jean et al. (2015) draw from a distribution that is fixed beforehand; here the batch's labels replace it.

    Args:
        hidden: [N, H], as in `linear_cross_entropy`; so are the next four.
        weight: [V, H].
        bias: [V], or None.
        labels: [N].
        ignore_index: rows with this label do not count.
        samples: number of classes to draw from those that are not labels of the batch. From 256 on, up to 255 more are
            drawn, so that products have few sizes: on a CPU each new one costs as much as a product.
        **options: the options of `linear_cross_entropy`.

    Raises:
        ValueError: for fewer than one sample, and as in `linear_cross_entropy`.
        IndexError: for labels that are not classes.
    """
    if samples < 1:
        raise ValueError(f"samples must be at least 1; got {samples}")
    counted = labels != ignore_index
    present, positions = labels[counted].unique(return_inverse=True)
    others = len(weight) - len(present)
    if samples >= SAMPLED_BLOCK:
        samples = _rounded_up(len(present) + samples, SAMPLED_BLOCK) - len(present)
    if samples >= others:
        return linear_cross_entropy(hidden, weight, bias, labels, ignore_index=ignore_index, **options)
    _check_classes(present, len(weight), ignore_index)
    absent = torch.ones(len(weight), dtype=torch.bool, device=weight.device)
    absent[present] = False
    drawn = absent.nonzero().squeeze(1)[torch.randperm(others, device=weight.device)[:samples]]
    classes = torch.cat([present, drawn])
    log_counts = weight.new_zeros(len(classes), dtype=_precise(weight.dtype))
    log_counts[len(present) :] = math.log(others / samples)
    return linear_cross_entropy(
        hidden[counted],
        weight[classes],
        log_counts if bias is None else bias[classes] + log_counts,
        positions,
        **options,  # and the default of ignore_index: positions are numbers from 0, and those to ignore are gone
    )


def causal_lm_loss(
    hidden: Tensor,
    head: nn.Linear,
    labels: Tensor | None,
    *,
    num_items_in_batch: Tensor | float | None = None,
    ignore_index: int = IGNORED,
    shift_labels: Tensor | None = None,
    loss_dtype: str | torch.dtype | None = None,
    softmax_samples: int | None = None,
    **_: Any,
) -> Tensor:
    """The loss of a language model, as transformers' `ForCausalLMLoss` defines it, from its hidden states.

    Args:
        hidden: [B, T, H].
        head: the layer from hidden states to logits.
        labels: [B, T]; the state at step t predicts label t + 1.
        num_items_in_batch: divisor of the sum; by default the number of predicted tokens.
        ignore_index: labels that do not count.
        shift_labels: [B, T], in place of labels: the state at step t predicts label t.
        loss_dtype: type of the matrix products, "float32" or "bfloat16"; by default autocast's, or else the model's.
        softmax_samples: number of words that `sampled_cross_entropy` draws; None computes the whole softmax.

    Returns:
        The loss [], in nats; in float32, or in float64 for float64 models.

    Raises:
        ValueError: for another loss_dtype, or fewer than one sample.
    """
    dtype_name = str(loss_dtype).removeprefix("torch.")
    if loss_dtype is not None and dtype_name not in LOSS_DTYPES:
        raise ValueError(f"loss_dtype must be one of {', '.join(LOSS_DTYPES)}; got {loss_dtype!r}")
    if shift_labels is None:
        assert labels is not None
        hidden, shift_labels = hidden[:, :-1], labels[:, 1:]
    cross_entropy = (
        linear_cross_entropy if softmax_samples is None else partial(sampled_cross_entropy, samples=softmax_samples)
    )
    loss = cross_entropy(
        hidden.reshape(-1, hidden.shape[-1]),
        head.weight,
        head.bias,
        shift_labels.reshape(-1).to(hidden.device),
        ignore_index=ignore_index,
        reduction="mean" if num_items_in_batch is None else "sum",
        dtype=LOSS_DTYPES.get(dtype_name),
    )
    if num_items_in_batch is None:
        return loss
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss / num_items_in_batch
