"""Which layer ran away first, and in what: its gradient, its weights or its output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stabsweep.guard.cause import GROWTH
from stabsweep.records import Array

WINDOW = 64
"""Steps whose median is a level, as for the early warnings: what grows while it learns, as the
output of a classifier does, takes its level with it."""

KINDS = ("gradient", "weights", "output")
"""What is looked at: the norm of the gradient before clipping, that of the weights, and the largest
magnitude of what a layer hands on."""


@dataclass(frozen=True)
class Runaway:
    """How far one quantity of one layer grew.

    Attributes:
        layer: the module that owns the parameters.
        kind: one of `KINDS`.
        low: its level before it grew.
        high: its largest finite value while it was away, or where it had grown most.
        high_step: where that was.
        factor: its largest value over that level; infinite for what was not finite.
        step: since when it was more than ten times its level; None where it never was.
        back_step: where it was back below that; None where it stayed away.
        begins: its value at `step` over the level.
    """

    layer: str
    kind: str
    low: float
    high: float
    high_step: int
    factor: float
    step: int | None = None
    back_step: int | None = None
    begins: float = math.nan

    @property
    def name(self) -> str:
        """What it is, for a reader: `the gradient of hidden.1`."""
        return f"the {self.kind} of {self.layer or 'the model'}"


def find_runaways(tables: Mapping[str, Array]) -> list[Runaway]:
    """All quantities of all layers: those that ran away, the first of them first, then by growth.

    The level is the median of the last steps. A quantity has run away when it is more than ten
    times its level, and is back when it is no more so; of several times the one counts in which it
    grew most, so that one hard batch is no beginning. It misleads where all run away within a step
    or two: then the first is the one that grew most, and no cause. And it knows nothing of a layer
    that was never called.

    Args:
        tables: layer -> (T, 3), a row a step, in the order of `KINDS`; NaN where nothing was seen,
            infinite for what was not finite.
    """
    found = [
        _runaway(layer, kind, np.asarray(values, np.float64))
        for layer, table in tables.items()
        for kind, values in zip(KINDS, table.T, strict=True)
    ]
    known = [runaway for runaway in found if runaway is not None]
    is_away = [runaway for runaway in known if runaway.step is not None]
    others = [runaway for runaway in known if runaway.step is None]
    return [
        *sorted(is_away, key=lambda runaway: (runaway.step, -runaway.begins)),
        *sorted(others, key=lambda runaway: -runaway.factor),
    ]


def _runaway(layer: str, kind: str, seen: Array) -> Runaway | None:
    """One quantity; None for one that was never seen, or never had a level to grow from."""
    steps = np.flatnonzero(~np.isnan(seen))
    values = seen[steps]
    if not len(values):
        return None
    level, factor, away = _read(values)
    peak = int(np.argmax(factor))
    if not factor[peak] > 0:
        return None
    first, stop = peak, None
    if is_away := bool(away[peak]):
        calm = np.flatnonzero(~away)
        first = int(calm[calm < peak].max(initial=-1)) + 1
        stop = int(calm[calm > peak].min(initial=len(values)))
    part = (
        np.where(np.isfinite(values), values, -math.inf)[first:stop] if is_away else values[[peak]]
    )
    # What was not finite at once has its last finite value before.
    high = first + int(part.argmax()) if part.max() > -math.inf else max(first - 1, 0)
    return Runaway(
        layer,
        kind,
        float(level[first]),
        float(values[high]),
        int(steps[high]),
        float(factor[peak]),
        int(steps[first]) if is_away else None,
        int(steps[stop]) if stop is not None and stop < len(values) else None,
        float(factor[first]) if is_away else math.nan,
    )


def _read(values: Array) -> tuple[Array, Array, Array]:
    """(T,) the level before each step, each value over it, and whether it had run away.

    While it is away its level is that which it had before.
    """
    level, factor = np.full(len(values), math.nan), np.zeros(len(values))
    away = np.zeros(len(values), bool)
    for step, value in enumerate(values):
        if step and away[step - 1]:
            level[step] = level[step - 1]
        else:
            last = values[max(step - WINDOW, 0) : step]
            # A layer that gets nothing yet, as behind one that starts at zero, has no level.
            last = last[np.isfinite(last) & (last > 0)]
            level[step] = float(np.median(last)) if len(last) else math.nan
        if math.isinf(value):
            factor[step] = math.inf
        elif not math.isnan(level[step]):
            factor[step] = value / level[step]
        away[step] = factor[step] > GROWTH
    return level, factor, away
