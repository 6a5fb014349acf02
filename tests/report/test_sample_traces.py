import math
from dataclasses import replace

import numpy as np
import pytest

from stabsweep.report.sample_traces import (
    MAX_POINTS,
    MAX_TRACES,
    choose_traces,
    thinned,
    trace_info,
    trace_infos,
)
from stabsweep.report.style import outcome


def test_one_panel_an_outcome_by_learning_rate(sweep, load_trace):
    infos = trace_infos(*sweep, load_trace)
    names = [info.name for info in infos]
    assert len(names) == len(set(names)) == MAX_TRACES
    assert names[0] == "too_slow" and names[-1] == "diverged"


def test_panels_come_from_the_picked_row_and_the_pick_itself(sweep):
    region, pick = sweep
    first = {outcome(found[0]): found[0] for found in choose_traces(region, pick)}
    assert first["converged"].lr == pytest.approx(pick.lr, rel=0.05)
    at_home = [r for r in first.values() if r.point["warmup_steps"] == 17]
    assert len(at_home) >= 5


def test_the_choice_does_not_depend_on_chance(sweep):
    assert choose_traces(*sweep) == choose_traces(*sweep)


def test_a_trace_that_is_not_kept_is_replaced_by_the_next(sweep, load_trace):
    chosen = {id(found[0]) for found in choose_traces(*sweep)}
    infos = trace_infos(*sweep, lambda r: None if id(r) in chosen else load_trace(r))
    assert len(infos) >= 4
    assert trace_infos(*sweep, lambda record: None) == []
    assert trace_infos(*sweep, None) == []


def test_where_the_loss_stopped_being_finite_is_known(sweep):
    region, _ = sweep
    loss = np.r_[np.linspace(4, 2, 50), math.nan, math.nan]
    info = trace_info(region, region.records[0], loss)
    assert info.bad_step == 50
    assert info.loss_range[0] < 2 and all(map(math.isfinite, info.loss_range))


def test_a_trace_without_any_finite_loss_has_axes(sweep):
    region, _ = sweep
    info = trace_info(region, region.records[0], np.full(5, math.inf))
    assert info.bad_step == 0
    assert info.loss_range[0] < info.loss_range[1]


def test_a_runaway_is_logarithmic_and_bounded(sweep):
    region, _ = sweep
    info = trace_info(region, region.records[0], np.geomspace(1, 1e35, 60))
    assert info.log_loss and info.loss_range[1] < 1e11


def test_the_start_stays_in_sight_of_what_falls_to_nothing(sweep):
    region, _ = sweep
    record = replace(region.records[0], initial_loss=1.0, blind_loss=None)
    info = trace_info(region, record, np.geomspace(1, 1e-40, 60))
    assert info.log_loss and info.loss_range[0] < 1e-9 < 1 < info.loss_range[1] < 10
    vanished = trace_info(region, record, np.r_[1.0, 20.0, np.zeros(50)])
    assert vanished.log_loss and vanished.loss_range[1] > 20


def test_a_negative_loss_is_never_logarithmic(sweep):
    region, _ = sweep
    info = trace_info(region, region.records[0], np.r_[np.linspace(1, -3, 50), 1e9])
    assert not info.log_loss and info.loss_range[1] < 100


def test_thinning_keeps_spikes_and_the_order():
    values = np.zeros(10_001)
    values[7_777] = 5.0
    values[8_000:8_003] = math.nan
    steps, kept = thinned(values)
    assert len(kept) <= MAX_POINTS and np.nanmax(kept) == 5.0
    assert (np.diff(steps) > 0).all()


def test_every_state_has_traces_worth_showing(states, load_trace):
    for name, (region, pick) in states.items():
        infos = trace_infos(region, pick, load_trace)
        assert bool(infos) == (name not in ("no_records", "all_failed")), name
        assert len({info.name for info in infos}) == len(infos) <= MAX_TRACES
