"""A recorded trial of a sweep, set up to be trained again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stabsweep import report
from stabsweep.api import DEFAULTS, asked
from stabsweep.engine import Setup
from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.numerals import rate
from stabsweep.plan import Plan
from stabsweep.progress import Progress, Watcher
from stabsweep.records import Array, Record, Trial, Verdict
from stabsweep.region import Region
from stabsweep.result import Result
from stabsweep.verdict import Judgement, judge


@dataclass(frozen=True)
class Recorded:
    """A trial as the sweep recorded it, with all that is needed to train it again.

    Attributes:
        subject: what was swept, `sgd on mlp`.
        record: what the sweep wrote down.
        setup: what the trial is trained with.
        trial: the same point and seed, not trained yet.
    """

    subject: str
    record: Record
    setup: Setup
    trial: Trial

    @classmethod
    def find(cls, result: Result, record: Record, call: str, model: Any, task: Any) -> Recorded:
        """A record of a result, set up again.

        Args:
            result: of the sweep.
            record: one of its records.
            call: the function to which a Python object can be given again, for an error.
            model: the model again, where it was a Python object; else None.
            task: the task again, likewise.

        Raises:
            BadInput: it cannot be trained again.
        """
        cure = f"call stabsweep.{call}(result, model=..., task=...) with the same again"
        given = {**DEFAULTS, **asked(result.config, cure, model=model, task=task)}
        setup = Plan.make(given).setup(record.point)
        return cls(result.subject, record, setup, Trial(record.trial, record.point, record.seed))

    def judged(self, curves: Array) -> Judgement:
        """What training did this time, by (5, T) curves in the order of `CURVES`."""
        warmup_steps = int(self.setup.number(self.trial, "warmup_steps"))
        return judge(self.record.with_curves(curves, warmup_steps))

    def settled(self, found: Judgement) -> Verdict:
        """The verdict of this time; of a stall that of the sweep, whose other trials settle it."""
        return self.record.verdict if found.provisional else found.verdict


def title_of(subject: str, record: Record) -> str:
    """Which trial it is: `sgd on mlp, trial 9 (lr 0.32, seed 1)`."""
    return f"{subject}, trial {record.trial} (lr {rate(record.lr)}, seed {record.seed})"


def record_of(region: Region, trial: int) -> Record:
    """The record with a number.

    Raises:
        BadInput: there is none.
    """
    numbers = [record.trial for record in region.records]
    check_count("trial", trial, low=0)
    if trial not in numbers:
        known = f"{min(numbers)} to {max(numbers)}" if numbers else "none"
        raise BadInput(f"trial={trial} is not among those that have ended: {known}")
    return region.records[numbers.index(trial)]


def other_end(verdict: Verdict, record: Record) -> str:
    """A sentence on a trial whose verdict was another one in the sweep."""
    now, then = (word.label.replace("_", " ") for word in (verdict, record.verdict))
    return f"This time the trial was {now}, in the sweep {then}: at the edge rounding decides."


@contextmanager
def watched(
    watcher: Watcher | str, title: str, count: int, noun: str
) -> Iterator[Callable[[int], None]]:
    """A context that shows how far something has come; it gives what is told how much is done.

    Args:
        watcher: as `stabsweep.sweep` takes it.
        title: what it is.
        count: how much there is to do.
        noun: what is counted.
    """
    watcher = report.watcher(watcher) if isinstance(watcher, str) else watcher
    began = time.perf_counter()

    def progress(num_done: int) -> Progress:
        seconds = time.perf_counter() - began
        left = seconds / num_done * (count - num_done) if num_done else None
        return Progress(count, num_done, seconds=seconds, eta_seconds=left, noun=noun)

    watcher.start(title, progress(0))
    try:
        yield lambda num_done: watcher.update(progress(num_done))
    finally:
        watcher.stop()
