"""Edges of rows whose learning rates are scattered: read from one surface through all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from stabsweep.chart import Chart, Sample
from stabsweep.edge import SAFE, Edge
from stabsweep.pocket import find_pockets
from stabsweep.records import Array, Point, Record
from stabsweep.space import Space
from stabsweep.surface import ROUGH, fit

SEARCHED = 400
"""Verdicts that the shape of the surface is searched with at most: a live view looks once a second,
and more of them hardly change it."""

Z_INTERVAL, Z_SAFE = special.ndtri([0.975, SAFE])
"""Normal quantiles of a 95 % interval, and of the safe edge."""


def scattered_edges(
    space: Space, records: Sequence[Record], rows: Sequence[Point], bins: dict[str, float]
) -> list[Edge | None]:
    """The edge of each row by the verdicts of all; None where all rates lie on one side of it.

    It lends each row the strength of the others, which `find_edge` does not. Seeds are noise here:
    they widen the edge, and so lower the safe edge.

    Args:
        space: what was swept.
        records: judged trials, stalls settled.
        rows: the rows' values.
        bins: axis that is cut into bins -> width of a bin as a share of the axis. In a bin the edge
            is that of its middle, and the safe edge the lowest of middle and ends.
    """
    held = np.array([record.verdict.is_stable for record in records], bool)
    if not len(held) or held.all() or not held.any():
        return [None] * len(rows)
    chart = Chart(space)
    points = [record.point for record in records]
    sample = Sample(chart.heights(points), *chart.place(points), ~held)
    number, center = len(chart.categories), chart.center
    thin = np.arange(len(held)) % math.ceil(len(held) / SEARCHED) > 0
    shape = fit(sample.without(thin), number, center).shape
    surface = fit(sample, number, center, shape, search=False)
    claimed = find_pockets(sample, surface).claimed
    if claimed.any():
        surface = fit(sample.without(claimed), number, center, shape, search=False)
    z, category = chart.place(rows)
    mean, deviation = surface.at(z, category)
    deviation = np.maximum(deviation, ROUGH)
    safe = np.full(len(rows), np.inf)
    for places in _corners(chart, z, bins):
        edge, spread = surface.at(places, category)
        spread = np.hypot(np.maximum(spread, ROUGH), surface.shape.width)
        safe = np.minimum(safe, edge - Z_SAFE * spread)
    low, high = mean - Z_INTERVAL * deviation, mean + Z_INTERVAL * deviation
    inside = (mean > sample.x.min()) & (mean < sample.x.max())
    found = zip(inside, mean, low, high, safe, strict=True)
    return [
        Edge("found", *(float(10.0**x) for x in numbers)) if known else None
        for known, *numbers in found
    ]


def _corners(chart: Chart, z: Array, bins: dict[str, float]) -> list[Array]:
    """The middles of all rows, and their corners where an axis is cut into bins."""
    sides = [
        (0.0, -bins[axis.name] / 2, bins[axis.name] / 2) if axis.name in bins else (0.0,)
        for axis in chart.numeric
    ]
    return [(z + np.array(step)).clip(0, 1) for step in itertools.product(*sides)]
