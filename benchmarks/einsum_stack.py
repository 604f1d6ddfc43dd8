"""The nondeterministic stack in its usual form: tables in log space, filled column by column by einsum.

The recurrences are those of DuSell & Chiang (2023), without the transformations in `stack_lm`: gamma and alpha
directly, each sum an einsum of `torch_semiring_einsum`, gradients by autograd.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stack_lm import StackRNNCell
from stack_lm.core.errors import InputError
from stack_lm.memory.nondeterministic import ZERO, NondeterministicStack

BLOCK_SIZE = 128  # values of each summed index at once: all of them, at the sizes measured
# Indices: b sequence, i and k times, x (q, x), z (s, z), u (u, y) as state and symbol in one where they are not parted.
EQUATIONS = {
    "replace": "bixz,bzr->bixr",
    "pop": "bkuz,bzr->bkur",
    "reveal": "bikxuy,bkuyr->bixry",
    "prefix": "bix,bixr->br",
}


class EinsumState(NamedTuple):
    """The stack's state after N - 1 steps.

    Attributes:
        gamma: [B, N, N, P, P]: log weights of the runs from time i - 1 to time j, at [i, j].
        alpha: [B, N + 1, P]: log weights of all runs to time j - 1, at j.
    """

    gamma: Tensor
    alpha: Tensor


class EinsumStack(NondeterministicStack):
    """The 2023 RNS by einsum in log space; a cell with this memory runs it step by step.

    Args:
        like: the stack to compute, without vectors, a window or other options.

    Raises:
        InputError: if `torch_semiring_einsum` is not installed.
    """

    def __init__(self, like: NondeterministicStack) -> None:
        super().__init__(like.states, like.symbols)
        try:
            import torch_semiring_einsum as package
        except ImportError as error:
            raise InputError(
                "this table needs torch_semiring_einsum: pip install --no-deps torch_semiring_einsum nvidia-ml-py "
                "(or choose others with --only)"
            ) from error
        self._log_einsum = package.log_einsum
        self._equations = {name: package.compile_equation(text) for name, text in EQUATIONS.items()}

    def initial_state(self, batch_size: int, length: int | None = None, **where: Any) -> Any:
        gamma = torch.full((batch_size, 1, 1, self.pairs, self.pairs), ZERO, **where)
        gamma[:, 0, 0, 0, 0] = 0
        alpha = torch.full((batch_size, 2, self.pairs), ZERO, **where)
        alpha[:, :, 0] = 0
        return EinsumState(gamma, alpha)

    def initial_reading(self, state: Any) -> Tensor:
        return state.alpha[:, -1].exp()

    def update(self, state: Any, actions: Any) -> tuple[Any, Tensor]:
        gamma, alpha = state
        push, replace, pop = self.weights(actions, gamma.dtype)
        present, parted = gamma[:, :, -1], (self.states, self.symbols)
        column = self._sum("replace", present, replace)
        if gamma.shape[1] > 1:
            popped = self._sum("pop", present[:, 1:], pop).unflatten(2, parted)
            revealed = self._sum("reveal", gamma[:, :, :-1].unflatten(4, parted), popped)
            column = torch.logaddexp(column, revealed.flatten(3))
        column = torch.cat((column, push.unsqueeze(1)), dim=1)
        now = self._sum("prefix", alpha, column)
        gamma = torch.cat((F.pad(gamma, (0, 0, 0, 0, 0, 0, 0, 1), value=ZERO), column.unsqueeze(2)), dim=2)
        return EinsumState(gamma, torch.cat((alpha, now.unsqueeze(1)), dim=1)), now.softmax(1)

    def check_overflow(self, state: Any) -> None:
        """Do nothing: with random weights every sequence has a run."""

    def _sum(self, name: str, *terms: Tensor) -> Tensor:
        result: Tensor = self._log_einsum(self._equations[name], *terms, block_size=BLOCK_SIZE, grad_of_neg_inf=0.0)
        return result


def einsum_cell(cell: StackRNNCell) -> StackRNNCell:
    """A cell with the same parameters, with its stack computed by einsum.

    Raises:
        InputError: as `EinsumStack`.
    """
    twin = copy.deepcopy(cell)
    assert isinstance(twin.memory, NondeterministicStack)
    twin.memory = EinsumStack(twin.memory)
    twin.scan_backend = "reference"
    return twin
