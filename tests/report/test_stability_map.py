import math
from dataclasses import replace

import numpy as np
import pytest

from stabsweep.records import Record, Verdict
from stabsweep.region import Cell
from stabsweep.report.stability_map import cell_bounds, cell_parts, loss_scale, map_info
from stabsweep.theory import Theory


def record(verdict=Verdict.CONVERGED, loss=1.0, **other):
    return Record(0, {"lr": 0.1}, 0, verdict, final_loss=loss, blind_loss=3.0, **other)


def test_cell_ends_are_computed_in_log_space():
    grid = np.geomspace(1e-5, 1e-2, 7)
    ends = np.array(cell_bounds(grid))
    assert (ends > 0).all()
    assert ends[1:, 0] == pytest.approx(ends[:-1, 1])
    assert ends[:, 0] * ends[:, 1] == pytest.approx(grid**2)


def test_a_rate_missing_from_a_grid_leaves_a_hole():
    ends = cell_bounds([1e-4, 1e-3, 1e-1, 1.0])
    assert ends[1][1] == pytest.approx(1e-3 * 10**0.5)
    assert ends[2][0] == pytest.approx(1e-1 / 10**0.5)


def test_cells_of_scattered_rates_meet_half_way_and_do_not_stretch_at_the_ends():
    lrs = np.sort(10 ** np.random.default_rng(0).uniform(-5, 0, 30))
    ends = np.array(cell_bounds(lrs))
    assert ends[1:, 0] == pytest.approx(ends[:-1, 1])
    assert (ends[:, 0] < lrs).all() and (lrs < ends[:, 1]).all()
    step = np.median(np.diff(np.log10(lrs)))
    assert np.log10(lrs[0] / ends[0, 0]) == pytest.approx(step / 2)
    assert np.log10(ends[-1, 1] / lrs[-1]) == pytest.approx(step / 2)


def test_one_rate_and_none():
    assert cell_bounds([]) == []
    ((low, high),) = cell_bounds([0.1])
    assert low < 0.1 < high


def test_a_cell_shows_the_share_of_each_outcome():
    trials = [
        record(loss=1.0),
        record(loss=2.0),
        record(Verdict.DIVERGED, None),
        record(Verdict.INVALID, None, state="failed"),
    ]
    parts = cell_parts(Cell(0.1, tuple(trials)))
    assert [(p.name, p.bottom, p.top, p.loss) for p in parts] == [
        ("converged", 0.0, 0.5, 1.5),
        ("diverged", 0.5, 0.75, None),
        ("failed", 0.75, 1.0, None),
    ]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], None),
        ([record(Verdict.DIVERGED, 1e18)], None),
        ([record(loss=1.0)], (1.0, 3.0)),
        ([record(loss=1.0), record(loss=2.4e18)], (1.0, 3.0)),
        ([record(loss=-8.0), record(Verdict.TOO_SLOW, -99.0)], (-8.0, 3.0)),
        ([record(loss=1.0), record(loss=math.nan)], (1.0, 3.0)),
    ],
)
def test_the_colour_scale_comes_from_what_learned(records, expected):
    assert loss_scale(records)[0] == expected


def test_one_loss_without_a_blind_loss_still_has_a_scale():
    (low, high), word = loss_scale([replace(record(), blind_loss=None)])
    assert low < high and word == "worst"


def test_the_bad_end_of_the_scale_is_called_what_it_is():
    assert loss_scale([record(loss=1.0)])[1] == "blind, knows nothing"
    nothing_to_ignore = replace(record(loss=1.0), blind_loss=None, initial_loss=9.0)
    assert loss_scale([nothing_to_ignore]) == ((1.0, 9.0), "untrained")


def test_rows_of_numbers_grow_upwards_and_names_are_read_from_the_top(states):
    assert [row.label for row in map_info(*states["whole"]).rows] == ["0", "17", "33", "50"]
    labels = [row.label for row in map_info(*states["two_axes"]).rows]
    assert labels[-1] == "sgd · 0.25" and labels[0] == "adamw · off"


def test_the_pick_lies_in_its_row_with_its_margin(states):
    for name in ("whole", "two_axes"):
        region, pick = states[name]
        info = map_info(region, pick)
        assert info.pick.lr == pick.lr
        assert info.pick.edge_lr == pick.edge["lr"] == info.rows[info.pick.row].edge.lr
        assert info.pick.margin_decades == pick.margin_decades


def test_the_edge_of_theory_lies_in_its_own_row(states):
    region, pick = states["whole"]
    theory = Theory(region.rows[1].values, 10.0, 0.02, "2 / lambda")
    rows = map_info(region, pick, theory).rows
    assert [row.theory_lr for row in rows] == [None, 0.02, None, None]
    assert not any(row.theory_lr for row in map_info(region, pick).rows)


def test_cells_that_were_not_run_are_known(states):
    assert not map_info(*states["whole"]).has_gaps
    for name in ("interrupted", "edge_not_reached", "no_records", "one_record"):
        assert map_info(*states[name]).has_gaps, name


def test_rates_of_no_grid_are_known(states):
    region, pick = states["whole"]
    assert not map_info(region, pick).is_scattered
    rows = tuple(replace(row, cells=row.cells[n::4]) for n, row in enumerate(region.rows))
    assert map_info(replace(region, rows=rows), pick).is_scattered
    some = tuple(cell for n, cell in enumerate(region.rows[0].cells) if n not in (2, 3, 7))
    for cells, is_scattered in ((region.rows[0].cells, False), (some, False)):
        row = replace(region.rows[0], cells=cells)
        assert map_info(replace(region, rows=(row,)), pick).is_scattered == is_scattered
    cells = tuple(replace(cell, lr=cell.lr ** (1 + 0.02 * n)) for n, cell in enumerate(some))
    assert map_info(replace(region, rows=(replace(row, cells=cells),)), pick).is_scattered


def test_every_trial_is_on_the_map(states):
    for name, (region, pick) in states.items():
        info = map_info(region, pick)
        assert sum(info.counts.values()) == len(region.records)
        low, high = info.lr_range
        assert 0 < low < high
        for row in info.rows:
            for cell in row.cells:
                assert low <= cell.low < cell.lr < cell.high <= high, name
                assert cell.parts[0].bottom == 0 and cell.parts[-1].top == pytest.approx(1)


def test_one_insane_loss_does_not_change_the_scale(states):
    assert map_info(*states["insane_loss"]).losses[1] == pytest.approx(3.1)


def test_losses_over_decades_are_on_a_log_scale(sweep):
    region, pick = sweep
    wide = tuple(
        replace(r, final_loss=r.final_loss and 1e-6 * r.final_loss) for r in region.records
    )
    assert map_info(replace(region, records=wide), pick).log_loss
    assert not map_info(region, pick).log_loss
