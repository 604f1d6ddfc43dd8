"""The dead zone of a stack, queue or deque: its steps read only what they have just pushed.

Nothing that was pushed before then has a weight in a reading, so that a pop has no gradient from what it would uncover.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..memory import Value
from ..memory.strength import StrengthMemory
from .controlled import ControlledMemory
from .discovery import strengths_of
from .interventions import Intervention, intervene

# What is left for older elements: their share of readings, and of the gradient. In trials of reversal, networks that
# started below learned in no seed, others in 3 to 7 of 10 (docs/memories.md).
DEAD = 0.05


class DeadZone(NamedTuple):
    """The reach of a memory's readings, and the gradients of its strengths.

    Attributes:
        own_share: the share of a reading's weights that its own step has pushed, from 0 to 1: the mean over the
            readings of all heads and ends, except those of first steps and of nothing; 0 if there are no others.
        gradients: of each strength that is not fixed, by name, the norm of its logits' gradient through the weights of
            what earlier steps pushed ("older"), and of what the reading step itself pushed ("own"). Empty if the loss
            has no gradient for the readings.
    """

    own_share: float
    gradients: dict[str, dict[str, float]]

    @property
    def older_share(self) -> float | None:
        """The part of older elements in the gradient of push and pop, older / (older + own); None without gradients."""
        parts = [part for name, part in self.gradients.items() if not name.startswith("read")]
        older, own = (math.hypot(*(part[kind] for part in parts)) for kind in ("older", "own"))
        return older / (older + own or 1.0) if parts else None

    def __str__(self) -> str:
        older = self.older_share
        rest = "" if older is None else f"; {older:.0%} of the gradient of push and pop comes from older elements"
        return f"{self.own_share:.0%} of a reading is the step's own value{rest}"

    @property
    def warning(self) -> str:
        """One line, if the memory of a new model is in the dead zone; else empty."""
        dead = self.older_share is not None and max(1 - self.own_share, self.older_share) < DEAD
        return f"at the start, {self} (docs/memories.md)" if dead else ""


def dead_zone(
    layer: ControlledMemory, compute_loss: Callable[[], Tensor], inside: Tensor | None = None
) -> DeadZone | None:
    """Measure the dead zone of a memory layer at its present weights.

    With L the loss, w_ti the weight of what step i pushed, v_i, in the reading of step t, and z the logits, it splits

        dL/dz = sum_t dL/dr_t sum_i v_i dw_ti/dz

    into the terms of i < t (older) and i = t (own), where dL/dr_t is along all paths through later steps.

    Args:
        layer: a memory layer of any network.
        compute_loss: runs the network once on B strings, without a mask of padding, and returns the loss.
        inside: [B, T] bool, False at padding, for the share; None if there is none.

    Returns:
        The measures; None for a memory whose elements have no strengths.
    """
    memory, projection = layer.memory, layer.controls.projection
    if not isinstance(memory, StrengthMemory):
        return None
    taken: list[tuple[Any, Tensor]] = []
    emitted: list[Tensor] = []
    # The layer tries out steps, to learn the form of their states, without gradients.
    watched = Intervention(observe=lambda *step: taken.append(step) if torch.is_grad_enabled() else None)
    hook = projection.register_forward_hook(lambda *call: emitted.append(call[-1])) if projection else nullcontext()
    with torch.inference_mode(False), torch.enable_grad(), intervene(layer, watched), hook:
        loss = compute_loss()
    of_steps, readings = zip(*taken, strict=True)
    actions = memory.action_type(*(torch.stack(part, 1).detach() for part in zip(*of_steps, strict=True)))
    whole, own = _readings(layer, _with_values(layer, actions, 1))  # of ones, a reading is the sum of its weights
    read = whole > 0 if inside is None else (whole > 0) & inside.unsqueeze(-1)
    read[:, 0] = False
    share = float((own / whole)[read].mean()) if read.any() else 0.0
    trained = emitted and loss.requires_grad and all(reading.requires_grad for reading in readings)
    gradient = torch.stack(torch.autograd.grad(loss, readings, materialize_grads=True) if trained else readings, 1)
    if not (trained and gradient.any()):  # no logits, frozen or detached, or a loss without targets
        return DeadZone(share, {})
    # A layer with given vectors emits the actions of all steps at once. (An exit emits them again at the end.)
    rows, steps = read.shape[:2]
    at_once = len(emitted[0]) == rows * steps
    logits = emitted[0].unflatten(0, (rows, steps)) if at_once else torch.stack(emitted[:steps], 1)
    return DeadZone(share, _gradients(layer, actions, logits.detach(), gradient))


@torch.enable_grad()
def _gradients(layer: ControlledMemory, actions: Any, logits: Tensor, gradient: Tensor) -> dict[str, dict[str, float]]:
    """The gradients, from the actions [B, T, ...], their logits [B, T, W], and the loss's gradient by readings."""
    # The strengths once more, from logits that depend on nothing.
    parts = logits.flatten(0, 1).requires_grad_().split(layer.controls.widths, -1)
    names = (field.name for field in layer.memory.actions)
    of_strengths = ((name, part) for name, part in zip(names, parts, strict=True) if name in strengths_of(layer))
    given = {name: part for name, part in of_strengths if part.shape[-1]}  # not fixed
    emission, shape = layer.controls.emission, logits.shape[:2]
    strengths = {name: emission(name).emit(part)[0].unflatten(0, shape) for name, part in given.items()}
    whole, own = _readings(layer, actions._replace(**strengths))
    norms: dict[str, dict[str, float]] = {name: {} for name in given}
    for kind, part in {"older": whole - own, "own": own}.items():
        found = torch.autograd.grad((part * gradient).sum(), [*given.values()], retain_graph=True)
        for name, each in zip(given, found, strict=True):
            norms[name][kind] = float(each.norm())
    return norms


def _readings(layer: ControlledMemory, actions: Any) -> tuple[Tensor, Tensor]:
    """The readings [B, T, R] of given actions, and the part of what the same step has pushed."""
    memory, pairs = layer.memory, []
    state = layer.empty(len(actions[0])).memory
    for parts in zip(*(action.unbind(1) for action in actions), strict=True):
        step = memory.action_type(*parts)
        _, older = memory.update(state, _with_values(layer, step, 0))
        state, whole = memory.update(state, step)
        pairs.append((whole, whole - older))
    whole, own = (torch.stack(part, 1) for part in zip(*pairs, strict=True))
    return whole, own


def _with_values(layer: ControlledMemory, actions: Any, number: float) -> Any:
    """Actions that push vectors of one number."""
    pushed = [field.name for field in layer.memory.actions if isinstance(field, Value)]
    return actions._replace(**{name: torch.full_like(getattr(actions, name), number) for name in pushed})
