import optuna

from stabsweep import pruner


def test_nothing_stops_a_trial():
    rule = pruner.build("none")
    trial = optuna.trial.create_trial(
        state=optuna.trial.TrialState.RUNNING, intermediate_values={1: float("nan")}
    )
    assert not rule.prune(optuna.create_study(), trial)
