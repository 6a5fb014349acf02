"""Which layer ran away first, and in what: its gradient, its weights or its output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stabsweep.guard.cause import GROWTH
from stabsweep.records import Array

WINDOW = 5
"""Steps whose median is a level. Ours: one batch is no level."""

KINDS = ("gradient", "weights", "output")
"""What is looked at: the norm of the gradient before clipping, that of the weights, and the largest
magnitude of what a layer hands on."""


@dataclass(frozen=True)
class Runaway:
    """How far one quantity of one layer grew.

    Attributes:
        layer: the module that owns the parameters.
        kind: one of `KINDS`.
        low: its level before: the lowest median of five steps until then.
        high: its largest finite value since it ran away, or of all steps.
        high_step: where that was.
        factor: the largest value over the level before it; infinite for what was not finite.
        step: since when it was more than ten times the level; None where it never was.
        back_step: where it was no longer so; None where it stayed away.
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

    A quantity has run away while it is more than ten times its level before. Read is the time
    around its largest value, so that what came back in between, as a gradient does that one hard
    batch throws up, is no beginning. It misleads where all run away within a step or two: then the
    first is the one that grew most, and no cause. And it knows nothing of a layer that was never
    called.

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
    level = _levels(values)
    # Before the first level nothing can have grown, unless it was not finite at once.
    factor = np.where(np.isinf(values), np.inf, np.nan_to_num(values / level, nan=0.0))
    peak = int(np.argmax(factor))
    if not factor[peak] > 0:
        return None
    calm = np.flatnonzero(factor <= GROWTH)
    before, after = calm[calm < peak], calm[calm > peak]
    first = int(before[-1]) + 1 if len(before) else 0
    away = np.where(np.isfinite(values), values, -1.0)[first : after[0] if len(after) else None]
    is_away = factor[peak] > GROWTH
    high = (
        (first + int(away.argmax()) if away.max() >= 0 else max(first - 1, 0)) if is_away else peak
    )
    return Runaway(
        layer,
        kind,
        float(level[first if is_away else peak]),
        float(values[high]),
        int(steps[high]),
        float(factor[peak]),
        int(steps[first]) if is_away else None,
        int(steps[after[0]]) if is_away and len(after) else None,
        float(factor[first]) if is_away else math.nan,
    )


def _levels(values: Array) -> Array:
    """(T,) the level before each step: NaN while there is none."""
    level, lowest = np.full(len(values), math.nan), math.inf
    for step in range(1, len(values)):
        last = values[max(step - WINDOW, 0) : step]
        last = last[np.isfinite(last)]
        median = float(np.median(last)) if len(last) else 0.0
        # A layer that gets nothing yet, as behind one that starts at zero, has no level.
        lowest = min(lowest, median) if median > 0 else lowest
        level[step] = lowest if math.isfinite(lowest) else math.nan
    return level
