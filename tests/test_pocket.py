"""Pockets: found, kept out of the edge, and not seen where there are none."""

import numpy as np
import pytest

from stabsweep.chart import Sample
from stabsweep.pocket import find_pockets
from stabsweep.surface import fit

ENDS = (-5.0, 1.0)


def drawn(number, seed, pocket=True, noise=0.0):
    """Verdicts over an edge at -2 with an island of stability above it."""
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(*ENDS, number), rng.uniform(size=(number, 1))
    failed = x + noise * rng.logistic(size=number) > -2
    if pocket:
        failed &= ~is_inside(x, z)
    return Sample(x, z, np.zeros(number, int), failed)


def is_inside(x, z):
    return ((x - 0.1) / 0.5) ** 2 + ((z[:, 0] - 0.6) / 0.2) ** 2 < 1


def test_a_pocket_is_claimed_and_drawn():
    sample = drawn(400, 0)
    surface = fit(sample, 1, -2.0)
    pockets = find_pockets(sample, surface)
    assert (pockets.claimed == (is_inside(sample.x, sample.z) & ~sample.failed)).mean() > 0.99
    test = drawn(4000, 1)
    wrong = (pockets.chance(test.x, test.z, test.category) > 0.5) != test.failed
    alone = (surface.chance(test.x, test.z, test.category) > 0.5) != test.failed
    assert wrong.mean() < 0.5 * alone.mean()
    clean = fit(sample.without(pockets.claimed), 1, -2.0)
    assert clean.at(np.array([[0.6]]), np.zeros(1, int))[0][0] == pytest.approx(-2, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_noise_near_an_edge_is_no_pocket(seed):
    sample = drawn(200, seed, pocket=False, noise=0.08)
    assert find_pockets(sample, fit(sample, 1, -2.0)).claimed.sum() <= 1


def test_without_odd_verdicts_there_is_only_the_edge():
    sample = drawn(100, 0, pocket=False)
    pockets = find_pockets(sample, fit(sample, 1, -2.0))
    assert not pockets.models and not pockets.claimed.any()
    at = np.array([-3.0, -1.0]), np.full((2, 1), 0.5), np.zeros(2, int)
    assert (pockets.chance(*at) == pockets.surface.chance(*at)).all()


def test_the_rim_is_looked_at_and_what_runs_counts():
    sample = drawn(120, 3)
    pockets = find_pockets(sample, fit(sample, 1, -2.0))
    nothing = np.zeros(0), np.zeros((0, 1)), np.zeros(0, int)
    rng = np.random.default_rng(0)
    doubt, x, z, category = pockets.rim(ENDS, nothing, 12, rng)
    assert doubt > 0 and len(x) == 12 and (category == 0).all()
    far = np.abs(np.sqrt(((x - 0.1) / 0.5) ** 2 + ((z[:, 0] - 0.6) / 0.2) ** 2) - 1)
    assert np.median(far) < 0.8
    _, again, other, _ = pockets.rim(ENDS, (x, z, category), 12, np.random.default_rng(0))
    apart = np.abs(again[:, None] - x) + np.abs(other - z[:, 0])
    assert (apart.min(1) > 1e-9).all()


def test_only_the_category_with_a_pocket_has_one():
    one, other = drawn(300, 0), drawn(300, 1, pocket=False)
    sample = Sample(
        np.concatenate([one.x, other.x]),
        np.concatenate([one.z, other.z]),
        np.repeat([1, 0], 300),
        np.concatenate([one.failed, other.failed]),
    )
    pockets = find_pockets(sample, fit(sample, 2, -2.0))
    assert list(pockets.models) == [1]
    at = np.array([0.1, 0.1]), np.full((2, 1), 0.6), np.array([0, 1])
    chance = pockets.chance(*at)
    assert chance[0] > 0.9 and chance[1] < 0.3
