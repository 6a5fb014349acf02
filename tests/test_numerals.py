import math
import random

import pytest

from stabsweep.numerals import duration, loss, plural, rate, round_rate, share, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0018349, "1.8e-3"),
        (1e-5, "1.0e-5"),
        (0.0999, "0.1"),
        (0.099, "9.9e-2"),
        (0.25, "0.25"),
        (3.0, "3"),
        (12.4, "12"),
        (994.0, "990"),
        (996.0, "1.0e3"),
        (3.4e8, "3.4e8"),
        (1e-300, "1.0e-300"),
        (-0.0018349, "-1.8e-3"),
        (-2.54, "-2.5"),
        (0.0, "0"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_a_rate_has_two_digits_in_one_style(value, text):
    assert rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-8, "1.0e-8"), (1.01e-5, "1.01e-5"), (1.02e-5, "1.02e-5"), (-3.16228e-4, "-3.16228e-4")]
    + [(0.99999, "0.99999"), (1.0, "1"), (123456.0, "1.23456e5"), (100.0, "100"), (None, "–")],
)
def test_more_digits_are_written_where_they_are_not_zero(value, text):
    assert rate(value, digits=6) == text
    if value is not None:
        assert float(text) == value


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (2e-3, 3e-3, "2.0e-3 to 3.0e-3"),
        (1.97, 2.04, "1.97 to 2.04"),
        (1.996, 2.004, "1.996 to 2.004"),
    ]
    + [(1.0, 1.0, "1 to 1"), (None, None, "– to –"), (1.234e-4, 1.233e-4, "1.234e-4 to 1.233e-4")],
)
def test_ends_that_differ_are_written_apart(low, high, text):
    assert span(low, high) == text


@pytest.mark.parametrize(
    ("value", "down"),
    [(0.0199, 0.019), (0.0199999999999, 0.019), (0.29, 0.29), (0.57, 0.57), (1.1, 1.1)]
    + [(2.2e-3, 2.2e-3), (-0.0199, -0.019), (999.0, 990.0), (5e-324, 5e-324), (0.0, 0.0)]
    + [(0.3 * 0.1, 0.03), (math.inf, math.inf), (9.99e307, 9.9e307)],
)
def test_rounding_down_goes_towards_zero_and_no_further_than_needed(value, down):
    assert round_rate(value, down=True) == down


def test_rounding_down_never_grows_and_never_loses_a_unit_of_the_second_digit():
    draw = random.Random(0)
    for _ in range(5000):
        value = 10 ** draw.uniform(-12, 8)
        down = round_rate(value, down=True)
        unit = 10.0 ** (math.floor(math.log10(value)) - 1)
        assert down <= value
        assert value - down < unit * (1 + 1e-9)
        assert round_rate(down, down=True) == down


def test_a_number_of_two_digits_is_not_changed_by_rounding_it():
    for mantissa in range(10, 100):
        for exponent in range(-12, 7):
            value = float(f"{mantissa}e{exponent}")
            assert round_rate(value, down=True) == round_rate(value) == value


def test_a_rate_that_is_written_down_reads_back_at_most_as_large():
    draw = random.Random(1)
    for _ in range(2000):
        value = 10 ** draw.uniform(-8, 4)
        assert float(rate(value, down=True)) <= value


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.7834, "1.78"), (0.0213, "0.0213"), (0.00999, "9.99e-3"), (3.4e-5, "3.40e-5")]
    + [(999.4, "999"), (999.6, "1.00e3"), (2.4e18, "2.40e18"), (0.0, "0"), (-2.345, "-2.35")]
    + [(math.inf, "inf"), (math.nan, "–"), (None, "–"), (-1e-9, "-1.00e-9")],
)
def test_a_loss_has_three_digits(value, text):
    assert loss(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0%"), (1e-9, "<1%"), (0.0099, "<1%"), (0.01, "1%"), (0.994, ">99%"), (1.0, "100%")],
)
def test_a_share_is_nought_or_all_only_when_it_is_exactly_that(value, text):
    assert share(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3599.4, "59 min 59 s")]
    + [(3599.6, "1 h 00 min"), (4000, "1 h 06 min"), (90000, "25 h 00 min")],
)
def test_a_duration_never_shows_sixty(seconds, text):
    assert duration(seconds) == text


def test_a_count_agrees_with_its_noun():
    assert [plural(n, "seed") for n in (0, 1, 2, 4096)] == [
        "0 seeds",
        "1 seed",
        "2 seeds",
        "4,096 seeds",
    ]
