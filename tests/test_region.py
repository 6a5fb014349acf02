"""The edge against simulated rows whose edge is known, and rows made by hand for the rest."""

import math
import random
from dataclasses import replace

import pytest
from scipy.stats import beta

from stabsweep.records import Record, Verdict
from stabsweep.region import Cell, find_region
from stabsweep.space import Space

SPACE = Space.parse({"lr": {"low": 1e-6, "high": 10}})
BLIND = 2.0


def record(number, lr, verdict="converged", loss: float | None = 1.0, seed=0, **known) -> Record:
    point = {"lr": lr, **known.pop("point", {})}
    known = {"blind_loss": BLIND, "initial_loss": BLIND, "horizon": 100, **known}
    verdict = Verdict[verdict.upper()]
    if not verdict.is_stable:
        loss = None
    return Record(number, point, seed, verdict, final_loss=loss, **known)


def row_of(*cells, space=SPACE, **known):
    """The one row of cells (lr, verdict, loss) of one seed each."""
    records = [record(n, *cell, **known) for n, cell in enumerate(cells)]
    (row,) = find_region(space, records).rows
    return row


def verdicts(region) -> list[str]:
    return [r.verdict.label for r in region.records]


# ------------------------------------------------------------------------------ a cell


@pytest.mark.parametrize(("held", "failed"), [(0, 1), (1, 0), (1, 1), (3, 1), (0, 4), (6, 0)])
def test_the_interval_of_a_share_is_jeffreys(held, failed):
    cell = Cell(0.1, tuple([record(0, 0.1)] * held + [record(0, 0.1, "diverged")] * failed))
    low, high = beta.ppf([0.025, 0.975], held + 0.5, failed + 0.5)
    assert cell.p_stable == held / (held + failed)
    assert cell.p_interval == pytest.approx((low if held else 0, high if failed else 1))


def test_a_cell_is_sound_when_every_judged_seed_learned_without_spikes():
    def cell(*words, **known):
        return Cell(0.1, tuple(record(n, 0.1, word, **known) for n, word in enumerate(words)))

    assert cell("converged", "recovered").is_sound
    for word in ("spiky", "too_slow", "collapsed", "diverged", "degraded", "oscillating"):
        assert not cell("converged", word).is_sound, word
    assert cell("converged", "invalid").is_sound
    assert not cell("invalid").is_sound and not Cell(0.1, ()).is_sound
    assert not cell("converged", state="failed").is_sound


def test_an_unstable_seed_makes_a_cells_loss_infinite():
    both = Cell(0.1, (record(0, 0.1, loss=1.0), record(1, 0.1, "diverged")))
    assert both.loss == both.mean_loss == math.inf
    two = Cell(0.1, (record(0, 0.1, loss=1.0), record(1, 0.1, loss=4.0), record(2, 0.1, "invalid")))
    assert two.loss == two.mean_loss == 2.5
    assert Cell(0.1, ()).loss == math.inf and math.isnan(Cell(0.1, ()).p_stable)


# ------------------------------------------------------------------------------ stalls


def stall(number, lr, seed=0, **known) -> Record:
    return record(number, lr, "too_slow", BLIND, seed, provisional=True, reason="Flat.", **known)


def test_a_stall_is_too_slow_below_what_learned_and_collapsed_above():
    records = [stall(0, 1e-5), record(1, 1e-3), record(2, 1e-2), stall(3, 1e-1)]
    region = find_region(SPACE, records)
    assert verdicts(region) == ["too_slow", "converged", "converged", "collapsed"]
    assert not any(r.provisional for r in region.records)
    assert region.records[3].reason == "Flat. A lower rate of its row learned (1.0e-2)."
    assert region.rows[0].edge.status == "found" and 1e-2 < region.rows[0].edge.lr < 1e-1


def test_the_same_seed_decides_where_it_was_tried():
    records = [record(0, 1e-4, seed=0), stall(1, 1e-3, seed=1), record(2, 1e-2, seed=1)]
    assert verdicts(find_region(SPACE, records))[1] == "collapsed"  # seed 1 has nothing lower
    records.append(stall(3, 1e-5, seed=1))
    assert verdicts(find_region(SPACE, records))[1] == "collapsed"  # a stall decides nothing
    records = [record(0, 1e-3, seed=0), record(1, 1e-4, seed=1), stall(2, 1e-2, seed=1)]
    assert "(1.0e-4)" in find_region(SPACE, records).records[2].reason


def test_a_stall_among_rates_that_only_just_learn_is_too_slow():
    def row(*, above, failed=()):
        records = [stall(0, 1e-5), record(1, 1e-4, loss=1.5), stall(2, 1.1e-4)]
        records += [record(3, 1e-3, loss=above), *failed]
        return verdicts(find_region(SPACE, records))[2]

    assert row(above=1.0) == "too_slow"
    # Unless what is above is an island that learns no better, or lies beyond a failure.
    assert row(above=1.6) == "collapsed"
    assert row(above=1.0, failed=[record(4, 5e-4, "diverged")]) == "collapsed"
    # Settled once, it does not make a row end there.
    records = [record(0, 1e-4, loss=1.5), stall(1, 1.1e-4), record(2, 1e-3, loss=1.0)]
    assert find_region(SPACE, records).rows[0].edge.status == "above"


@pytest.mark.parametrize("failure", ["diverged", "collapsed", "degraded", "oscillating"])
def test_a_stall_above_a_failure_has_collapsed_though_nothing_learned(failure):
    records = [stall(0, 1e-5), record(1, 1e-3, failure), stall(2, 1e-2)]
    region = find_region(SPACE, records)
    assert verdicts(region) == ["too_slow", failure, "collapsed"]
    assert "failed already (1.0e-3)" in region.records[2].reason
    assert region.rows[0].edge.status == "found"


def test_another_seed_decides_where_its_own_was_not_tried():
    assert verdicts(find_region(SPACE, [record(0, 1e-3), stall(1, 1e-2, seed=1)])) == [
        "converged",
        "collapsed",
    ]


def test_a_stall_stays_provisional_where_nothing_of_its_row_learned():
    space = Space.parse({"lr": {"low": 1e-6, "high": 10}, "warmup_steps": [0, 10]})
    records = [
        stall(0, 1e-3, point={"warmup_steps": 0}),
        record(1, 1e-4, point={"warmup_steps": 10}),
    ]
    region = find_region(space, records)
    assert region.records[0].provisional and region.records[0].verdict is Verdict.TOO_SLOW
    assert region.rows[0].best is None and region.rows[0].window is None
    assert region.rows[0].edge.status == "unknown"


def test_settling_twice_changes_nothing():
    records = [stall(0, 1e-5), record(1, 1e-3), stall(2, 1e-1), stall(3, 1.0)]
    once = find_region(SPACE, records)
    assert find_region(SPACE, once.records) == once


# ------------------------------------------------------------------------------ broken batches


def lost(number, lr, step=7, moved: float | None = 1e-3, seed=0, **known) -> Record:
    known = {"steps": step + 3, "reason": "Lost.", "state": "pruned", **known}
    return record(
        number, lr, "diverged", seed=seed, bad_step=step, last_update_ratio=moved, **known
    )


def test_a_failure_that_does_not_wait_for_the_rate_is_the_batch_not_the_rate():
    records = [lost(0, 1e-4), lost(1, 1e-3), lost(2, 1e-2), lost(3, 1.0, step=2, moved=5.0)]
    records += [record(4 + n, lr, seed=1) for n, lr in enumerate((1e-4, 1e-3, 1e-2))]
    region = find_region(SPACE, records)
    assert verdicts(region) == ["invalid"] * 3 + ["diverged"] + ["converged"] * 3
    assert region.records[0].reason == (
        "Lost. Every rate of this seed failed at this step: the batch or the model, not the rate."
    )
    assert region.rows[0].best is not None and region.rows[0].cells[0].num_stable == 1
    assert find_region(SPACE, region.records) == region


@pytest.mark.parametrize(
    "records",
    [
        [lost(0, 1e-4), lost(1, 1e-2)],
        [lost(0, 1e-3), lost(1, 2e-3), lost(2, 9e-3)],
        [lost(0, 1e-4, moved=0.5), lost(1, 1e-3), lost(2, 1e-2)],
        [lost(0, 1e-4, moved=None), lost(1, 1e-3), lost(2, 1e-2)],
        [lost(0, 1e-4, step=9), lost(1, 1e-3), lost(2, 1e-2)],
        [lost(0, 1e-4), lost(1, 1e-3), lost(2, 1e-2), lost(3, 1e-1, step=8)],
        [lost(0, 1e-4), lost(1, 1e-3), lost(2, 1e-2), record(3, 1e-1, "collapsed", steps=100)],
        [record(0, 1e-5, steps=100), lost(1, 1e-4), lost(2, 1e-3), lost(3, 1e-2)],
        [lost(0, 1e-4), lost(1, 1e-3, seed=1), lost(2, 1e-2, seed=2)],
    ],
    ids="few narrow unsteady unknown later later_above went_on learned seeds".split(),
)
def test_a_failure_that_the_rate_may_have_made_stays_one(records):
    assert not any(r.verdict is Verdict.INVALID for r in find_region(SPACE, records).records)


# ------------------------------------------------------------------------------ window and band


def test_window_usable_edge_and_good_band_of_a_row_by_hand():
    # best 1.0, blind 2.0: good up to 1.1, usable up to 1.5.
    row = row_of(
        (1e-6, "too_slow", 2.0),
        (1e-5, "converged", 1.4),
        (1e-4, "converged", 1.09),
        (1e-3, "converged", 1.0),
        (1e-2, "recovered", 1.05),
        (1e-1, "converged", 1.49),
        (1.0, "converged", 1.51),
        (10.0, "diverged"),
    )
    assert row.best is not None and row.best.lr == 1e-3
    assert row.good_band == (1e-4, 1e-2)
    assert row.window == (1e-5, 1e-1) and row.usable_lr == 1e-1


@pytest.mark.parametrize("hole", ["diverged", "collapsed"])
def test_the_window_ends_at_the_first_gap(hole):
    row = row_of(
        (1e-5, "converged", 1.2),
        (1e-4, hole),
        (1e-3, "converged", 1.0),
        (1e-2, "converged", 1.4),
        (1e-1, hole),
        (1.0, "converged", 1.05),
    )
    assert row.window == (1e-3, 1e-2) and row.usable_lr == 1e-2 and row.good_band == (1e-3, 1e-3)


@pytest.mark.parametrize("nothing", [{"verdict": "invalid"}, {"state": "failed"}])
def test_what_could_not_be_judged_is_no_gap_and_no_evidence(nothing):
    records = [record(n, lr, loss=1.0 + n / 100) for n, lr in enumerate((1e-4, 1e-3, 1e-2))]
    plain = find_region(SPACE, records).rows[0]
    records += [record(3, 3e-3, **nothing), record(4, 1e-6, **nothing), record(5, 10.0, **nothing)]
    row = find_region(SPACE, records).rows[0]
    assert row.window == plain.window == (1e-4, 1e-2)
    assert row.edge == plain.edge and row.edge.status == "above"
    assert len(row.cells) == 6
    only = find_region(SPACE, [record(0, 1e-3, **nothing)]).rows[0]
    assert only.edge.status == "unknown" and only.best is None


def test_losses_may_be_negative():
    cells = [(1e-4, "converged", -8.5), (1e-3, "converged", -9.0), (1e-2, "converged", -2.0)]
    row = row_of(*cells, blind_loss=-1.0)
    assert row.good_band == (1e-4, 1e-3) and row.window == (1e-4, 1e-3)


def test_the_initial_loss_takes_the_place_of_a_blind_loss_that_does_not_exist():
    cells = [(1e-4, "converged", 1.5), (1e-3, "converged", 1.0), (1e-2, "converged", 6.0)]
    assert row_of(*cells, blind_loss=None, initial_loss=10.0).window == (1e-4, 1e-3)
    assert row_of(*cells, blind_loss=None, initial_loss=12.0).window == (1e-4, 1e-2)
    nothing = row_of(*cells, blind_loss=None, initial_loss=None)
    assert nothing.window == nothing.good_band == (1e-3, 1e-3)


def test_a_best_above_the_blind_loss_leaves_a_window_of_one():
    row = row_of((1e-4, "converged", 3.0), (1e-3, "converged", 2.9), blind_loss=1.0)
    assert row.window == (1e-3, 1e-3)


def test_a_stable_trial_without_a_final_loss_is_no_best():
    row = row_of((1e-4, "converged", None), (1e-3, "converged", 1.0))
    assert row.best is not None and row.best.lr == 1e-3 and row.window == (1e-3, 1e-3)
    assert row_of((1e-4, "converged", None)).best is None


# ------------------------------------------------------------------------------ rows


def test_rows_are_in_the_order_of_the_axis_numbers_ascending_and_off_last():
    space = Space.parse(
        {"lr": {"low": 1e-6, "high": 10}, "optimizer": ["sgd", "adam"], "clip_norm": [None, 10, 1]}
    )
    points = [{"optimizer": o, "clip_norm": c} for c in (None, 10.0, 1.0) for o in ("adam", "sgd")]
    records = [record(n, 0.1, point=point) for n, point in enumerate(points)]
    rows = find_region(space, records).rows
    assert [tuple(row.values.values()) for row in rows] == [
        ("sgd", 1.0),
        ("sgd", 10.0),
        ("sgd", None),
        ("adam", 1.0),
        ("adam", 10.0),
        ("adam", None),
    ]


def test_the_order_of_the_records_does_not_matter():
    records = [
        record(n, lr, seed=seed, loss=1 + lr) for n, (lr, seed) in
        enumerate((lr, seed) for lr in (1e-4, 1e-3, 1e-2) for seed in (0, 1))
    ]  # fmt: skip
    records += [record(6, 0.1, "diverged"), stall(7, 1.0)]
    region = find_region(SPACE, records)
    assert find_region(SPACE, records[::-1]) == region
    assert region.seeds == (0, 1)


def test_few_values_are_rows_of_their_own_and_scattered_ones_are_grouped():
    space = Space.parse({"lr": {"low": 1e-4, "high": 1}, "weight_decay": {"low": 1e-6, "high": 1}})
    draw = random.Random(0)
    records = [
        record(n, 10 ** draw.uniform(-4, 0), point={"weight_decay": 10 ** draw.uniform(-6, 0)})
        for n in range(200)
    ]
    rows = find_region(space, records).rows
    middles = [row.values["weight_decay"] for row in rows]
    assert middles == pytest.approx([10**x for x in (-5.5, -4.5, -3.5, -2.5, -1.5, -0.5)], rel=1e-4)
    for row, middle in zip(rows, middles, strict=True):
        for cell in row.cells:
            for one in cell.records:
                assert abs(math.log10(one.point["weight_decay"] / middle)) <= 0.5 + 1e-4
    few = [replace(r, point={**r.point, "weight_decay": 0.1 * (r.trial % 3 + 1)}) for r in records]
    assert len(find_region(space, few).rows) == 3


def test_the_best_row_is_the_one_with_the_lowest_loss():
    space = Space.parse({"lr": {"low": 1e-4, "high": 1}, "warmup_steps": [0, 10]})
    records = [
        record(0, 0.1, loss=1.0, point={"warmup_steps": 0}),
        record(1, 0.1, loss=0.5, point={"warmup_steps": 10}),
        record(2, 0.2, "diverged", point={"warmup_steps": 10}),
    ]
    best = find_region(space, records).best_row
    assert best is not None and best.values == {"warmup_steps": 10}
    assert find_region(space, records[2:]).best_row is None


def test_what_was_cut_short_moves_no_edge_loss_or_stall():
    kept = [
        record(0, 0.01, loss=1.0),
        record(1, 0.1, loss=0.5),
        record(2, 0.2, loss=0.4),
        record(3, 1.0, "diverged"),
    ]
    cut = [
        # As it might have looked when it was stopped: better than it would have ended, or worse.
        replace(record(4, 0.2, loss=0.01, seed=1), verdict=Verdict.CUT_SHORT, state="pruned"),
        replace(record(5, 0.5, loss=1.9), verdict=Verdict.CUT_SHORT, state="pruned"),
        replace(record(6, 2.0, loss=0.01), verdict=Verdict.CUT_SHORT, state="pruned"),
    ]
    (alone,), (both,) = (find_region(SPACE, r).rows for r in (kept, kept + cut))
    assert both.edge == alone.edge
    assert both.best is not None and both.best.loss == 0.4 and both.best.lr == 0.2
    assert both.best.num_stable == 1 and both.best.is_sound
    assert (both.usable_lr, both.good_band) == (alone.usable_lr, alone.good_band)
    stall = record(7, 3.0, "too_slow", provisional=True)
    region = find_region(SPACE, [*cut, stall])
    assert region.records[-1].verdict is Verdict.TOO_SLOW and region.records[-1].provisional
    assert region.rows[0].best is None


def test_no_records_are_a_region_without_rows():
    region = find_region(SPACE, [])
    assert region.rows == () and region.best_row is None and region.seeds == ()


# ------------------------------------------------------------------------------ sensitivity


def test_the_sensitivity_is_the_mean_loss_above_the_best_capped_at_the_start():
    row = row_of((0.01, "converged", 1.5), (0.1, "converged", 1.0), (1.0, "diverged", None))
    assert row.lr_sensitivity == pytest.approx((0.5 + 0.0 + 1.0) / 3)
    worse = row_of((0.01, "too_slow", 9.0), (0.1, "converged", 1.0))
    assert worse.lr_sensitivity == pytest.approx(0.5)
    assert row_of((0.1, "converged", 1.0), initial_loss=None).lr_sensitivity is None
    assert row.as_dict()["lr_sensitivity"] == row.lr_sensitivity


def test_rates_that_crowd_at_the_edge_do_not_change_the_sensitivity():
    cells = [(0.01, "converged", 1.5), (0.1, "converged", 1.0), (1.0, "diverged", None)]
    crowd = [(0.99 + 0.001 * n, "diverged", None) for n in range(10)]
    alone, crowded = row_of(*cells), row_of(*cells, *crowd)
    assert crowded.lr_sensitivity == pytest.approx(alone.lr_sensitivity, rel=0.25)


def test_it_is_blind_to_stability_and_depends_on_what_was_swept():
    stuck = row_of((0.01, "too_slow", 2.0), (0.1, "collapsed", None))
    assert stuck.lr_sensitivity == 0
    cells = [(0.01, "converged", 1.5), (0.1, "converged", 1.0)]
    more = [(10.0**n, "diverged", None) for n in range(4)]
    assert row_of(*cells, *more).lr_sensitivity > row_of(*cells).lr_sensitivity


def test_the_width_of_the_window_is_in_decades():
    row = row_of((0.01, "converged", 1.4), (0.1, "converged", 1.0), (1.0, "diverged", None))
    assert row.window_decades == pytest.approx(1.0)
    assert row_of((0.1, "diverged", None)).window_decades is None
