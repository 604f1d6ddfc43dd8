"""The pointwise part of a controller's step on a GPU, forwards and backwards, one launch for each layer.

See `stack_lm.kernels.layout` for the blocks of a layer's gates. The products with the weights are cuBLAS's; these
kernels add them up and squash them.

Kernels take the step index t and tensors of all steps, so that a launch needs no tensor views.
"""

import triton
import triton.language as tl

from .. import layout

ELMAN = tl.constexpr(layout.ELMAN)
RELU_ELMAN = tl.constexpr(layout.RELU_ELMAN)
SIGMOID_ELMAN = tl.constexpr(layout.SIGMOID_ELMAN)
GRU = tl.constexpr(layout.GRU)
LSTM = tl.constexpr(layout.LSTM)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1 / (1 + small), small / (1 + small))


@triton.jit
def tanh(x):
    """tanh to the last digits, for float32 and float64: Triton's interpreter has none.

    Near zero, where the exponentials would cancel, the rational approximation of the Cephes library (Moshier 1989,
    tanh.c).
    """
    square = x * x
    above = (-9.64399179425052238628e-1 * square - 9.92877231001918586564e1) * square - 1.61468768441708447952e3
    below = ((square + 1.12811678491632931402e2) * square + 2.23548839060100448583e3) * square
    near = x + x * square * (above / (below + 4.84406305325125486048e3))
    small = tl.exp(-2 * tl.abs(x))
    far = (1 - small) / (1 + small)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def _gate(
    sums, projected, bias, row, projected_row, BLOCK_OF_GATES: tl.constexpr, cols, inside, has_projected, H, DTYPE
):
    """One block's sum: the product, the projection of x_t if the block has one, and the bias."""
    at = BLOCK_OF_GATES * H + cols
    total = tl.load(sums + row + at, mask=inside, other=0.0).to(DTYPE)
    total += tl.load(bias + at, mask=inside, other=0.0).to(DTYPE)
    if has_projected:
        total += tl.load(projected + projected_row + at, mask=inside, other=0.0).to(DTYPE)
    return total


@triton.jit
def takes_step(active, place, MASKED: tl.constexpr):
    """True if a sequence takes a step, from the mask [T, B] at t * B + b."""
    return tl.load(active + place) != 0 if MASKED else tl.full((), 1, tl.int1)


@triton.jit(do_not_specialize=["t", "B"])
def forward(
    gates,
    projected,
    bias,
    hidden,
    cells,
    own,
    up,
    dropped,
    active,
    t,
    B,
    PROJECTED: tl.constexpr,
    PROJECTED_FROM: tl.constexpr,
    OWN: tl.constexpr,
    OWN_FROM: tl.constexpr,
    UP: tl.constexpr,
    DROPS: tl.constexpr,
    MASKED: tl.constexpr,
    KIND: tl.constexpr,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Turn one layer's sums of gates into its activations, in place, and compute its next state.

    Args:
        gates: the products on entry, the activations on return [T, B, blocks * H].
        projected: what x_t gives to the sums [T, B, PROJECTED], this layer's part from column PROJECTED_FROM on.
            PROJECTED = 0: nothing.
        bias: [blocks * H].
        hidden: the layer's state [T + 1, B, H]; row t + 1 is written.
        cells: of an LSTM, likewise.
        own: what the layer is given [T + 1, B, OWN]; its state goes to row t + 1, from column OWN_FROM on. OWN = 0: the
            controller has no state.
        up: what its output is for [T, B, UP]: the layer above or the controls; row t is written. UP = 0: nothing.
        dropped: what the output is multiplied with on its way up [T, B, H], where DROPS.
        active: [T, B], where MASKED; others keep their state.
    """
    DTYPE: tl.constexpr = hidden.dtype.element_ty
    b = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < H
    place = t.to(tl.int64) * B + b
    BLOCKS: tl.constexpr = 4 if KIND >= GRU else 1
    row = place * (BLOCKS * H)
    from_inputs = place * PROJECTED + PROJECTED_FROM
    has: tl.constexpr = PROJECTED > 0
    state = place * H + cols
    after = state + B * H
    before = tl.load(hidden + state, mask=inside, other=0.0)
    runs = takes_step(active, place, MASKED)

    if KIND == LSTM:
        into = sigmoid(_gate(gates, projected, bias, row, from_inputs, 0, cols, inside, has, H, DTYPE))
        forget = sigmoid(_gate(gates, projected, bias, row, from_inputs, 1, cols, inside, has, H, DTYPE))
        new = tanh(_gate(gates, projected, bias, row, from_inputs, 2, cols, inside, has, H, DTYPE))
        out = sigmoid(_gate(gates, projected, bias, row, from_inputs, 3, cols, inside, has, H, DTYPE))
        cell_before = tl.load(cells + state, mask=inside, other=0.0)
        cell = forget * cell_before + into * new
        result = out * tanh(cell)
        tl.store(cells + after, tl.where(runs, cell, cell_before), mask=inside)
        tl.store(gates + row + cols, into, mask=inside)
        tl.store(gates + row + H + cols, forget, mask=inside)
        tl.store(gates + row + 2 * H + cols, new, mask=inside)
        tl.store(gates + row + 3 * H + cols, out, mask=inside)
    elif KIND == GRU:
        reset = sigmoid(_gate(gates, projected, bias, row, from_inputs, 0, cols, inside, has, H, DTYPE))
        update = sigmoid(_gate(gates, projected, bias, row, from_inputs, 1, cols, inside, has, H, DTYPE))
        new = _gate(gates, projected, bias, row, from_inputs, 2, cols, inside, has, H, DTYPE)
        from_state = _gate(gates, projected, bias, row, from_inputs, 3, cols, inside, False, H, DTYPE)
        new = tanh(new + reset * from_state)
        result = new + update * (before - new)
        tl.store(gates + row + cols, reset, mask=inside)
        tl.store(gates + row + H + cols, update, mask=inside)
        tl.store(gates + row + 2 * H + cols, new, mask=inside)
        tl.store(gates + row + 3 * H + cols, from_state, mask=inside)
    else:
        result = _gate(gates, projected, bias, row, from_inputs, 0, cols, inside, has, H, DTYPE)
        if KIND == ELMAN:
            result = tanh(result)
        elif KIND == RELU_ELMAN:
            result = tl.where(result < 0, 0.0, result)  # NaN stays
        elif KIND == SIGMOID_ELMAN:
            result = sigmoid(result)
        tl.store(gates + row + cols, result, mask=inside)

    result = tl.where(runs, result, before)
    tl.store(hidden + after, result, mask=inside)
    if OWN > 0:
        tl.store(own + (place + B) * OWN + OWN_FROM + cols, result, mask=inside)
    if UP > 0:
        if DROPS:
            result *= tl.load(dropped + state, mask=inside, other=0.0).to(DTYPE)
        tl.store(up + place * UP + cols, result, mask=inside)


@triton.jit
def _put(pointers, values, inside, runs):
    """Store values, or zeros for a sequence that did not take the step."""
    tl.store(pointers, tl.where(runs, values, 0.0), mask=inside)


@triton.jit(do_not_specialize=["t", "B"])
def backward(
    gates,
    hidden,
    cells,
    dropped,
    active,
    grad_outputs,
    grad_own,
    grad_up,
    grad_straight,
    grad_cell,
    grad_gates,
    t,
    B,
    OWN: tl.constexpr,
    OWN_FROM: tl.constexpr,
    UP: tl.constexpr,
    LAST: tl.constexpr,
    DROPS: tl.constexpr,
    MASKED: tl.constexpr,
    KIND: tl.constexpr,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Backpropagate through `forward`.

    Args:
        gates: the activations; other arguments of `forward` are as it left them.
        grad_outputs: of the last layer's outputs [T, B, H], where LAST.
        grad_own: of what the layer was given at the next step [B, OWN].
        grad_up: of what its output was for at this step [B, UP].
        grad_straight: of the state, besides what comes through grad_own [B, H]: of the state after this step on entry,
            before it on return.
        grad_cell: likewise, of an LSTM [B, H].
        grad_gates: of the sums; row t is written [T, B, blocks * H].
    """
    DTYPE: tl.constexpr = hidden.dtype.element_ty
    b = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < H
    place = t.to(tl.int64) * B + b
    BLOCKS: tl.constexpr = 4 if KIND >= GRU else 1
    row = place * (BLOCKS * H)
    state = place * H + cols
    here = b.to(tl.int64) * H + cols
    kept = tl.load(grad_straight + here, mask=inside, other=0.0)
    if OWN > 0:
        kept += tl.load(grad_own + b.to(tl.int64) * OWN + OWN_FROM + cols, mask=inside, other=0.0).to(DTYPE)
    grad = kept
    if UP > 0:
        from_up = tl.load(grad_up + b.to(tl.int64) * UP + cols, mask=inside, other=0.0).to(DTYPE)
        if DROPS:
            from_up *= tl.load(dropped + state, mask=inside, other=0.0).to(DTYPE)
        grad += from_up
    if LAST:
        grad += tl.load(grad_outputs + state, mask=inside, other=0.0)
    runs = takes_step(active, place, MASKED)
    straight = tl.zeros_like(grad)

    if KIND == LSTM:
        into = tl.load(gates + row + cols, mask=inside, other=0.0).to(DTYPE)
        forget = tl.load(gates + row + H + cols, mask=inside, other=0.0).to(DTYPE)
        new = tl.load(gates + row + 2 * H + cols, mask=inside, other=0.0).to(DTYPE)
        out = tl.load(gates + row + 3 * H + cols, mask=inside, other=0.0).to(DTYPE)
        cell_before = tl.load(cells + state, mask=inside, other=0.0)
        squashed = tanh(tl.load(cells + state + B * H, mask=inside, other=0.0))
        kept_cell = tl.load(grad_cell + here, mask=inside, other=0.0)
        change = kept_cell + grad * out * (1 - squashed * squashed)
        _put(grad_gates + row + cols, change * new * into * (1 - into), inside, runs)
        _put(grad_gates + row + H + cols, change * cell_before * forget * (1 - forget), inside, runs)
        _put(grad_gates + row + 2 * H + cols, change * into * (1 - new * new), inside, runs)
        _put(grad_gates + row + 3 * H + cols, grad * squashed * out * (1 - out), inside, runs)
        tl.store(grad_cell + here, tl.where(runs, change * forget, kept_cell), mask=inside)
    elif KIND == GRU:
        reset = tl.load(gates + row + cols, mask=inside, other=0.0).to(DTYPE)
        update = tl.load(gates + row + H + cols, mask=inside, other=0.0).to(DTYPE)
        new = tl.load(gates + row + 2 * H + cols, mask=inside, other=0.0).to(DTYPE)
        from_state = tl.load(gates + row + 3 * H + cols, mask=inside, other=0.0).to(DTYPE)
        before = tl.load(hidden + state, mask=inside, other=0.0)
        change = grad * (1 - update) * (1 - new * new)
        _put(grad_gates + row + cols, change * from_state * reset * (1 - reset), inside, runs)
        _put(grad_gates + row + H + cols, grad * (before - new) * update * (1 - update), inside, runs)
        _put(grad_gates + row + 2 * H + cols, change, inside, runs)
        _put(grad_gates + row + 3 * H + cols, change * reset, inside, runs)
        straight = grad * update
    else:
        result = tl.load(gates + row + cols, mask=inside, other=0.0).to(DTYPE)
        if KIND == ELMAN:
            grad = grad * (1 - result * result)
        elif KIND == RELU_ELMAN:
            grad = tl.where(result > 0, grad, 0.0)
        elif KIND == SIGMOID_ELMAN:
            grad = grad * result * (1 - result)
        _put(grad_gates + row + cols, grad, inside, runs)

    tl.store(grad_straight + here, tl.where(runs, straight, kept), mask=inside)
