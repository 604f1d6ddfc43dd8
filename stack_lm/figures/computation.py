"""A network's computation on one string: its inputs, its answers, and the actions on its memory, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from ..core.errors import InputError
from ..core.trace import MOVES, StackRun, Trace
from .figures import new_figure, with_plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: of a step and a row, if there is room; of the widest row of steps and the highest panel.
_STEP, _ROW, _WIDEST, _HIGHEST = 0.28, 0.16, 9.0, 4.0
# Maximum number of steps with legible numbers in the cells, and with legible symbols below them.
_MOST_NUMBERS, MOST_STEPS = 32, 120
_COLORS = "viridis"
_X_LABELS = {False: "symbol that is read at each step", True: "step; position in the string"}


@dataclass(frozen=True)
class Panel:
    """A panel of numbers over the steps.

    Attributes:
        name: the name of the numbers, with the unit.
        labels: the labels of the rows.
        numbers: [rows, T]; NaN where there is none.
        limits: the values of the palest and the darkest colour; None takes the smallest and the greatest number.
        whole: whether they are integers, written without decimals, even in the cells of several rows.
    """

    name: str
    labels: Sequence[str]
    numbers: np.ndarray
    limits: tuple[float, float] | None = (0.0, 1.0)
    whole: bool = False

    @property
    def range(self) -> tuple[float, float]:
        """The limits, or the smallest and the greatest number."""
        return self.limits or (float(np.nanmin(self.numbers)), float(np.nanmax(self.numbers)))


@dataclass(frozen=True)
class Computation:
    """A network's computation on one string of T symbols.

    Attributes:
        inputs: the symbols.
        targets: the right symbols at each step, joined like `a/b`; "" if nothing is scored.
        outputs: the symbols that the network answered at each step, likewise.
        panels: numbers by name, [rows, K]: "input", "output", and those of actions and memory.
        buffered: whether the network runs between buffers; its K steps do not correspond to symbols. Otherwise K is T.
        run: the most probable run of a nondeterministic stack; None for other memories.
        unknown: the words that the model does not know [T]; None for symbols.
        contents: the strength that is left of each word's element after each word [T, T + 1], in elements, if the
            memory keeps one strength for each step; see `ModelScorer.memory_contents`.
    """

    inputs: Sequence[str]
    targets: Sequence[str]
    outputs: Sequence[str]
    panels: Mapping[str, Panel]
    buffered: bool = False
    run: StackRun | None = None
    unknown: np.ndarray | None = None
    contents: np.ndarray | None = None

    @property
    def steps(self) -> list[str]:
        """Labels of the steps: the symbols read, or the steps' numbers."""
        if not self.buffered:
            return list(self.inputs)
        return [str(step + 1) for step in range(self.panels["input"].numbers.shape[1])]

    @property
    def errors(self) -> list[int]:
        """The scored steps whose answer is not the target."""
        pairs = enumerate(zip(self.targets, self.outputs, strict=True))
        return [step for step, (target, output) in pairs if target and target != output]


def computation_of_trace(
    trace: Trace,
    labels: Mapping[str, Sequence[str]],
    *,
    distances: np.ndarray | None = None,
    contents: np.ndarray | None = None,
) -> Computation:
    """A language model's computation on a sentence: the surprisal of each word, and any actions on one memory.

    For a nondeterministic stack it has the most probable run, not the weights of all possible moves.

    Args:
        trace: a trace of n words.
        labels: the labels of the numbers of an action with several, by the action's name.
        distances: the distances that give the sentence's tree [n], if it has one.
        contents: see `Computation`.
    """
    known = trace.logprobs[np.isfinite(trace.logprobs)]
    surprisal = Panel(
        "surprisal (bits)", [""], -trace.logprobs[None] / np.log(2), (0.0, float(-known.min(initial=0.0) / np.log(2)))
    )
    panels = {"surprisal": surprisal}
    actions = dict(trace.actions[trace.layer or 0]) if trace.actions and trace.run is None else {}
    if distances is not None:
        actions["distance"] = distances
    for name, values in actions.items():
        numbers = values.reshape(len(trace.words), -1).T
        several = list(labels.get(name, [str(k) for k in range(len(numbers))])) if values.ndim > 1 else [""]
        limits = (0.0, max(1.0, float(numbers.max()))) if numbers.min() >= 0 else None
        panels[name] = Panel(name.replace("_", " "), [label.replace("_", " ") for label in several], numbers, limits)
    if trace.run is not None:
        panels |= run_panels(trace.run)
    nothing = [""] * len(trace.words)
    return Computation(trace.words, nothing, nothing, panels, run=trace.run, unknown=trace.unknown, contents=contents)


def run_panels(run: StackRun) -> dict[str, Panel]:
    """The most probable run of a nondeterministic stack: its moves and states, and the stack with its symbols.

    An element stays at its height from its push to its pop, so its lifetime is a bar.
    """
    states = range(int(run.states.max()) + 1)
    moves = np.array([[move == kind for move in run.moves] for kind in MOVES], float)
    height = max(map(len, run.stacks))
    symbols = np.full((height, len(run.stacks)), np.nan)
    for step, stack in enumerate(run.stacks):
        symbols[: len(stack), step] = stack
    heights = [str(k) for k in range(height)]
    greatest = (0.0, max(1.0, float(np.nanmax(symbols))))
    return {
        "run_move": Panel("move of the most probable run", MOVES, moves),
        "run_state": Panel("its state", [str(k) for k in states], np.array([run.states == k for k in states], float)),
        "run_stack": Panel("its stack: symbol at each height", heights[::-1], symbols[::-1], greatest, whole=True),
        "run_depth": Panel("its depth (elements)", [""], run.depths[None].astype(float), None, whole=True),
    }


@with_plain_text
def plot_computation(computation: Computation, title: str = "") -> Figure:
    """Draw the panels below one another, over the same steps.

    After Hao et al. (2018), figures 5 and 6, and Suzgun et al. (2019), figures 3 and 4. A cross marks each wrong scored
    answer.

    Args:
        computation: the computation to draw.
        title: the title of the figure.

    Raises:
        InputError: without matplotlib, or for more steps than can be drawn.
    """
    steps = computation.steps
    if len(steps) > MOST_STEPS:
        raise InputError(f"a figure shows at most {MOST_STEPS} steps; there are {len(steps):,}: give a shorter string")
    width = max(4.0, min(_STEP * len(steps), _WIDEST))
    panels = computation.panels
    heights = [min(_ROW * max(2, len(panel.labels)), _HIGHEST) for panel in panels.values()]
    figure = new_figure(width + 1.9, 0.9 + sum(heights) + 0.34 * len(panels), fill(title, int(13 * width)))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for name, panel_axes in zip(panels, axes, strict=True):
        _draw_panel(panel_axes, computation, name)
    # Upright if they are narrower than a step; 72 points per inch.
    room = 72 * width / len(steps)
    size = min(8.0, room / 0.65) if max(map(len, steps)) <= 2 else min(8.0, room / 1.1)
    turn = 90 if 0.62 * size * max(map(len, steps)) > room else 0
    axes[-1].set_xticks(range(len(steps)), steps, fontsize=size, family="monospace", rotation=turn)
    axes[-1].set_xlabel(_X_LABELS[computation.buffered], fontsize="small")
    return figure


def _draw_panel(axes: Axes, computation: Computation, name: str) -> None:
    panel = computation.panels[name]
    low, high = panel.range
    image = axes.imshow(
        panel.numbers, aspect="auto", cmap=_COLORS, vmin=low, vmax=max(high, low + 1e-9), interpolation="nearest"
    )
    every = max(1, int(-(-len(panel.labels) * _ROW // _HIGHEST)))
    places = range(0, len(panel.labels), every)
    axes.set_yticks(places, [panel.labels[place] for place in places], fontsize="x-small")
    axes.set_title(panel.name, fontsize="small", loc="left", pad=4)
    axes.tick_params(length=0)
    axes.set_facecolor("0.9")
    if name == "output":
        rows = {label: row for row, label in enumerate(panel.labels)}
        for step in computation.errors:
            target = computation.targets[step]  # one symbol, which may have a slash, such as </s>, or several
            right_rows = [rows[symbol] for symbol in ([target] if target in rows else target.split("/"))]
            axes.plot([step] * len(right_rows), right_rows, "x", color="red", markersize=4)
    elif (len(panel.labels) == 1 or panel.whole) and panel.numbers.shape[1] <= _MOST_NUMBERS:
        for row, step in np.argwhere(np.isfinite(panel.numbers)).tolist() if every == 1 else ():
            value = panel.numbers[row, step]
            ink = "white" if value < low + 0.6 * (high - low) else "black"
            text = f"{value:.{0 if panel.whole else 1}f}"
            axes.text(step, row, text, ha="center", va="center", fontsize=5.5, color=ink)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.02, pad=0.01, aspect=8)
    bar.ax.tick_params(labelsize=5.5, length=2)
