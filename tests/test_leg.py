from __future__ import annotations

import math

import optuna
import pytest

from stabsweep.extension import Extension
from stabsweep.leg import Legs
from stabsweep.space import Space


def legs(name, num_trials=48, seeds=(0, 1), extensions=(), **axis):
    space = Space.parse({"lr": {"low": 1e-3, "high": 10.0, **axis}, "warmup_steps": [0, 10]})
    return Legs(space, {"name": name}, num_trials, seeds, 0, 0.2, True, list(extensions))


def points(legs, leg):
    study = optuna.create_study(sampler=(rule := legs.rule(leg)))
    found = []
    for _ in range(rule.num_trials):
        found.append(dict(rule._running[study.ask().number]))
    return found


def test_a_grid_goes_on_with_its_distance_and_repeats_no_rate():
    up, down = Extension(10.0, 100.0), Extension(1e-4, 1e-3)
    wider = legs("grid", 72, extensions=[up, down])
    first, above, below = (points(wider, leg) for leg in range(3))
    rates = [sorted({p["lr"] for p in part}) for part in (below, first, above)]
    # 18 rates in four decades: four more in one.
    assert [len(part) for part in rates] == [4, 18, 4]
    assert rates[0][0] == 1e-4 and rates[2][-1] == 100.0
    every = sum(rates, [])
    gaps = [math.log10(b / a) for a, b in zip(every, every[1:], strict=False)]
    assert min(gaps) > 0.2 and max(gaps) < 0.27
    assert len(above) == 4 * 2 * 2
    assert wider.num_planned == 72 + 16 + 16
    assert wider.space.axes["lr"].low == 1e-4 and wider.space.axes["lr"].high == 100.0


@pytest.mark.parametrize("name", ["random", "sobol"])
def test_a_new_part_is_as_dense_as_the_first_and_has_points_of_its_own(name):
    wider = legs(name, extensions=[Extension(10.0, 100.0)])
    first, second = points(wider, 0), points(wider, 1)
    assert (len(first), len(second)) == (48, 12)
    assert all(10 <= point["lr"] <= 100 for point in second)
    shares = [{round(math.log10(p["lr"]) % 1, 4) for p in part} for part in (first, second)]
    assert len(shares[0] & shares[1]) < 3


def test_a_range_of_less_than_a_decade_is_added_to_with_its_own_number_at_most():
    for name in ("grid", "random"):
        wider = legs(name, extensions=[Extension(2.0, 20.0)], low=1.0, high=2.0)
        assert 0 < wider.num_planned - 48 <= 48


def test_boundary_gets_the_whole_range_and_all_trials():
    wider = legs("boundary", extensions=[Extension(10.0, 100.0)])
    assert wider.rule(1).num_trials == wider.num_planned == 60
    assert wider.rule(1)._chart.ends == (-3, 2)
