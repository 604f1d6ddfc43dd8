"""The softmax of `models.loss` on the CPU: rows of logits to their losses and gradients, on torch's threads."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .softmax import cross_entropy_rows
from .threads import available, run_parts

# The supported dtypes; bfloat16 is computed in float32.
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
# Fewer logits than this are not worth a second thread.
_MIN_LOGITS = 2**16


class CompiledSoftmax:
    """Cross-entropy of logits and a bias, a chunk of rows at a time; the gradient overwrites the logits.

    Args:
        buffer: [N, V], of one of `DTYPES`, the largest of the chunks to come. There may be space between rows.
        bias: [V], or None.
        with_gradient: whether to compute it. Without, the logits stay as they are.
    """

    def __init__(self, buffer: Tensor, bias: Tensor | None, with_gradient: bool) -> None:
        rows, classes = buffer.shape
        self.with_gradient = with_gradient
        self.dtype = torch.promote_types(buffer.dtype, torch.float32)
        self.bias = (
            buffer.new_zeros(classes, dtype=self.dtype) if bias is None else bias.detach().to(self.dtype, copy=True)
        )
        self.threads = max(1, min(available(), rows, buffer.numel() // _MIN_LOGITS))
        # A row to work with, and the sum of the rows' gradients, for each thread.
        self.numbers = buffer.new_empty(self.threads, classes, dtype=self.dtype)
        self.sums = buffer.new_zeros(self.threads, classes, dtype=self.dtype)

    def __call__(self, logits: Tensor, labels: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
        """The losses [N] of logits [N, V] for labels int64 [N], and the logits' gradient.

        The rows that count, per `counted` [N], come first; the others are skipped and their losses are zero.
        """
        rows = int(counted.sum())
        losses = logits.new_zeros(len(logits), dtype=self.dtype)
        # With the space between rows, so that compiled code knows that they are contiguous.
        whole = logits.as_strided((len(logits), logits.stride(0)), logits.stride())
        stored = (whole.view(torch.uint16) if whole.dtype == torch.bfloat16 else whole).numpy()
        label_of, loss_of, bias = labels.contiguous().numpy(), losses.numpy(), self.bias.contiguous().numpy()
        numbers, sums = self.numbers.numpy(), self.sums.numpy()
        bounds = np.linspace(0, rows, self.threads + 1).astype(int)

        def run(part: int) -> None:
            own = slice(bounds[part], bounds[part + 1])
            cross_entropy_rows(
                stored[own], bias, label_of[own], self.with_gradient, loss_of[own], numbers[part], sums[part]
            )

        run_parts(run, self.threads)
        return losses, logits

    def grad_bias(self) -> Tensor:
        """The gradient of the bias [V], over all chunks so far."""
        return self.sums.sum(0)
