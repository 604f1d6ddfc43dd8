"""The softmax of `models.loss` on a GPU: rows of logits to their losses and gradients, one program for each row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

# The supported dtypes; bfloat16 is computed in float32.
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
# Logits that a program holds at a time. A row is read from memory once, and from the cache after that.
_BLOCK = 4096
_WARPS = 8
# Columns of a program that sums gradients, rows that it holds at a time, and the programs among which rows are divided.
_SUM_COLUMNS, _SUM_ROWS, _SUM_PARTS = 64, 32, 8


@triton.jit(do_not_specialize=["classes"])
def _softmax(
    logits,
    bias,
    labels,
    counted,
    losses,
    classes,
    width,
    BIAS: tl.constexpr,
    GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The loss of one row, and its gradient in place of the logits; zeros if the row does not count.

    Whole rows are loaded, and the columns behind the classes dropped afterwards: a mask that ends off a multiple of 16
    would split vector loads.

    Args:
        logits: [N, width].
        bias: [width], where BIAS.
        labels, counted: [N].
        losses: [N], of the type in which all is computed.
    """
    DTYPE: tl.constexpr = losses.dtype.element_ty
    i = tl.program_id(0).to(tl.int64)
    row = logits + i * width
    if tl.load(counted + i) != 0:
        label = tl.load(labels + i)
        known = (label >= 0) & (label < classes)  # another label makes all of the row's results NaN
        # Before the sums, in which all threads meet: after them, another thread may have put a gradient in its place.
        at_label = tl.load(row + label, mask=known, other=float("nan")).to(DTYPE)
        if BIAS:
            at_label += tl.load(bias + label, mask=known, other=0.0)
        highest = tl.full((BLOCK,), float("-inf"), DTYPE)
        for start in range(0, width, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(row + cols, mask=cols < width, other=0.0).to(DTYPE)
            if BIAS:
                x += tl.load(bias + cols, mask=cols < width, other=0.0)
            highest = tl.maximum(highest, tl.where(cols < classes, x, float("-inf")))
        top = tl.max(highest, 0)
        sums = tl.zeros((BLOCK,), DTYPE)
        for start in range(0, width, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(row + cols, mask=cols < width, other=0.0).to(DTYPE)
            if BIAS:
                x += tl.load(bias + cols, mask=cols < width, other=0.0)
            sums += tl.exp(tl.where(cols < classes, x, float("-inf")) - top)
        log_sum = tl.where(known, tl.log(tl.sum(sums, 0)), float("nan"))
        tl.store(losses + i, log_sum - (at_label - top))
        if GRADIENT:
            for start in range(0, width, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                x = tl.load(row + cols, mask=cols < width, other=0.0).to(DTYPE)
                if BIAS:
                    x += tl.load(bias + cols, mask=cols < width, other=0.0)
                share = tl.exp(tl.where(cols < classes, x, float("-inf")) - top - log_sum)
                gradient = tl.where(cols < classes, share - tl.where(cols == label, 1.0, 0.0), 0.0)
                tl.store(row + cols, gradient.to(logits.dtype.element_ty), mask=cols < width)
    else:
        tl.store(losses + i, tl.zeros((), DTYPE))
        if GRADIENT:
            for start in range(0, width, BLOCK):
                cols = start + tl.arange(0, BLOCK)
                tl.store(row + cols, tl.zeros((BLOCK,), logits.dtype.element_ty), mask=cols < width)


@triton.jit(do_not_specialize=["rows"])
def _add_columns(numbers, sums, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr):
    """Add the columns of numbers [rows, width] to sums [PARTS, width], each part of it some of the rows."""
    cols = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.program_id(1)
    inside = cols < width
    into = sums + part.to(tl.int64) * width + cols
    total = tl.zeros((ROWS, COLUMNS), sums.dtype.element_ty)
    for start in range(part * ROWS, rows, PARTS * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row.to(tl.int64)[:, None] * width + cols[None, :]
        total += tl.load(numbers + at, mask=(row < rows)[:, None] & inside[None, :], other=0.0).to(total.dtype)
    tl.store(into, tl.load(into, mask=inside, other=0.0) + tl.sum(total, 0), mask=inside)


class TritonSoftmax:
    """Cross-entropy of logits and a bias, a chunk of rows at a time; the gradient overwrites the logits.

    A label that is no class has a loss and gradients of NaN: rejecting it would mean waiting for the GPU.

    Args:
        buffer: [N, width], of one of `DTYPES`, the largest of the chunks to come; multiples of 16 are fast widths.
        bias: [V], or None.
        classes: V, the number of columns with logits. The others are ignored, and their gradient is zero.
        with_gradient: whether to compute it. Without, the logits stay as they are.
        sum_bias: whether to compute the gradient of the bias, too.
    """

    def __init__(
        self, buffer: Tensor, bias: Tensor | None, classes: int, with_gradient: bool, sum_bias: bool = True
    ) -> None:
        self.classes, self.with_gradient, width = classes, with_gradient, buffer.shape[1]
        self.sum_bias = sum_bias and with_gradient and bias is not None
        self.dtype = torch.promote_types(buffer.dtype, torch.float32)
        self.bias = None if bias is None else F.pad(bias.detach().to(self.dtype), (0, width - classes))
        self.sums = buffer.new_zeros(_SUM_PARTS, width, dtype=self.dtype)

    def __call__(self, logits: Tensor, labels: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """The losses [N] of logits [N, width] for labels int64 [N], and the logits' gradient.

        Rows that do not count, per `counted` [N], have losses and gradients of zero.
        """
        rows, width = logits.shape
        losses = logits.new_empty(rows, dtype=self.dtype)
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _softmax[(rows,)](
                logits,
                losses if self.bias is None else self.bias,
                labels.contiguous(),
                counted.contiguous(),
                losses,
                self.classes,
                width,
                BIAS=self.bias is not None,
                GRADIENT=self.with_gradient,
                BLOCK=min(_BLOCK, triton.next_power_of_2(width)),
                num_warps=_WARPS,
            )
            if self.sum_bias:
                self._add_to_sums(logits, labels, losses)
        return losses, logits

    def _add_to_sums(self, gradient: Tensor, labels: Tensor, losses: Tensor) -> None:
        if gradient.dtype != self.dtype:
            # bfloat16 has no numbers between -1 and -0.996, so p - 1 of an improbable label is always rounded to -1.
            lost = torch.expm1(-losses) - gradient.gather(1, labels.unsqueeze(1)).squeeze(1)
            self.sums[0].index_add_(0, labels, lost)
        rows, width = gradient.shape
        sizes = {"ROWS": _SUM_ROWS, "COLUMNS": _SUM_COLUMNS, "PARTS": _SUM_PARTS}
        _add_columns[triton.cdiv(width, _SUM_COLUMNS), _SUM_PARTS](
            gradient, self.sums, rows, width, **sizes, num_warps=4
        )

    def grad_bias(self) -> Tensor:
        """The gradient of the bias [V], over all chunks so far."""
        return self.sums.sum(0)[: self.classes]
