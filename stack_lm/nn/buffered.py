"""A cell between two buffers (Hao et al. 2018, section 2.3): its reads and writes at each step.

The input buffer drives the cell: the pop strength that a step emits is applied before the next step reads. Nothing
reads the output buffer while the cell runs, so only the strengths pushed to it are recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..kernels import dispatch
from ..kernels.protocol import Buffer, Controlled, Inputs, System
from ..memory.buffers import dequeue, input_buffer
from ..memory.controls import ActionProjection
from ..memory.emission import Emission
from .cell import StackRNNCell
from .controlled import Actions, blank, over_time


class Buffers(NamedTuple):
    """The emissions and the projection that join a cell to its buffers.

    Attributes:
        pop: emission of the pop strength of the input buffer.
        push: emission of the push strength of the output buffer.
        projection: from the controller's output to the logits of both; None if both are fixed.
    """

    pop: Emission
    push: Emission
    projection: ActionProjection | None

    def strengths(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Emit the two strengths [B], in elements, from the controller's output [B, H]."""
        logits = hidden[:, :0] if self.projection is None else self.projection(hidden)
        pop, push = logits.split([self.pop.width, self.push.width], dim=-1)
        return self.pop.emit(pop)[0], self.push.emit(push)[0]


class BufferedScan(NamedTuple):
    """All steps.

    Attributes:
        outputs: the outputs of the controller [B, K, H].
        pushed: to the output buffer [B, K], in elements; zeros where a step is not taken.
        actions: those on the memory, and `input_pop_strength`, `output_push_strength` and `input_strength` (the
            strength left in the input buffer), all [B, K] in elements; empty unless requested.
    """

    outputs: Tensor
    pushed: Tensor
    actions: Actions


def buffered_steps(
    cell: StackRNNCell, buffers: Buffers, given: Inputs, output_actions: bool
) -> Iterator[tuple[Tensor, Tensor, Actions]]:
    """The definition: one step after the other; see `run_buffered`.

    Yields:
        The controller's outputs o_t [B, H]; the strength pushed to the output buffer [B], set even where the step is
        not taken; and the actions (see `BufferedScan`, without the time).
    """
    state, buffer = cell.initial_state(given.values.shape[0], given.steps), input_buffer(given.values, given.held)
    pop = buffer.strengths.new_zeros(given.values.shape[0])
    for t in range(given.steps):
        active, noise = given.step(t)
        # A sequence that does not take the step pops nothing either.
        buffer, inputs = dequeue(buffer, pop if active is None else pop.masked_fill(~active, 0))
        layers, actions, state = cell.step(inputs, state, active, noise=noise, output_actions=output_actions)
        pop, push = buffers.strengths(layers[-1])
        if output_actions:
            own = blank({"input_pop_strength": pop, "output_push_strength": push}, active)
            actions = Actions(actions | own | {"input_strength": buffer.strengths.sum(-1)})
        yield layers[-1], push, actions


def run_buffered(
    cell: StackRNNCell,
    buffers: Buffers,
    items: Tensor,
    held: Tensor | None,
    steps: int,
    active: Tensor | None,
    output_actions: bool,
) -> BufferedScan:
    """Run a cell on an input buffer.

    Args:
        cell: the cell with its memory.
        buffers: how it pops its input and pushes its output.
        items: the items of the input buffer, front first [B, N, E].
        held: [B, N] bool, False at padding, which is not in the buffer; or None.
        steps: their number, K.
        active: the steps that each sequence takes [B, K]; None if all are taken.
        output_actions: collect the actions.

    Raises:
        ValueError: if a requested backend cannot run this, or a memory of limited size overflows.
    """
    given = Inputs(items, active, cell.controls.draw_noise((items.shape[0], steps), items), held, steps)
    system = System(cell.memory, cell.controls, Controlled(cell.controller, Buffer(buffers.pop, buffers.projection)))
    backend, _ = cell.choose_backend(items, system=system, has_mask=active is not None, n_steps=items[..., 0].numel())
    first = cell.initial_state(items.shape[0], steps)
    compiled = None if backend == "reference" else dispatch.run_compiled(backend, system, given, first)
    if compiled is None:
        outputs, pushes, of_steps = zip(*buffered_steps(cell, buffers, given, output_actions), strict=True)
        pushed = blank({"pushed": torch.stack(pushes, dim=1)}, active)["pushed"]
        return BufferedScan(torch.stack(outputs, dim=1), pushed, over_time(of_steps) if output_actions else Actions())
    outputs, _, last = compiled
    cell.memory.check_overflow(last.memory)
    # Everything but the pops of the buffer itself comes from the controller's outputs.
    popped, pushed = (part.unflatten(0, outputs.shape[:2]) for part in buffers.strengths(outputs.flatten(0, 1)))
    own = blank({"input_pop_strength": popped, "output_push_strength": pushed}, active)
    if not output_actions:
        return BufferedScan(outputs, own["output_push_strength"], Actions())
    there = popped.new_full((items.shape[0],), items.shape[1]) if held is None else held.sum(1).to(popped.dtype)
    # The pop that a step emits is applied in the next step, if there is one.
    taken = F.pad(popped[:, :-1], (1, 0))
    taken = taken if active is None else taken.masked_fill(~active, 0)
    own["input_strength"] = torch.relu(there.unsqueeze(1) - taken.cumsum(1))
    actions = Actions(cell.report_over(outputs, first.memory, active, given.noise) | own)
    return BufferedScan(outputs, own["output_push_strength"], actions)
