"""The nondeterministic stack: all runs of a weighted pushdown automaton at once (DuSell & Chiang 2020, 2022, 2023).

At each step every run makes one move from its state q and top symbol x to a state r: it pushes y over x, replaces x by
y, or pops x. The controller emits the weight of every move. The reading is the distribution of states and top symbols
over all runs. A dynamic program (Lang's) finds it in polynomial time: an element is identified by the time of its push,
so runs with the same top share the elements below it.

NOTE: the papers keep the weights of partial runs, gamma[i -> j][qx -> ry], and of their prefixes, alpha[j][ry]. We keep

    under[i][j][qx, ry] = alpha[i][qx] gamma[i -> j][qx -> ry] / alpha[j][ry]

the probability that (q, x) at time i is directly under y, given that r and y are the state and top at time j; and the
distribution alpha[j] / sum(alpha[j]). These obey the same recurrences, need no alpha of the past, and neither grow nor
shrink with time, so a state can be carried through a text of any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ..core.checks import Integer
from ..core.errors import InputError
from .base import Memory, Where, accurate, numbers_hidden, register_memory
from .fields import Parts, Setting, Value, ValueActivation, Weights
from .room import check_room

# The logarithm of a weight of 0: a number, so that neither differences nor gradients are NaN.
ZERO = -1e30
_MOST_WEIGHTS = 2**24  # of one step


class NondeterministicState(NamedTuple):
    """N times are stored, the last of them the present; there are P = Q * S pairs of a state and a symbol, q * S + x.

    Attributes:
        under: [B, N, N, P, P], log probabilities. At [i, j, qx, ry]: that y, the top at time j in state r, is directly
            over x, the top at time i - 1 in state q. `ZERO` where i > j.
        top: [B, P], log probabilities of state and top symbol now.
        values: [B, N, N, P, P, m]: the mean of the vectors of y over those runs; with m = 0, only a tensor of the
            network's type.
    """

    under: Tensor
    top: Tensor
    values: Tensor


class MoveActions(NamedTuple):
    """One step's actions, logarithms of weights: push and replace [B, Q, S, Q, S], pop [B, Q, S, Q]."""

    push_weight: Tensor
    replace_weight: Tensor
    pop_weight: Tensor


class VectorMoveActions(NamedTuple):
    """`MoveActions` and the vector of the pushed symbol [B, m]."""

    push_weight: Tensor
    replace_weight: Tensor
    pop_weight: Tensor
    push_value: Tensor


@register_memory("nondeterministic")
class NondeterministicStack(Memory[NondeterministicState, Any]):
    """A stack on which a weighted pushdown automaton makes all its runs.

    The stack of DuSell & Chiang (2020) is `NondeterministicStack(Q, S, normalize=True, read_states=False,
    bottom="fixed")`, the RNS of 2022 `NondeterministicStack(Q, S, bottom="fixed")`, that of 2023
    `NondeterministicStack(Q, S)`, and the VRNS of 2023 has a size too.

    Args:
        states: Q.
        symbols: S; symbol 0 is at the bottom, in state 0 at the start.
        size: the size of the vector that each symbol on the stack carries, m; 0 for symbols alone.
        normalize: whether the weights of all moves from a state and symbol sum to 1 (a softmax).
        read_states: whether the reading has states, or only symbols.
        bottom: "open": the bottom can be replaced and uncovered again, but not popped. "fixed": symbols can only be
            pushed onto it; once covered it stays covered.
        bottom_vector: the vector of the bottom: "ones", "zeros", or "learned": zeros, which `set_learned` replaces. A
            layer learns its logits, and applies the activation of pushed vectors to them, or a sigmoid if that is an
            exponential (published with a sigmoid).
        window: maximum number of steps D from the time of an element to that of the element above it, or to the
            present; runs with older elements are dropped. None: no limit.

    Raises:
        InputError: if a step would take more weights than any network can have, or if the learned vector would be
            empty.
    """

    settings = {  # noqa: RUF012 - declared as a class variable by `Memory`
        "memory_states": Setting(2, Parts),
        "memory_symbols": Setting(3, Parts),
        "memory_size": Setting(0, Annotated[int, Integer(0, 2**20)]),
        "memory_window": Setting(None, Annotated[int, Integer(2, 2**20)] | None),
        "normalize_actions": Setting(False, bool),
        "read_states": Setting(True, bool),
        "bottom": Setting("open", Literal["open", "fixed"]),
        "bottom_vector": Setting("ones", Literal["ones", "zeros", "learned"]),
        "push_value_activation": Setting("sigmoid", ValueActivation),
    }
    state_type = NondeterministicState

    def __init__(
        self,
        states: int,
        symbols: int,
        size: int = 0,
        *,
        normalize: bool = False,
        read_states: bool = True,
        bottom: Literal["open", "fixed"] = "open",
        bottom_vector: Literal["ones", "zeros", "learned"] = "ones",
        window: int | None = None,
    ) -> None:
        pairs = states * symbols
        weights = pairs * (2 * pairs + states)
        if weights > _MOST_WEIGHTS:
            raise InputError(
                f"memory_states={states} and memory_symbols={symbols} make {weights:,} weights a step; "
                f"at most {_MOST_WEIGHTS:,} are allowed"
            )
        if bottom_vector == "learned":
            if not size:
                raise InputError("bottom_vector='learned' needs a memory_size of at least 1; got 0")
            self.learned = (Value("bottom_vector", size, at_start=True),)
        self.states, self.symbols, self.size, self.pairs = states, symbols, size, pairs
        self.normalize, self.read_states, self.window = normalize, read_states, window
        self.bottom, self.bottom_vector = bottom, bottom_vector
        self.reading_size = (pairs if read_states else symbols) * max(size, 1)
        rows = (states, symbols)
        moves = (
            Weights("push_weight", (*rows, *rows)),
            Weights("replace_weight", (*rows, *rows)),
            Weights("pop_weight", (*rows, states)),
        )
        self.actions = (*moves, Value("push_value", size)) if size else moves
        self.action_type = VectorMoveActions if size else MoveActions

    @classmethod
    def from_config(cls, config: Any) -> NondeterministicStack:
        return cls(
            config.memory_states,
            config.memory_symbols,
            config.memory_size,
            normalize=config.normalize_actions,
            read_states=config.read_states,
            bottom=config.bottom,
            bottom_vector=config.bottom_vector,
            window=config.memory_window,
        )

    def contents(self, state: NondeterministicState) -> dict[str, Tensor]:
        """The log probabilities of state and top symbol; the other tables are about pairs of times."""
        return {"top": state.top}

    def initial_state(
        self, batch_size: int, length: int | None = None, **where: Unpack[Where]
    ) -> NondeterministicState:
        """Only the bottom, at time 0, over itself at time -1 if it is open.

        Raises:
            InputError: if the table of `length` steps does not fit in memory.
        """
        of_network, where = where, accurate(where)
        self._check_room(batch_size, (length or 0) + 1, where)
        under = torch.full((batch_size, 1, 1, self.pairs, self.pairs), ZERO, **where)
        top = torch.full((batch_size, self.pairs), ZERO, **where)
        top[:, 0] = 0
        values = torch.zeros(
            batch_size, 1, 1, self.pairs, self.pairs, self.size, **(where if self.size else of_network)
        )
        if self.bottom == "open":
            under[:, 0, 0, 0, 0] = 0
        if self.bottom_vector == "ones":
            values[:, 0, 0, 0, 0] = 1
        return NondeterministicState(under, top, values)

    def set_learned(
        self, state: NondeterministicState, parts: Mapping[str, Tensor], rows: Tensor | None = None
    ) -> NondeterministicState:
        if not parts:
            return state
        values = state.values
        bottom = torch.zeros(values.shape[1:5], dtype=torch.bool, device=values.device)
        bottom[-1, -1, 0, 0] = True
        chosen = bottom.unsqueeze(-1) if rows is None else bottom.unsqueeze(-1) & rows.view(-1, 1, 1, 1, 1, 1)
        return state._replace(values=torch.where(chosen, parts["bottom_vector"].to(values.dtype), values))

    def initial_reading(self, state: NondeterministicState) -> Tensor:
        """The reading r_0 of the initial stack: its bottom, with probability 1."""
        bottom = state.values[:, 0, 0, 0, 0] if self.size else torch.ones_like(state.top[:, :1])
        return F.pad(bottom, (0, self.reading_size - bottom.shape[1]))

    def update(self, state: NondeterministicState, actions: Any) -> tuple[NondeterministicState, Tensor]:
        """Make every move of every run, then read.

        Args:
            state: a state with N times.
            actions: logarithms of weights, anything but NaN and infinity, and the vector [B, m].

        Returns:
            The state at N + 1 times, or as many as the window allows, and the reading: [B, P] (or [B, S]) without
            vectors, [B, P * m] (or [B, S * m]) with them.
        """
        under, top, values = state
        push, replace, pop = self.weights(actions, top.dtype)
        states, symbols, pairs, n = self.states, self.symbols, self.pairs, under.shape[1]
        present = under[:, :, -1]  # [B, i, qx, sz]
        # Replaced tops: [B, i, qx, sz, ry], to be summed over sz.
        replaced = present.unsqueeze(-1) + (top.unsqueeze(-1) + replace)[:, None, None]
        # The top revealed by a pop, u and y at a time k, in a state r: [B, k, uy, r].
        popped = (present[:, 1:].unsqueeze(-1) + (top.unsqueeze(-1) + pop)[:, None, None]).logsumexp(3)
        below = under[:, :, :-1].unflatten(4, (states, symbols))  # [B, i, k, qx, u, y]
        revealed = below.unsqueeze(-1) + popped.unflatten(2, (states, symbols))[:, None, :, None]
        # [B, i, qx, r, y], each summed over k and u; none where there is no k.
        moved = replaced.logsumexp(3)
        if n > 1:
            returned = revealed.logsumexp((2, 4)).transpose(3, 4).flatten(3)
            moved = torch.stack((moved, returned)).logsumexp(0)  # logaddexp has no second derivative at -1e30
        moved = _with_zeros(moved)
        column = torch.cat((moved, _with_zeros(top.unsqueeze(-1) + push).unsqueeze(1)), dim=1)
        total = column.logsumexp((1, 2))  # [B, ry]
        shares = _with_zeros(column - total[:, None, None], total[:, None, None])
        top = _with_zeros(total - total.logsumexp(1, keepdim=True), total)
        of_new = values.new_zeros(under.shape[0], n + 1, pairs, pairs, self.size)
        if self.size:
            kept = torch.einsum("biqsr,biqsm->biqrm", _share(replaced, moved.unsqueeze(3)), values[:, :, -1])
            of_revealed = _share(revealed, moved.unflatten(3, (states, symbols)).transpose(3, 4)[:, :, None, :, None])
            below_values = values[:, :, :-1].unflatten(4, (states, symbols))
            kept = kept + torch.einsum("bikquyr,bikquym->biqrym", of_revealed, below_values).flatten(3, 4)
            pushed = actions.push_value.to(top.dtype)[:, None, None, None].expand(-1, 1, pairs, pairs, -1)
            of_new = torch.cat((kept, pushed), dim=1)
        most = n + 1 if self.window is None else min(n + 1, self.window - 1)
        new = NondeterministicState(
            _append(under, shares, ZERO)[:, -most:, -most:], top, _append(values, of_new, 0.0)[:, -most:, -most:]
        )
        type_of_network = actions.push_value.dtype if self.size else values.dtype
        return new, self._read(top, shares, of_new).to(type_of_network)

    def weights(self, actions: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """The effective log weights of one step's moves: push and replace [B, P, P], pop [B, P, Q], finite."""
        rows = [part.to(dtype).flatten(3).flatten(1, 2) for part in actions[:3]]
        weights = torch.cat(rows, dim=2).clamp(min=ZERO)
        if self.normalize:
            weights = weights.log_softmax(2)
        push, replace, pop = weights.split((self.pairs, self.pairs, self.states), dim=2)
        return push, replace, pop

    def _read(self, top: Tensor, shares: Tensor, values: Tensor) -> Tensor:
        reading = top.exp().unsqueeze(-1)
        if self.size:
            reading = reading * torch.einsum("biqr,biqrm->brm", shares.exp(), values)
        if not self.read_states:
            reading = reading.unflatten(1, (self.states, self.symbols)).sum(1)
        return reading.flatten(1)

    def after(self, state: NondeterministicState, steps: int) -> NondeterministicState:
        """Each step adds a time until the window is full."""
        batch_size, times, _, pairs, _ = state.under.shape
        times = times + steps
        if self.window is not None:
            times = torch.sym_min(times, self.window - 1)
        shape = (batch_size, times, times, pairs, pairs)
        return NondeterministicState(
            state.under.new_empty(shape),
            state.top.new_empty(state.top.shape),
            state.values.new_empty(*shape, self.size),
        )

    def hold(self, active: Tensor, new: NondeterministicState, old: NondeterministicState) -> NondeterministicState:
        # A sequence with fewer times gets empty times before its own.
        missing = new.under.shape[1] - old.under.shape[1]
        rows = active.view(-1, 1, 1, 1, 1)
        return NondeterministicState(
            torch.where(rows, new.under, _before(old.under, missing, ZERO)),
            torch.where(active.unsqueeze(-1), new.top, old.top),
            torch.where(rows.unsqueeze(-1), new.values, F.pad(old.values, (0, 0, 0, 0, 0, 0, missing, 0, missing, 0))),
        )

    def reset(self, state: NondeterministicState, rows: Tensor) -> NondeterministicState:
        where: Where = {"device": state.top.device, "dtype": state.values.dtype}
        return self.hold(~rows, state, self.initial_state(state.top.shape[0], **where))

    def compact(self, state: NondeterministicState, steps: int) -> NondeterministicState:
        """Drop the times before the first that any sequence remembers; see `Memory.compact`.

        Raises:
            InputError: if the table does not fit in memory after that many more steps.
        """
        n = state.under.shape[1]
        self._check_room(state.top.shape[0], n + steps, {"device": state.top.device, "dtype": state.top.dtype})
        if steps == 1 or n == 1 or numbers_hidden() or any(part.requires_grad for part in state):
            return state
        remembered = (state.under > ZERO / 2).any(-1).any(-1).any(-1).any(0)  # [N], of the times under others
        first = int(remembered.to(torch.uint8).argmax()) if bool(remembered.any()) else n - 1
        return state._replace(under=state.under[:, first:, first:], values=state.values[:, first:, first:])

    def check_state_part(self, name: str, part: Tensor) -> None:
        super().check_state_part(name, part)
        if name != "values" and bool((part > 1e-3).any()):
            raise ValueError(f"state.{name} must be log probabilities, at most 0; got {float(part.max()):g}")

    def check_overflow(self, state: NondeterministicState) -> None:
        """Find sequences without any run.

        Raises:
            ValueError: naming the first.
        """
        if numbers_hidden() or state.top.device.type != "cpu":  # numbers are hidden, or a GPU would wait
            return
        lost = (state.top.detach().amax(1) <= ZERO / 2).nonzero()
        if lost.numel():
            raise ValueError(
                f"no run is left on the nondeterministic stack of sequence {int(lost[0])}: the weights of all moves "
                "that its runs could make are 0 (log weights of minus infinity)"
            )

    def _check_room(self, batch_size: int, times: int, where: Where) -> None:
        if numbers_hidden():  # where the length may be a symbol
            return
        remembered = times if self.window is None else min(times, self.window)
        numbers = batch_size * remembered**2 * self.pairs**2 * (1 + self.size)
        size = numbers * torch.empty((), dtype=where.get("dtype")).element_size()
        check_room(
            size,
            where.get("device"),
            f"a nondeterministic stack of memory_states={self.states}, memory_symbols={self.symbols} and "
            f"memory_size={self.size} over {times - 1:,} steps of {batch_size:,} sequences",
            "shorter sequences, smaller batches or a memory_window need less",
        )


def _share(terms: Tensor, total: Tensor) -> Tensor:
    """The shares of terms in a total, from their logarithms; 0 if the total is 0."""
    return torch.where(total > ZERO / 2, terms - total, ZERO).exp()


def _with_zeros(logs: Tensor, total: Tensor | None = None) -> Tensor:
    """The logarithms with one number for every 0: where the total is 0, or the term itself; NaN stays."""
    zero = logs <= ZERO / 2 if total is None else (total <= ZERO / 2) | (logs <= ZERO / 2)
    return logs.masked_fill(zero, ZERO)


def _before(table: Tensor, times: int, fill: float) -> Tensor:
    """A table [B, N, N, P, P] with that many more times before the first."""
    return F.pad(table, (0, 0, 0, 0, times, 0, times, 0), value=fill)


def _append(table: Tensor, column: Tensor, fill: float) -> Tensor:
    """A table [B, N, N, ...] with one more time, whose column is [B, N + 1, ...]."""
    more = [0, 0] * (table.dim() - 3) + [0, 0, 0, 1]
    return torch.cat((F.pad(table, more, value=fill), column.unsqueeze(2)), dim=2)
