"""Edges of rows whose rates are scattered."""

import numpy as np
import pytest

from stabsweep.records import Record, Verdict
from stabsweep.region import ROW_BINS, find_region
from stabsweep.scattered import scattered_edges
from stabsweep.space import Space

RANGE = Space.parse({"lr": {"low": 1e-4, "high": 1}, "warmup_steps": {"low": 0, "high": 100}})
LIST = Space.parse({"lr": {"low": 1e-4, "high": 1}, "warmup_steps": [0, 30, 100]})


def edge_of(warmup_steps: float) -> float:
    return -2.5 + warmup_steps / 100


def records_of(space, number=200, seed=0, edge=edge_of):
    rng = np.random.default_rng(seed)
    records = []
    for k, shares in enumerate(rng.random((number, 2)).tolist()):
        point = space.at(shares)
        held = np.log10(point["lr"]) < edge(point["warmup_steps"])
        verdict = Verdict.CONVERGED if held else Verdict.DIVERGED
        records.append(Record(k, point, k % 2, verdict, final_loss=1.0, blind_loss=2.0))
    return records


@pytest.mark.parametrize("space, num_rows", [(RANGE, ROW_BINS), (LIST, 3)])
def test_scattered_rows_lend_each_other_strength(space, num_rows):
    region = find_region(space, records_of(space))
    assert len(region.rows) == num_rows
    for row in region.rows:
        truth = edge_of(row.values["warmup_steps"])
        assert row.edge.status == "found"
        assert np.log10(row.edge.lr) == pytest.approx(truth, abs=0.08)
        assert np.log10(row.edge.low) - 0.05 < truth < np.log10(row.edge.high) + 0.05
        assert np.log10(row.edge.high / row.edge.low) < 0.4
        assert row.edge.safe_lr < row.edge.lr


def test_the_safe_edge_holds_in_the_whole_bin():
    region = find_region(RANGE, records_of(RANGE, 400))
    for row in region.rows:
        lowest = edge_of(row.values["warmup_steps"] - 100 / ROW_BINS / 2)
        assert np.log10(row.edge.safe_lr) < lowest


def test_a_grid_keeps_the_edges_of_its_own_rows():
    points = LIST.grid(60)
    records = [
        Record(k, p, 0, Verdict.CONVERGED if np.log10(p["lr"]) < edge_of(p["warmup_steps"])
               else Verdict.DIVERGED, final_loss=1.0)
        for k, p in enumerate(points)
    ]  # fmt: skip
    alone = [
        find_region(LIST, [r for r in records if r.point["warmup_steps"] == w])
        for w in (0, 30, 100)
    ]
    assert [row.edge for row in find_region(LIST, records).rows] == [r.rows[0].edge for r in alone]


def test_rates_on_one_side_only_have_no_common_edge():
    held = records_of(RANGE, edge=lambda _: 9)
    rows = [{"warmup_steps": 0}, {"warmup_steps": 100}]
    assert scattered_edges(RANGE, held, rows, {}) == [None, None]
    assert scattered_edges(RANGE, [], rows, {}) == [None, None]
    assert {row.edge.status for row in find_region(RANGE, held).rows} == {"above"}


def test_an_edge_beyond_all_rates_is_left_to_the_row():
    far = records_of(LIST, edge=lambda w: 9 if w == 100 else -2.5)
    region = find_region(LIST, far)
    assert [row.edge.status for row in region.rows] == ["found", "found", "above"]


def test_a_pocket_does_not_move_the_edge():
    records = records_of(RANGE, 300)
    clean = scattered_edges(RANGE, records, [{"warmup_steps": 50}], {})[0]
    for k in range(12):
        point = {"lr": 0.5 + 0.02 * k, "warmup_steps": 45 + k}
        records.append(Record(300 + k, point, 0, Verdict.CONVERGED, final_loss=1.0))
    dirty = scattered_edges(RANGE, records, [{"warmup_steps": 50}], {})[0]
    assert clean and dirty
    assert np.log10(dirty.lr) == pytest.approx(np.log10(clean.lr), abs=0.05)


def test_it_is_fast_enough_for_a_live_view():
    import time

    records = records_of(RANGE, 2000)
    began = time.process_time()
    find_region(RANGE, records)
    print(f"{time.process_time() - began:.2f} s for 2,000 records")
    assert time.process_time() - began < 5
