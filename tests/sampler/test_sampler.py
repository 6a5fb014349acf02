"""Laws of samplers: a new one is added to `SAMPLERS` and is held to them.

A design, which lays out its trials beforehand, obeys all of them; a guide, which looks at losses,
may try other points in other batches, and so may a scout, which looks at verdicts and names its
trials itself.
"""

import time

import optuna
import pytest

from stabsweep import sampler
from stabsweep.errors import BadInput
from stabsweep.limits import LIMITS
from stabsweep.pruner import DivergencePruner
from stabsweep.records import Record, Verdict
from stabsweep.sampler import SAMPLERS
from stabsweep.space import Space
from stabsweep.study import Study

SPACE = Space.parse(
    {
        "lr": {"low": 1.23456789e-5, "high": 0.987654321},
        "warmup_steps": {"low": 0, "high": 17},
        "clip_norm": [0.1, 1, None],
        "optimizer": ["sgd", "adamw"],
    }
)
SEEDS = (3, 0, 11)
NUM_TRIALS = 120


GUIDES = {
    "tpe": {},
    "optuna": {"target": "optuna.samplers:RandomSampler"},
}
SCOUTS = {"boundary": {"tolerance": None}}


@pytest.fixture(params=[name for name in SAMPLERS if name not in {**GUIDES, **SCOUTS}])
def name(request) -> str:
    return request.param


@pytest.fixture(params=[name for name in SAMPLERS if name not in SCOUTS])
def paired_name(request) -> str:
    return request.param


@pytest.fixture(params=[name for name in SAMPLERS if name not in GUIDES])
def naming(request) -> str:
    return request.param


@pytest.fixture(params=list(SAMPLERS))
def any_name(request) -> str:
    return request.param


def build(name, num_trials=NUM_TRIALS, seed=0, done=(), space=SPACE, seeds=SEEDS):
    given = {**GUIDES, **SCOUTS}.get(name, {})
    return sampler.build(name, space, num_trials, seeds, seed, done, **given)


def study_of(rule, done=(), space=SPACE, seeds=SEEDS, num_trials=NUM_TRIALS) -> Study:
    planned = sampler.num_planned(rule, num_trials)
    return Study(space, rule, DivergencePruner(), seeds, planned, done)


def record_of(trial) -> Record:
    return Record(trial.number, trial.point, trial.seed, Verdict.CONVERGED, final_loss=trial.seed)


def run(study, batch=16, limit=None):
    """The trials in the order in which they were handed out, each told before the next batch."""
    ran = []
    while limit is None or len(ran) < limit:
        trials = study.ask(batch if limit is None else min(batch, limit - len(ran)))
        if not trials:
            break
        for trial in trials:
            study.tell(record_of(trial))
        ran += trials
    return ran


def test_the_same_seed_gives_the_same_trials_whatever_the_batch(name):
    assert run(study_of(build(name)), batch=16) == run(study_of(build(name)), batch=7)


def test_another_seed_gives_other_points_unless_nothing_is_random(name):
    first, second = run(study_of(build(name))), run(study_of(build(name, seed=1)))
    assert (first == second) == (name == "grid")


def test_each_trial_is_handed_out_once_and_numbered_from_zero(any_name):
    study = study_of(build(any_name))
    numbers = [trial.number for trial in run(study)]
    assert sorted(numbers) == list(range(study.num_trials))
    assert study.num_trials >= NUM_TRIALS
    assert study.num_trials == NUM_TRIALS or any_name not in {**GUIDES, **SCOUTS}


def test_every_point_is_inside_the_space(any_name):
    for trial in run(study_of(build(any_name))):
        assert set(trial.point) == set(SPACE.axes)
        for axis in SPACE:
            value = trial.point[axis.name]
            if axis.values:
                assert value in axis.values
            else:
                assert axis.low <= value <= axis.high
                assert not LIMITS[axis.name].integer or type(value) is int


def test_every_point_is_run_with_every_seed(paired_name):
    points: dict = {}
    for trial in run(study_of(build(paired_name))):
        points.setdefault(trial.number // len(SEEDS), []).append(trial)
    for trials in points.values():
        assert len({tuple(trial.point.items()) for trial in trials}) == 1
        assert sorted(trial.seed for trial in trials) == sorted(SEEDS)


@pytest.mark.parametrize("num_done", [1, 37, 119])
def test_a_resumed_sweep_runs_the_rest_and_nothing_twice(name, num_done):
    whole = run(study_of(build(name)))
    before = run(study_of(build(name)), limit=num_done)
    done = [record_of(trial) for trial in before]
    rule = build(name, done={record.trial for record in done})
    after = run(study_of(rule, done))
    assert rule.num_trials == len(whole)
    assert {trial.number for trial in before}.isdisjoint(trial.number for trial in after)
    assert sorted(before + after, key=lambda t: t.number) == sorted(whole, key=lambda t: t.number)


def test_what_was_done_out_of_order_is_not_run_again(name):
    whole = {trial.number: trial for trial in run(study_of(build(name)))}
    done = [record_of(whole[number]) for number in (2, 50, 51, 119)]
    after = run(study_of(build(name, done=[record.trial for record in done]), done))
    assert {trial.number for trial in after} == set(whole) - {2, 50, 51, 119}


def test_a_sweep_that_is_done_hands_out_nothing(any_name):
    done = [record_of(trial) for trial in run(study_of(build(any_name)))]
    assert study_of(build(any_name, done={r.trial for r in done}), done).ask(5) == []


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("numbers", [range(37), (2, 50, 51, 119), range(119)])
def test_a_resumed_guide_runs_what_is_missing_and_pairs_the_seeds(guide, numbers):
    whole = {trial.number: trial for trial in run(study_of(build(guide)))}
    done = [record_of(whole[number]) for number in numbers]
    after = run(study_of(build(guide, done=set(numbers)), done))
    assert sorted([t.number for t in after] + list(numbers)) == list(range(NUM_TRIALS))
    points: dict = {}
    for trial in [*after, *(whole[number] for number in numbers)]:
        points.setdefault(trial.number // len(SEEDS), []).append(trial)
    for trials in points.values():
        assert len({tuple(trial.point.items()) for trial in trials}) == 1
        assert sorted(trial.seed for trial in trials) == sorted(SEEDS)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_resumed_guide_does_not_begin_with_the_same_points(guide):
    first = run(study_of(build(guide)), limit=6)
    done = [record_of(trial) for trial in first]
    after = run(study_of(build(guide, done=range(6)), done), limit=6)
    assert {t.point["lr"] for t in first}.isdisjoint(t.point["lr"] for t in after)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_cuts_short_the_last_point_rather_than_run_more(guide):
    trials = run(study_of(build(guide), num_trials=10))
    assert [trial.seed for trial in trials] == [*SEEDS * 3, SEEDS[0]]
    assert study_of(build(guide), num_trials=1).num_trials == 1


@pytest.mark.parametrize("scout", SCOUTS)
@pytest.mark.parametrize("numbers", [range(37), (2, 50, 51, 119), range(119)])
def test_a_resumed_scout_runs_what_is_missing(scout, numbers):
    whole = {trial.number: trial for trial in run(study_of(build(scout)))}
    done = [record_of(whole[number]) for number in numbers]
    after = run(study_of(build(scout, done=set(numbers)), done))
    assert sorted([t.number for t in after] + list(numbers)) == list(range(NUM_TRIALS))
    assert {trial.seed for trial in whole.values()} == set(SEEDS)


@pytest.mark.parametrize("guide", [*GUIDES, *SCOUTS])
def test_a_guide_is_the_same_for_the_same_seed_and_batch(guide):
    first, second = run(study_of(build(guide))), run(study_of(build(guide)))
    assert first == second != run(study_of(build(guide, seed=1)))


def test_an_argument_that_a_sampler_has_not_is_met_with_what_it_has():
    with pytest.raises(BadInput, match="sampler key='sed' is not known.*did you mean seed"):
        sampler.build("tpe", SPACE, 4, SEEDS, sed=3)


def test_a_stranger_can_use_it_in_a_plain_study(name):
    seen = []

    def objective(trial):
        lr = trial.suggest_float("lr", 1.23456789e-5, 0.987654321, log=True)
        warmup_steps = trial.suggest_int("warmup_steps", 0, 17)
        clip_norm = trial.suggest_categorical("clip_norm", [0.1, 1.0, None])
        seen.append((lr, warmup_steps, clip_norm))
        return lr

    study = optuna.create_study(sampler=build(name))
    study.optimize(objective, n_trials=20)
    expected = run(study_of(build(name)), limit=20)
    axes = ("lr", "warmup_steps", "clip_norm")
    assert seen == [tuple(trial.point[axis] for axis in axes) for trial in expected]


def test_trials_that_suggest_late_still_get_their_own_entry(naming):
    study = optuna.create_study(sampler=build(naming))
    asked = [study.ask() for _ in range(6)]
    rates = [trial.suggest_float("lr", 1e-6, 1, log=True) for trial in reversed(asked)]
    expected = [trial.point["lr"] for trial in run(study_of(build(naming)), limit=6)]
    assert rates == expected[::-1]


def test_a_parameter_that_is_no_axis_is_refused_by_name(naming):
    study = optuna.create_study(sampler=build(naming))
    with pytest.raises(BadInput, match="parameter='lrr' is not known.*did you mean lr"):
        study.ask().suggest_float("lrr", 0, 1)


def test_asking_for_more_than_there_is_says_so(naming):
    rule = build(naming, num_trials=12)
    study = optuna.create_study(sampler=rule)
    for _ in range(rule.num_trials):
        study.ask()
    with pytest.raises(StopIteration, match=f"all {rule.num_trials} trials"):
        study.ask()


def test_one_axis_one_seed_and_one_trial_are_enough(naming):
    space = Space.parse({"lr": {"low": 1e-3, "high": 1}})
    rule = build(naming, num_trials=1, space=space, seeds=(5,))
    trials = run(study_of(rule, space=space, seeds=(5,)))
    assert [trial.seed for trial in trials] == [5] * rule.num_trials


def test_ten_thousand_asks_take_well_under_a_millisecond_each(name):
    began = time.process_time()
    rule = build(name, num_trials=10_000, done=range(5000))
    study = optuna.create_study(sampler=rule)
    for _ in range(rule.num_trials - 5000):
        rule.before_trial(study, optuna.trial.create_trial(value=0.0))
    assert time.process_time() - began < 3


def test_an_unknown_sampler_is_met_with_the_nearest():
    with pytest.raises(BadInput, match="sampler='gird' is not known.*did you mean grid"):
        build("gird")
