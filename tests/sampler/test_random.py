import numpy as np

from stabsweep.sampler.random import Random
from stabsweep.space import Space

SPACE = Space.parse({"lr": {"low": 1e-4, "high": 1}, "optimizer": ["sgd", "adam"]})


def test_rates_are_uniform_in_their_logarithm():
    points = [point for _, point, _ in Random(SPACE, 2000, (0,))._todo]
    counts, _ = np.histogram(np.log10([point["lr"] for point in points]), bins=8, range=(-4, 0))
    assert counts.min() > 200 and counts.max() < 300
    assert 900 < sum(point["optimizer"] == "sgd" for point in points) < 1100


def test_a_longer_design_begins_with_the_shorter_one():
    short = [point for _, point, _ in Random(SPACE, 10, (0,))._todo]
    assert [point for _, point, _ in Random(SPACE, 30, (0,))._todo][:10] == short


def test_what_does_not_divide_by_the_seeds_is_rounded_up():
    assert Random(SPACE, 10, (0, 1, 2)).num_trials == 12
