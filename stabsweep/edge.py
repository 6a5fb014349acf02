"""The edge of stability along one row of learning rates, from verdicts that may disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from stabsweep.records import Array

SAFE = 0.95
"""P(stable) at the safe edge (design)."""

LAPSE_BELOW, LAPSE_ABOVE = 0.001, 0.03
"""Chance that a trial fails far below the edge, and that one holds far above it. Unequal, since a
failure below is evidence while a hold above is a pocket; measured on eight test functions."""

NUM_EDGES = 1201
"""Edges that are weighed along a row: over six decades one every 0.006."""

NUM_TURNS = 2500
"""Length of the transforms: at least 2 * NUM_EDGES - 1, even, with small factors."""

WIDTHS = np.geomspace(0.005, 0.5, 12)
"""Widths of the edge that are weighed, in decades."""

WIDTH_PRIOR = -0.5 * (np.log(WIDTHS / 0.08) / 2.5) ** 2
"""Edges of small models were 0.04 to 0.16 decades wide: a weak prior around that."""


@dataclass(frozen=True)
class Edge:
    """Where along a row training stops being stable.

    Attributes:
        status: `found`; `above`: nothing judged in the row failed, the edge lies above `low`;
            `below`: nothing in the row held, the edge lies below `high`; `unknown`: no trials, or
            stalls only, of which nobody can say what they are.
        lr: the learning rate with P(stable) = 0.5; None unless found.
        low, high: its 95 % interval; with one trial a cell mostly the distance of two cells.
        safe_lr: the largest rate with P(stable) = 0.95, of the worst seed; when the edge was not
            reached the largest rate tried; None when nothing held.
    """

    status: str
    lr: float | None = None
    low: float | None = None
    high: float | None = None
    safe_lr: float | None = None


def find_edge(lrs: Sequence[float], stable: Sequence[bool], seeds: Sequence[int] = ()) -> Edge:
    """The edge that a row of verdicts points to: a Bayesian probit fit over log10 of the rate.

    P(stable | lr) = Phi((log10 edge - log10 lr) / width) with lapses; edge and width are summed
    over a grid, so there is nothing to converge. "The first failure" would be biased low under
    noise, the more so the denser the grid.

    Args:
        lrs: learning rates, in any order, repeats allowed.
        stable: whether the trial at that rate was stable.
        seeds: seed of each trial; the safe edge is the worst seed's.
    """
    x = np.log10(np.asarray(lrs, float))
    held = np.asarray(stable, bool)
    if not len(x):
        return Edge("unknown")
    top, bottom = float(max(lrs)), float(min(lrs))
    if held.all():
        return Edge("above", low=top, safe_lr=top)
    if not held.any():
        return Edge("below", high=bottom)
    edges = _grid(x)
    weight, p_stable = _probit(edges, x, held)
    # Mass lies around its grid point, half of it below.
    reached = np.cumsum(weight) - weight / 2
    low, middle, high = (float(q) for q in np.interp([0.025, 0.5, 0.975], reached, edges))
    last_held, first_failed = float(x[held].max()), float(x[~held].min())
    if last_held < first_failed:
        # Nothing contradicts an edge between the two; the grid may be coarser than their distance.
        middle = min(max(middle, last_held), first_failed)
        low, high = min(low, middle), max(high, middle)
    # Beyond the last rate that held there is hope, not evidence.
    safe = [_safe(edges, p_stable), last_held, middle]
    for seed in set(seeds):
        mine = np.asarray(seeds) == seed
        if not held[mine].any():
            below = x[held & (x < x[mine].min())]
            safe.append(float(below.max()) if len(below) else -math.inf)
        elif not held[mine].all():
            safe.append(_safe(edges, _probit(edges, x[mine], held[mine])[1]))
    worst = min(safe)
    return Edge(
        "found",
        lr=10.0**middle,
        low=10.0**low,
        high=10.0**high,
        safe_lr=10.0**worst if worst > -math.inf else None,
    )


def _grid(x: Array) -> Array:
    """The edges to be weighed: from a little below the row to a little above it."""
    rates = np.unique(x)
    gap = float(np.diff(rates).min()) if len(rates) > 1 else 0.1
    pad = max(0.1 * float(np.ptp(rates)), gap, 0.05)
    return np.linspace(rates[0] - pad, rates[-1] + pad, NUM_EDGES)


def _probit(edges: Array, x: Array, held: Array) -> tuple[Array, Array]:
    """Posterior weight of each edge, and posterior mean of P(stable) at each.

    On an even grid both are convolutions, so that a long row costs no more than a short one.
    """
    step = float(edges[1] - edges[0])
    place = (x - edges[0]) / step
    left = np.minimum(place.astype(int), NUM_EDGES - 2)
    counts = np.zeros((2, NUM_EDGES))
    # A trial between two grid points counts for both, by its nearness.
    np.add.at(counts, (held.astype(int), left), 1 - (place - left))
    np.add.at(counts, (held.astype(int), left + 1), place - left)
    kernels = _kernels(round(step, 12))
    failed, stood = np.fft.rfft(counts, NUM_TURNS)
    log_posterior = np.fft.irfft(failed * kernels[0] + stood * kernels[1], NUM_TURNS)
    log_posterior = log_posterior[:, NUM_EDGES - 1 : 2 * NUM_EDGES - 1] + WIDTH_PRIOR[:, None]
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    p_stable = np.fft.irfft((np.fft.rfft(posterior, NUM_TURNS) * kernels[2]).sum(0), NUM_TURNS)
    return posterior.sum(0), p_stable[NUM_EDGES - 1 : 2 * NUM_EDGES - 1]


@lru_cache(maxsize=8)
def _kernels(step: float) -> Array:
    """Transforms, by width, of log P(failed), log P(held) and P(stable) over edge minus rate.

    The third is over rate minus edge: it is summed over edges.
    """
    distance = step * np.arange(1 - NUM_EDGES, NUM_EDGES)
    chance = special.ndtr(distance / WIDTHS[:, None])
    lapsing = LAPSE_ABOVE + (1 - LAPSE_BELOW - LAPSE_ABOVE) * chance
    return np.fft.rfft([np.log1p(-lapsing), np.log(lapsing), chance[:, ::-1]], NUM_TURNS)


def _safe(edges: Array, p_stable: Array) -> float:
    """log10 of the largest rate with P(stable) >= SAFE."""
    good = np.flatnonzero(p_stable >= SAFE)
    return float(edges[good[-1]]) if len(good) else -math.inf
