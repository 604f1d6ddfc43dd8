"""The layout shared by all compiled scans: the kinds of controllers, and the order of a layer's gates.

A layer's gates are laid out in blocks of H: one for the linear and Elman controllers, (input, forget, cell, output) for
an LSTM, and (reset, update, new from below, new from the state) for a GRU, whose last two are kept apart because the
reset gate stands between them.
"""

from __future__ import annotations

DROPOUT = "dropout"  # its name in the noise of a scan
# The kinds of a step's pointwise part; whether there is a state is `Controller.recurrent`.
LINEAR, ELMAN, RELU_ELMAN, SIGMOID_ELMAN, GRU, LSTM, DIRECT = range(7)


def controller_kind(controller: object) -> int | None:
    """The kind that a controller's class declares; None for other classes, subclasses included."""
    return vars(type(controller)).get("kind")
