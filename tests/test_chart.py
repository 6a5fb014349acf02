"""Coordinates of a space."""

import numpy as np
import pytest

from stabsweep.chart import Chart
from stabsweep.space import Space


def chart_of(**axes) -> Chart:
    return Chart(Space.parse({"lr": {"low": 1e-4, "high": 1}, **axes}))


def test_numbers_are_coordinates_and_everything_else_is_a_category():
    chart = chart_of(
        warmup_steps={"low": 0, "high": 90},
        clip_norm=[0.1, 1, None],
        optimizer=["sgd", "adamw"],
        init_gain=[0.1, 1, 10],
    )
    assert [axis.name for axis in chart.numeric] == ["warmup_steps", "init_gain"]
    assert len(chart.categories) == 6
    point = {"lr": 1e-2, "warmup_steps": 45, "clip_norm": None, "optimizer": "sgd"}
    z, category = chart.place([{**point, "init_gain": 1}, {**point, "init_gain": 10}])
    assert np.allclose(z, [[0.5, 0.5], [0.5, 1.0]])
    assert category[0] == category[1] == chart.categories[(None, "sgd")]


def test_values_lie_where_their_scale_puts_them():
    chart = chart_of(warmup_steps=[0, 10, 100])
    z, _ = chart.place([{"lr": 1, "warmup_steps": value} for value in (0, 10, 100)])
    assert np.allclose(z[:, 0], [0, 0.1, 1])
    assert chart_of(warmup_steps=[7]).place([{"lr": 1, "warmup_steps": 7}])[0] == 0.5


@pytest.mark.parametrize("seed", range(3))
def test_points_and_places_are_inverse_for_ranges(seed):
    chart = chart_of(init_gain={"low": 0.1, "high": 10}, optimizer=["sgd", "adamw", "lion"])
    rng = np.random.default_rng(seed)
    x, z, category = rng.uniform(-4, 0, 9), rng.uniform(size=(9, 1)), rng.integers(3, size=9)
    points = chart.points(x, z, category)
    assert np.allclose(chart.heights(points), x, atol=1e-5)
    again, same = chart.place(points)
    assert np.allclose(again, z, atol=1e-5) and (same == category).all()


def test_a_rate_is_one_of_the_space():
    listed = Chart(Space.parse({"lr": [1e-3, 1e-2, 1e-1]}))
    assert listed.ends == (-3, -1) and listed.center == -2
    assert listed.with_rate({}, -2.2) == {"lr": 1e-2}
    linear = Chart(Space.parse({"lr": {"low": 0.1, "high": 0.9, "scale": "linear"}}))
    assert linear.with_rate({}, np.log10(0.5))["lr"] == pytest.approx(0.5)
    assert linear.with_rate({}, 3)["lr"] == 0.9 and linear.with_rate({}, -3)["lr"] == 0.1


def test_rows_cover_every_listed_value_and_both_ends_of_ranges():
    chart = chart_of(warmup_steps={"low": 0, "high": 90}, clip_norm=[0.1, None])
    rows = chart.rows(64)
    assert {row["clip_norm"] for row in rows} == {0.1, None}
    assert {0, 90} <= {row["warmup_steps"] for row in rows}
    assert 60 <= len(rows) <= 64
    assert chart_of().rows(64) == [{}]
