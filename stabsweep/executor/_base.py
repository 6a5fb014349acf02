"""What an executor is: it takes trials, trains them somewhere, and hands back their curves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from stabsweep.engine import Chunk, Setup
from stabsweep.records import Trial, Value

Note = Callable[[str], None]
"""Told something, in one line."""

Split = tuple[Value, ...]
"""Values of the splitting axes: trials that differ in them are different programs."""

MakeSetup = Callable[[dict[str, Value]], Setup]
"""The setup for values of the splitting axes, by name."""


class Executor(ABC):
    """Trains trials. It knows no study and no verdict, and nobody sees in a trial where it ran.

    Every executor hands out the same trials' pieces at the same moments: those that it has in
    training go on together, each by as many steps, and are told in the order of their numbers.
    """

    @property
    @abstractmethod
    def num_running(self) -> int:
        """Trials in training or waiting for room."""

    @property
    @abstractmethod
    def num_free(self) -> int:
        """Trials that can be admitted without waiting, were they all of the emptiest kind."""

    @property
    def speed(self) -> str:
        """See `Engine.speed`."""
        return ""

    @abstractmethod
    def admit(self, trials: Sequence[Trial]) -> None:
        """Takes trials into training, as soon as there is room for each."""

    @abstractmethod
    def advance(self, num_steps: int) -> list[Chunk]:
        """Trains every trial on that is in training, by so many steps or to its horizon.

        Returns:
            A chunk for each of them, by number; none for a trial that has to begin again.
        """

    @abstractmethod
    def drop(self, number: int) -> None:
        """Ends a trial before its horizon."""

    def close(self) -> None:  # noqa: B027  Most have nothing to end.
        """Ends whatever runs for it; it takes no trial any more."""
