"""Ask and tell: one in-memory Optuna study behind plain trials and records.

The study lives in memory because storages cost more than the training of a small trial; our own
records are what lasts (see `stabsweep.store`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from stabsweep.errors import BadInput
from stabsweep.records import NUMBER, SEED, Point, Record, Trial, Value
from stabsweep.space import Axis, Space


class Study:
    """Hands out trials and takes their losses and records back.

    Args:
        space: what is swept.
        sampler: any Optuna sampler. One with an attribute `index` names its trials itself and gives
            them their seeds: a design, or `boundary`. Any other is asked for a point at a time,
            which is run with every seed in turn, so that points are compared by the same seeds:
            the p-th point with the s-th seed is trial p * len(seeds) + s. The seed is no parameter
            then, for there is nothing to learn of it.
            A sampler with a method `enough` may end the study before all trials were handed out,
            and one with a number `at_once` wants answers before so many trials more.
        pruner: any Optuna pruner.
        seeds: seeds that a trial may have.
        num_trials: trials to hand out in all, those of `done` included.
        done: records of an earlier run, told to the study so that its sampler knows them.
        told: called with every trial that has ended, as Optuna holds it, with those of `done`
            first; the user attribute `trial` is its number.
        first: number of the first trial: trials before it were another study's.

    Attributes:
        num_asked: trials handed out so far, those of `done` included.
        satisfied: why no more trials are needed, in the sampler's words; None while they are.
    """

    def __init__(
        self,
        space: Space,
        sampler: optuna.samplers.BaseSampler,
        pruner: optuna.pruners.BasePruner,
        seeds: Sequence[int],
        num_trials: int,
        done: Iterable[Record] = (),
        told: Callable[[FrozenTrial], None] | None = None,
        first: int = 0,
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=sampler, pruner=pruner, direction="minimize")
        self._distributions = {axis.name: _distribution(axis) for axis in space}
        self._names_trials = hasattr(sampler, "index")
        if self._names_trials:
            self._distributions[SEED] = CategoricalDistribution(list(seeds))
        self._seeds = tuple(seeds)
        self._points: dict[int, Point] = {}
        self._running: dict[int, optuna.Trial] = {}
        self._last_step: dict[int, int] = {}
        self._told = told
        self._num_trials, self._first = num_trials, first
        self.num_asked = 0
        self.satisfied: str | None = None
        numbers = set()
        for record in done:
            frozen = self._frozen(record)
            self._study.add_trial(frozen)
            if told:
                told(frozen)
            self._points[(record.trial - first) // len(self._seeds)] = record.point
            numbers.add(record.trial)
            self.num_asked += 1
        every = range(first, first + num_trials)
        self._left = (number for number in every if number not in numbers)

    @property
    def num_trials(self) -> int:
        """Trials to hand out in all; only those that were, once the sampler is satisfied.

        Those of other studies before it are counted.
        """
        return self._first + (self.num_asked if self.satisfied else self._num_trials)

    @property
    def may_stop(self) -> bool:
        """Whether the sampler may still end it before `num_trials`."""
        is_open = self.satisfied is None and self.num_asked < self._num_trials
        return is_open and hasattr(self._study.sampler, "enough")

    @property
    def ending(self) -> str | None:
        """Why it ended, in a sentence, and what is known; None when the sampler has no say."""
        sampler = self._study.sampler
        if not hasattr(sampler, "knowledge"):
            return None
        number = f"{self.num_asked} of {self._num_trials} trials"
        if self.satisfied:
            return f"Stopped after {number}: {self.satisfied}."
        known = sampler.knowledge(self._study)  # type: ignore[attr-defined]
        return f"Budget spent after {number}: {known}."

    def ask(self, num_trials: int) -> list[Trial]:
        """The next trials: as many as asked for, or what is left, or none when it is enough."""
        trials = []
        enough = getattr(self._study.sampler, "enough", None)
        room = getattr(self._study.sampler, "at_once", self._num_trials) - len(self._running)
        for _ in range(min(num_trials, self._num_trials - self.num_asked, room)):
            self.satisfied = enough(self._study) if enough else None
            if self.satisfied:
                break
            trial, asked = self._ask_named() if self._names_trials else self._ask_guide()
            self._running[trial.number] = asked
            self.num_asked += 1
            trials.append(trial)
        return trials

    def _ask_named(self) -> tuple[Trial, optuna.Trial]:
        asked = self._study.ask(fixed_distributions=self._distributions)
        params = dict(asked.params)
        seed = params.pop(SEED)
        # Optuna's own numbers shift on a resume, and would meet those of recorded trials.
        number = self._first + self._study.sampler.index  # type: ignore[attr-defined]
        return Trial(number, params, seed), asked

    def _ask_guide(self) -> tuple[Trial, optuna.Trial]:
        number = next(self._left)
        place, turn = divmod(number - self._first, len(self._seeds))
        if place in self._points:
            self._study.enqueue_trial(dict(self._points[place]))
        asked = self._study.ask(fixed_distributions=self._distributions)
        self._points[place] = dict(asked.params)
        asked.set_user_attr(SEED, self._seeds[turn])
        return Trial(number, self._points[place], self._seeds[turn]), asked

    def report(self, number: int, step: int, loss: float, known: Mapping[str, Value]) -> bool:
        """Takes a trial's loss at a step; whether the pruner wants the trial stopped.

        Args:
            number: the trial.
            step: optimizer steps done.
            loss: a loss that stands for the steps since the last report; NaN when one of them was
                not finite.
            known: what the pruner may want to know of the trial, told once, with the first report.

        Raises:
            ValueError: the trial is not running.
        """
        trial = self._find(number)
        last_step = self._last_step.get(number)
        if last_step is None:
            for name, value in known.items():
                trial.set_user_attr(name, value)
        # A trial that had to start again repeats its first reports.
        if last_step is None or step > last_step:
            trial.report(loss, step)
            self._last_step[number] = step
        return trial.should_prune()

    def is_cut(self, number: int) -> bool:
        """Whether a trial that the pruner wants stopped was going well, as far as one can tell.

        A pruner with a method `reason` says why a trial has diverged, and None when it is stopped
        for its loss alone; any other pruner is taken to look at the loss alone.
        """
        reason = getattr(self._study.pruner, "reason", None)
        trials = self._study.get_trials(deepcopy=False)
        return reason is None or reason(trials[self._find(number).number]) is None

    def tell(self, record: Record) -> None:
        """Takes a finished trial.

        An unstable trial is told as PRUNED: told as failed it would be ignored by samplers, which
        would then go on sampling what diverges.

        Raises:
            ValueError: the trial is not running.
        """
        trial = self._find(record.trial)
        del self._running[record.trial]
        self._last_step.pop(record.trial, None)
        for name, value in {NUMBER: record.trial, **_remarks(record)}.items():
            trial.set_user_attr(name, value)
        state, value = _outcome(record)
        frozen = self._study.tell(trial, value, state=state)
        if self._told:
            self._told(frozen)

    def _find(self, number: int) -> optuna.Trial:
        if number not in self._running:
            raise ValueError(f"trial {number} is not running: never asked for, or told already")
        return self._running[number]

    def _frozen(self, record: Record) -> FrozenTrial:
        state, value = _outcome(record)
        params = {**record.point, SEED: record.seed}
        seed = {} if self._names_trials else {SEED: params.pop(SEED)}
        loss = None if record.state == "failed" else record.final_loss
        return optuna.trial.create_trial(
            state=state,
            value=value,
            params=params,
            distributions=self._distributions,
            user_attrs={NUMBER: record.trial, **seed, **_remarks(record)},
            # The rungs' losses are not kept; this one ranks a pruned trial among its like.
            intermediate_values=None if loss is None else {record.steps: loss},
        )


def rehearse(space: Space, sampler: optuna.samplers.BaseSampler) -> None:
    """Asks and tells a few trials without training: a sampler that cannot work fails before it.

    Args:
        space: what is to be swept.
        sampler: one that is not used afterwards.

    Raises:
        BadInput: it fails; many a sampler imports what it needs as late as the second ask.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {axis.name: _distribution(axis) for axis in space}
    # What it warns of is said again by the sampler that is used.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = optuna.create_study(sampler=sampler, direction="minimize")
        try:
            for loss in (1.0, 0.5, None, 0.75):
                asked = study.ask(fixed_distributions=distributions)
                study.tell(asked, loss, TrialState.PRUNED if loss is None else None)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            raise BadInput(
                f"sampler {type(sampler).__name__} fails on this space "
                f"({type(error).__name__}: {lines[0][:200]}): choose another"
            ) from error


def _remarks(record: Record) -> dict[str, str | float]:
    """What a trial carries beside its outcome; `Record.from_trial` reads it."""
    blind = {} if record.blind_loss is None else {"blind_loss": record.blind_loss}
    length = {"steps": record.steps, "horizon": record.horizon}
    return {"verdict": record.verdict.label, "reason": record.reason, **length, **blind}


def _outcome(record: Record) -> tuple[TrialState, float | None]:
    if record.state == "failed":
        return TrialState.FAIL, None
    loss = record.final_loss
    held = record.state != "pruned" and record.verdict.is_stable
    if not held or loss is None or not math.isfinite(loss):
        return TrialState.PRUNED, None
    return TrialState.COMPLETE, loss


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.values:
        return CategoricalDistribution(list(axis.values))
    assert axis.low is not None and axis.high is not None
    if axis.is_integer:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.scale == "log")
    return FloatDistribution(axis.low, axis.high, log=axis.scale == "log")
