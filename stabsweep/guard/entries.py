"""Lines of a run whose numbers are still on the device: fetched together, in one transfer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stabsweep.guard.close_look import CloseLook
from stabsweep.guard.ranks import on_host_type


@dataclass(frozen=True)
class Entry:
    """One attempt.

    Attributes:
        line: what is known of it.
        names: of the numbers that are to come, in the order of `numbers`.
        numbers: (n,) on the device: those of `names`, then the close look's, then the logits'.
        look: the close look, if there was one.
        logits: layers whose largest attention logit is the last of `numbers`.
    """

    line: dict[str, Any]
    names: tuple[str, ...]
    numbers: Tensor
    look: CloseLook | None = None
    logits: tuple[str, ...] = ()

    def complete(self, numbers: Sequence[float]) -> Mapping[str, float]:
        """Puts the numbers into the line; what the close look says of unmoved weights."""
        self.line.update(zip(self.names, numbers, strict=False))
        rest = list(numbers[len(self.names) :])
        if self.logits:
            values = rest[-len(self.logits) :]
            rest = rest[: -len(self.logits)]
            self.line["logits"] = dict(zip(self.logits, values, strict=True))
        if self.look is None:
            return {}
        seen = self.look.read(rest)
        self.line["layers"] = {name: list(values) for name, values in seen.layers.items()}
        self.line["update_ratio"] = seen.update_ratio
        return seen.unmoved


class Entries:
    """The attempts whose numbers are not on the host yet.

    Args:
        write: called with each line that is complete, in order, and the unmoved weights.
        is_late: whether numbers wait for the next transfer, as those of a GPU do; on a CPU there is
            nothing to wait for.
    """

    def __init__(
        self, write: Callable[[dict[str, Any], Mapping[str, float]], None], is_late: bool
    ) -> None:
        self._write, self._is_late = write, is_late
        self._waiting: list[Entry] = []

    def add(self, entry: Entry) -> None:
        """One more."""
        self._waiting.append(entry)
        if not self._is_late:
            self.fetch()

    def fetch(self, now: Tensor | None = None) -> list[float]:
        """Completes all that wait, in one transfer with what is needed now.

        Args:
            now: (n,) what the caller needs on the host.

        Returns:
            its numbers.
        """
        parts = [entry.numbers for entry in self._waiting] + ([] if now is None else [now])
        if not parts:
            return []
        if len(parts) == 1:
            numbers = parts[0].tolist()
        else:
            device = parts[-1].device
            wide = on_host_type(device)
            numbers = torch.cat([part.to(device, wide) for part in parts]).tolist()
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            count = len(entry.numbers)
            self._write(entry.line, entry.complete(numbers[:count]))
            numbers = numbers[count:]
        return numbers
