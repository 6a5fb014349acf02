"""Samplers of whole points, and those that lay all of them out beforehand."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from stabsweep.errors import unknown
from stabsweep.records import SEED, Point


class WholePoints(optuna.samplers.BaseSampler):
    """What an Optuna sampler needs that gives a trial all of its parameters at once, seed included.

    Attributes:
        num_trials: trials that it hands out in all.
        index: number of the trial that the last ask was given. Optuna's `trial.number` shifts when
            a study is resumed; this does not.
    """

    num_trials: int
    index: int = -1

    def __init__(self) -> None:
        self._running: dict[int, dict[str, Any]] = {}

    @abstractmethod
    def draw(self, study: optuna.Study | None) -> tuple[int, Point, int] | None:
        """The next trial's number, point and seed; None when all have been handed out."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters at once: those that `ask` was given as fixed distributions."""
        return {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Gives the trial its point.

        Raises:
            StopIteration: all are handed out; ask no more than `num_trials` times.
        """
        entry = self.draw(study)
        if entry is None:
            raise StopIteration(f"all {self.num_trials} trials are handed out")
        self.index, point, seed = entry
        self._running[trial.number] = {**point, SEED: seed}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: Mapping[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Nothing: every parameter is sampled on its own, from the trial's point."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one parameter of the trial's own point, however many were asked since.

        Raises:
            BadInput: the parameter is no axis.
        """
        point = self._running[trial.number]
        if param_name not in point:
            raise unknown("parameter", param_name, point)
        return point[param_name]

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Forgets that the trial runs."""
        self._running.pop(trial.number, None)


class DesignSampler(WholePoints):
    """An Optuna sampler that hands out a fixed list of (point, seed), one an ask.

    Optuna's own grid sampler searches all finished trials at every tell and stops the study when
    it is through; this one does neither, so it fits ask/tell and cohorts.

    Args:
        design: the trials in the order in which they are handed out: (index, point, seed). An
            index names its trial for ever, whatever the order.
        done: indices that are not handed out again.
    """

    def __init__(
        self, design: Sequence[tuple[int, Point, int]], done: Collection[int] = ()
    ) -> None:
        super().__init__()
        self.num_trials = len(design)
        known = set(done)
        self._todo: Iterator[tuple[int, Point, int]] = iter(
            [entry for entry in design if entry[0] not in known]
        )

    def draw(self, study: optuna.Study | None) -> tuple[int, Point, int] | None:
        """The next entry of the design."""
        return next(self._todo, None)


def spread(points: Sequence[Point], seeds: Sequence[int]) -> list[tuple[int, Point, int]]:
    """Every point with every seed, a whole design a seed: what is cut short is still a map.

    The index counts points within seeds: point p with the s-th seed is p * len(seeds) + s.
    """
    return [
        (p * len(seeds) + s, point, seed)
        for s, seed in enumerate(seeds)
        for p, point in enumerate(points)
    ]
