"""The edge as a function of all axes but the learning rate, from scattered verdicts.

One latent function e(z), the edge in decades of the learning rate, is learned from every verdict
at once, so that rows lend each other strength: a map needs an order of magnitude fewer trials than
a grid. It is a Gaussian process on knots, and expectation propagation takes in the verdicts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
from scipy import linalg, special
from threadpoolctl import ThreadpoolController

from stabsweep.chart import Sample
from stabsweep.edge import LAPSE_ABOVE, LAPSE_BELOW
from stabsweep.records import Array

P = ParamSpec("P")
R = TypeVar("R")

WIDE, TREND, OFFSET = 3.0, 1.5, 0.7
"""Prior deviations in decades: of the edge around the middle of the range, of its trend from end to
end of an axis (by half), and between categories. Ours: wide enough for a few trials to overrule."""

MAX_KNOTS = {0: 1, 1: 25, 2: 64}
"""Knots a category by the number of numeric axes; 96 beyond. Between 25 knots on a line a bend of a
tenth of the axis is still followed (measured on seven test functions)."""

ALL_KNOTS = 160
"""Knots of all categories together, but for nine each: a fit costs their square a verdict."""

SHAPES: Mapping[str, Array] = {
    "width": np.geomspace(0.01, 0.4, 9),
    "bend": np.geomspace(0.05, 1.6, 7),
    "reach": np.geomspace(0.12, 1.5, 6),
    "shared": np.array([0.2, 0.5, 0.8, 0.95]),
}
"""Values of each number of a `Shape` that are weighed, by a search along one after the other."""

ROUGH = 0.02
"""Least deviation of an edge in decades: real edges have a rough zone of 0.04 to 0.06."""

NUM_TURNS = 40
"""Most turns of expectation propagation; about ten are enough."""

LEAST_STEP, MOST_STEP = 0.2, 0.8
"""Least and most part of an update that is made in a turn."""


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def _in_one_thread(work: Callable[P, R]) -> Callable[P, R]:
    """Keeps the linear algebra of a call in one thread.

    How a product rounds depends on how many there are, which must not decide where the next trial
    goes. And the matrices are small: where cores are busy, threads wait for each other (`pick` on a
    folder of 88 trials took 5.6 s instead of 9.7).
    """

    @wraps(work)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _libraries().limit(limits=1, user_api="blas"):
            return work(*args, **kwargs)

    return alone


@dataclass(frozen=True)
class Shape:
    """How an edge may run.

    Attributes:
        bend: deviation of the smooth part, in decades.
        reach: its length scale, in lengths of an axis.
        shared: correlation of the smooth part between two categories.
        width: of the edge, in decades: how far from it verdicts are still mixed.
    """

    bend: float = 0.7
    reach: float = 0.5
    shared: float = 0.7
    width: float = 0.06

    @property
    def log_prior(self) -> float:
        """Weak log-normal priors.

        The width is around that of small models. Bend and reach are more supple than most edges,
        so that a few verdicts do not make the surface sure of what lies between them.
        """
        return -0.5 * (
            math.log(self.width / 0.05) ** 2
            + (math.log(self.bend / 0.7) / 0.5) ** 2
            + (math.log(self.reach / 0.5) / 0.5) ** 2
        )


class Surface:
    """A Gaussian approximation to the posterior of the edge over the chart.

    P(failed | x, z) = a + (1 - a - b) Phi((x - e(z)) / width), where a = `LAPSE_BELOW` is a failure
    far below the edge, which is evidence, and b = `LAPSE_ABOVE` a success far above it, a pocket.
    e is a wide constant, a linear trend, a Matern-5/2 part that categories share in part, and an
    offset for each category.

    It is overconfident about edges with a rough zone, which real ones have; so its deviations
    should be read with a floor. A cliff, an edge that runs along the learning rate, is no function
    of z and comes out smoothed.

    Args:
        sample: the verdicts.
        num_categories: of the chart.
        center: log10 of the middle of the range of rates.
        shape: how the edge may run.

    Attributes:
        shape: as given.
        evidence: log of the marginal likelihood, with the prior of the shape.

    References:
        Expectation propagation for probit sites: Rasmussen & Williams 2006, section 3.6; here in
        the space of the knots' weights.
    """

    def __init__(
        self, sample: Sample, num_categories: int, center: float, shape: Shape = Shape()
    ) -> None:
        self.shape, self.center = shape, center
        self._knot_z, self._knot_c = _knots(sample.z.shape[1], num_categories)
        covariance = _kernel(self._knot_z, self._knot_c, self._knot_z, self._knot_c, shape)
        covariance[np.diag_indices(len(covariance))] += 1e-6
        self._lower = linalg.cholesky(covariance, lower=True)
        self._propagate(sample)

    @_in_one_thread
    def at(self, z: Array, category: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of the edge, in decades, at places of the chart."""
        phi, half = self._halves(z, category)
        return self.center + phi @ self._mean, np.sqrt((half**2).sum(0))

    def chance(self, x: Array, z: Array, category: Array) -> Array:
        """P(failed) by the edge alone, at log10 rates and places of the chart."""
        edge, deviation = self.at(z, category)
        return special.ndtr((x - edge) / np.hypot(deviation, self.shape.width))

    @_in_one_thread
    def joint(self, z: Array, category: Array) -> tuple[Array, Array]:
        """Mean and covariance of the edge at places of the chart."""
        phi, half = self._halves(z, category)
        return self.center + phi @ self._mean, half.T @ half

    def _halves(self, z: Array, category: Array) -> tuple[Array, Array]:
        phi = self._features(z, category)
        return phi, linalg.solve_triangular(self._factor[0], phi.T, lower=True)

    def _features(self, z: Array, category: Array) -> Array:
        covariance = _kernel(z, category, self._knot_z, self._knot_c, self.shape)
        return linalg.solve_triangular(self._lower, covariance.T, lower=True).T

    def _propagate(self, sample: Sample) -> None:
        x = sample.x - self.center
        sign = np.where(sample.failed, -1.0, 1.0)
        lapse = np.where(sample.failed, LAPSE_BELOW, LAPSE_ABOVE)
        rest = 1 - LAPSE_BELOW - LAPSE_ABOVE
        phi = self._features(sample.z, sample.category)
        tau, nu, mean, cavity, chance, shift = np.zeros((6, len(x)))
        step, last = MOST_STEP, math.inf
        for turn in range(NUM_TURNS):
            inner = np.eye(phi.shape[1]) + phi.T @ (tau[:, None] * phi)
            self._factor = linalg.cho_factor(inner, lower=True)
            shift = phi.T @ nu
            self._mean = linalg.cho_solve(self._factor, shift)
            half = linalg.solve_triangular(self._factor[0], phi.T, lower=True)
            variance = np.maximum((half**2).sum(0), 1e-10)
            # Without its own verdict, then with it as it really is.
            cavity = 1 / np.maximum(1 / variance - tau, 1e-8)
            mean = cavity * (phi @ self._mean / variance - nu)
            spread = np.sqrt(self.shape.width**2 + cavity)
            u = sign * (mean - x) / spread
            chance = lapse + rest * special.ndtr(u)
            slope = rest * np.exp(-0.5 * u**2) / math.sqrt(2 * math.pi) * sign / (spread * chance)
            bend = slope * (slope + sign * u / spread)
            new_variance = np.maximum(cavity - cavity**2 * bend, 1e-10)
            new_tau = np.clip(1 / new_variance - 1 / cavity, 0, 1e6)
            new_nu = (mean + cavity * slope) * (1 / cavity + new_tau) - mean / cavity
            change = np.abs(new_tau - tau) * variance + np.abs(new_nu - nu) * np.sqrt(variance)
            largest = float(change.max(initial=0))
            if turn and largest < 1e-2:
                break
            # All verdicts at once may overshoot, and then run away for good.
            step = max(0.5 * step, LEAST_STEP) if largest > last else min(1.2 * step, MOST_STEP)
            last = largest
            tau, nu = tau + step * (new_tau - tau), nu + step * (new_nu - nu)
        sites = (
            np.log(chance)
            + 0.5 * np.log1p(tau * cavity)
            - 0.5 * (mean / cavity + nu) ** 2 / (1 / cavity + tau)
            + 0.5 * mean**2 / cavity
        )
        determinant = np.log(np.diag(self._factor[0])).sum()
        fit = sites.sum() - determinant + 0.5 * shift @ self._mean
        # The log of a probability: what lies above has not converged.
        self.evidence = float(fit + self.shape.log_prior) if fit <= 0 else -math.inf


@_in_one_thread
def fit(
    sample: Sample,
    num_categories: int,
    center: float,
    shape: Shape = Shape(),
    search: bool = True,
) -> Surface:
    """The surface of the shape with the highest evidence that a search along each number finds.

    Args:
        sample: the verdicts, at least one.
        num_categories: of the chart.
        center: log10 of the middle of the range of rates.
        shape: where the search begins: that of an earlier fit.
        search: False to keep the shape.
    """
    best = Surface(sample, num_categories, center, shape)
    names = ["width"]
    if sample.z.shape[1]:
        names += ["bend", "reach"] + (["shared"] if num_categories > 1 else [])
    for _ in range(2 if search else 0):
        before = best
        for name in names:
            values = SHAPES[name]
            start = int(np.abs(np.log(values / getattr(best.shape, name))).argmin())
            for direction in (1, -1):
                place = start + direction
                while 0 <= place < len(values):
                    other = replace(best.shape, **{name: float(values[place])})
                    found = Surface(sample, num_categories, center, other)
                    if found.evidence <= best.evidence:
                        break
                    best, place = found, place + direction
        if best is before:
            break
    return best


def _kernel(z: Array, c: Array, other_z: Array, other_c: Array, shape: Shape) -> Array:
    same = c[:, None] == other_c
    covariance = WIDE**2 + OFFSET**2 * same
    if z.shape[1]:
        covariance = covariance + TREND**2 * ((z - 0.5) @ (other_z - 0.5).T)
        distance = math.sqrt(5) * np.sqrt(_squares(z, other_z)) / shape.reach
        matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
        covariance = covariance + shape.bend**2 * np.where(same, 1.0, shape.shared) * matern
    return covariance


def _squares(z: Array, other: Array) -> Array:
    """Squared distances (n, m) of places (n, D) and (m, D)."""
    return ((z[:, None] - other) ** 2).sum(-1)


def _knots(num_axes: int, num_categories: int) -> tuple[Array, Array]:
    """Where the edge is carried: evenly on a line or a square, else a low-discrepancy set."""
    number = min(MAX_KNOTS.get(num_axes, 96), max(ALL_KNOTS // num_categories, 9))
    if num_axes > 2:
        from scipy.stats import qmc  # Half a second, and few spaces have so many axes.

        z = qmc.Sobol(num_axes, scramble=False).random(128)[:number]
    else:
        side = np.linspace(0, 1, int(number ** (1 / max(num_axes, 1)) + 1e-9))
        z = np.array(list(itertools.product(side, repeat=num_axes)), float)
    return np.tile(z, (num_categories, 1)), np.repeat(np.arange(num_categories), len(z))
