"""How many trials of a cohort are trained side by side, before the next ones are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch


class Tiles:
    """Parts of a cohort that go through a rung one after the other, so that each fits the cache.

    A stack is fast while its weights, gradients and moments stay near the processor; too small a
    one is slowed by the calls. Which size is best depends on model, batch and machine, so each is
    tried on the steps that are to be done anyway, `TRIES` times, and the fastest is kept. No trial
    depends on it: rows never touch each other.

    A GPU trains all at once: there the calls are what costs.

    Attributes:
        device: where the trials are.
        size: the size that was found best; None while that is being found out.
        milliseconds: size -> least time of a trial-step so far.
    """

    TRIES = 2

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.size: int | None = None
        self.milliseconds: dict[int, float] = {}
        self._tries: dict[int, int] = {}
        self._is_warm = False

    def parts(self, num_rows: int) -> Iterator[slice]:
        """The parts of so many rows, all of about one size once it is known."""
        if self.device.type != "cpu":
            yield slice(0, num_rows)
            return
        start = 0
        while start < num_rows:
            left = num_rows - start
            size = min(self._next(num_rows), left)
            if self.size is not None:
                size = math.ceil(left / math.ceil(left / size))
            yield slice(start, start + size)
            start += size

    def timed(self, num_rows: int, num_steps: int, seconds: float) -> None:
        """Told how long a part took."""
        if self.size is not None:
            return
        if not self._is_warm:
            # The first steps of a program find no memory and no code where they will be.
            self._is_warm = True
            return
        took = seconds / num_rows / num_steps * 1e3
        self.milliseconds[num_rows] = min(took, self.milliseconds.get(num_rows, math.inf))
        self._tries[num_rows] = self._tries.get(num_rows, 0) + 1
        if self.device.type != "cpu" and self._tries[num_rows] == self.TRIES:
            self.size = num_rows

    def _next(self, num_rows: int) -> int:
        """The size to go on with: the best, or one that has not been tried often enough."""
        if self.size is not None:
            return self.size
        sizes = [2**power for power in range(num_rows.bit_length()) if 2**power <= num_rows]
        for size in reversed(sizes):
            if self._tries.get(size, 0) < self.TRIES:
                return size
        best = min(sizes, key=lambda size: self.milliseconds[size])
        self.size = best
        return best
