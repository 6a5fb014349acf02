"""Whether a training that is repeated is the same one: where two curves part, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabsweep.growth import find_growth
from stabsweep.numerals import plural, rate
from stabsweep.records import Array


@dataclass(frozen=True)
class Agreement:
    """How far two curves of one trial agree.

    Attributes:
        num_steps: that both have.
        parts_at: the first step at which they differ by more than rounding; None where they agree.
        largest: the largest relative difference before it.
        sentence: the same for a reader.
    """

    num_steps: int
    parts_at: int | None
    largest: float
    sentence: str


def find_agreement(now: Array, then: Array, tolerance: float) -> Agreement:
    """How far a repeated curve agrees with the one that was kept.

    Differences are relative to the larger of the two values, or to `tolerance` times the first one
    where that is more: a loss that has come down to its rounding is not taken for another one.

    Args:
        now: (T,) the losses of this time.
        then: (S,) those of the first time.
        tolerance: relative difference up to which they are the same.
    """
    num_steps = min(len(now), len(then))
    a, b = (np.asarray(x[:num_steps], np.float64) for x in (now, then))
    is_alike = np.isfinite(a) == np.isfinite(b)
    scale = np.maximum(np.abs(a), np.abs(b))
    scale = np.maximum(scale, tolerance * np.nanmax(scale[:1], initial=0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = np.where(np.isfinite(a) & np.isfinite(b) & (a != b), np.abs(a - b) / scale, 0.0)
    differs = np.flatnonzero(~is_alike | (apart > tolerance))
    parts_at = int(differs[0]) if len(differs) else None
    same = apart[:parts_at]
    largest = float(same.max()) if len(same) else 0.0
    return Agreement(num_steps, parts_at, largest, _sentence(a, b, parts_at, same, tolerance))


def _sentence(a: Array, b: Array, parts_at: int | None, same: Array, tolerance: float) -> str:
    largest = float(same.max()) if len(same) else 0.0
    if parts_at is None:
        steps = f"all {plural(len(a), 'step')}" if len(a) > 1 else "its one step"
        if not largest:
            return f"The loss is that of the sweep to the last digit, over {steps}."
        at = int(same.argmax())
        return (
            f"The loss is that of the sweep over {steps}, to rounding: at most {rate(largest)} "
            f"of it apart (step {at})."
        )
    now, then = (
        rate(float(x[parts_at]), digits=4) if math.isfinite(x[parts_at]) else "not finite"
        for x in (a, b)
    )
    what = f"the loss is {now}, in the sweep it was {then}"
    if parts_at == 0:
        return (
            f"At step 0 {what}. That is no rounding: another machine, other versions (stabsweep "
            "env diff), or the model or its data have changed."
        )
    doubling = find_growth(a[:parts_at], b[:parts_at]).doubling_steps
    how = f"doubled every {rate(doubling)} steps" if doubling else "grew"
    return (
        f"The loss is that of the sweep up to step {parts_at - 1}, to {rate(tolerance)} of it; at "
        f"step {parts_at} {what}. Rounding that {how} has carried them apart."
    )
