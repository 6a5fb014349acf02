"""The edge against simulated rows whose edge is known."""

import math
import random

import numpy as np
import pytest
from scipy.special import ndtr

from stabsweep.edge import find_edge


@pytest.mark.parametrize("num_rates", [5, 12, 48])
def test_the_edge_of_a_row_without_noise_lies_between_the_two_rates_that_disagree(num_rates):
    draw = random.Random(num_rates)
    x = np.linspace(-5, 0, num_rates)
    for _ in range(20):
        place = draw.randrange(1, num_rates)
        edge = find_edge(10**x, np.arange(num_rates) < place)
        assert edge.status == "found"
        assert x[place - 1] <= math.log10(edge.lr) <= x[place]
        assert edge.low <= edge.lr <= edge.high


@pytest.mark.parametrize("seed", range(10))
def test_the_edge_lies_in_a_gap_that_is_far_narrower_than_the_row(seed):
    draw = np.random.default_rng(seed)
    true = draw.uniform(-3, -2)
    x = np.concatenate([np.linspace(-6, 0, 9), true + draw.uniform(-0.02, 0.02, 20)])
    edge = find_edge(10**x, x < true)
    assert x[x < true].max() - 1e-9 <= math.log10(edge.lr) <= x[x >= true].min() + 1e-9


@pytest.mark.parametrize("design", ["grid", "random"])
@pytest.mark.parametrize(("num_rates", "seeds"), [(12, 2), (48, 2)])
@pytest.mark.parametrize("width", [0.05, 0.15])
def test_under_noise_the_edge_is_unbiased_and_its_interval_holds_it(
    design, num_rates, seeds, width
):
    errors, covered, safe, num = [], 0, [], 150
    for seed in range(num):
        draw = np.random.default_rng(seed)
        true = -2.5 + draw.uniform(-0.5, 0.5)
        x = np.linspace(-5, 0, num_rates) if design == "grid" else draw.uniform(-5, 0, num_rates)
        x = np.tile(x, seeds)
        held = draw.random(len(x)) < ndtr((true - x) / width)
        edge = find_edge(10**x, held, np.repeat(np.arange(seeds), num_rates))
        errors.append(math.log10(edge.lr) - true)
        covered += math.log10(edge.low) <= true <= math.log10(edge.high)
        safe.append(ndtr((true - math.log10(edge.safe_lr)) / width))
    # "The lowest rate that failed" would be biased by 0.1 and more here.
    assert abs(np.mean(errors)) < 0.03 + np.std(errors) / math.sqrt(num)
    assert covered / num >= 0.88
    assert np.median(safe) >= 0.95 and np.quantile(safe, 0.1) >= 0.85


def test_more_seeds_narrow_the_interval():
    x = np.linspace(-5, 0, 16)
    held = x < -2
    one, four = (find_edge(10 ** np.tile(x, n), np.tile(held, n)) for n in (1, 4))
    assert math.log(four.high / four.low) < 0.7 * math.log(one.high / one.low)
    assert four.lr == pytest.approx(one.lr, rel=0.3)


def test_the_order_of_the_trials_does_not_matter():
    draw = np.random.default_rng(0)
    x = draw.uniform(-5, 0, 40)
    held = draw.random(40) < ndtr((-2 - x) / 0.2)
    seeds = draw.integers(0, 3, 40)
    first = find_edge(10**x, held, seeds)
    for _ in range(5):
        order = draw.permutation(40)
        other = find_edge((10**x)[order], held[order], seeds[order])
        for name in ("lr", "low", "high", "safe_lr"):
            assert getattr(other, name) == pytest.approx(getattr(first, name), rel=1e-6)


@pytest.mark.parametrize("decades", [-3.0, -0.3, 2.0])
def test_a_row_that_is_moved_moves_its_edge_by_as_much(decades):
    draw = np.random.default_rng(1)
    x = draw.uniform(-5, 0, 30)
    held = draw.random(30) < ndtr((-2 - x) / 0.2)
    first, other = find_edge(10**x, held), find_edge(10 ** (x + decades), held)
    for name in ("lr", "low", "high", "safe_lr"):
        assert getattr(other, name) == pytest.approx(getattr(first, name) * 10**decades, rel=1e-4)


def test_a_pocket_above_the_edge_moves_it_little_and_the_safe_rate_not_up():
    x = np.linspace(-5, 0, 24)
    held = x < -2.1
    plain = find_edge(10**x, held)
    pocket = held.copy()
    pocket[-3] = True
    found = find_edge(10**x, pocket)
    assert abs(math.log10(found.lr / plain.lr)) < 0.25
    assert found.safe_lr <= plain.safe_lr * 1.1


@pytest.mark.parametrize("place", [4, 14])
def test_one_failure_below_many_that_held_moves_nothing_up_and_the_edge_little(place):
    x = np.tile(np.linspace(-5, 0, 24), 2)
    held = x < -1.1
    plain = find_edge(10**x, held)
    held[place] = False
    found = find_edge(10**x, held)
    assert abs(math.log10(found.lr / plain.lr)) < 0.3
    assert found.lr <= plain.lr and found.safe_lr <= plain.safe_lr


def test_a_failure_close_below_the_edge_costs_safety():
    x = np.tile(np.linspace(-5, 0, 24), 2)
    held = x < -1.1
    plain = find_edge(10**x, held)
    held[16] = False
    found = find_edge(10**x, held)
    assert found.safe_lr < 0.8 * plain.safe_lr and found.low < plain.low


def test_a_row_in_which_nothing_failed_or_nothing_held_says_so():
    above = find_edge([0.1, 1e-3, 0.01], [True] * 3)
    assert vars(above) == dict(status="above", lr=None, low=0.1, high=None, safe_lr=0.1)
    below = find_edge([0.1, 1e-3, 0.01], [False] * 3)
    assert vars(below) == dict(status="below", lr=None, low=None, high=1e-3, safe_lr=None)
    assert vars(find_edge([], [])) == dict(
        status="unknown", lr=None, low=None, high=None, safe_lr=None
    )


@pytest.mark.parametrize("held", [[True, False], [False, True]])
@pytest.mark.parametrize("lrs", [[1e-3, 1e-2], [1e-3, 1e-3], [1e-3, math.nextafter(1e-3, 1)]])
def test_two_trials_are_enough_for_finite_numbers(lrs, held):
    edge = find_edge(lrs, held)
    assert edge.status == "found" and 0 < edge.low <= edge.lr <= edge.high < math.inf


def test_the_safe_rate_is_below_the_edge_and_not_above_what_held():
    for seed in range(60):
        draw = np.random.default_rng(seed)
        num = int(draw.integers(2, 40))
        x = draw.uniform(-5, 0, num)
        held = draw.random(num) < ndtr((draw.uniform(-4, -1) - x) / draw.choice([0.01, 0.3]))
        edge = find_edge(10**x, held, draw.integers(0, 3, num))
        if edge.status == "found" and edge.safe_lr is not None:
            assert edge.safe_lr <= edge.lr
            assert edge.safe_lr <= 10 ** x[held].max() * (1 + 1e-9)


def test_what_held_bounds_the_safe_rate_however_far_the_next_failure_is():
    edge = find_edge([1e-5] * 10 + [1.0] * 10, [True] * 10 + [False] * 10)
    assert edge.safe_lr == pytest.approx(1e-5) and edge.lr > 1e-4


def test_the_safe_rate_is_that_of_the_worst_seed():
    x = np.linspace(-5, 0, 24)
    seeds = np.repeat([0, 1], 24)
    held = np.concatenate([x < -1.5, x < -2.5])
    edge = find_edge(10 ** np.tile(x, 2), held, seeds)
    assert 10**-2.5 < edge.lr < 10**-1.5
    assert edge.safe_lr < 10**-2.5


def test_a_seed_that_was_only_tried_where_it_failed_bounds_the_safe_rate_but_does_not_void_it():
    x = [-5, -4, -3, -2, -1, -3.5]
    held = [True, True, True, False, False, False]
    edge = find_edge(10.0 ** np.array(x), held, [0, 0, 0, 0, 0, 1])
    assert edge.safe_lr is not None and edge.safe_lr <= 1e-4 * (1 + 1e-9)
    nowhere = find_edge([1e-3, 1e-2, 1e-3, 1e-2], [True, False, False, False], [0, 0, 1, 1])
    assert nowhere.safe_lr is None


def test_ten_thousand_trials_give_a_sharp_edge():
    draw = np.random.default_rng(0)
    x = draw.uniform(-5, 0, 10_000)
    edge = find_edge(10**x, draw.random(10_000) < ndtr((-2 - x) / 0.1), draw.integers(0, 4, 10_000))
    assert math.log10(edge.lr) == pytest.approx(-2, abs=0.02)
    assert math.log10(edge.high / edge.low) < 0.05
