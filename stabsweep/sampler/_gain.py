"""Which trials tell most about an edge that is known in part."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from stabsweep.edge import LAPSE_ABOVE, LAPSE_BELOW
from stabsweep.records import Array
from stabsweep.surface import ROUGH, Surface

QUANTILES = (0.02, 0.08, 0.2, 0.35, 0.5, 0.65, 0.8, 0.92, 0.98)
"""Of the edge in a row: where a trial of that row may be put."""

NUM_DRAWS = 400
"""Joint draws of the edge that a choice is made from."""


def most_telling(
    surface: Surface,
    z: Array,
    category: Array,
    ends: tuple[float, float],
    running: tuple[Array, Array, Array],
    num_picks: int,
    rng: np.random.Generator,
) -> list[tuple[int, float]]:
    """The trials whose noisy answers explain most of what is unknown of the edge over all rows.

    Greedy, by the best linear estimate of the edges from the answers: the gain of a candidate is
    sum_rows Cov(e, y)^2 / Var(y) / sd(e), with the answer's own noise in Var(y), and every pick is
    taken for answered before the next. So one row is cut in k parts, rows are spaced, and a noisy
    edge is tested again.

    Args:
        surface: what is known.
        z: (R, D) coordinates of the rows.
        category: (R,) categories of the rows.
        ends: log10 of the lowest and the highest rate.
        running: log10 rates, coordinates and categories of trials whose answers are on their way.
        num_picks: how many.
        rng: for the draws.

    Returns:
        Row number and log10 of the rate of each pick, the most telling first.
    """
    num_rows, num_running = len(z), len(running[0])
    mean, covariance = surface.joint(
        np.concatenate([z, running[1]]), np.concatenate([category, running[2]])
    )
    deviation = np.sqrt(np.diag(covariance)[:num_rows])
    factor = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(mean)))
    edges = mean + (factor @ rng.standard_normal((len(mean), NUM_DRAWS))).T
    # An edge outside of the range is as good as one at its end: no trial can tell.
    edges = edges.clip(ends[0] - 0.1, ends[1] + 0.1)
    rates = np.quantile(edges[:, :num_rows], QUANTILES, axis=0).T.clip(*ends)
    num_candidates = rates.size
    own = num_rows + np.arange(num_running)
    row = np.concatenate([np.repeat(np.arange(num_rows), len(QUANTILES)), own])
    x = np.concatenate([rates.ravel(), running[0]])
    chance = special.ndtr((x - edges[:, row]) / surface.shape.width)
    chance = LAPSE_BELOW + (1 - LAPSE_BELOW - LAPSE_ABOVE) * chance
    together = np.concatenate([edges[:, :num_rows], chance], axis=1)
    together -= together.mean(0)
    unknown = together.T @ together / NUM_DRAWS
    noise = (chance * (1 - chance)).mean(0) + 1e-9
    weight = 1 / np.maximum(deviation, ROUGH)
    picks: list[tuple[int, float]] = []
    for turn in range(num_running + num_picks):
        variance = np.diag(unknown)[num_rows:] + noise
        if turn < num_running:
            best = num_candidates + turn
        else:
            gain = weight @ unknown[:num_rows, num_rows:] ** 2 / variance
            best = int(gain[:num_candidates].argmax())
            picks.append((int(row[best]), float(x[best])))
        column = unknown[:, num_rows + best] / math.sqrt(variance[best])
        unknown = unknown - column[:, None] * column
    return picks
