import pytest

from stabsweep.sampler.grid import Grid, _coarse_to_fine
from stabsweep.space import Space

SPACE = Space.parse(
    {"lr": {"low": 1e-5, "high": 1}, "warmup_steps": [0, 10], "optimizer": ["sgd", "adam"]}
)


def entries(num_trials, seeds, done=()):
    return list(Grid(SPACE, num_trials, seeds, done=done)._todo)


@pytest.mark.parametrize("num_places", range(1, 130))
def test_every_place_is_visited_once(num_places):
    assert sorted(_coarse_to_fine(num_places)) == list(range(num_places))


@pytest.mark.parametrize("num_places", [8, 12, 16, 31, 64])
def test_any_first_part_of_the_places_is_spread_over_the_whole(num_places):
    order = _coarse_to_fine(num_places)
    for num_first in range(2, num_places + 1):
        places = sorted(order[:num_first])
        assert places[0] == 0 and places[-1] == num_places - 1
        widest = max(b - a for a, b in zip(places, places[1:], strict=False))
        assert widest <= 2.5 * (num_places - 1) / (num_first - 1) + 1


def test_the_first_quarter_covers_every_row_and_spans_the_rates():
    grid = entries(128, (0, 1))
    quarter = [point for _, point, _ in grid[: len(grid) // 4]]
    rows = {SPACE.row(point) for point in quarter}
    assert len(rows) == 4
    for row in rows:
        rates = [point["lr"] for point in quarter if SPACE.row(point) == row]
        assert (min(rates), max(rates)) == (1e-5, 1) and len(rates) == 8


def test_the_second_seed_begins_when_the_first_is_through():
    seeds = [seed for _, _, seed in entries(80, (7, 3))]
    assert seeds == [7] * 40 + [3] * 40


def test_an_index_names_its_trial_whatever_was_done_before():
    whole = {index: (point, seed) for index, point, seed in entries(40, (0, 1))}
    rest = {index: (point, seed) for index, point, seed in entries(40, (0, 1), done=range(25))}
    assert rest == {index: whole[index] for index in range(25, 40)}


def test_the_grid_is_rounded_up_to_full_rows():
    assert Grid(SPACE, 41, (0, 1)).num_trials == 48
    assert Grid(SPACE, 1, (0,)).num_trials == 20
