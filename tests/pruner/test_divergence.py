import math

import numpy as np
import optuna
import pytest
from optuna.pruners import MedianPruner, NopPruner, ThresholdPruner
from optuna.trial import TrialState, create_trial

from stabsweep.pruner import DivergencePruner

KNOWN = {"initial_loss": 1.0, "horizon": 100, "warmup_steps": 0, "blind_loss": 1.0}


def running(losses, every=10, **known):
    values = {every * (i + 1): float(loss) for i, loss in enumerate(losses)}
    return create_trial(
        state=TrialState.RUNNING, intermediate_values=values, user_attrs={**KNOWN, **known}
    )


def prunes(losses, pruner=None, **known) -> bool:
    study = optuna.create_study()
    return (pruner or DivergencePruner()).prune(study, running(losses, **known))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", range(5))
def test_a_loss_that_is_not_finite_prunes_wherever_it_stands(bad, place):
    losses = [0.9, 0.8, 0.7, 0.6, 0.5]
    assert not prunes(losses)
    losses[place] = bad
    assert prunes(losses)


def test_good_then_nan_is_pruned_where_optunas_median_pruner_goes_on():
    def objective(trial, pruned):
        for key, value in KNOWN.items():
            trial.set_user_attr(key, value)
        losses = [0.9, 0.8, 0.7] if trial.number < 2 else [0.5, math.nan, math.nan]
        for step, loss in enumerate(losses):
            trial.report(loss, step)
            if trial.should_prune():
                pruned.append(trial.number)
                raise optuna.TrialPruned
        return losses[0]

    found = {}
    median = MedianPruner(n_startup_trials=1, n_warmup_steps=0)
    for name, pruner in (("median", median), ("own", DivergencePruner(median))):
        found[name] = []
        optuna.create_study(pruner=pruner).optimize(lambda t, n=name: objective(t, found[n]), 3)
    assert found == {"median": [], "own": [2]}


def test_a_run_that_grows_without_end_is_pruned():
    assert prunes(1e7 * 2.0 ** np.arange(6))


def test_a_catapult_is_given_time_to_come_down():
    losses = [5.0, 30.0, 20.0, 6.0, 2.0, 0.9, 0.5, 0.3, 0.2, 0.1]
    for num_seen in range(1, len(losses) + 1):
        assert not prunes(losses[:num_seen])


def test_a_stall_is_not_pruned_since_it_may_only_be_slow():
    assert not prunes([1.0] * 10)


def test_the_reason_says_what_happened_and_when():
    pruner = DivergencePruner()
    assert pruner.reason(running([0.5, math.nan])) == "The loss was not finite at step 20."
    assert pruner.reason(running([0.5, 0.4])) is None
    assert pruner.reason(running([])) is None


@pytest.mark.parametrize("asked", [True, False])
def test_another_pruner_is_asked_when_there_is_no_reason(asked):
    pruner = DivergencePruner(ThresholdPruner(upper=0.6 if asked else 2.0))
    assert prunes([0.5, 0.7], pruner) == asked
    assert not prunes([0.5, 0.7], DivergencePruner(NopPruner()))


@pytest.mark.parametrize(
    "wrapped",
    [
        MedianPruner(n_startup_trials=1),
        optuna.pruners.PercentilePruner(50.0, n_startup_trials=1),
        optuna.pruners.SuccessiveHalvingPruner(min_resource=1),
        optuna.pruners.HyperbandPruner(min_resource=1, max_resource=4),
    ],
    ids=lambda pruner: type(pruner).__name__,
)
def test_a_history_full_of_nan_breaks_no_wrapped_pruner(wrapped):
    def objective(trial):
        losses = [math.nan] * 3 if trial.number % 2 else [0.9, 0.8, 0.7]
        for step, loss in enumerate(losses):
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return losses[-1]

    study = optuna.create_study(pruner=DivergencePruner(wrapped))
    study.optimize(objective, n_trials=12)
    assert all(t.state is TrialState.PRUNED for t in study.trials if t.number % 2)
    assert study.best_value == 0.7


def test_a_stranger_who_tells_nothing_but_losses_loses_only_what_is_not_finite():
    def objective(trial):
        losses = {
            0: [1.0, 0.5, 0.2],
            1: [1.0, math.nan],
            2: [math.nan],
            3: [1.0, 100.0, 0.1],
            4: [-1.0, -1.5, -1.9],
            5: [0.2, 0.5, 0.9],
        }[trial.number]
        for step, loss in enumerate(losses):
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return losses[-1]

    study = optuna.create_study(pruner=DivergencePruner())
    study.optimize(objective, n_trials=6)
    pruned = [t.number for t in study.trials if t.state is TrialState.PRUNED]
    assert pruned == [1, 2] and study.best_value == -1.9


def test_a_loss_that_may_be_negative_is_judged_by_differences():
    losses = np.linspace(-1.0, -2.0, 10)
    assert not prunes(losses, initial_loss=-1.0, blind_loss=None)


def test_a_task_without_a_blind_loss_is_pruned_all_the_same():
    assert prunes([0.5, math.nan], blind_loss=None)
    assert not prunes([0.5, 0.4], blind_loss=None)
