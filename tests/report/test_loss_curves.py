import math

import pytest

from stabsweep.report.loss_curves import MAX_RATES, loss_info


def test_lines_are_medians_with_their_range(sweep):
    region, pick = sweep
    info = loss_info(region, pick)
    line, row = info.lines[1], region.rows[1]
    assert line.is_main and sum(other.is_main for other in info.lines) == 1
    assert line.lrs[0] == row.cells[0].lr
    assert line.low[0] <= line.middle[0] <= line.high[0]
    losses = [r.final_loss for r in row.cells[0].records]
    assert (line.low[0], line.high[0]) == (min(losses), max(losses))


def test_what_ran_away_is_in_the_lane_and_not_on_the_line(sweep):
    info = loss_info(*sweep)
    diverged = [r.lr for r in sweep[0].records if r.verdict.label == "diverged"]
    assert sorted(lr for line in info.lines for lr in line.not_finite) == sorted(diverged)
    assert all(math.isfinite(v) for line in info.lines for v in line.high)


@pytest.mark.parametrize("state", ["whole", "insane_loss", "negative_losses", "pocket"])
def test_the_axis_keeps_to_what_matters(states, state):
    info = loss_info(*states[state])
    low, high = info.loss_range
    assert low < info.blind < info.initial < high < info.initial + 2
    assert low < min(v for line in info.lines for v in line.low)


def test_levels_edge_and_pick(states):
    region, pick = states["whole"]
    info = loss_info(region, pick)
    assert (info.blind, info.initial, info.pick_lr) == (3.1, 4.58, pick.lr)
    assert info.edge_lr == pick.edge["lr"]
    assert loss_info(*states["none_safe"]).pick_lr is None


def test_a_dense_row_is_binned(states):
    region, pick = states["sobol"]
    from tests.report.conftest import LR_WARMUP, make_sweep  # noqa: PLC0415

    points = [{"lr": 10 ** (-5 + k / 40), "warmup_steps": 0} for k in range(200)]
    dense = loss_info(*make_sweep(space=LR_WARMUP, points=points))
    assert len(dense.lines[0].lrs) <= MAX_RATES
    assert list(dense.lines[0].lrs) == sorted(dense.lines[0].lrs)


def test_nothing_at_all_still_has_axes(states):
    info = loss_info(*states["no_records"])
    assert info.loss_range[0] < info.loss_range[1]
    assert info.lr_range[0] < info.lr_range[1]
