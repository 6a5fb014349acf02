"""Coordinates for a space, in which an edge can be a function: numbers, and categories."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stabsweep.records import Array, Point, Value
from stabsweep.space import Axis, Space


@dataclass(frozen=True)
class Chart:
    """Coordinates of a space: numeric axes as numbers in [0, 1], everything else as a category.

    An axis of names, of switches, or with "off" among its values is categorical.

    Attributes:
        space: the space; the learning rate is the height over the chart.
        numeric: the axes that are coordinates.
        categories: value combinations of the other axes -> number.
    """

    space: Space
    numeric: tuple[Axis, ...] = field(init=False)
    categories: Mapping[tuple[Value, ...], int] = field(init=False)

    def __post_init__(self) -> None:
        numeric = tuple(axis for axis in self.space.row_axes if _is_coordinate(axis))
        others = [axis.values for axis in self.space.row_axes if axis not in numeric]
        numbers = {values: k for k, values in enumerate(itertools.product(*others))}
        object.__setattr__(self, "numeric", numeric)
        object.__setattr__(self, "categories", numbers)

    def place(self, points: Sequence[Mapping[str, Any]]) -> tuple[Array, Array]:
        """Coordinates (n, D) and categories (n,) of points."""
        z = [[_share(axis, point[axis.name]) for axis in self.numeric] for point in points]
        others = [axis.name for axis in self.space.row_axes if axis not in self.numeric]
        c = [self.categories[tuple(point[name] for name in others)] for point in points]
        return np.array(z, float).reshape(len(points), len(self.numeric)), np.array(c, int)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """log10 of the lowest and the highest learning rate."""
        axis = self.space.axes["lr"]
        rates = [float(v) for v in axis.values or (axis.low, axis.high)]  # type: ignore[arg-type]
        return math.log10(min(rates)), math.log10(max(rates))

    @property
    def center(self) -> float:
        """log10 of the middle of the range of rates."""
        return sum(self.ends) / 2

    def heights(self, points: Sequence[Mapping[str, Any]]) -> Array:
        """log10 of the points' learning rates, (n,)."""
        return np.log10([float(point["lr"]) for point in points])

    def points(self, x: Array, z: Array, category: Array) -> list[Point]:
        """The points of the space nearest to heights x and places (z, category)."""
        combinations = list(self.categories)
        names = [axis.name for axis in self.space.row_axes if axis not in self.numeric]
        points = []
        for height, shares, c in zip(x, z, category, strict=True):
            row = dict(zip(names, combinations[c], strict=True))
            for axis, share in zip(self.numeric, shares, strict=True):
                row[axis.name] = axis.at(float(share))
            points.append(self.with_rate(row, height))
        return points

    def with_rate(self, row: Point, x: float) -> Point:
        """A row with the rate of the space that is nearest to 10^x."""
        axis, (low, high) = self.space.axes["lr"], self.ends
        if axis.values:
            rate = min(axis.values, key=lambda v: abs(math.log10(float(v)) - x))  # type: ignore[arg-type]
        else:
            rate = axis.at(min(max(axis.share(10.0 ** min(max(x, low), high)), 0.0), 1.0))
        return {name: rate if name == "lr" else row[name] for name in self.space.axes}

    def rows(self, num_rows: int) -> list[Point]:
        """At least about `num_rows` rows: every listed value, and a lattice of ranges."""
        ranges = [axis for axis in self.space.row_axes if not axis.values]
        listed = math.prod(len(axis.values) for axis in self.space.row_axes if axis.values)
        each = max(int((num_rows / listed) ** (1 / max(len(ranges), 1))), 3)
        columns = [axis.grid(each) for axis in self.space.row_axes]
        names = [axis.name for axis in self.space.row_axes]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*columns)]


def _is_coordinate(axis: Axis) -> bool:
    return axis.is_numeric and None not in axis.values


def _share(axis: Axis, value: Value) -> float:
    assert isinstance(value, int | float)
    if not axis.values:
        return axis.share(float(value))
    low, high = float(axis.values[0]), float(axis.values[-1])  # type: ignore[arg-type]
    if high <= low:
        return 0.5
    if low > 0 and axis.scale == "log":
        return math.log(value / low) / math.log(high / low)
    return (value - low) / (high - low)


@dataclass(frozen=True)
class Sample:
    """Scattered verdicts.

    Attributes:
        x: (n,) log10 of the learning rates.
        z, category: (n, D) and (n,) places on the chart.
        failed: (n,) verdicts.
    """

    x: Array
    z: Array
    category: Array
    failed: Array

    def without(self, left_out: Array) -> Sample:
        """The sample without some of its verdicts, (n,)."""
        kept = ~left_out
        return Sample(self.x[kept], self.z[kept], self.category[kept], self.failed[kept])
