"""Trials for the pick: the lowest losses that are clear of the edge, again and next to them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from stabsweep.records import Array, Point, Value
from stabsweep.sampler._finished import NEAR, Finished
from stabsweep.surface import Surface

NEXT = 0.15
"""Distance of a neighbour in its row, in decades."""

APART = 0.3
"""Distance in decades from all rates of another row at which a good rate is tried there too."""

CLEAR, SAFE_SIGMAS = 0.2, 1.645
"""A rate of interest lies below the safe edge (P(stable) = 0.95) by the usual margin of a pick."""


def clear_of_edge(finished: Finished, surface: Surface, z: Array, category: Array) -> Array:
    """Which finished trials learned at a rate that may be recommended, (n,).

    Args:
        finished: the trials.
        surface: the edge.
        z: (n, D) coordinates of the trials.
        category: (n,) categories of the trials.
    """
    x = finished.chart.heights(finished.points)
    return np.isfinite(finished.losses) & _is_below(surface, x, z, category)


def _is_below(surface: Surface, x: Array, z: Array, category: Array) -> Array:
    """Which rates may be recommended, as far as the edge is known."""
    edge, deviation = surface.at(z, category)
    return edge - x > SAFE_SIGMAS * np.hypot(deviation, surface.shape.width) + CLEAR


def ranked(finished: Finished, clear: Array) -> list[tuple[Value, ...]]:
    """The points of interest by their mean loss over the seeds, the lowest first."""
    losses: dict[tuple[Value, ...], list[float]] = defaultdict(list)
    for k in np.flatnonzero(clear):
        losses[tuple(finished.points[k].values())].append(finished.losses[k])
    return sorted(losses, key=lambda values: sum(losses[values]) / len(losses[values]))


def is_tried(
    finished: Finished, clear: Array, used: Mapping[tuple[Value, ...], set[int]], num_seeds: int
) -> bool:
    """Whether the point of lowest loss, or one next to it, has had every seed.

    The very lowest is often a new one that had luck with its only seed.

    Args:
        finished: the trials.
        clear: which of them may be recommended.
        used: point -> its seeds so far, those of trials that run included.
        num_seeds: seeds that a point should have.
    """
    order = ranked(finished, clear)
    tried = [values for values in order if len(used[values]) >= num_seeds]
    if not order or not tried:
        return not order
    names, chart = list(finished.chart.space.axes), finished.chart
    points = [dict(zip(names, values, strict=True)) for values in (order[0], *tried)]
    x, (z, category) = chart.heights(points), chart.place(points)
    is_near = (np.abs(x - x[0]) <= NEXT) & (np.abs(z - z[0]) <= NEAR).all(1)
    return bool((is_near & (category == category[0]))[1:].any())


def lowest(
    finished: Finished,
    clear: Array,
    used: Mapping[tuple[Value, ...], set[int]],
    num_seeds: int,
    number: int,
    rows: Sequence[Point],
    surface: Surface,
) -> list[Point]:
    """The points of lowest loss with seeds that they lack, and their neighbours.

    Neighbours in their rows, and in other rows the same rate where nothing like it was tried: else
    a row would be taken for a worse one because its best rate was not found.

    Args:
        finished: the trials.
        clear: which of them are of interest.
        used: point -> its seeds so far, those of trials that run included.
        num_seeds: seeds that a point should have.
        number: how many at most.
        rows: whose best rates are to be compared.
        surface: the edge.
    """
    chart, names = finished.chart, list(finished.chart.space.axes)
    order = ranked(finished, clear) if number else []
    rates: dict[tuple[Value, ...], list[float]] = defaultdict(list)
    for values in used if order else ():
        point = dict(zip(names, values, strict=True))
        rates[chart.space.row(point)].append(math.log10(float(point["lr"])))  # type: ignore[arg-type]
    picks: list[Point] = []
    for values in order:
        if len(picks) >= number:
            break
        point = dict(zip(names, values, strict=True))
        missing = num_seeds - len(used[values])
        picks += [point] * missing
        if missing > 0:
            continue
        x = math.log10(float(point["lr"]))  # type: ignore[arg-type]
        sides = [(chart.with_rate(point, x + step), NEXT / 2) for step in (NEXT, -NEXT)]
        across = [chart.with_rate(row, x) for row in rows]
        if across:
            safe = _is_below(surface, chart.heights(across), *chart.place(across))
            sides += [(side, APART) for side, is_safe in zip(across, safe, strict=True) if is_safe]
        for side, apart in sides:
            place = math.log10(float(side["lr"]))  # type: ignore[arg-type]
            row = rates[chart.space.row(side)]
            if all(abs(place - other) >= apart for other in row):
                row.append(place)
                picks.append(side)
    return picks[:number]
