"""What a running sweep tells those who watch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stabsweep.records import Record, Verdict


@dataclass(frozen=True)
class Progress:
    """How far a sweep has come and what is known so far.

    Attributes:
        num_trials: trials that the sweep will run in all; at most, where it `may_stop` by itself.
        num_done: trials that have ended, those of an earlier run that is resumed included.
        num_before: trials that had ended before this run began.
        num_running: trials in training now.
        part_done: how many whole trials the running ones amount to, by their steps.
        seconds: time since this run began.
        eta_seconds: estimated time to the end; None when nothing can be said yet.
        counts: verdict -> number of trials that have ended.
        best_lr, best_loss: the lowest final loss of a stable trial and its learning rate.
        edge_lr, edge_low, edge_high: the edge of the best row with its interval, once met.
        records: the records so far, stalls settled by their rows.
        noun: what is counted, where it is no trials.
        may_stop: whether it may end before all trials are run.
    """

    num_trials: int
    num_done: int = 0
    num_before: int = 0
    num_running: int = 0
    part_done: float = 0.0
    seconds: float = 0.0
    eta_seconds: float | None = None
    counts: Mapping[Verdict, int] = field(default_factory=dict)
    best_lr: float | None = None
    best_loss: float | None = None
    edge_lr: float | None = None
    edge_low: float | None = None
    edge_high: float | None = None
    records: Sequence[Record] = ()
    noun: str = "trial"
    may_stop: bool = False

    @property
    def share(self) -> float:
        """Share of the work that is done, in [0, 1]; it moves before the first trial ends."""
        return min((self.num_done + self.part_done) / max(self.num_trials, 1), 1.0)

    @property
    def trials_per_second(self) -> float:
        """Trials that ended in this run, a second."""
        return (self.num_done - self.num_before) / self.seconds if self.seconds > 0 else 0.0


class Watcher(Protocol):
    """Whoever wants to see a sweep run: a terminal, a notebook, a test."""

    def start(self, title: str, progress: Progress) -> None:
        """The sweep begins; `title` says in a few words what is swept."""

    def note(self, message: str) -> None:
        """Something worth one line: which engine runs and why, a cohort halved."""

    def update(self, progress: Progress) -> None:
        """Called after every rung: often; drawing is up to the watcher."""

    def stop(self) -> None:
        """The sweep has ended, in whatever way; always called after `start`."""


class Silence:
    """A watcher that shows nothing."""

    def start(self, title: str, progress: Progress) -> None:
        """Shows nothing."""

    def note(self, message: str) -> None:
        """Shows nothing."""

    def update(self, progress: Progress) -> None:
        """Shows nothing."""

    def stop(self) -> None:
        """Shows nothing."""
