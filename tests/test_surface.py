"""The edge as a surface, against dense grids and against edges that are known."""

import itertools

import numpy as np
import pytest
from scipy import special
from threadpoolctl import threadpool_info, threadpool_limits

from stabsweep import surface
from stabsweep.chart import Sample
from stabsweep.edge import LAPSE_ABOVE, LAPSE_BELOW, find_edge
from stabsweep.surface import OFFSET, WIDE, Shape, Surface, fit

SHAPE = Shape(width=0.1)


def sample_of(x, failed, z=None, category=None) -> Sample:
    x = np.asarray(x, float)
    z = np.zeros((len(x), 0)) if z is None else np.asarray(z, float).reshape(len(x), -1)
    category = np.zeros(len(x), int) if category is None else np.asarray(category, int)
    return Sample(x, z, category, np.asarray(failed, bool))


def on_a_grid(sample: Sample, center: float, shape: Shape):
    """Median, half a 68 % interval and log evidence of a constant edge, on a dense grid."""
    edges = np.linspace(center - 15, center + 15, 30_001)
    variance = WIDE**2 + OFFSET**2
    prior = -0.5 * ((edges - center) ** 2 / variance + np.log(2 * np.pi * variance))
    chance = special.ndtr((sample.x[:, None] - edges) / shape.width)
    failed = LAPSE_BELOW + (1 - LAPSE_BELOW - LAPSE_ABOVE) * chance
    log = np.where(sample.failed[:, None], np.log(failed), np.log1p(-failed)).sum(0) + prior
    weight = np.exp(log - log.max())
    step = edges[1] - edges[0]
    evidence = log.max() + np.log(weight.sum() * step)
    weight /= weight.sum()
    low, middle, high = np.interp([0.16, 0.5, 0.84], np.cumsum(weight), edges)
    return float(middle), float(high - low) / 2, float(evidence)


ROWS = {
    "clean": ([-3, -2, -1.5, -1, 0], [0, 0, 0, 1, 1]),
    "contradicted": ([-3, -2.1, -2.0, -1.9, -1.8, -1], [0, 0, 1, 0, 1, 1]),
    "one": ([-2], [1]),
    "a pocket": ([-3, -2, -1.5, -1, -0.5, 0], [0, 0, 1, 1, 1, 0]),
}


@pytest.mark.parametrize("row", ROWS)
def test_one_row_is_what_a_dense_grid_says(row):
    sample = sample_of(*ROWS[row])
    surface = Surface(sample, 1, -2.0, SHAPE)
    mean, deviation, evidence = on_a_grid(sample, -2.0, SHAPE)
    found, spread = surface.at(np.zeros((1, 0)), np.zeros(1, int))
    assert found[0] == pytest.approx(mean, abs=0.4 * deviation)
    assert spread[0] == pytest.approx(deviation, rel=0.35)
    assert surface.evidence - SHAPE.log_prior == pytest.approx(evidence, abs=0.3)


def test_one_row_agrees_with_find_edge():
    rng = np.random.default_rng(0)
    x = rng.uniform(-4, 0, 60)
    failed = x + 0.1 * rng.standard_normal(60) > -1.7
    edge = find_edge(10**x, ~failed)
    surface = fit(sample_of(x, failed), 1, -2.0)
    found = surface.at(np.zeros((1, 0)), np.zeros(1, int))[0][0]
    assert edge.lr and found == pytest.approx(np.log10(edge.lr), abs=0.05)


def curved(z):
    return -2 + np.sin(2 * z[:, 0])


def test_rows_lend_each_other_strength_and_the_interval_holds():
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(10):
        z, x = rng.uniform(size=(200, 1)), rng.uniform(-4, 0, 200)
        surface = fit(sample_of(x, x > curved(z), z), 1, -2.0)
        at = np.linspace(0, 1, 40)[:, None]
        mean, deviation = surface.at(at, np.zeros(40, int))
        inside.append(np.abs(mean - curved(at)) < 2 * np.maximum(deviation, 0.02))
        assert np.abs(mean - curved(at)).mean() < 0.1
    assert np.mean(inside) > 0.85


def test_the_evidence_prefers_the_shape_that_made_the_verdicts():
    rng = np.random.default_rng(2)
    z, x = rng.uniform(size=(400, 1)), rng.uniform(-3, -1, 400)
    noisy = x + 0.3 * rng.standard_normal(400) > curved(z)
    sharp = fit(sample_of(x, x > curved(z), z), 1, -2.0).shape
    wide = fit(sample_of(x, noisy, z), 1, -2.0).shape
    assert sharp.width < 0.05 and 0.15 < wide.width < 0.5


def test_an_edge_that_bends_fast_is_given_a_short_reach():
    z = np.tile(np.linspace(0, 1, 30), 20)[:, None]
    x = np.repeat(np.linspace(-3, -1, 20), 30)
    bent = fit(sample_of(x, x > -2 + 0.5 * np.sin(12 * z[:, 0]), z), 1, -2.0).shape
    straight = fit(sample_of(x, x > -2.5 + z[:, 0], z), 1, -2.0).shape
    assert bent.reach < straight.reach


def test_categories_lend_each_other_strength():
    rng = np.random.default_rng(3)
    z, x = rng.uniform(size=(300, 1)), rng.uniform(-4, 0, 300)
    category = (np.arange(300) % 10 == 0).astype(int)
    edge = curved(z) + 0.5 * category
    sample = sample_of(x, x > edge, z, category)
    at = np.linspace(0, 1, 20)[:, None]
    together = fit(sample, 2, -2.0).at(at, np.ones(20, int))[0]
    alone = fit(
        sample_of(x[category == 1], (x > edge)[category == 1], z[category == 1]), 1, -2.0
    ).at(at, np.zeros(20, int))[0]
    truth = curved(at) + 0.5
    assert np.abs(together - truth).mean() < 0.6 * np.abs(alone - truth).mean()


def test_what_nothing_was_tried_near_is_not_known():
    z = np.full((40, 1), 0.1)
    x = np.linspace(-4, 0, 40)
    _, deviation = fit(sample_of(x, x > -2, z), 1, -2.0).at(
        np.array([[0.1], [1.0]]), np.zeros(2, int)
    )
    assert deviation[0] < 0.1 < deviation[1]


def test_joint_and_at_agree_and_chance_is_half_at_the_edge():
    rng = np.random.default_rng(4)
    z, x = rng.uniform(size=(80, 2)), rng.uniform(-4, 0, 80)
    surface = fit(sample_of(x, x > -2 + z[:, 1], z), 1, -2.0)
    places, category = rng.uniform(size=(5, 2)), np.zeros(5, int)
    mean, deviation = surface.at(places, category)
    joint, covariance = surface.joint(places, category)
    assert np.allclose(mean, joint) and np.allclose(deviation**2, np.diag(covariance))
    assert np.allclose(surface.chance(mean, places, category), 0.5)


def test_order_does_not_matter():
    rng = np.random.default_rng(5)
    z, x = rng.uniform(size=(60, 1)), rng.uniform(-4, 0, 60)
    order = rng.permutation(60)
    one = Surface(sample_of(x, x > curved(z), z), 1, -2.0, SHAPE)
    other = Surface(sample_of(x[order], (x > curved(z))[order], z[order]), 1, -2.0, SHAPE)
    at = np.linspace(0, 1, 9)[:, None], np.zeros(9, int)
    assert np.allclose(one.at(*at), other.at(*at), atol=1e-6)


@pytest.mark.parametrize("num_axes, num_categories", list(itertools.product((0, 1, 2, 3), (1, 40))))
def test_any_number_of_axes_and_categories_can_be_fitted(num_axes, num_categories):
    rng = np.random.default_rng(6)
    x = rng.uniform(-4, 0, 90)
    z, category = rng.uniform(size=(90, num_axes)), rng.integers(num_categories, size=90)
    surface = fit(Sample(x, z, category, x > -2), num_categories, -2.0)
    mean, deviation = surface.at(z, category)
    assert np.isfinite(mean).all() and (deviation > 0).all()
    assert np.abs(mean + 2).mean() < 0.5


@pytest.mark.parametrize("seed", [1, 21, 52, 56])
def test_verdicts_that_overshoot_together_do_not_run_away(seed):
    """Whole updates of all verdicts at once went round in circles here, with evidence above 1."""
    rng = np.random.default_rng(seed)
    z = rng.uniform(size=96)
    far, near = rng.uniform(size=96) < 0.5, -2 + z
    x = np.where(far, rng.uniform(-5, 1, 96), near + 0.15 * rng.normal(size=96))
    sample = sample_of(x, x + 0.05 * rng.normal(size=96) > near, z)
    for bend, width in itertools.product((0.3, 0.5, 0.7, 1.0), (0.01, 0.04, 0.06)):
        surface = Surface(sample, 1, -2.0, Shape(bend=bend, width=width))
        edge, _ = surface.at(np.array([[0.2], [0.8]]), np.zeros(2, int))
        assert np.abs(edge - [-1.8, -1.2]).max() < 0.3
        assert -60 < surface.evidence < 0


def test_its_algebra_keeps_to_one_thread_and_leaves_the_others_as_they_were(monkeypatch):
    def blas():
        return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

    seen = set()
    cholesky = surface.linalg.cholesky
    monkeypatch.setattr(
        surface.linalg, "cholesky", lambda *a, **k: (seen.update(blas()), cholesky(*a, **k))[1]
    )
    with threadpool_limits(2, user_api="blas"):
        before = blas()
        fit(sample_of([-2, -1, 0, 1], [0, 0, 1, 1]), 1, 0.0, search=False)
        assert seen == {1} and blas() == before
