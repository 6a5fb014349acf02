"""A roster against its slow twin, the study that asks Optuna."""

from __future__ import annotations

import math
import random

import pytest

from stabsweep import sampler as samplers
from stabsweep.pruner import DivergencePruner, Unpruned
from stabsweep.records import Record, Verdict
from stabsweep.roster import Roster, make_study
from stabsweep.space import Space
from stabsweep.study import Study

SPACE = Space.parse(
    {
        "lr": {"low": 1e-4, "high": 1},
        "warmup_steps": {"low": 0, "high": 9},
        "clip_norm": [1, 2.5, None],
        "init": ["default", "orthogonal"],
    }
)
SEEDS = (3, 1)
HORIZON = 100


def design(name, done=()):
    return samplers.build(name, SPACE, 40, SEEDS, done=done)


def course(number):
    """Losses of a trial, a rung each: some fall, some explode, some hang above their start."""
    draw = random.Random(number)
    kind, level = number % 4, draw.uniform(1, 9)
    ends = {0: 1.0, 1: 50.0, 2: math.nan, 3: 1e9}
    return [2.0 + (ends[kind] - 2.0) * min(step / level, 1) for step in range(1, 11)]


def played(study):
    """What a study hands out, and after which report of which trial it wants to stop."""
    trials, stops = [], []
    while batch := study.ask(7):
        trials += batch
        for step, rung in enumerate(zip(*(course(t.number) for t in batch), strict=True)):
            for trial, loss in zip(batch, rung, strict=True):
                if trial.number in {number for number, _ in stops}:
                    continue
                known = {"initial_loss": 2.0, "horizon": HORIZON, "warmup_steps": 0}
                if study.report(trial.number, 10 * (step + 1), loss, {} if step else known):
                    stops.append((trial.number, step))
                    assert not study.is_cut(trial.number)
        for trial in batch:
            study.tell(Record(trial.number, trial.point, trial.seed, Verdict.CONVERGED))
    return trials, stops


@pytest.mark.parametrize("name", ["grid", "random", "sobol"])
@pytest.mark.parametrize("pruner", [DivergencePruner, Unpruned])
def test_it_hands_out_and_stops_what_a_study_does(name, pruner):
    ours = make_study(SPACE, design(name), pruner(), SEEDS, design(name).num_trials)
    twin = Study(SPACE, design(name), pruner(), SEEDS, design(name).num_trials)
    assert isinstance(ours, Roster)
    trials, stops = played(ours)
    assert (trials, stops) == played(twin)
    assert len(trials) == ours.num_trials == twin.num_trials
    assert (pruner is Unpruned) == (not stops)
    again, _ = played(Study(SPACE, design(name), pruner(), SEEDS, design(name).num_trials))
    kinds = [[(key, type(value)) for key, value in t.point.items()] for t in trials]
    assert kinds == [[(key, type(value)) for key, value in t.point.items()] for t in again]


def test_it_goes_on_where_records_end_with_numbers_of_its_own():
    done = [Record(n, {}, 3, Verdict.CONVERGED) for n in (105, 100)]
    ours = make_study(
        SPACE, design("random", {0, 5}), DivergencePruner(), SEEDS, 40, done, first=100
    )
    assert (ours.num_asked, ours.num_trials, ours.may_stop) == (2, 140, False)
    trials, _ = played(ours)
    assert sorted(t.number for t in trials) == [n for n in range(100, 140) if n not in (100, 105)]
    assert ours.satisfied is None and ours.ending is None and ours.ask(5) == []


def test_a_trial_that_starts_again_repeats_its_first_reports():
    ours = make_study(SPACE, design("random"), DivergencePruner(), SEEDS, 40)
    (trial,) = ours.ask(1)
    known = {"initial_loss": 2.0, "horizon": HORIZON, "warmup_steps": 0}
    assert not ours.report(trial.number, 10, 1.0, known)
    assert not ours.report(trial.number, 20, 1.0, known)
    assert not ours.report(trial.number, 10, math.nan, known)
    assert ours.report(trial.number, 30, math.nan, known)


@pytest.mark.parametrize("act", ["report", "tell"])
def test_a_trial_that_does_not_run_is_refused(act):
    ours = make_study(SPACE, design("random"), DivergencePruner(), SEEDS, 40)
    (trial,) = ours.ask(1)
    record = Record(trial.number, trial.point, trial.seed, Verdict.CONVERGED)
    ours.tell(record)
    with pytest.raises(ValueError, match="not running"):
        ours.tell(record) if act == "tell" else ours.report(trial.number, 10, 1.0, {})


def test_who_looks_at_other_trials_gets_a_study():
    wrapping = DivergencePruner(Unpruned())
    for sampler, pruner, told in (
        ("boundary", DivergencePruner(), None),
        ("tpe", DivergencePruner(), None),
        ("grid", wrapping, None),
        ("grid", DivergencePruner(), print),
    ):
        rule = samplers.build(sampler, SPACE, 40, SEEDS)
        assert isinstance(make_study(SPACE, rule, pruner, SEEDS, 40, told=told), Study)
