"""How a difference of two trainings grows from step to step: its doubling time, and its end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stabsweep.records import Array

WINDOW = 5
"""Steps over which the largest difference counts. Ours: two losses that drift apart cross, and
where they do their difference says nothing."""

LEAST_FACTOR = 10.0
"""Growth below this is none. Ours: from step to step a difference changes by factors of two to
four, and a loss that falls takes its differences with it."""

LEAST_POINTS = 10
"""Steps with a difference that a fit needs."""

NUM_CORNERS = 48
"""Steps at which a corner may lie, at most; finer than that differences do not tell."""


@dataclass(frozen=True)
class Growth:
    """What the difference of two curves did.

    The fit is a level, a straight rise of the logarithm, and a level, either of which may be
    absent. It misleads where a difference jumps: a ReLU that rounding switches on in one of two
    trainings moves them apart at once, and no rate of growth is meant by it.

    Attributes:
        first_step: the first at which the curves differ; None where they never do.
        largest: the largest difference; infinite where only one of them stayed finite.
        doubling_steps: steps in which it doubles while it grows; None where it does not grow.
        corners: (step, difference) at both ends of the growth; of the fit where it does not grow.
        is_saturated: whether the growth ends before the curves do.
    """

    first_step: int | None
    largest: float
    doubling_steps: float | None = None
    corners: tuple[tuple[float, float], ...] = ()
    is_saturated: bool = False


def find_growth(a: Array, b: Array) -> Growth:
    """How far apart two curves drift.

    Args:
        a: (T,), one of the two.
        b: (T,), the other.
    """
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    both = np.isfinite(a) & np.isfinite(b)
    alike = (np.asarray(a) == np.asarray(b)) | (np.isnan(a) & np.isnan(b))
    if alike.all():
        return Growth(None, 0.0)
    first = int(np.flatnonzero(~alike)[0])
    if not both.all():
        stop = int(np.flatnonzero(~both)[0])
        grown = _fit(envelope(apart[:stop]))
        one_sided = bool((np.isfinite(a) != np.isfinite(b)).any())
        finite = apart[:stop]
        largest = math.inf if one_sided else float(finite.max()) if stop else 0.0
        return Growth(first, largest, *grown)
    return Growth(first, float(apart.max()), *_fit(envelope(apart)))


def envelope(apart: Array) -> Array:
    """The largest difference of the last `WINDOW` steps, (T,)."""
    if not len(apart):
        return apart
    padded = np.concatenate([np.full(WINDOW - 1, apart[0]), apart])
    return np.lib.stride_tricks.sliding_window_view(padded, WINDOW).max(1)


def _fit(level: Array) -> tuple[float | None, tuple[tuple[float, float], ...], bool]:
    """The doubling time, the corners and whether it saturates, by least squares of the logarithm.

    Both corners are searched for; between them the best two levels are those of a line.
    """
    steps = np.flatnonzero(level > 0)
    if len(steps) < LEAST_POINTS:
        return None, (), False
    logs = np.log10(level[steps])
    first, last = int(steps[0]), int(steps[-1])
    grid = np.unique(np.linspace(first, last, NUM_CORNERS).round())
    starts, ends = (x.ravel() for x in np.meshgrid(grid, grid, indexing="ij"))
    wide = ends - starts >= min(WINDOW, last - first)
    starts, ends = starts[wide], ends[wide]
    ramp = np.clip((steps - starts[:, None]) / (ends - starts)[:, None], 0, 1)
    centred = ramp - ramp.mean(1, keepdims=True)
    spread = np.maximum((centred**2).sum(1), 1e-12)
    rise = centred @ (logs - logs.mean()) / spread
    error = ((logs - logs.mean() - rise[:, None] * centred) ** 2).sum(1)
    best = int(error.argmin())
    low = float(logs.mean() - rise[best] * ramp[best].mean())
    high, start, end = low + float(rise[best]), float(starts[best]), float(ends[best])
    corners = ((start, 10**low), (end, 10**high))
    if high - low < math.log10(LEAST_FACTOR):
        return None, corners, False
    is_saturated = end < last - max(WINDOW, 0.1 * (last - first))
    return (end - start) * math.log10(2) / (high - low), corners, is_saturated
