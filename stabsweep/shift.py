"""How the edges of two regions differ, row by row: moved, or not to be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from stabsweep.edge import Edge
from stabsweep.errors import BadInput
from stabsweep.records import Point, Value
from stabsweep.region import Region, Row

MOVED, SAME, NOT_JUDGED = "moved", "not distinguishable", "not judged"
NOT_MET = {(False, True): "not met in A", (True, False): "not met in B"}
NEITHER, ONLY_A, ONLY_B = "not met in either", "only in A", "only in B"


@dataclass(frozen=True)
class Shift:
    """One row in both regions.

    Attributes:
        values: row axis -> value.
        a, b: the row in each region; None where it was not swept.
    """

    values: Point
    a: Row | None
    b: Row | None

    @property
    def says(self) -> str:
        """What is known of the edge, in a word or two.

        `moved`: the 95 % intervals share nothing, which is stricter than a test at 5 % (two equal
        intervals that touch are 2.8 standard errors apart). An edge that was not met has an
        interval with one open end. `not distinguishable` is no proof that the edges are equal:
        the intervals may be wide.
        """
        if self.a is None or self.b is None:
            return ONLY_B if self.a is None else ONLY_A
        first, second = self.a.edge, self.b.edge
        if "unknown" in (first.status, second.status):
            return NOT_JUDGED
        (low_a, high_a), (low_b, high_b) = _interval(first), _interval(second)
        if high_a < low_b or high_b < low_a:
            return MOVED
        met = (first.status == "found", second.status == "found")
        return SAME if all(met) else NOT_MET.get(met, NEITHER)

    @property
    def decades(self) -> float | None:
        """How far the edge moved, as log10(B / A); None unless both were met."""
        if self.a is None or self.b is None:
            return None
        return _decades(self.a.edge.lr, self.b.edge.lr)

    @property
    def least_decades(self) -> float | None:
        """How far it moved at least, when it moved and one of the two was not met."""
        if self.decades is not None or self.says != MOVED:
            return None
        assert self.a is not None and self.b is not None
        first, second = self.a.edge, self.b.edge
        if _interval(first)[1] < _interval(second)[0]:
            return _decades(first.lr or first.high, second.lr or second.low)
        return _decades(first.lr or first.low, second.lr or second.high)

    @property
    def usable_decades(self) -> float | None:
        """How far the usable edge moved, as log10(B / A); None where a row learned nothing."""
        if self.a is None or self.b is None:
            return None
        return _decades(self.a.usable_lr, self.b.usable_lr)

    @property
    def is_decided(self) -> bool:
        """Whether the row says something of a difference: that there is one, or none to be seen."""
        return self.says in (MOVED, SAME)


def find_shifts(a: Region, b: Region) -> list[Shift]:
    """The rows of two regions side by side, in A's order; those of B alone come last.

    Rows belong together when their values agree to nine digits.

    Raises:
        BadInput: the regions have other row axes.
    """
    names = [axis.name for axis in a.space.row_axes]
    others = [axis.name for axis in b.space.row_axes]
    if set(names) != set(others):
        listed = [", ".join(["lr", *axes]) for axes in (names, others)]
        raise BadInput(
            f"A sweeps {listed[0]} and B sweeps {listed[1]}: only sweeps of the same axes can be "
            "compared; give both the same space="
        )
    found = {_key(names, row): row for row in b.rows}
    shifts = [Shift(row.values, row, found.pop(_key(names, row), None)) for row in a.rows]
    return shifts + [Shift({n: row.values[n] for n in names}, None, row) for row in found.values()]


def _key(names: Iterable[str], row: Row) -> tuple[Value, ...]:
    values = (row.values[name] for name in names)
    return tuple(float(f"{v:.9g}") if isinstance(v, int | float) else v for v in values)


def _interval(edge: Edge) -> tuple[float, float]:
    """Where the edge lies by 95 %: half-open when it was not met."""
    low = edge.low if edge.low is not None else 0.0
    return low, edge.high if edge.high is not None else math.inf


def _decades(first: float | None, second: float | None) -> float | None:
    return math.log10(second / first) if first and second else None
