import math
import time

import optuna
import pytest
from optuna.trial import TrialState

from stabsweep import sampler
from stabsweep.pruner import DivergencePruner
from stabsweep.records import Record, Verdict
from stabsweep.space import Space
from stabsweep.study import Study

SPACE = Space.parse(
    {"lr": {"low": 1e-4, "high": 1}, "warmup_steps": {"low": 0, "high": 9}, "clip_norm": [1, None]}
)
SEEDS = (0, 1)
KNOWN = {"initial_loss": 2.0, "horizon": 100, "warmup_steps": 0, "blind_loss": 2.0}


def make_study(num_trials=40, rule=None, pruner=None, done=()) -> Study:
    rule = rule or sampler.build(
        "random", SPACE, num_trials, SEEDS, done=[record.trial for record in done]
    )
    return Study(SPACE, rule, pruner or DivergencePruner(), SEEDS, num_trials, done)


def record_of(trial, loss=1.0, verdict=Verdict.CONVERGED, **known) -> Record:
    return Record(trial.number, trial.point, trial.seed, verdict, final_loss=loss, **known)


def optuna_trials(study):
    return study._study.get_trials(deepcopy=False)


def test_trials_come_in_batches_until_there_are_none_left():
    study = make_study(40)
    sizes = []
    while trials := study.ask(16):
        sizes.append(len(trials))
    assert sizes == [16, 16, 8]
    assert study.ask(0) == [] == study.ask(-1)


@pytest.mark.parametrize(
    ("record", "state", "value"),
    [
        ({}, TrialState.COMPLETE, 1.0),
        ({"loss": -3.5, "verdict": Verdict.SPIKY}, TrialState.COMPLETE, -3.5),
        ({"loss": None, "verdict": Verdict.DIVERGED}, TrialState.PRUNED, None),
        ({"loss": math.nan, "verdict": Verdict.DIVERGED}, TrialState.PRUNED, None),
        ({"loss": math.inf, "verdict": Verdict.DIVERGED}, TrialState.PRUNED, None),
        ({"loss": 0.1, "verdict": Verdict.DIVERGED}, TrialState.PRUNED, None),
        ({"loss": 0.1, "verdict": Verdict.DEGRADED}, TrialState.PRUNED, None),
        ({"loss": 0.1, "state": "pruned"}, TrialState.PRUNED, None),
        ({"loss": 0.1, "state": "failed", "error": "no memory"}, TrialState.FAIL, None),
    ],
)
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_trial_ends_in_optuna_as_it_did_in_training(record, state, value, is_resumed):
    study = make_study()
    (trial,) = study.ask(1)
    found = record_of(trial, **{"reason": "why", "steps": 7, **record})
    if is_resumed:
        study = make_study(done=[found])
    else:
        study.tell(found)
    told = optuna_trials(study)[0]
    assert (told.state, told.value) == (state, value)
    assert told.params == {**trial.point, "seed": trial.seed}
    assert told.user_attrs["verdict"] == found.verdict.label
    assert told.user_attrs["reason"] == "why"
    assert told.user_attrs["steps"] == 7


@pytest.mark.parametrize(
    "order", [(math.nan, 1.0, 0.5), (1.0, math.nan, 0.5), (0.5, 1.0, math.nan)]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_best_is_the_lowest_finite_loss_wherever_the_others_stand(order, bad):
    study = make_study()
    for trial, loss in zip(study.ask(3), order, strict=True):
        loss = bad if math.isnan(loss) else loss
        verdict = Verdict.CONVERGED if math.isfinite(loss) else Verdict.DIVERGED
        study.tell(record_of(trial, loss, verdict))
    assert study._study.best_value == 0.5


def test_a_study_in_which_everything_diverges_ends_like_any_other():
    study = make_study(20)
    while trials := study.ask(8):
        for trial in trials:
            assert study.report(trial.number, 10, math.nan, KNOWN)
            study.tell(record_of(trial, None, Verdict.DIVERGED, state="pruned"))
    assert {trial.state for trial in optuna_trials(study)} == {TrialState.PRUNED}
    assert len(optuna_trials(study)) == 20


def test_the_pruner_sees_the_reports_and_what_is_known_of_the_trial():
    class Spy(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            seen.append((dict(trial.intermediate_values), dict(trial.user_attrs)))
            return len(trial.intermediate_values) == 2

    seen: list = []
    study = make_study(pruner=Spy())
    (trial,) = study.ask(1)
    assert not study.report(trial.number, 10, 1.5, KNOWN)
    assert study.report(trial.number, 20, 1.25, {})
    assert seen == [({10: 1.5}, KNOWN), ({10: 1.5, 20: 1.25}, KNOWN)]


def test_a_trial_that_starts_again_may_repeat_its_reports():
    study = make_study()
    (trial,) = study.ask(1)
    for step in (10, 20, 10, 20, 30):
        assert not study.report(trial.number, step, 1.0, KNOWN)
    assert list(optuna_trials(study)[0].intermediate_values) == [10, 20, 30]


def test_a_trial_is_told_once():
    study = make_study()
    (trial,) = study.ask(1)
    study.tell(record_of(trial))
    with pytest.raises(ValueError, match="trial 0 is not running: .*told already"):
        study.tell(record_of(trial))
    with pytest.raises(ValueError, match="trial 0 is not running"):
        study.report(0, 10, 1.0, KNOWN)
    with pytest.raises(ValueError, match="trial 99 is not running"):
        study.report(99, 10, 1.0, KNOWN)


def test_a_resumed_study_hands_out_what_is_left():
    study = make_study(40)
    trials = study.ask(25)
    done = [record_of(trial) for trial in trials[5:]]
    resumed = make_study(40, done=done)
    left = resumed.ask(100)
    assert len(left) == 20
    assert left[:5] == trials[:5]
    assert {t.number for t in left}.isdisjoint(record.trial for record in done)


def test_an_optuna_sampler_of_the_users_own_gets_numbers_that_no_record_has():
    done = [Record(n, {"lr": 0.1, "warmup_steps": 0, "clip_norm": None}, 0, Verdict.CONVERGED)
            for n in (0, 1, 5)]  # fmt: skip
    rule = optuna.samplers.RandomSampler(seed=0)
    assert [t.number for t in make_study(rule=rule).ask(3)] == [0, 1, 2]
    study = make_study(10, rule=rule, done=done)
    assert [t.number for t in study.ask(100)] == [2, 3, 4, 6, 7, 8, 9]


def test_optunas_tpe_learns_from_a_resumed_study():
    rule = optuna.samplers.TPESampler(seed=0, n_startup_trials=8)
    study = make_study(30, rule=rule)
    while trials := study.ask(5):
        for trial in trials:
            lr = trial.point["lr"]
            held = lr < 0.01
            verdict = Verdict.CONVERGED if held else Verdict.DIVERGED
            study.tell(record_of(trial, lr if held else None, verdict))
    assert len(optuna_trials(study)) == 30


def test_a_trial_costs_well_under_five_milliseconds_of_bookkeeping():
    study = make_study(1000)
    began = time.process_time()
    while trials := study.ask(50):
        for step in range(10, 101, 10):
            for trial in trials:
                study.report(trial.number, step, 1.0, KNOWN)
        for trial in trials:
            study.tell(record_of(trial))
    assert time.process_time() - began < 5
