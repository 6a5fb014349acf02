from __future__ import annotations

import math

import numpy as np
import pytest

from stabsweep.agreement import find_agreement

CURVE = np.linspace(2, 1, 60)


def test_the_same_numbers_are_the_same_to_the_last_digit():
    both = np.array([1.0, 2.0, np.nan, np.inf])
    found = find_agreement(both, both, 1e-3)
    assert (found.num_steps, found.parts_at, found.largest) == (4, None, 0.0)
    assert found.sentence == "The loss is that of the sweep to the last digit, over all 4 steps."
    assert "over its one step" in find_agreement(both[:1], both, 1e-3).sentence


def test_rounding_is_told_by_its_largest():
    now = CURVE.copy()
    now[40] *= 1 + 2e-5
    found = find_agreement(now, CURVE, 1e-3)
    assert found.parts_at is None and found.largest == pytest.approx(2e-5, rel=1e-3)
    assert "to rounding: at most 2.0e-5 of it apart (step 40)" in found.sentence


def test_rounding_that_grows_parts_them_with_its_doubling_time():
    now = CURVE * (1 + 1e-8 * 2.0 ** np.arange(60))
    found = find_agreement(now, CURVE, 1e-3)
    # 2^17 is the first power above 1e5.
    assert found.parts_at == 17
    assert found.largest == pytest.approx(1e-8 * 2**16, rel=1e-3)
    assert "up to step 16, to 1.0e-3 of it; at step 17 the loss is 1.714" in found.sentence
    assert "Rounding that doubled every 1" in found.sentence


def test_what_differs_at_the_first_step_is_no_rounding():
    found = find_agreement(CURVE + 0.1, CURVE, 1e-3)
    assert found.parts_at == 0
    assert found.sentence.startswith("At step 0 the loss is 2.1, in the sweep it was 2.")
    assert "no rounding" in found.sentence and "stabsweep env diff" in found.sentence


def test_one_that_is_not_finite_beside_one_that_is_parts_them():
    now = CURVE.copy()
    now[30:] = np.nan
    found = find_agreement(now, CURVE, 1e-3)
    assert found.parts_at == 30 and found.largest == 0.0
    assert "the loss is not finite, in the sweep it was 1.49" in found.sentence


def test_only_steps_that_both_have_are_compared():
    assert find_agreement(CURVE[:20], CURVE, 1e-3).num_steps == 20
    assert find_agreement(CURVE, CURVE[:20], 1e-3).num_steps == 20


def test_a_loss_that_has_come_down_to_its_rounding_agrees():
    then = np.geomspace(1, 1e-14, 30)
    now = then.copy()
    now[25:] = 3e-14
    assert find_agreement(now, then, 1e-3).parts_at is None
    assert not math.isnan(find_agreement(np.zeros(3), np.zeros(3), 1e-3).largest)
