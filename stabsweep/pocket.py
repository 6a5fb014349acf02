"""Pockets: stable ground above the edge, or failing ground below it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from stabsweep.chart import Sample
from stabsweep.records import Array
from stabsweep.surface import Surface

ODD_SIGMAS, ODD_DECADES = 3.5, 0.25
"""A verdict so far on the wrong side of the edge is no matter of chance, nor of the rough zone of
up to 0.16 decades that real edges have."""

LENGTHS_X, LENGTHS_Z = (0.15, 0.3, 0.6, 1.2), (0.08, 0.16, 0.32, 0.64)
"""Length scales that are weighed, in decades and in lengths of an axis."""

SCALE, NOISE = 0.6, 0.1
"""Deviation of what a pocket adds to P(failed), which is -1 to 1, and of a verdict's own noise."""

MAX_NEIGHBOURS = 256
"""Verdicts that the model of a category is made from at most: those nearest to the odd ones."""

LEAST_DOUBT = 0.15
"""Least deviation of P(failed) in a pocket: a smooth model of a step is too sure of itself."""

NUM_CANDIDATES = 384
"""Places where a rim is looked for, in each category with odd verdicts."""


@dataclass(frozen=True)
class Local:
    """What the verdicts of one category, around its odd ones, add to P(failed).

    A Gaussian process on verdict minus P(failed) by the edge; nothing far from the verdicts.

    Attributes:
        places: (n, 1 + D) log10 rates and coordinates of the verdicts.
        lengths: (1 + D,) length scales.
        lower: Cholesky factor of the verdicts' covariance.
        weights: their weights in the mean.
        box: lowest and highest place with odd verdicts, and one length scale around.
        evidence: log of the marginal likelihood.
    """

    places: Array
    lengths: Array
    lower: Array
    weights: Array
    box: tuple[Array, Array]
    evidence: float

    @classmethod
    def fit(cls, places: Array, rest: Array, noise: Array, odd: Array) -> Local:
        """The model with the length scales of the highest evidence.

        Args:
            places: of the verdicts.
            rest: (n,) verdict minus P(failed) by the edge.
            noise: (n,) variance of each verdict.
            odd: (n,) which verdicts are odd.
        """
        num_axes = places.shape[1] - 1
        found = []
        lengths_z = LENGTHS_Z if num_axes else LENGTHS_Z[:1]
        for length_x, length_z in itertools.product(LENGTHS_X, lengths_z):
            lengths = np.array([length_x] + [length_z] * num_axes)
            covariance = _matern(places, places, lengths) + np.diag(noise)
            lower = linalg.cholesky(covariance, lower=True)
            weights = linalg.cho_solve((lower, True), rest)
            evidence = -0.5 * rest @ weights - np.log(np.diag(lower)).sum()
            box = places[odd].min(0) - lengths, places[odd].max(0) + lengths
            found.append(cls(places, lengths, lower, weights, box, float(evidence)))
        return max(found, key=lambda model: model.evidence)

    def mean(self, places: Array) -> Array:
        """Mean at places."""
        return _matern(places, self.places, self.lengths) @ self.weights

    def covariance(self, places: Array) -> Array:
        """Covariance at places."""
        across = _matern(places, self.places, self.lengths)
        half = linalg.solve_triangular(self.lower, across.T, lower=True)
        return _matern(places, places, self.lengths) - half.T @ half


@dataclass(frozen=True)
class Pockets:
    """An edge and what contradicts it: together P(failed) anywhere.

    Attributes:
        surface: the edge.
        models: category -> its pockets.
        claimed: (n,) verdicts that the pockets explain, in which the edge should have no part.
    """

    surface: Surface
    models: dict[int, Local]
    claimed: Array

    def chance(self, x: Array, z: Array, category: Array) -> Array:
        """P(failed) at log10 rates and places of the chart."""
        chance = self.surface.chance(x, z, category)
        for number, model in self.models.items():
            mine = np.flatnonzero(category == number)
            for part in np.array_split(mine, math.ceil(len(mine) / 512)) if len(mine) else ():
                chance[part] += model.mean(np.column_stack([x[part], z[part]]))
        return chance.clip(0, 1)

    def rim(
        self,
        ends: tuple[float, float],
        running: tuple[Array, Array, Array],
        num_picks: int,
        rng: np.random.Generator,
    ) -> tuple[float, Array, Array, Array]:
        """Where trials tell most about the rims of the pockets.

        Far from all that was tried or runs, among places where P(failed) may be one half, as in a
        straddle (Bryan et al. 2005). Its own rule, 1.96 sd - |P - 1/2|, trusts a smooth model of
        a step too much, and comes back to the same places.

        Args:
            ends: log10 of the lowest and the highest rate.
            running: log10 rates, coordinates and categories of trials that run.
            num_picks: how many at most.
            rng: for the places that are looked at.

        Returns:
            The area in doubt, in decades times lengths of axes; log10 rates, coordinates and
            categories of the picks.
        """
        doubt, found = 0.0, []
        for number, model in self.models.items():
            low = np.maximum(model.box[0], [ends[0], *[0.0] * (len(model.lengths) - 1)])
            high = np.minimum(model.box[1], [ends[1], *[1.0] * (len(model.lengths) - 1)])
            from scipy.stats import qmc  # Half a second, and few sweeps have pockets.

            shares = qmc.Sobol(len(low), rng=rng).random_base2(9)[:NUM_CANDIDATES]
            places = low + shares * np.maximum(high - low, 0)
            category = np.full(len(places), number)
            edge, deviation = self.surface.at(places[:, 1:], category)
            clear = np.abs(places[:, 0] - edge) > 2 * deviation
            chance = self.chance(places[:, 0], places[:, 1:], category)
            covariance = model.covariance(places)
            spread = np.maximum(np.sqrt(np.diag(covariance)), LEAST_DOUBT)
            far = np.abs(chance - 0.5) / spread
            doubt += float((clear & (far < 1)).mean() * np.maximum(high - low, 0).prod())
            weight = clear * np.exp(-0.5 * far**2)
            mine = running[2] == number
            tried = np.concatenate(
                [model.places, np.column_stack([running[0][mine], running[1][mine]])]
            )
            nearest = _distances(places, tried, model.lengths).min(1)
            for _ in range(num_picks):
                best = int((weight * nearest).argmax())
                found.append((weight[best] * nearest[best], number, places[best]))
                apart = _distances(places, places[best : best + 1], model.lengths)[:, 0]
                nearest = np.minimum(nearest, apart)
        found = sorted(found, key=lambda pick: -pick[0])[:num_picks]
        picked = np.array([place for _, _, place in found]).reshape(len(found), -1)
        if not found:
            picked = np.zeros((0, 1 + running[1].shape[1]))
        return doubt, picked[:, 0], picked[:, 1:], np.array([k for _, k, _ in found], int)


def find_pockets(sample: Sample, surface: Surface) -> Pockets:
    """The pockets that verdicts on the wrong side of an edge point to.

    Args:
        sample: all verdicts.
        surface: the edge, fitted without what earlier pockets claimed.
    """
    edge, deviation = surface.at(sample.z, sample.category)
    limit = np.maximum(ODD_SIGMAS * np.hypot(deviation, surface.shape.width), ODD_DECADES)
    beyond = np.where(sample.failed, edge - sample.x, sample.x - edge)
    odd = beyond > limit
    models: dict[int, Local] = {}
    if odd.any():
        places = np.column_stack([sample.x, sample.z])
        chance = surface.chance(sample.x, sample.z, sample.category)
        scale = np.array([LENGTHS_X[-1]] + [LENGTHS_Z[-1]] * sample.z.shape[1])
        for number in np.unique(sample.category[odd]):
            mine = np.flatnonzero(sample.category == number)
            near = mine[_nearest(places[mine] / scale, odd[mine])]
            rest = sample.failed[near] - chance[near]
            noise = NOISE**2 + chance[near] * (1 - chance[near])
            models[int(number)] = Local.fit(places[near], rest, noise, odd[near])
    found = Pockets(surface, models, odd)
    if not models:
        return found
    agreed = (found.chance(sample.x, sample.z, sample.category) > 0.5) == sample.failed
    return replace(found, claimed=odd & agreed)


def _nearest(places: Array, odd: Array) -> Array:
    """The places that are nearest to the odd ones, `MAX_NEIGHBOURS` at most, these first."""
    _, which = np.unique(places, axis=0, return_inverse=True)
    at_odd = np.flatnonzero(np.isin(which, which[odd]))[:MAX_NEIGHBOURS]
    if len(at_odd) == MAX_NEIGHBOURS:
        return at_odd  # Distances of all to thousands would tell nothing new.
    nearest = np.full(len(places), np.inf)
    for centre in places[odd]:
        nearest = np.minimum(nearest, ((places - centre) ** 2).sum(1))
    return np.argsort(nearest, kind="stable")[:MAX_NEIGHBOURS]


def _matern(places: Array, others: Array, lengths: Array) -> Array:
    distance = math.sqrt(5) * _distances(places, others, lengths)
    return SCALE**2 * (1 + distance + distance**2 / 3) * np.exp(-distance)


def _distances(places: Array, others: Array, lengths: Array) -> Array:
    return np.sqrt((((places[:, None] - others) / lengths) ** 2).sum(-1))
