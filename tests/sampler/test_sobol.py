import warnings

import numpy as np
import pytest

from stabsweep.sampler.sobol import Sobol
from stabsweep.space import Space

SPACE = Space.parse({"lr": {"low": 1e-4, "high": 1}, "momentum": {"low": 0, "high": 0.9}})


def test_a_power_of_two_puts_one_point_into_each_part_of_every_axis():
    points = [point for _, point, _ in Sobol(SPACE, 64, (0,))._todo]
    for axis, name in ((SPACE.axes["lr"], "lr"), (SPACE.axes["momentum"], "momentum")):
        shares = [axis.share(point[name]) for point in points]
        counts, _ = np.histogram(shares, bins=32, range=(0, 1))
        assert counts.tolist() == [2] * 32


@pytest.mark.parametrize("num_trials", [1, 3, 33, 100])
def test_any_number_of_points_is_given_without_a_warning(num_trials):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Sobol(SPACE, num_trials, (0,)).num_trials == num_trials


def test_what_does_not_divide_by_the_seeds_is_rounded_up():
    assert Sobol(SPACE, 10, (0, 1, 2)).num_trials == 12
