"""The number of training threads: on a busy machine fewer are faster, because all wait for one without a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from accelerate import PartialState

# Updates measured with each number of threads, and updates between checks of the speed.
MEASURED, WINDOW = 6, 50
# More threads must be faster by this factor: they take cores from others, and measurements are noisy.
GAIN = 1.05
# A number of threads this many times slower than another is not measured to the end.
HOPELESS = 3.0
# With fewer threads than there are, it measures again after this many times the seconds that measuring took, because
# the other programs may be gone; after twice that if nothing has changed, and so on.
PAUSE = 50


class ThreadChooser:
    """A chooser of the fastest number of threads, which times training's own updates with one, half and all threads.

    It measures at the start, and again when the speed falls by half or below that of one thread. With fewer threads
    than available it also measures from time to time, which takes a fiftieth of the time at first and then less and
    less. The training data stay the same, but another number of threads rounds sums in another order.

    Args:
        threads: their number, or "auto" to measure. On a GPU and with several processes torch's own number stays.
        device: the device of the model.
        tell: called with a line of text after each choice.
        state: the state of an earlier chooser, whose choice is kept.

    Attributes:
        chosen: the number of threads; None while "auto" measures.
    """

    def __init__(
        self,
        threads: int | Literal["auto"],
        device: torch.device,
        tell: Callable[[str], None],
        state: dict[str, Any] | None = None,
    ) -> None:
        self._tell = tell
        most = torch.get_num_threads()
        if device.type != "cpu" or PartialState().num_processes > 1:
            threads = most
        self._candidates = sorted({1, (most + 1) // 2, most}) if threads == "auto" else [threads]
        self._speeds: dict[int, float] = {}  # tokens a second, by number of threads
        self.chosen: int | None = None
        if len(self._candidates) == 1:
            self.chosen = self._candidates[0]
        elif state is not None and state["threads"] is not None and state["speeds"]:
            self.chosen = min(state["threads"], most)
            self._speeds = {int(number): speed for number, speed in state["speeds"].items()}
        # With fewer threads than available: seconds until it measures again, and passed; the number before measuring.
        self._pause, self._passed = 0.0 if state is None else state["pause"], 0.0
        self._before: int | None = None
        self._reason = ""
        self._warm = False
        self._reset()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context manager for training: set torch's number of threads, and restore it at the end."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._next())
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from an update of the weights, and set the number of threads for the next.

        Args:
            tokens: the number of its tokens.
            seconds: its duration.
        """
        if len(self._candidates) == 1:
            return
        if not self._warm:  # the first update loads and compiles
            self._warm = True
            return
        taken = self._taken[self._next()]
        taken[0] += tokens
        taken[1] += seconds
        taken[2] += 1
        if self.chosen is None:
            self._measure()
        else:
            self._passed += seconds
            self._watch(self.chosen)
        torch.set_num_threads(self._next())

    def state(self) -> dict[str, Any]:
        """The choice, for a checkpoint."""
        return {"threads": self.chosen, "speeds": self._speeds, "pause": self._pause}

    def _reset(self) -> None:
        numbers = {*self._candidates} if self.chosen is None else {self.chosen}
        self._taken: dict[int, list[float]] = {number: [0, 0, 0] for number in numbers}  # tokens, seconds, updates
        self._left = list(self._candidates)

    def _next(self) -> int:
        """The number of threads of the next update."""
        if self.chosen is not None:
            return self.chosen
        # In turn, so that a temporary slowdown of the machine affects all equally.
        return min(self._left, key=lambda number: (self._taken[number][2], number))

    def _measure(self) -> None:
        measured = {number: tokens / seconds for number, (tokens, seconds, n) in self._taken.items() if n}
        best = max(measured.values())
        self._left = [n for n in self._left if measured.get(n, best) * HOPELESS > best]
        if any(self._taken[number][2] < MEASURED for number in self._left):
            return
        # The fastest number; among similar speeds the smallest.
        fastest = max(measured[number] for number in self._left)
        chosen = next(number for number in self._left if measured[number] * GAIN >= fastest)
        again, self._before = chosen == self._before, None
        self._pause = 2 * self._pause if again else PAUSE * sum(seconds for _, seconds, _ in self._taken.values())
        self._passed = 0.0
        others = ", ".join(f"with {n}: {speed:,.0f}" for n, speed in sorted(measured.items()) if n != chosen)
        if not again:
            self._tell(
                f"{self._reason}training with {chosen} of {self._candidates[-1]} threads, {measured[chosen]:,.0f} "
                f"tokens/s ({others})"
            )
        self.chosen, self._speeds = chosen, measured
        self._reset()

    def _watch(self, chosen: int) -> None:
        """Measure again when the machine has become much slower."""
        tokens, seconds, updates = self._taken[chosen]
        if updates < WINDOW and (seconds < 5 or updates < 5):
            return
        speed, known = tokens / seconds, self._speeds.get(chosen, 0.0)
        if speed < known / 2 or (chosen > 1 and speed < 0.9 * self._speeds.get(1, 0.0)):
            self._reason = f"{speed:,.0f} tokens/s after {known:,.0f}: "
            self.chosen = None
        elif chosen < self._candidates[-1] and self._passed >= self._pause:
            self._reason, self._before, self.chosen = "measured again: ", chosen, None
        else:
            self._speeds[chosen] = max(speed, known)
        self._reset()
