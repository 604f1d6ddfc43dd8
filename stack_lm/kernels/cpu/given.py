"""The plan of a scan with given vectors."""

from __future__ import annotations

import numpy as np

from ..protocol import System
from . import given_scan as compiled
from .autograd import First, Given, Kept, Results, Tensors
from .blocks import BlockOf, Part, block_of
from .threads import number_of_parts, run_parts

# Logits and readings per thread that justify the cost of waking it.
_WORK_OF_A_THREAD = 500_000


class GivenPlan:
    """One scan of a memory whose logits are given: its sizes, and the arrays passed to compiled code.

    Args:
        system: the system to run.
        models: number of models run at once, the first dimension of all arrays.
        dtype: of the numbers.
        arrays: the inputs, first state and parameters.
    """

    def __init__(self, system: System, models: int, dtype: np.dtype, arrays: Tensors) -> None:
        given: Given = arrays.given
        _, self.batch_size, self.steps, n_logits = given.inputs.shape
        self.models, self.dtype = models, dtype
        block = block_of(system.memory)
        assert block is not None
        self.block = block(BlockOf(system.memory, system.controls, models, self.steps, dtype, given.noise))
        none = np.zeros((models, self.batch_size, 0), np.bool_)
        self.active = none if given.mask is None else given.mask
        work = models * self.batch_size * self.steps * (n_logits + system.memory.reading_size)
        self.parts = number_of_parts(models, self.batch_size, work // _WORK_OF_A_THREAD)

    def part(self, i: int) -> Part:
        """The part of the work for thread i."""
        return Part.share(i, self.parts, self.models, self.batch_size)

    def forward(self, arrays: Tensors, wanted: bool, all_live: bool) -> tuple[Results, list[Kept]]:
        """Run the scan forwards; see `autograd.Plan`."""
        m, n = self.models, self.batch_size
        reading, emitted = arrays.state.reading.copy(), arrays.given.inputs.copy()
        readings = np.empty((m, n, self.steps, reading.shape[2]), self.dtype)
        memories = self.block.results(*arrays.state.memory)

        def run(part: Part) -> Kept:
            memory = self.block.block(memories, part, wanted)
            compiled.forward(self.active[part], reading[part], readings[part], emitted[part], memory, all_live)
            return Kept(part, emitted[part], None, memory, None)

        kept = run_parts(lambda i: run(self.part(i)), self.parts)
        outputs = np.empty((m, n, self.steps, 0), self.dtype)
        return Results(outputs, readings, First(*arrays.state[:2], reading, *memories)), kept

    def backward(self, arrays: Tensors, kept: list[Kept], grads: Results, wanted: bool) -> Tensors:
        """Backpropagate through `forward`; see `autograd.Plan`."""
        reading, of_memory = grads.state.reading.copy(), [part.copy() for part in grads.state.memory]
        n_logits = kept[0].emitted.shape[3]
        of_logits = np.zeros((self.models, self.batch_size, self.steps, n_logits), self.dtype)

        def run(i: int) -> None:
            part, emitted, _, memory, _ = kept[i]
            memory = self.block.again(memory)
            compiled.backward(
                self.active[part],
                emitted,
                memory,
                grads.readings[part],
                reading[part],
                self.block.grad(of_memory, memory, part),
                of_logits[part],
            )

        run_parts(run, self.parts)
        first = First(*arrays.state[:2], reading, *self.block.of_first(of_memory))
        return Tensors(Given(of_logits if wanted else None), first)
