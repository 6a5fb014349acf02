"""Design samplers: all points are laid out beforehand and handed out by their index."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from stabsweep.errors import unknown
from stabsweep.records import SEED, Point


class DesignSampler(optuna.samplers.BaseSampler):
    """An Optuna sampler that hands out a fixed list of (point, seed), one an ask.

    Optuna's own grid sampler searches all finished trials at every tell and stops the study when
    it is through; this one does neither, so it fits ask/tell and cohorts.

    Args:
        design: the trials in the order in which they are handed out: (index, point, seed). An
            index names its trial for ever, whatever the order.
        done: indices that are not handed out again.

    Attributes:
        num_trials: length of the whole design.
        index: entry that the last ask was given. Optuna's `trial.number` shifts when a study is
            resumed; this does not.
    """

    index: int = -1

    def __init__(
        self, design: Sequence[tuple[int, Point, int]], done: Collection[int] = ()
    ) -> None:
        self.num_trials = len(design)
        known = set(done)
        self._todo: Iterator[tuple[int, Point, int]] = iter(
            [entry for entry in design if entry[0] not in known]
        )
        self._running: dict[int, dict[str, Any]] = {}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All parameters at once: those that `ask` was given as fixed distributions."""
        return {}

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Gives the trial its entry of the design.

        Raises:
            StopIteration: the design is exhausted; ask no more than `num_trials` times.
        """
        entry = next(self._todo, None)
        if entry is None:
            raise StopIteration(f"all {self.num_trials} trials of the design are handed out")
        self.index, point, seed = entry
        self._running[trial.number] = {**point, SEED: seed}

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: Mapping[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Nothing: every parameter is sampled on its own, from the entry."""
        return {}

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """The value of one parameter in the trial's own entry, however many were asked since.

        Raises:
            BadInput: the parameter is no axis of the design.
        """
        entry = self._running[trial.number]
        if param_name not in entry:
            raise unknown("parameter", param_name, entry)
        return entry[param_name]

    def after_trial(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Forgets the trial's entry."""
        self._running.pop(trial.number, None)


def spread(points: Sequence[Point], seeds: Sequence[int]) -> list[tuple[int, Point, int]]:
    """Every point with every seed, a whole design a seed: what is cut short is still a map.

    The index counts points within seeds: point p with the s-th seed is p * len(seeds) + s.
    """
    return [
        (p * len(seeds) + s, point, seed)
        for s, seed in enumerate(seeds)
        for p, point in enumerate(points)
    ]
