import math
import random

import numpy as np
import pytest

from stabsweep.errors import BadInput
from stabsweep.limits import CHOICES, LIMITS, check_count, check_value
from stabsweep.space import Axis, Space

RANGES = {
    "lr": {"low": 1e-5, "high": 1},
    "warmup_steps": {"low": 0, "high": 40},
    "clip_norm": {"low": 0.1, "high": 10},
    "momentum": {"low": 0, "high": 0.99},
    "beta2": {"low": 0.9, "high": 0.9999999},
    "init_gain": {"low": 0.123456789, "high": 1.23456789},
}


def refusal(function, *args) -> str:
    with pytest.raises(BadInput) as caught:
        function(*args)
    message = str(caught.value)
    assert "\n" not in message
    return message


# ------------------------------------------------------------------------------ one value


@pytest.mark.parametrize("value", ["1e-3", "1E-3", "1.0e-3", " 0.001 ", 0.001, np.float64(1e-3)])
def test_every_spelling_of_a_number_is_that_number(value):
    found = check_value("lr", value)
    assert found == 0.001 and type(found) is float


@pytest.mark.parametrize("value", ["1e3", "1.0e3", 1000, 1000.0, "1000"])
def test_a_whole_number_is_an_int_however_it_is_written(value):
    found = check_value("warmup_steps", value)
    assert found == 1000 and type(found) is int


@pytest.mark.parametrize("value", [None, "none", "None", "null", "NULL", "off"])
def test_off_is_none_where_it_is_allowed_and_refused_elsewhere(value):
    assert check_value("clip_norm", value) is None
    assert refusal(check_value, "lr", value) == (
        f"lr={value} cannot be switched off: use a finite number > 0"
    )


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("lr", 0, "> 0"),
        ("lr", -1e-3, "> 0"),
        ("lr", "nan", "finite"),
        ("lr", math.inf, "finite"),
        ("lr", True, "finite number > 0"),
        ("clip_norm", False, "or null for none"),
        ("clip_norm", np.bool_(True), "or null for none"),
        ("clip_norm", 0, "> 0, or null for none"),
        ("clip_norm", -1, "> 0, or null for none"),
        ("warmup_steps", 0.5, "whole number >= 0"),
        ("warmup_steps", -1, "whole number >= 0"),
        ("warmup_steps", "inf", "whole number >= 0"),
        ("beta2", 1.0, ">= 0 and < 1"),
        ("dampening", 1.1, ">= 0 and <= 1"),
        ("momentum", "high", ">= 0 and < 1"),
        ("eps", [1e-8], ">= 0"),
        ("weight_decay", {"a": 1}, ">= 0"),
        ("lr", 10**400, "> 0"),
        ("lr", np.ones((3, 3)), "> 0"),
        ("lr", 1e39, "1e-38 to 1e+38"),
        ("lr", 1e-39, "1e-38 to 1e+38"),
        ("weight_decay", 1e300, "float32"),
        ("init", 3, "name"),
        ("optimizer", None, "name"),
    ],
)
def test_a_value_that_cannot_be_used_is_answered_in_one_line_with_key_value_and_limit(
    name, value, allowed
):
    message = refusal(check_value, name, value, f"space.{name}")
    assert message.startswith(f"space.{name}={' '.join(str(value).split())[:10]}") or (
        message.startswith(f"space.{name}={' '.join(repr(value).split())}")
    )
    assert allowed in message


def test_a_mistyped_hyperparameter_is_met_with_the_nearest():
    assert "did you mean warmup_steps?" in refusal(check_value, "warmup_step", 3)


@pytest.mark.parametrize("value", [0, -1, 1.0, "3", True, None])
def test_a_count_is_a_whole_number_from_its_least_on(value):
    assert f"horizon={value!r}" in refusal(check_count, "horizon", value)
    check_count("horizon", 1)
    check_count("seed", 0, 0)
    check_count("seed", 2**63 - 1)
    assert "use a whole number >= 1 and <= 10" in refusal(check_count, "horizon", 11, 1, 10)


# ------------------------------------------------------------------------------ an axis


def test_a_range_is_logarithmic_where_ratios_matter_and_linear_elsewhere():
    scales = {name: Axis.parse(name, given).scale for name, given in RANGES.items()}
    assert scales == {
        "lr": "log",
        "warmup_steps": "linear",
        "clip_norm": "log",
        "momentum": "linear",
        "beta2": "linear",
        "init_gain": "log",
    }
    assert Axis.parse("lr", {**RANGES["lr"], "scale": "linear"}).scale == "linear"
    assert Axis.parse("lr", {**RANGES["lr"], "scale": None}).scale == "log"


@pytest.mark.parametrize("given", [["1e-3", 0.1], {"values": (0.1, "1E-3")}, (0.1, 0.001)])
def test_a_list_is_read_from_any_form_and_sorted(given):
    assert Axis.parse("lr", given).values == (0.001, 0.1)


def test_equal_values_written_differently_are_one():
    given = [0.0001, "1e-4", "1E-4", 3 * 1e-4, 0.0003, 9.999999999999999e-06, 1e-5]
    assert Axis.parse("lr", given).values == (1e-5, 1e-4, 3e-4)
    assert Axis.parse("warmup_steps", [10, 10.0, "10", "1e1"]).values == (10,)
    assert Axis.parse("beta2", [0.999, 0.9999999]).values == (0.999, 0.9999999)


def test_off_comes_last_and_once():
    assert Axis.parse("clip_norm", ["off", 10, None, "1", 0.1]).values == (0.1, 1.0, 10.0, None)


def test_names_keep_their_order():
    axis = Axis.parse("optimizer", ["sgd", "adam", "sgd"])
    assert axis.values == ("sgd", "adam") and not axis.is_numeric
    assert Axis.parse("clip_norm", [1, None]).is_numeric


@pytest.mark.parametrize(
    ("name", "given", "parts"),
    [
        ("lr", 0.1, ["space.lr=0.1", "{low, high, scale}", "lr=0.1 without space"]),
        ("lr", "1e-3", ["space.lr=1e-3", "list of values"]),
        ("lr", np.ones((3, 3)), ["space.lr=[[1. 1. 1.] [1.", "list of values"]),
        ("lr", [], ["space.lr.values=[]", "give [a, b, ...]"]),
        ("lr", {"values": 3}, ["space.lr.values=3", "[a, b, ...]"]),
        ("lr", {"values": "abc"}, ["space.lr.values='abc'"]),
        ("lr", [0.1, "x"], ["space.lr.values='x'", "> 0"]),
        ("lr", [0.1, True], ["space.lr.values=True", "> 0"]),
        ("lr", [0.1, None], ["space.lr.values=None", "> 0"]),
        ("lr", {"low": 1e-3}, ["space.lr.high is missing"]),
        ("lr", {}, ["space.lr.low is missing"]),
        ("lr", {"low": "a", "high": 1}, ["space.lr.low='a'", "> 0"]),
        ("lr", {"low": 1, "high": 0.1}, ["space.lr", "low=1", "high=0.1"]),
        ("lr", {"low": 1, "high": 1}, ["low=1", "high=1"]),
        ("lr", {"low": 1e-3, "high": 1, "scale": "lin"}, ["space.lr.scale='lin'", "linear"]),
        ("lr", {"values": [1], "scale": "lin"}, ["space.lr.scale='lin'", "linear"]),
        ("lr", {"low": 1e-3, "hihg": 1}, ["space.lr key='hihg'", "did you mean high?"]),
        ("eps", {"low": 0, "high": 1}, ["space.eps.low=0", "log scale", "low > 0"]),
        ("clip_norm", {"low": "off", "high": 1}, ["space.clip_norm.low", "values"]),
        ("init", {"low": 1, "high": 2}, ["space.init", "values: [a, b, ...]"]),
        ("learning_rate", {"low": 1, "high": 2}, ["axis='learning_rate'", "lr"]),
        ("warmup_step", 3, ["axis='warmup_step'", "did you mean warmup_steps?"]),
    ],
)
def test_what_is_no_axis_is_answered_in_one_line(name, given, parts):
    message = refusal(Axis.parse, name, given)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize("name", RANGES)
def test_an_axis_runs_from_end_to_end_without_leaving_its_range(name):
    axis = Axis.parse(name, RANGES[name])
    assert [axis.at(0), axis.at(1)] == pytest.approx([axis.low, axis.high], rel=1e-5)
    draw = random.Random(0)
    shares = sorted([0, 1, *(draw.random() for _ in range(300))])
    values = [axis.at(share) for share in shares]
    assert values == sorted(values)
    assert all(axis.low <= value <= axis.high for value in values)
    assert all(check_value(name, value) == value for value in values)
    if LIMITS[name].integer:
        assert all(type(value) is int for value in values)


@pytest.mark.parametrize("name", ["lr", "clip_norm", "momentum"])
def test_share_is_the_inverse_of_at(name):
    axis = Axis.parse(name, RANGES[name])
    for share in np.linspace(0, 1, 57):
        assert axis.share(axis.at(float(share))) == pytest.approx(share, abs=1e-5)


def test_values_inside_a_range_have_six_digits_so_that_equal_points_are_equal():
    axis = Axis.parse("lr", RANGES["lr"])
    for share in np.linspace(0.01, 0.99, 99):
        value = axis.at(float(share))
        assert value == float(f"{value:.6g}")
    # A grid of nine and one of seventeen share every second value, exactly.
    assert axis.grid(9) == axis.grid(17)[::2]


def test_a_list_is_divided_into_equal_parts():
    axis = Axis.parse("clip_norm", [1, 2, None])
    assert [axis.at(share) for share in (0, 0.3, 0.34, 0.66, 0.67, 0.99, 1)] == [
        1,
        1,
        2,
        2,
        None,
        None,
        None,
    ]


def test_a_grid_has_its_ends_and_a_constant_ratio():
    rates = Axis.parse("lr", {"low": 1e-3, "high": 1}).grid(10)
    assert len(rates) == 10 and (rates[0], rates[-1]) == (1e-3, 1)
    ratios = np.divide(rates[1:], rates[:-1])
    assert ratios == pytest.approx(np.full(9, 2.1544), rel=1e-4)
    steps = np.diff(Axis.parse("momentum", {"low": 0, "high": 0.9}).grid(4))
    assert steps == pytest.approx([0.3] * 3)


def test_a_grid_of_whole_numbers_repeats_none():
    axis = Axis.parse("warmup_steps", {"low": 0, "high": 3})
    assert axis.grid(10) == [0, 1, 2, 3]
    assert axis.grid(1) == [2]


# ------------------------------------------------------------------------------ a space


def test_a_space_reads_back_what_it_writes():
    given = {**RANGES, "eps": ["1e-8", 1e-6], "optimizer": ["sgd", "adam"], "init": ["default"]}
    space = Space.parse({**given, "clip_norm": [None, 1]})
    assert Space.parse(space.as_dict()) == space
    assert list(space.as_dict()) == list(given)


def test_an_axis_that_is_null_is_left_out():
    space = Space.parse({"lr": RANGES["lr"], "warmup_steps": None})
    assert [axis.name for axis in space] == ["lr"] and space.row_axes == []


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({}, "no lr axis"),
        ({"lr": None}, "no lr axis"),
        ({"momentum": [0.9]}, "space.lr={low: ..., high: ...}"),
        (None, "space=None is not a space"),
        ("small", "space='small' is not a space"),
        ([1, 2], "space=[1, 2] is not a space"),
        ({"lr": RANGES["lr"], "lrr": 3}, "axis='lrr'"),
        ({"lr": RANGES["lr"], 3: [1]}, "axis=3"),
    ],
)
def test_what_is_no_space_is_answered_in_one_line(given, part):
    assert part in refusal(Space.parse, given)


def test_a_grid_is_row_by_row_and_at_least_as_large_as_asked():
    space = Space.parse({"lr": RANGES["lr"], "momentum": [0.9, 0], "optimizer": ["sgd", "adam"]})
    points = space.grid(30)
    assert len(points) == 32
    assert [space.row(point) for point in points[::8]] == [
        (0.0, "sgd"),
        (0.0, "adam"),
        (0.9, "sgd"),
        (0.9, "adam"),
    ]
    assert len({tuple(point.items()) for point in points}) == 32
    assert len(space.grid(1)) == 4 * 5


def test_the_rates_of_a_grid_are_the_same_in_every_row():
    space = Space.parse({"lr": RANGES["lr"], "warmup_steps": RANGES["warmup_steps"]})
    rows = {}
    for point in space.grid(40):
        rows.setdefault(space.row(point), []).append(point["lr"])
    assert len(rows) == 4 and len({tuple(rates) for rates in rows.values()}) == 1


def test_a_point_at_shares_takes_them_in_the_order_of_the_axes():
    space = Space.parse({"momentum": [0, 0.9], "lr": RANGES["lr"]})
    assert space.at([0.9, 0]) == {"momentum": 0.9, "lr": 1e-5}


def test_every_hyperparameter_says_what_it_may_be():
    for limit in LIMITS.values():
        assert "number" in str(limit) and ">" in str(limit)
    assert not set(CHOICES) & set(LIMITS)


# ------------------------------------------------------------------------------ what an axis feeds


def test_an_axis_may_be_an_argument_of_the_model():
    axis = Axis.parse("width", {"values": [128, 64, 64], "to": "model"})
    assert (axis.values, axis.to, axis.is_splitting, axis.is_numeric) == (
        (64, 128),
        "model",
        True,
        True,
    )
    assert Axis.parse("width", axis.as_dict()) == axis


def test_an_argument_may_be_a_name_a_switch_or_nothing():
    axis = Axis.parse("qk_norm", {"values": [True, False], "to": "model"})
    assert axis.values == (True, False) and not axis.is_numeric
    mixed = Axis.parse("cell", {"values": ["tanh", None], "to": "model"})
    assert mixed.values == ("tanh", None) and not mixed.is_numeric


def test_a_name_of_ours_may_be_an_argument_of_an_optimizer_of_the_users_own():
    axis = Axis.parse("momentum", {"values": [1.5, 2.0], "to": "optimizer"})
    assert axis.values == (1.5, 2.0), "the limits of our own optimizers do not hold for it"


def test_an_axis_may_be_a_rate_of_some_parameters():
    axis = Axis.parse("head_lr", {"low": 1e-4, "high": 1, "to": "lr:head.*"})
    assert (axis.pattern("lr"), axis.pattern("lr_scale")) == ("head.*", None)
    assert (axis.scale, axis.is_splitting) == ("log", False)
    assert axis.grid(3) == [1e-4, 1e-2, 1]
    assert Axis.parse("head_lr", axis.as_dict()) == axis


@pytest.mark.parametrize("name", ["optimizer", "schedule", "precision", "batch_size"])
def test_an_axis_that_changes_the_program_splits(name):
    values = [8, 16] if name == "batch_size" else ["a", "b"]
    found = Space.parse({"lr": RANGES["lr"], "momentum": [0, 0.9], name: values})
    assert [axis.name for axis in found.splitting] == [name]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("width", [1, 2], "an argument of the model is an axis with to: model"),
        ("width", {"values": [1], "to": "modle"}, "did you mean model"),
        ("width", {"values": [1], "to": 3}, "space.width.to=3 is not known: use one of lr:PATTERN"),
        ("width", {"values": [1], "to": "lr:"}, "space.width.to='lr:' is not known"),
        ("width", {"low": 1, "high": 9, "to": "model"}, "one program of each value: give values"),
        ("batch_size", {"low": 1, "high": 9}, "one program of each value: give values"),
        ("lr", {"low": 1, "high": 9, "to": "lr:a"}, "not allowed: lr is an axis of its own"),
        ("precision", {"values": ["a"], "to": "model"}, "precision is an axis of its own"),
        ("width", {"values": [[1, 2]], "to": "model"}, "numbers, names, true, false or null"),
        ("head", {"values": [0, 1], "to": "lr:h"}, "space.head.values=0 is out of range"),
        ("batch_size", [0, 8], "space.batch_size.values=0 is out of range"),
    ],
)
def test_what_an_axis_cannot_feed_is_refused(name, given, says):
    assert says in refusal(Axis.parse, name, given)
