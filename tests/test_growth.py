import math

import numpy as np
import pytest

from stabsweep.growth import WINDOW, envelope, find_growth

T = 200


def ramp(start, end, low, high):
    """A loss, and one that drifts apart from it as a level, a rise and a level."""
    rng = np.random.default_rng(0)
    logs = np.interp(np.arange(T), [start, end], np.log10([low, high]))
    # Differences cross zero: anywhere up to the envelope, either sign.
    apart = 10**logs * rng.uniform(-1, 1, T)
    loss = 2 + np.zeros(T)
    return loss, loss + apart


@pytest.mark.parametrize("start, end, low, high", [(40, 100, 1e-7, 1e-2), (0, 150, 1e-12, 1e-4)])
def test_a_doubling_time_is_found(start, end, low, high):
    found = find_growth(*ramp(start, end, low, high))
    expected = (end - start) / math.log2(high / low)
    assert found.doubling_steps == pytest.approx(expected, rel=0.1)
    assert found.is_saturated and found.corners[-1][1] == pytest.approx(high, rel=0.5)
    assert [step for step, _ in found.corners] == pytest.approx([start, end], abs=8)
    assert found.first_step == 0


def test_growth_to_the_end_is_not_saturated():
    found = find_growth(*ramp(50, T, 1e-7, 1e-2))
    assert found.doubling_steps == pytest.approx(150 / math.log2(1e5), rel=0.1)
    assert not found.is_saturated


def test_a_level_does_not_grow_and_neither_does_what_falls():
    assert find_growth(*ramp(0, T, 1e-7, 1e-7)).doubling_steps is None
    assert find_growth(*ramp(0, T, 1e-7, 1e-9)).doubling_steps is None


def test_the_same_curves_have_no_difference_also_where_they_are_not_finite():
    loss = np.array([1.0, 2.0, math.nan, math.inf])
    found = find_growth(loss, loss.copy())
    assert found.first_step is None and found.largest == 0


def test_one_that_diverges_alone_is_infinitely_far_away():
    here, there = ramp(20, 80, 1e-7, 1e-2)
    there[150:] = math.nan
    found = find_growth(here, there)
    assert found.largest == math.inf
    assert found.doubling_steps == pytest.approx(60 / math.log2(1e5), rel=0.1)
    both = here.copy()
    both[150:] = math.nan
    assert find_growth(both, there).largest < 0.1


def test_few_steps_give_no_fit():
    here = np.zeros(5)
    found = find_growth(here, here + 1e-3)
    assert found.doubling_steps is None and found.corners == () and found.first_step == 0


def test_the_envelope_is_the_largest_of_the_last_steps():
    apart = np.array([3.0, 1, 0, 0, 0, 0, 0, 2, 0])
    assert WINDOW == 5
    assert envelope(apart).tolist() == [3, 3, 3, 3, 3, 1, 0, 2, 2]
