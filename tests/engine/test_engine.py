from __future__ import annotations

import math
import re

import pytest
import torch

from stabsweep.engine import ENGINES, Cohort, Loop, _rows, auto, build
from stabsweep.errors import BadInput
from stabsweep.records import Trial
from tests.laws import (
    CASES,
    POINTS,
    assert_close,
    assert_same,
    make_setup,
    make_trials,
    train,
)


@pytest.mark.parametrize("rule", POINTS)
@pytest.mark.parametrize("case", CASES)
def test_every_reference_model_is_stacked(case, rule):
    setup = make_setup(case, rule, dtype=torch.float32)
    engine, why = build("auto", setup, make_trials(*POINTS[rule]), 16)
    assert isinstance(engine, Cohort)
    assert (engine.capacity, why) == (16, "cohort: up to 16 trials as one program")
    assert not engine.trials


@pytest.mark.parametrize("cell", ["relu", "gru", "lstm"])
def test_every_reference_cell_is_stacked(cell, monkeypatch):
    monkeypatch.setitem(CASES["rnn"][0], "cell", cell)
    setup = make_setup("rnn", dtype=torch.float32)
    assert isinstance(build("auto", setup, make_trials({"lr": 0.01}), 4)[0], Cohort)


def test_the_probe_is_not_thrown_off_by_rates_that_diverge():
    # At such a rate one update of Adam carries two roundings of one gradient apart.
    setup = make_setup("transformer", "adam", dtype=torch.float32)
    wild = make_trials({"lr": 1e5}, {"lr": 1e5}, {"lr": 1e30}, {"lr": 1e-4}, {"lr": 1e-3})
    engine, why = build("auto", setup, wild, 4)
    assert isinstance(engine, Cohort), why


def test_the_probe_compares_no_infinities():
    setup, trials = make_setup("vector", dtype=torch.float32), make_trials({"lr": 1e25})
    assert math.isinf(train(Loop(setup), trials)[0]["loss"][1])
    engine, why = build("auto", setup, trials, 4)
    assert isinstance(engine, Cohort), why


def test_the_probe_leaves_no_trace():
    setup = make_setup("mlp", dtype=torch.float32)
    trials = make_trials({"lr": 0.01}, {"lr": 0.1})
    before = torch.get_rng_state()
    engine, _ = build("auto", setup, trials, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert (train(engine, trials)[0].curves == train(Cohort(setup, 4), trials)[0].curves).all()


def test_a_horizon_of_one_step_can_be_probed():
    setup = make_setup("mlp", horizon=1, dtype=torch.float32)
    assert isinstance(build("auto", setup, make_trials({"lr": 0.01}), 4)[0], Cohort)


@pytest.mark.parametrize("name, kind", [("cohort", Cohort), ("loop", Loop)])
def test_what_is_asked_for_is_what_runs(name, kind):
    engine, why = build(name, make_setup(), make_trials({"lr": 0.01}), 4)
    assert type(engine) is kind
    assert why.startswith(f"{name}: ") and why.endswith("as asked")
    assert engine.capacity == (4 if kind is Cohort else 1)


def test_an_unknown_engine_lists_those_there_are():
    assert ENGINES == ("auto", "cohort", "loop")
    with pytest.raises(BadInput, match=r"engine='lop' is not known: use .* \(did you mean loop"):
        build("lop", make_setup(), make_trials({"lr": 0.01}), 4)


def test_a_loop_refuses_a_second_trial():
    engine = Loop(make_setup())
    engine.admit(make_trials({"lr": 0.01}))
    with pytest.raises(ValueError, match="no room for another"):
        engine.admit([Trial(1, {"lr": 0.02}, 0)])
    assert [trial.number for trial in engine.trials] == [0]


@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_an_engine_with_nothing_to_do_does_nothing(kind):
    engine = kind(make_setup(), 4)
    engine.admit([])
    engine.drop(3)
    assert engine.advance(5) == [] and list(engine.trials) == []


@pytest.mark.parametrize("kind", [Cohort, Loop])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_curves_are_as_exact_as_the_training(kind, dtype):
    engine = kind(make_setup(dtype=dtype), 1)
    engine.admit(make_trials({"lr": 0.01}))
    assert str(engine.advance(2)[0].curves.dtype) == str(dtype).removeprefix("torch.")


def test_a_point_comes_before_what_is_fixed_and_none_is_infinite():
    setup, trial = make_setup(momentum=0.5), Trial(0, {"lr": 0.1, "momentum": 0.25}, 0)
    assert setup.number(trial, "momentum") == 0.25
    assert setup.number(trial, "weight_decay") == 0.0
    assert setup.number(trial, "clip_norm") == math.inf
    assert setup.value(trial, "init") == "default"


def test_the_initial_loss_is_the_median_over_batches_at_the_first_weights():
    setup = make_setup(batch_size=4)
    trial = Trial(0, {"lr": 0.1, "init_gain": 1.5}, 3)
    module = setup.new_module(trial)
    from stabsweep.task import BatchOrder

    losses = []
    for index in BatchOrder(3, setup.task.num_examples, 4).probe(5):
        losses.append(setup.task.loss(module, setup.task.batch(index)).item())
    assert len(set(losses)) == 5
    for engine in (Cohort(setup, 1), Loop(setup)):
        assert train(engine, [trial])[0].initial_loss == pytest.approx(sorted(losses)[2])


def test_a_start_is_made_once_for_all_trials_that_share_it():
    calls = []
    setup = make_setup()
    build_model = setup.build_model
    object.__setattr__(setup, "build_model", lambda: calls.append(1) or build_model())
    engine = Cohort(setup, 30)
    before = len(calls)
    engine.admit([Trial(n, {"lr": 0.01 * (n + 1)}, n % 2) for n in range(20)])
    assert len(calls) - before == 2


def test_more_starts_than_are_kept_change_nothing(monkeypatch):
    from stabsweep.engine._base import Starts

    trials = make_trials(*({"lr": 0.01, "init_gain": 1 + n / 10} for n in range(5)))
    expected = train(Cohort(make_setup(), 8), trials)
    monkeypatch.setattr(Starts, "MAX_CACHED", 2)
    found = train(Cohort(make_setup(), 8), trials)
    assert all((found[n].curves == expected[n].curves).all() for n in expected)
    assert [run.initial_loss for run in found.values()] == [
        run.initial_loss for run in expected.values()
    ]


def test_auto_takes_the_loop_where_that_is_clearly_faster(monkeypatch):
    setup, trials = make_setup("mlp", dtype=torch.float32), make_trials({"lr": 0.01})
    real = auto._seconds

    def slow_stack(engine, members):
        return real(engine, members) * (1e6 if isinstance(engine, Cohort) else 1)

    monkeypatch.setattr(auto, "_seconds", slow_stack)
    engine, why = build("auto", setup, trials, 4)
    assert isinstance(engine, Loop)
    assert why == "loop: stacked, a step of a trial takes more than twice as long here"


def test_a_stack_that_finds_no_memory_to_be_timed_is_chosen_all_the_same(monkeypatch):
    setup, trials = make_setup("mlp", dtype=torch.float32), make_trials({"lr": 0.01})

    def no_room(engine, members):
        raise MemoryError

    monkeypatch.setattr(auto, "_seconds", no_room)
    engine, _ = build("auto", setup, trials, 4)
    assert isinstance(engine, Cohort)
    assert not engine.trials


def test_an_engine_says_how_it_ran_once_it_knows():
    setup = make_setup("mlp", horizon=1000, dtype=torch.float32)
    engine = Cohort(setup, 4)
    assert engine.speed == ""
    engine.admit(make_trials({"lr": 0.01}, {"lr": 0.02}, {"lr": 0.03}))
    while engine.tiles.size is None:
        engine.advance(5)
    found = re.fullmatch(
        r"traced, ([12]) side by side, \S+ ms a trial-step "
        r"\((\d+)% of the peak of its matrix products\)",
        engine.speed,
    )
    assert found, engine.speed
    assert 0 < int(found[2]) <= 100


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("case", CASES)
def test_how_many_are_trained_side_by_side_changes_nothing(case, size):
    setup = make_setup(case, dtype=torch.float32)
    trials = make_trials(*({"lr": 0.01 * (n + 1)} for n in range(8)))
    expected = train(Cohort(setup, 8), trials)
    engine = Cohort(setup, 8)
    engine.tiles.size = size
    assert_same(train(engine, trials), expected, bitwise=True)


@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw"])
def test_rows_long_enough_to_be_moved_one_by_one_agree_with_the_loop(rule, monkeypatch):
    monkeypatch.setattr(_rows, "LONG", 1)
    setup = make_setup("mlp", rule, horizon=50)
    trials = make_trials(*POINTS[rule])
    together = train(Cohort(setup, 4), trials, rung_steps=20)
    for trial in trials:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])
    assert_same(train(Cohort(setup, 2), trials), together, bitwise=True)
