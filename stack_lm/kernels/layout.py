"""The layout shared by all compiled scans: the kinds of controllers, and the order of a layer's gates.

A layer's gates are laid out in blocks of H: one for the linear and Elman controllers, (input, forget, cell, output) for
an LSTM, and (reset, update, new from below, new from the state) for a GRU, whose last two are kept apart because the
reset gate stands between them.
"""

from __future__ import annotations

from ..controllers import (
    Controller,
    ElmanController,
    GRUController,
    LinearController,
    LSTMController,
    ReLUElmanController,
    SigmoidController,
    SigmoidElmanController,
)

# The kinds of a step's pointwise part; whether there is a state is `Controller.recurrent`.
LINEAR, ELMAN, RELU_ELMAN, SIGMOID_ELMAN, GRU, LSTM, DIRECT = range(7)
CONTROLLERS: dict[type[Controller], int] = {
    LinearController: LINEAR,
    SigmoidController: SIGMOID_ELMAN,
    ElmanController: ELMAN,
    ReLUElmanController: RELU_ELMAN,
    SigmoidElmanController: SIGMOID_ELMAN,
    GRUController: GRU,
    LSTMController: LSTM,
}
