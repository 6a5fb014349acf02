"""Whether the edge moves with the length of the run: read from the same trials, cut short."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stabsweep.numerals import rate
from stabsweep.records import Array, Point, Record
from stabsweep.region import Row, are_scattered, find_region
from stabsweep.space import Space
from stabsweep.verdict import judge

SHARES = (0.25, 0.5, 1.0)
"""Parts of the horizon at which the edge is read."""

LEAST_DECADES = 0.1
"""A move below this between half and whole horizon is none. Ours: a rough zone is as wide."""


@dataclass(frozen=True)
class Drift:
    """The edge of one row at parts of the horizon.

    It misleads under a rate that decays: the first part of such a run has the highest rates.

    Attributes:
        edges: steps -> learning rate of the edge, ascending, where it was met.
        decades: log10 of the edge at the whole horizon over that at half of it.
        is_moving: whether that is a move: larger than `LEAST_DECADES`, and one edge outside of the
            other's interval.
    """

    edges: Mapping[int, float]
    decades: float
    is_moving: bool

    @property
    def _turns(self) -> bool:
        """Whether it first moved the other way, so that there is no slope to speak of."""
        lrs = list(self.edges.values())
        before = math.log10(lrs[-2] / lrs[0]) if len(lrs) > 2 else 0.0
        return abs(before) > LEAST_DECADES and before * self.decades < 0

    def __str__(self) -> str:
        path = ", ".join(f"{rate(lr)} at {steps} steps" for steps, lr in self.edges.items())
        if self._turns:
            return f"The edge moves up and down with the length of the run: {path}."
        word = "falls" if self.decades < 0 else "rises"
        size = f"{abs(self.decades):.2g}"
        return f"The edge {word} with the length of the run, by {size} decades a doubling: {path}."


def find_drift(
    space: Space,
    records: Sequence[Record],
    values: Point,
    load: Callable[[Record], Array | None],
    warmup_steps: int = 0,
) -> Drift | None:
    """How the edge of a row moves with the horizon; None when that cannot be said.

    Args:
        space: what was swept.
        records: of the sweep, all rows.
        values: the row: axis -> value.
        load: gives a record's curves, None when they were not kept.
        warmup_steps: of trials whose space has no such axis.
    """
    horizon = max((record.horizon for record in records), default=0)
    if not are_scattered(space, records):
        # Where rates are scattered, few of them lie near the edge of a shorter run, and the other
        # rows lend this one their strength; on a grid each row is known by its own trials.
        records = [r for r in records if all(r.point[axis] == values[axis] for axis in values)]
    lengths = [max(round(horizon * share), 1) for share in SHARES]
    cuts = [_cut(record, lengths, load, warmup_steps) for record in records]
    rows: dict[int, Row] = {}
    for steps, cut in zip(lengths, zip(*cuts, strict=True), strict=False):
        for row in find_region(space, cut).rows:
            if row.values == values:
                rows[steps] = row
    met = {steps: row.edge for steps, row in rows.items() if row.edge.lr is not None}
    if horizon not in met or round(horizon / 2) not in met:
        return None
    before, after = met[round(horizon / 2)], met[horizon]
    assert before.lr and after.lr and after.low and after.high
    decades = math.log10(after.lr / before.lr)
    is_apart = not after.low <= before.lr <= after.high
    edges = {steps: edge.lr for steps, edge in met.items() if edge.lr is not None}
    return Drift(edges, decades, abs(decades) > LEAST_DECADES and is_apart)


def _cut(
    record: Record,
    lengths: Sequence[int],
    load: Callable[[Record], Array | None],
    warmup_steps: int,
) -> list[Record]:
    """The record as it would stand after fewer steps; one that had ended before has ended."""
    curves = load(record) if record.steps > min(lengths) else None
    if curves is None:
        return [record] * len(lengths)
    warmup = record.point.get("warmup_steps", warmup_steps) or 0
    trace = record.with_curves(curves, int(warmup))
    return [
        replace(record, **judge(trace.truncated(steps)).as_fields())
        if record.steps > steps
        else record
        for steps in lengths
    ]
