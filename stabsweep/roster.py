"""Ask and tell for a design: its trials in their order, each told of by its own losses alone.

A design looks at no result, and `DivergencePruner` at no other trial, so that Optuna would only
keep books: a quarter of a millisecond a trial, more than the training of a tiny model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stabsweep.pruner import DivergencePruner, Unpruned
from stabsweep.records import Point, Record, Trial, Value
from stabsweep.sampler import DesignSampler
from stabsweep.space import Space
from stabsweep.study import Study


def make_study(
    space: Space,
    sampler: Any,
    pruner: Any,
    seeds: Sequence[int],
    num_trials: int,
    done: Iterable[Record] = (),
    told: Callable[[Any], None] | None = None,
    first: int = 0,
) -> Study | Roster:
    """A `Roster` where nobody needs Optuna, else a `Study`; they hand out and stop the same.

    Args:
        space: what is swept.
        sampler: see `Study`, as are the others.
        pruner: one that wraps another looks at other trials.
        seeds: seeds that a trial may have.
        num_trials: trials to hand out in all.
        done: records of an earlier run.
        told: called with every trial as Optuna holds it.
        first: number of the first trial.
    """
    is_alone = isinstance(pruner, Unpruned) or (
        type(pruner) is DivergencePruner and pruner.wrapped is None
    )
    if isinstance(sampler, DesignSampler) and is_alone and told is None:
        return Roster(space, sampler, pruner, num_trials, len(list(done)), first)
    return Study(space, sampler, pruner, seeds, num_trials, done, told, first)


@dataclass
class _Running:
    """What a trial has reported, and what is known of it."""

    known: dict[str, Value] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


class Roster:
    """A `Study` of a design, without Optuna; see there for what its methods do.

    Args:
        space: what is swept.
        sampler: the design.
        pruner: one that looks at nothing but the trial itself.
        num_trials: trials to hand out in all, those that are done included.
        num_done: how many are; the design leaves them out.
        first: number of the first trial.

    Attributes:
        num_asked: trials handed out so far, those that are done included.
        satisfied, may_stop, ending: see `Study`; a design has no say in its end.
    """

    satisfied: str | None = None
    may_stop = False
    ending: str | None = None

    def __init__(
        self,
        space: Space,
        sampler: DesignSampler,
        pruner: DivergencePruner | Unpruned,
        num_trials: int,
        num_done: int = 0,
        first: int = 0,
    ) -> None:
        self._space, self._sampler, self._pruner = space, sampler, pruner
        self._num_trials, self._first = num_trials, first
        self._running: dict[int, _Running] = {}
        self.num_asked = num_done

    @property
    def num_trials(self) -> int:
        """Trials to hand out in all, and those of other studies before it."""
        return self._first + self._num_trials

    def ask(self, num_trials: int) -> list[Trial]:
        """The next trials: as many as asked for, or what is left."""
        trials = []
        for _ in range(min(num_trials, self._num_trials - self.num_asked)):
            entry = self._sampler.draw(None)
            if entry is None:
                raise StopIteration(f"all {self._num_trials} trials are handed out")
            index, point, seed = entry
            trial = Trial(self._first + index, self._on_axes(point), seed)
            self._running[trial.number] = _Running()
            self.num_asked += 1
            trials.append(trial)
        return trials

    def _on_axes(self, point: Point) -> dict[str, Value]:
        """The point in the order of the axes, and a listed value as its axis lists it."""
        values: dict[str, Value] = {}
        for axis in self._space:
            value = point[axis.name]
            if axis.values:
                value = axis.values[axis.values.index(value)]
            else:
                value = int(value) if axis.is_integer else float(value)  # type: ignore[arg-type]
            values[axis.name] = value
        return values

    def report(self, number: int, step: int, loss: float, known: Mapping[str, Value]) -> bool:
        """Takes a trial's loss at a step; whether the trial is to be stopped.

        Raises:
            ValueError: the trial is not running.
        """
        running = self._find(number)
        if not running.steps:
            running.known = dict(known)
        # A trial that had to start again repeats its first reports.
        if not running.steps or step > running.steps[-1]:
            running.steps.append(step)
            running.losses.append(loss)
        if isinstance(self._pruner, Unpruned):
            return False
        return self._pruner.reason_of(running.steps, running.losses, running.known) is not None

    def is_cut(self, number: int) -> bool:
        """Whether a trial was stopped for its loss alone: never, here."""
        return False

    def tell(self, record: Record) -> None:
        """Takes a finished trial.

        Raises:
            ValueError: the trial is not running.
        """
        self._find(record.trial)
        del self._running[record.trial]

    def _find(self, number: int) -> _Running:
        if number not in self._running:
            raise ValueError(f"trial {number} is not running: never asked for, or told already")
        return self._running[number]
