"""Ask and tell: one in-memory Optuna study behind plain trials and records.

The study lives in memory because storages cost more than the training of a small trial; our own
records are what lasts (see `stabsweep.store`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from stabsweep.records import SEED, Record, Trial, Value
from stabsweep.space import LIMITS, Axis, Space


class Study:
    """Hands out trials and takes their losses and records back.

    Args:
        space: what is swept.
        sampler: any Optuna sampler; one with an attribute `index` names its trials itself.
        pruner: any Optuna pruner.
        seeds: seeds that a trial may have.
        num_trials: trials to hand out in all, those of `done` included.
        done: records of an earlier run, told to the study so that its sampler knows them.
    """

    def __init__(
        self,
        space: Space,
        sampler: optuna.samplers.BaseSampler,
        pruner: optuna.pruners.BasePruner,
        seeds: Sequence[int],
        num_trials: int,
        done: Iterable[Record] = (),
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=sampler, pruner=pruner, direction="minimize")
        self._distributions = {axis.name: _distribution(axis) for axis in space}
        self._distributions[SEED] = CategoricalDistribution(list(seeds))
        self._running: dict[int, optuna.Trial] = {}
        self._last_step: dict[int, int] = {}
        self._next = 0
        self.num_trials = num_trials
        self.num_asked = 0
        for record in done:
            self._study.add_trial(self._frozen(record))
            self._next = max(self._next, record.trial + 1)
            self.num_asked += 1

    def ask(self, num_trials: int) -> list[Trial]:
        """The next trials: as many as asked for, or what is left."""
        trials = []
        for _ in range(min(num_trials, self.num_trials - self.num_asked)):
            asked = self._study.ask(fixed_distributions=self._distributions)
            # Optuna's own numbers shift on a resume, and would meet those of recorded trials.
            number = getattr(self._study.sampler, "index", self._next)
            self._next = max(self._next, number + 1)
            params = dict(asked.params)
            seed = params.pop(SEED)
            self._running[number] = asked
            self.num_asked += 1
            trials.append(Trial(number, params, seed))
        return trials

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
        for name, value in _remarks(record).items():
            trial.set_user_attr(name, value)
        state, value = _outcome(record)
        self._study.tell(trial, value, state=state)

    def _find(self, number: int) -> optuna.Trial:
        if number not in self._running:
            raise ValueError(f"trial {number} is not running: never asked for, or told already")
        return self._running[number]

    def _frozen(self, record: Record) -> optuna.trial.FrozenTrial:
        state, value = _outcome(record)
        return optuna.trial.create_trial(
            state=state,
            value=value,
            params={**record.point, SEED: record.seed},
            distributions=self._distributions,
            user_attrs=_remarks(record),
        )


def _remarks(record: Record) -> dict[str, str | int]:
    return {"verdict": record.verdict.label, "reason": record.reason, "steps": record.steps}


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
    if LIMITS[axis.name].integer:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.scale == "log")
    return FloatDistribution(axis.low, axis.high, log=axis.scale == "log")
