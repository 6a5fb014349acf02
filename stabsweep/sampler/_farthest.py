"""Trials that look where nobody has looked: for pockets, and for what was not expected."""

from __future__ import annotations

import numpy as np

from stabsweep.chart import Chart, Sample
from stabsweep.records import Array
from stabsweep.surface import Surface

NUM_CANDIDATES = 256
"""Points that are chosen from."""

BELOW = 0.6
"""Weight of a distance below the edge, where failures are rare, to one above it."""


def farthest(
    chart: Chart,
    surface: Surface,
    tried: Sample,
    shares: Array,
    number: int,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """The points farthest from all others, outside of the band where the edge may be.

    Args:
        chart: where points lie.
        surface: what is known of the edge.
        tried: what was tried or is running; its verdicts are not looked at.
        shares: (n, 1 + D) evenly spread shares of the rates and of each axis: the candidates.
        number: how many.
        rng: for the candidates' categories.

    Returns:
        log10 rates, coordinates and categories.
    """
    length = chart.ends[1] - chart.ends[0] or 1.0
    x, z = chart.ends[0] + shares[:, 0] * length, shares[:, 1:]
    category = rng.integers(len(chart.categories), size=len(x))
    mean, deviation = surface.at(z, category)
    weight = np.where(x > mean, 1.0, BELOW) * (np.abs(x - mean) > 3 * deviation)
    nearest = np.full(len(x), np.inf)
    for k in np.unique(category):
        mine, theirs = category == k, tried.category == k
        if theirs.any():
            apart = ((x[mine, None] - tried.x[theirs]) / length) ** 2
            nearest[mine] = (apart + ((z[mine, None] - tried.z[theirs]) ** 2).sum(-1)).min(1)
    picks = []
    for _ in range(number):
        pick = int((np.minimum(nearest, 9.0) * weight**2).argmax())
        picks.append(pick)
        apart = ((x - x[pick]) / length) ** 2 + ((z - z[pick]) ** 2).sum(-1)
        nearest = np.where(category == category[pick], np.minimum(nearest, apart), nearest)
    return x[picks], z[picks], category[picks]
