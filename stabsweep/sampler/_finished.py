"""What a study's finished trials say of the edge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from stabsweep.chart import Chart, Sample
from stabsweep.records import SEED, VERDICTS, Array, Verdict

NEAR = 0.25
"""Rows within this part of every axis say whether a stall is too slow or collapsed."""

ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


@dataclass
class Finished:
    """Finished trials as columns, in the order in which they were taken in.

    A trial of ours carries its verdict. Of a stranger's study, one that completed with a finite
    value has held; any other has failed.

    Attributes:
        chart: where points lie.
        points: axis -> value.
        seeds: seed, or None.
        held: whether the trial was stable, stalls included.
        stalled: whether only its neighbours can say so.
        losses: final loss; infinite when it did not hold.
    """

    chart: Chart
    points: list[Mapping[str, Any]] = field(default_factory=list)
    seeds: list[Any] = field(default_factory=list)
    held: list[bool] = field(default_factory=list)
    stalled: list[bool] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    _z: list[Array] = field(default_factory=list)
    _c: list[Array] = field(default_factory=list)

    def take(self, trials: Sequence[FrozenTrial]) -> list[tuple[Mapping[str, Any], Any]]:
        """Takes in trials that say something of their learning rate; their points and seeds."""
        names = list(self.chart.space.axes)
        known = [t for t in trials if all(n in t.params for n in names) and _is_judged(t)]
        if not known:
            return []
        points = [{name: trial.params[name] for name in names} for trial in known]
        z, c = self.chart.place(points)
        self._z.append(z)
        self._c.append(c)
        self.points += points
        for trial in known:
            verdict = _verdict(trial)
            held = _held(trial) if verdict is None else verdict.is_stable
            value = trial.value if held and trial.state is TrialState.COMPLETE else None
            self.seeds.append(trial.params.get(SEED))
            self.held.append(held)
            self.stalled.append(verdict is Verdict.TOO_SLOW)
            self.losses.append(math.inf if value is None else value)
        return list(zip(points, self.seeds[-len(points) :], strict=True))

    def sample(self) -> Sample | None:
        """The verdicts, each stall read by its neighbours; None before the first.

        A stall above a rate that learned or failed close by has collapsed, unless the rates above
        it learn better than those below, as `region` reads it.
        """
        if not self.points:
            return None
        x = self.chart.heights(self.points)
        z, c = np.concatenate(self._z), np.concatenate(self._c)
        failed, stalled, losses = (
            ~np.array(self.held),
            np.array(self.stalled),
            np.array(self.losses),
        )
        for k in np.flatnonzero(stalled):
            near = (c == c[k]) & ~stalled
            near[near] = (np.abs(z[near] - z[k]) <= NEAR).all(1)
            lower, higher = near & (x < x[k]), near & (x > x[k])
            top = x[higher & failed].min(initial=math.inf)
            above = losses[higher & (x < top)].min(initial=math.inf)
            best = losses[lower].min(initial=math.inf)
            failed[k] = lower.any() and not above < best < math.inf
        return Sample(x, z, c, failed)


def _verdict(trial: FrozenTrial) -> Verdict | None:
    return VERDICTS.get(trial.user_attrs.get("verdict"))  # type: ignore[arg-type]


def _is_judged(trial: FrozenTrial) -> bool:
    verdict = _verdict(trial)
    return verdict is None or verdict.is_judged


def _held(trial: FrozenTrial) -> bool:
    value = trial.value if trial.state is TrialState.COMPLETE else None
    return value is not None and math.isfinite(value)
