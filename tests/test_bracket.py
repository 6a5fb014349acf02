from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import stabsweep
from stabsweep import bracket as brackets
from stabsweep.bracket import (
    GRID,
    HIGHEST,
    LINE_STEPS,
    LOWEST,
    NUM_RATES,
    bracket,
    ladder_below,
    narrowed,
)
from stabsweep.errors import BadInput
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM, CONSTANT
from stabsweep.records import Record, Verdict
from stabsweep.store import read_bracket, read_config
from tests.test_plan import GIVEN

BOWL = {"model": "vector", "task": {"name": "quadratic", "eigenvalues": [0.1, 1.0]}}
"""Gradient descent is stable up to a rate of 2."""


def plan_of(low=1e-3, high=10.0, **given):
    common = {**BOWL, "optimizer": {"name": "sgd", "momentum": 0.0}, "horizon": 400, "seeds": [3]}
    space = {"lr": {"low": low, "high": high}}
    return Plan.make({**GIVEN, "space": space, **common, "bracket": True, **given})


def records_of(plan, edge, tried=None):
    """A bracket in which all that is above an edge diverges."""
    rates = tried or brackets.starting_rates(plan.space)
    return [
        Record(
            n, {"lr": lr}, 3, Verdict.CONVERGED if lr < edge else Verdict.DIVERGED,
            final_loss=1.0, blind_loss=2.0, horizon=50, steps=50,
        )
        for n, lr in enumerate(rates)
    ]  # fmt: skip


def short_of(records):
    """The trials after the line search."""
    return [record for record in records if record.horizon != LINE_STEPS]


def test_a_line_search_covers_the_range_and_short_trials_go_where_it_says():
    records = bracket(plan_of(seeds=[3, 4]))
    line, short = records[:NUM_RATES], records[NUM_RATES:]
    assert [record.lr for record in line] == brackets.starting_rates(plan_of().space)
    assert (line[0].lr, line[-1].lr) == (1e-3, 10.0)
    assert {record.horizon for record in line} == {LINE_STEPS}
    assert {record.horizon for record in short} == {50}
    assert {record.seed for record in records} == {3}
    assert len(short) == 8 and short[0].lr < 2 < short[-1].lr
    held = [record.lr for record in short if record.verdict.is_stable]
    assert 1 < max(held) < 2


def test_a_line_search_is_read_against_its_lowest_rate_which_saw_the_same_batches():
    losses = [2.0, 1.9, 1.5, 2.01, 2.3, None]
    records = [
        Record(n, {"lr": 10.0 ** (n - 4)}, 0, Verdict.CONVERGED, initial_loss=1.0, final_loss=loss)
        for n, loss in enumerate(losses)
    ]
    assert 0.1 < brackets._line_lr(records) < 1
    assert brackets._line_lr(records[:3]) == 1e-2
    assert brackets._line_lr([replace(records[-1], final_loss=math.nan)]) == 10.0


def test_a_line_search_that_is_far_off_costs_trials_and_no_answer(monkeypatch):
    for wrong in (1e-3, 10.0):
        monkeypatch.setattr(brackets, "_line_lr", lambda records, wrong=wrong: wrong)
        found, _ = narrowed(plan_of(), bracket(plan_of()))
        assert 1.7 < found.space.axes["lr"].values[-1] < 6


def test_a_short_sweep_is_not_bracketed_shorter_than_can_be_read_nor_longer_than_itself():
    def horizons(**given):
        return {record.horizon for record in bracket(plan_of(**given))}

    assert horizons(horizon=100) == {LINE_STEPS, 32}
    assert horizons(horizon=20) == {LINE_STEPS, 20}
    assert horizons(horizon=LINE_STEPS) == {LINE_STEPS}
    # The peak rate is reached, then held as long.
    assert horizons(horizon=100, warmup_steps=40) == {LINE_STEPS, 72}


@pytest.mark.parametrize(("low", "high"), [(1e-4, 1e-2), (30.0, 500.0)])
def test_a_range_without_the_edge_is_left(low, high):
    plan = plan_of(low, high)
    records = bracket(plan)
    tried = sorted(record.lr for record in short_of(records))
    assert tried[0] < 2 < tried[-1]
    assert len(set(tried)) == len(tried)
    assert [record.trial for record in records] == list(range(len(records)))
    found, message = narrowed(plan, records)
    assert 2 <= found.space.axes["lr"].values[-1] <= 5.6
    assert "wider than asked" in message


@pytest.mark.parametrize("rate", [LOWEST, HIGHEST])
def test_no_bracket_looks_further_than_its_limits(rate, monkeypatch):
    plan = plan_of()
    verdict = Verdict.CONVERGED if rate == HIGHEST else Verdict.DIVERGED
    trained = []

    def train(short, points, seeds):
        trained.extend(point["lr"] for point in points)
        return [
            Record(0, p, seeds[0], verdict, final_loss=1.0, blind_loss=2.0, horizon=50)
            for p in points
        ]

    monkeypatch.setattr(brackets, "train", train)
    records = bracket(plan)
    end = min(trained) if rate == LOWEST else max(trained)
    assert end == pytest.approx(rate, rel=0.5)
    found, message = narrowed(plan, records)
    ladder = found.space.axes["lr"].values
    if rate == LOWEST:
        assert message.startswith("bracket: nothing held down to 1")
        assert ladder[-1] == pytest.approx(end, rel=0.9)
    else:
        assert message.startswith("bracket: nothing failed up to")


def test_the_ladder_lies_on_a_fixed_grid_below_the_edge():
    for edge in (0.0123, 0.1, 0.1001, 2.0, 99.0, 1e-6):
        ladder = ladder_below(edge)
        assert len(ladder) == 8 and ladder == sorted(ladder)
        assert all(float(f"{lr:.1e}"[:3]) in GRID for lr in ladder)
        assert 1 <= ladder[-1] / edge < 1.9
        assert 1.45 < math.log10(edge / ladder[0]) < 1.8


def test_the_note_says_what_was_seen():
    plan = plan_of(1e-4, 10.0)
    found, message = narrowed(plan, records_of(plan, 0.25))
    assert message == (
        "bracket: edge near 0.27 after 50 steps at 25 rates; sweeping 5.6e-3 to 0.32"
    )
    assert found.space.axes["lr"].values == (0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32)
    assert not found.bracket


def test_without_an_edge_the_ladder_lies_around_the_lowest_loss():
    plan = plan_of(1e-4, 10.0)
    records = records_of(plan, math.inf)
    object.__setattr__(records[12], "final_loss", 0.5)
    found, _ = narrowed(plan, records)
    ladder = found.space.axes["lr"].values
    assert ladder[0] < records[12].lr < ladder[-1] < 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bracket": "yes"}, "bracket='yes' is no switch: use true or false"),
        (
            {"space": {"lr": [0.1, 1.0], "momentum": [0.0, 0.9]}},
            "bracket=true finds a range for lr alone, but space has momentum too: take that away",
        ),
        ({"space": {"lr": [0.1]}}, "bracket=true needs two ends to start from"),
    ],
)
def test_what_cannot_be_bracketed_is_said_in_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        plan_of(**given)
    assert "\n" not in str(caught.value)


SWEEP = {
    **BOWL,
    "optimizer": {"name": "sgd", "momentum": 0.0},
    "space": {"lr": {"low": 1e-3, "high": 10.0}},
    "horizon": 64,
    "num_trials": 8,
    "seeds": 1,
    "bracket": True,
    "stress": False,
    "device": "cpu",
    "watcher": "off",
}


def test_a_bracketed_sweep_records_the_space_that_was_found_and_its_cost(tmp_path):
    swept = stabsweep.sweep(**SWEEP, folder=tmp_path)
    config = read_config(tmp_path)
    assert config["bracket"] is False
    rates = config["space"]["lr"]["values"]
    assert len(rates) == 8 and 1 < rates[-1] < 4
    assert swept.pick.is_ok and swept.pick.lr in rates
    assert len(read_bracket(tmp_path)) > NUM_RATES
    short = sum(record.steps for record in read_bracket(tmp_path))
    whole = sum(record.steps for record in swept.region.records)
    proofs = sum(p.record.steps for p in swept.proofs if p.test == CONFIRM)
    constant = sum(p.record.steps for p in swept.proofs if p.test == CONSTANT)
    parts = {"bracket": short, "sweep": whole, "constant": constant, "confirm": proofs}
    assert swept.cost == parts and constant == 64
    said = " ".join(swept.summary().split())
    total = f"{sum(parts.values()):,} trial-steps: bracket {short:,}, sweep {whole:,}"
    assert total in said and "bracket: edge near" in said
    assert json.loads(json.dumps(swept.as_dict()))["cost"] == swept.cost


def test_neither_a_resume_nor_the_same_sweep_brackets_again(tmp_path, monkeypatch):
    swept = stabsweep.sweep(**SWEEP, folder=tmp_path)

    def train(*given):
        raise AssertionError("it was trained again")

    monkeypatch.setattr(brackets, "train", train)
    for again in (
        stabsweep.resume(tmp_path, watcher="off"),
        stabsweep.sweep(**SWEEP, folder=tmp_path),
        stabsweep.load(tmp_path),
    ):
        assert (again.pick, again.cost, again.notes) == (swept.pick, swept.cost, swept.notes)


def test_another_range_in_the_same_folder_is_another_sweep(tmp_path):
    stabsweep.sweep(**SWEEP, folder=tmp_path)
    with pytest.raises(BadInput, match=r"holds another sweep .*horizon"):
        stabsweep.sweep(**{**SWEEP, "horizon": 72}, folder=tmp_path)


def test_where_nothing_holds_there_is_no_pick_but_advice():
    bowl = {"name": "quadratic", "eigenvalues": [1e12]}
    swept = stabsweep.sweep(**{**SWEEP, "task": bowl})
    assert not swept.pick.is_ok
    assert swept.pick.reason.startswith("Nothing is stable: even the lowest rate")
    assert any("nothing held down to" in note for note in swept.notes)
