"""Cross-entropy of a linear layer's logits, a chunk of rows at a time.

A language model's softmax over 10,000 words costs more than its recurrent network. Written plainly, the logits, their
log-probabilities and the gradients of both are all held at once, [N, V] each. Here a chunk's logits become their own
gradient in place and are at once multiplied into the gradients of the inputs, so that one chunk is all there ever is.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .derivatives import first_derivative_only
from .labels import IGNORED

# Each chunk reads the weights and adds to their gradient, [V, H] both: fewer rows than H, and that costs more than the
# products; many more, and a chunk leaves the cache. `python benchmarks/loss.py` measures it.
MIN_CHUNK_ROWS = 256
# The most that a chunk's logits may take, in bytes of float32. A GPU needs much work at a time (chosen, not measured).
CPU_CHUNK_BYTES = 64 * 2**20
GPU_CHUNK_BYTES = 256 * 2**20


def default_chunk_rows(hidden_size: int, vocab_size: int, device: torch.device) -> int:
    """How many rows of logits `linear_cross_entropy` holds at a time."""
    row_bytes = 4 * max(1, vocab_size)
    if device.type != "cpu":
        return max(1, GPU_CHUNK_BYTES // row_bytes)
    return max(1, min(max(MIN_CHUNK_ROWS, hidden_size), CPU_CHUNK_BYTES // row_bytes))


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
        precise = torch.promote_types(dtype, torch.float32)
        # Loss scaling is what keeps small gradients in the range of float16, and it comes after the gradients here.
        product = precise if dtype == torch.float16 else dtype
        rows, classes = min(chunk_rows, len(hidden)), len(weight)
        # One piece of memory for all chunks: fresh pages for each would cost as much as the softmax.
        buffer = hidden.new_empty(rows, classes, dtype=dtype)
        precise_buffer = buffer if dtype == precise else hidden.new_empty(rows, classes, dtype=precise)
        matrix = weight.to(dtype).t()
        backward_matrix = weight.to(product)
        total = hidden.new_zeros((), dtype=precise)
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        # Sums over chunks: in half precision each chunk would round what the ones before it added.
        grad_weight = torch.zeros_like(weight, dtype=_precise(weight)) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=_precise(bias)) if bias is not None and needs_bias else None
        for start in range(0, len(hidden), chunk_rows):
            part = slice(start, start + chunk_rows)
            counts = counted[part].unsqueeze(1)
            # What does not count is zero from the start, so that even NaN there reaches nothing.
            chunk = hidden[part].to(dtype).masked_fill(~counts, 0)
            label = labels[part].masked_fill(~counted[part], 0).unsqueeze(1)
            logits = torch.mm(chunk, matrix, out=buffer[: len(chunk)])
            if precise_buffer is not buffer:
                logits = precise_buffer[: len(chunk)].copy_(logits)
            if bias is not None:
                logits += bias
            torch.log_softmax(logits, 1, out=logits)  # row by row, so that a row stays in the cache
            total -= logits.gather(1, label).masked_fill(~counts, 0).sum()
            if not needs_any:
                continue
            # softmax less the one-hot labels: the gradient of each row's loss, were it to count.
            gradient = logits.exp_().scatter_add_(1, label, logits.new_full((1, 1), -1.0).expand_as(label))
            if grad_bias is not None:
                grad_bias += torch.mv(gradient.t(), counts.squeeze(1).to(gradient.dtype))
            if product != precise:
                gradient = buffer[: len(chunk)].copy_(gradient)
            if grad_hidden is not None:
                grad_hidden[part] = torch.mm(gradient, backward_matrix).masked_fill(~counts, 0)
            if grad_weight is None:
                continue
            if grad_weight.dtype == product:
                grad_weight.addmm_(gradient.t(), chunk.to(product))
            else:
                grad_weight += torch.mm(gradient.t(), chunk.to(product))
        ctx.save_for_backward(
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None or bias is None else grad_bias.to(bias.dtype),
        )
        return total

    @staticmethod
    @first_derivative_only(
        "this loss", "take the loss of the logits instead, with skip_logits=False where a model computes it"
    )
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (None if grad is None else (grad * grad_output).to(grad.dtype) for grad in ctx.saved_tensors)
        return (*gradients, None, None, None, None, None)


def _precise(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    ignore_index: int = IGNORED,
    reduction: str = "mean",
    chunk_rows: int | None = None,
) -> Tensor:
    """`cross_entropy(linear(hidden, weight, bias), labels)`, without ever holding all logits.

    The gradients are exact, and are computed in the forward pass. They cannot be differentiated again. Under autocast
    the products are in its precision, the softmax and all sums in float32.

    torch 2.13 has a `linear_cross_entropy` of its own, which was slower at every size tried (docs/performance.md).

    Args:
        hidden: [N, H].
        weight: [V, H].
        bias: [V], or None.
        labels: [N], class ids in [0, V), or `ignore_index`.
        ignore_index: rows with this label do not count; whatever is in them.
        reduction: "mean" (over the rows that count; NaN if there are none) or "sum", in nats.
        chunk_rows: rows of logits [chunk_rows, V] that exist at a time; by default `default_chunk_rows`.

    Returns:
        The loss [], in float32, or in float64 for float64 inputs.

    Raises:
        ValueError: for another reduction, fewer than one row, and inputs and weights of two types without autocast.
        IndexError: for labels that are no class, on the CPU. (On a GPU looking would mean to wait for it.)
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum'; got {reduction!r}")
    if chunk_rows is None:
        chunk_rows = default_chunk_rows(hidden.shape[1], len(weight), hidden.device)
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1; got {chunk_rows}")
    device, dtype = hidden.device.type, hidden.dtype
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if autocast and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    elif weight.dtype != dtype:
        raise ValueError(f"hidden and weight must be of one type; got {dtype} and {weight.dtype}")
    counted = labels != ignore_index
    count = counted.sum()
    if device == "cpu" and int(count) < len(labels):
        # Rows that do not count, such as padding, need no logits.
        hidden, labels, counted = hidden[counted], labels[counted], counted[counted]
    if device == "cpu" and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(weight):
        wrong = labels[(labels < 0) | (labels >= len(weight))][0]
        raise IndexError(f"labels must be in [0, {len(weight)}) or {ignore_index}; got {int(wrong)}")
    arguments = (hidden, weight, bias, labels, counted, chunk_rows, dtype, torch.is_grad_enabled())
    if autocast:
        with torch.autocast(device, enabled=False):
            total = _LinearCrossEntropy.apply(*arguments)
    else:
        total = _LinearCrossEntropy.apply(*arguments)
    return total / count if reduction == "mean" else total


def causal_lm_loss(
    hidden: Tensor,
    head: nn.Linear,
    labels: Tensor | None,
    *,
    num_items_in_batch: Tensor | float | None = None,
    ignore_index: int = IGNORED,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """The loss of a language model, as transformers' `ForCausalLMLoss` defines it, from its hidden states.

    Args:
        hidden: [B, T, H].
        head: makes logits of hidden states.
        labels: [B, T]; the state at step t predicts label t + 1.
        num_items_in_batch: what to divide the sum by; by default the number of predicted tokens.
        ignore_index: labels that do not count.
        shift_labels: [B, T], in place of labels: the state at step t predicts label t.

    Returns:
        The loss [], in nats; in float32, or in float64 for float64 models.
    """
    if shift_labels is None:
        assert labels is not None
        hidden, shift_labels = hidden[:, :-1], labels[:, 1:]
    loss = linear_cross_entropy(
        hidden.reshape(-1, hidden.shape[-1]),
        head.weight,
        head.bias,
        shift_labels.reshape(-1).to(hidden.device),
        ignore_index=ignore_index,
        reduction="mean" if num_items_in_batch is None else "sum",
    )
    if num_items_in_batch is None:
        return loss
    if isinstance(num_items_in_batch, Tensor):
        num_items_in_batch = num_items_in_batch.to(loss.device)
    return loss / num_items_in_batch


def ignore_after_padding(labels: Tensor, attention_mask: Tensor, shift: int = 1, ignore_index: int = IGNORED) -> Tensor:
    """Labels without those that a padded step predicts, as the first token's after padding on the left.

    The output of a padded step is zeros, which says nothing of what comes next.

    Args:
        labels: [B, T].
        attention_mask: [B, T] or longer, of which the last T columns count; zero at padding.
        shift: 1 where the state at step t predicts label t + 1, 0 where it predicts label t.
        ignore_index: in place of those labels.
    """
    padded = F.pad(attention_mask[:, -labels.shape[1] :] == 0, (shift, 0), value=False)[:, : labels.shape[1]]
    return labels.masked_fill(padded.to(labels.device), ignore_index)


def is_plain_linear(module: nn.Module) -> bool:
    """Whether calling a module does nothing but `linear(input, weight, bias)`.

    Not so for what adapters and quantisation put in its place, for hooks (which also move offloaded weights), and for
    a forward method put on the instance.
    """
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        type(module) is nn.Linear
        and type(module.weight) in (nn.Parameter, Tensor)
        and not any(getattr(module, name) for name in hooks)
        and "forward" not in vars(module)
    )
