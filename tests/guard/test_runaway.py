from __future__ import annotations

import math

import numpy as np
import pytest

from stabsweep.guard.runaway import find_runaways

CALM = [1.0, 1.1, 0.9, 1.0, 1.2, 0.8, 1.0, 1.1, 0.9, 1.0]


def table(gradient, weights=None, output=None):
    nothing = [math.nan] * len(gradient)
    return np.array([gradient, weights or nothing, output or nothing], float).T


def test_what_grows_tenfold_first_comes_first():
    rise = [2.0**n for n in range(12)]
    late = [*CALM[:7], 12.0, 1e3, 1e5]
    found = find_runaways({"a": table(late), "b": table(rise), "c": table(CALM)})
    assert [one.layer for one in found] == ["b", "a", "c"]
    first, second, third = found
    # 2^6 is the first above ten times the median of those before, that of 1 to 32.
    assert (first.step, first.low, first.high, first.high_step) == (6, 6.0, 2048.0, 11)
    assert (second.step, second.low, second.back_step) == (7, 1.0, None)
    assert (third.step, third.factor) == (None, pytest.approx(1.2))
    assert first.name == "the gradient of b"


def test_of_those_that_go_at_once_the_one_that_grew_most_comes_first():
    found = find_runaways({"a": table([1, 20, 1e9]), "b": table([1, 30, 1e3], output=[1, 11, 12])})
    assert [(one.layer, one.kind) for one in found] == [
        ("b", "gradient"), ("a", "gradient"), ("b", "output"),
    ]  # fmt: skip
    assert {one.step for one in found} == {1}


def test_one_hard_batch_before_it_is_no_beginning():
    (found,) = find_runaways({"a": table([1, 1, 50, 1, 1, 1, 1, 15, 200, 1e4])})
    assert (found.step, found.high) == (7, 1e4)


def test_what_came_back_is_said():
    (found,) = find_runaways({"a": table([1, 1, 1, 40, 300, 40, 2, 1, 1, 1])})
    assert (found.step, found.high, found.high_step, found.back_step) == (3, 300, 4, 6)


def test_a_level_follows_what_it_was_lately_and_stays_while_it_is_away():
    learning = [*np.geomspace(1, 100, 300), 2e3, *[1e4] * 200]
    (found,) = find_runaways({"a": table(learning)})
    assert (found.step, found.back_step) == (300, None)
    assert found.low == pytest.approx(100 ** (267.5 / 299), rel=1e-3)
    falling = [*np.geomspace(100, 1, 300), 7.0, 15.0, 80.0]
    (found,) = find_runaways({"a": table(falling)})
    assert (found.step, found.high) == (302, 80)


def test_what_is_not_finite_has_run_away_whatever_its_level():
    found = find_runaways({"a": table([math.inf]), "b": table([1.0, 2.0, math.inf])})
    assert [(one.layer, one.step, one.factor) for one in found] == [
        ("a", 0, math.inf), ("b", 2, math.inf),
    ]  # fmt: skip
    assert (found[1].high, found[1].high_step) == (2.0, 1)


def test_steps_that_were_not_seen_count_for_nothing():
    nan = math.nan
    (found,) = find_runaways({"a": table([nan, 1, nan, 1, 1, nan, 30, 100])})
    assert (found.step, found.high, found.high_step, found.back_step) == (6, 100, 7, None)
    assert not find_runaways({"a": table([nan, nan]), "b": table([0.0, 0.0])})


def test_a_layer_that_first_gets_nothing_has_its_level_later():
    (found,) = find_runaways({"a": table([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 25])})
    assert (found.step, found.low) == (11, 1.0)
