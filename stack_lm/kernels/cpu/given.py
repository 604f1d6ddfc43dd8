"""The plan of a scan with given vectors."""

from __future__ import annotations

import numpy as np

from ..protocol import System
from . import given_scan as compiled
from .autograd import First, Given, Kept, Plan, Results, Tensors
from .blocks import BlockSpec, Part
from .threads import run_parts

# Logits and readings per thread that justify the cost of waking it.
_WORK_OF_A_THREAD = 500_000


class GivenPlan(Plan):
    """One scan of a memory whose logits are given: its sizes, and the arrays passed to compiled code.

    Args:
        system: the system to run.
        models: number of models run at once, the first dimension of all arrays.
        dtype: of the numbers.
        arrays: the inputs, first state and parameters.
    """

    def __init__(self, system: System, models: int, dtype: np.dtype, arrays: Tensors) -> None:
        given: Given = arrays.given
        _, batch_size, steps, n_logits = given.inputs.shape
        spec = BlockSpec(system.memory, system.controls, models, steps, dtype, given.noise)
        work = models * batch_size * steps * (n_logits + system.memory.reading_size)
        super().__init__(spec, batch_size, work // _WORK_OF_A_THREAD)
        self.active = np.zeros((models, batch_size, 0), np.bool_) if given.mask is None else given.mask

    def forward(self, arrays: Tensors, wanted: bool, all_live: bool) -> tuple[Results, list[Kept]]:
        """Run the scan forwards; see `autograd.Plan`."""
        m, n = self.models, self.batch_size
        reading, emitted = arrays.state.reading.copy(), arrays.given.inputs.copy()
        readings = np.empty((m, n, self.steps, reading.shape[2]), self.dtype)
        memories = self.block.results(*arrays.state.memory)

        def run(part: Part) -> Kept:
            memory = self.block.block(memories, part, wanted)
            arguments = compiled.Forward(self.active[part], reading[part], readings[part], emitted[part], memory)
            compiled.forward(arguments, all_live)
            self.block.finish(memory, memories, part)
            return Kept(part, emitted[part], None, memory, None)

        kept = run_parts(lambda i: run(self.part(i)), self.parts)
        outputs = np.empty((m, n, self.steps, 0), self.dtype)
        return Results(outputs, readings, First(*arrays.state[:2], reading, *memories)), kept

    def backward(self, arrays: Tensors, kept: list[Kept], grads: Results, wanted: bool) -> Tensors:
        """Backpropagate through `forward`; see `autograd.Plan`."""
        reading, memory_grads = grads.state.reading.copy(), [part.copy() for part in grads.state.memory]
        n_logits = kept[0].emitted.shape[3]
        logit_grads = np.zeros((self.models, self.batch_size, self.steps, n_logits), self.dtype)

        def run(i: int) -> None:
            part, emitted, _, memory, _ = kept[i]
            memory = self.block.fresh_workspace(memory)
            compiled.backward(
                compiled.Backward(
                    active=self.active[part],
                    emitted=emitted,
                    memory=memory,
                    grad_readings=grads.readings[part],
                    grad_reading=reading[part],
                    grad_memory=self.block.grad(memory_grads, memory, part),
                    grad_logits=logit_grads[part],
                )
            )

        run_parts(run, self.parts)
        first = First(*arrays.state[:2], reading, *self.block.initial_state_grads(memory_grads))
        return Tensors(Given(logit_grads if wanted else None), first)
