from __future__ import annotations

import numpy as np
import pytest

import stabsweep
from stabsweep.drift import Drift, find_drift
from stabsweep.records import Record, Verdict
from stabsweep.space import Space
from stabsweep.store import read_trace
from stabsweep.verdict import judge

SPACE = Space.parse({"lr": {"low": 1e-3, "high": 1.0}})


def sweep_of(edge_of, horizon=80, num_rates=40, seeds=2):
    """Records and curves of runs that diverge once their rate lies above `edge_of(step)`."""
    records, curves = [], {}
    for number, lr in enumerate(np.repeat(np.geomspace(1e-3, 1, num_rates), seeds)):
        over = [step for step in range(horizon) if lr > edge_of(step)]
        steps = min(over[0] + 8, horizon) if over else horizon
        loss = 2.0 * np.exp(-np.arange(steps) / 20) + 0.01
        if over and steps > over[0] + 1:
            loss[over[0] + 1 :] = np.nan
        flat = np.ones(steps)
        curves[number] = np.stack([loss, flat, flat, 0.01 * flat, lr * flat])
        trace = Record(
            number, {"lr": float(lr)}, number % seeds, Verdict.CONVERGED, steps=steps,
            horizon=horizon, initial_loss=2.0, blind_loss=2.0,
        )  # fmt: skip
        found = judge(trace.with_curves(curves[number], 0))
        records.append(Record(**{**trace.__dict__, **found.as_fields()}))
    return records, lambda record: curves[record.trial]


def test_an_edge_that_stays_is_none():
    records, load = sweep_of(lambda step: 0.1)
    found = find_drift(SPACE, records, {}, load)
    assert found is not None and list(found.edges) == [20, 40, 80]
    assert found.decades == pytest.approx(0, abs=0.03) and not found.is_moving


def test_an_edge_that_falls_is_told_with_its_slope():
    records, load = sweep_of(lambda step: 0.4 if step < 30 else 0.05)
    found = find_drift(SPACE, records, {}, load)
    assert found is not None and found.is_moving is False, "half of the horizon has seen it too"
    records, load = sweep_of(lambda step: 0.4 if step < 50 else 0.05)
    found = find_drift(SPACE, records, {}, load)
    assert found is not None and found.is_moving
    assert found.decades == pytest.approx(np.log10(0.05 / 0.4), abs=0.1)
    assert str(found).startswith("The edge falls with the length of the run, by 0.85 decades")


def test_an_edge_that_moves_up_and_down_has_no_slope():
    found = Drift({38: 0.053, 75: 0.12, 150: 0.053}, -0.36, True)
    assert str(found) == (
        "The edge moves up and down with the length of the run: 5.3e-2 at 38 steps, "
        "0.12 at 75 steps, 5.3e-2 at 150 steps."
    )
    assert "falls" in str(Drift({38: 0.125, 75: 0.12, 150: 0.053}, -0.36, True))
    assert "rises" in str(Drift({75: 0.053, 150: 0.12}, 0.36, True))


def test_curves_that_were_not_kept_say_nothing():
    records, _ = sweep_of(lambda step: 0.4 if step < 50 else 0.05)
    found = find_drift(SPACE, records, {}, lambda record: None)
    assert found is not None and not found.is_moving


def test_an_edge_that_was_not_met_cannot_move():
    records, load = sweep_of(lambda step: 10.0)
    assert find_drift(SPACE, records, {}, load) is None
    assert find_drift(SPACE, [], {}, load) is None


def test_a_real_sweep_reads_its_own_traces(tmp_path):
    swept = stabsweep.sweep(
        {"name": "mlp", "width": 16, "depth": 2}, "digits", {"lr": {"low": 1e-3, "high": 100.0}},
        "sgd", horizon=40, num_trials=40, seeds=2, device="cpu", watcher="off", confirm=False,
        stress=False, folder=tmp_path,
    )  # fmt: skip
    found = find_drift(
        swept.region.space, swept.region.records, {}, lambda record: read_trace(tmp_path, record)
    )
    assert found is not None and set(found.edges) <= {10, 20, 40} and 40 in found.edges
