import optuna
import pytest

import stabsweep
from stabsweep import pruner
from stabsweep.errors import BadInput
from stabsweep.pruner import DivergencePruner
from stabsweep.records import Verdict

MLP = {"name": "mlp", "width": 8, "depth": 2}
TINY = {
    "horizon": 60,
    "num_trials": 24,
    "seeds": 2,
    "batch_size": 16,
    "sampler": "grid",
    "device": "cpu",
}
SPACE = {"lr": {"low": 1e-3, "high": 100.0}}
MEDIAN = {
    "name": "optuna",
    "target": "optuna.pruners:MedianPruner",
    "args": {"n_startup_trials": 4},
}


def test_it_is_wrapped_by_the_one_that_stops_what_diverges():
    rule = pruner.build(**MEDIAN)
    assert isinstance(rule, DivergencePruner)
    assert isinstance(rule.wrapped, optuna.pruners.MedianPruner)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "pruner=optuna needs pruner.target"),
        ({"target": "optuna.pruners:MediaPruner"}, "did you mean optuna.pruners:MedianPruner"),
        (
            {"target": "optuna.samplers:RandomSampler"},
            "gives RandomSampler: give a class",
        ),
        ({"target": "optuna.pruners:MedianPruner", "args": {"n": 1}}, r"called with \(n=1\)"),
        ({"arg": {}}, "pruner key='arg' is not known.*did you mean args"),
    ],
)
def test_what_cannot_be_used_is_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        pruner.build("optuna", **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["divergence", "none"])
def test_the_others_take_no_arguments(name):
    with pytest.raises(BadInput, match="pruner key='target' is not known"):
        pruner.build(name, target="x:y")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    common = {**TINY, "optimizer": "sgd", "cohort_size": 4, "watcher": "off"}
    folder = tmp_path_factory.mktemp("pruned") / "run"
    pruned = stabsweep.sweep(MLP, "digits", SPACE, pruner=MEDIAN, folder=folder, **common)
    whole = stabsweep.sweep(MLP, "digits", SPACE, pruner="none", **common)
    return pruned, whole


def test_what_is_stopped_for_its_loss_is_cut_short_and_says_nothing(swept):
    pruned, whole = swept
    assert all(record.state == "complete" for record in whole.region.records)
    cut = [r for r in pruned.region.records if r.verdict is Verdict.CUT_SHORT]
    assert cut and all(r.state == "pruned" and r.steps < r.horizon for r in cut)
    assert all("Stopped for its loss at step" in record.reason for record in cut)
    for cell in pruned.region.rows[0].cells:
        assert not any(record in cell.judged for record in cut)


def test_what_is_left_is_as_it_is_without_a_pruner(swept):
    pruned, whole = swept
    for ours, theirs in zip(pruned.region.records, whole.region.records, strict=True):
        assert (ours.point, ours.seed) == (theirs.point, theirs.seed)
        if ours.verdict is not Verdict.CUT_SHORT:
            assert ours.verdict.is_stable == theirs.verdict.is_stable
        if ours.state == "complete":
            assert ours.final_loss == theirs.final_loss
    assert pruned.region.rows[0].best.loss == whole.region.rows[0].best.loss
    assert pruned.pick.final_loss == whole.pick.final_loss or not pruned.pick.is_ok


def test_a_trial_that_is_stopped_in_its_warmup_is_cut_short_too():
    # No horizon was too short for it.
    spec = {**MEDIAN, "args": {"n_startup_trials": 2}}
    common = {**TINY, "warmup_steps": 44, "cohort_size": 4, "watcher": "off"}
    records = stabsweep.sweep(MLP, "digits", SPACE, pruner=spec, **common).region.records
    early = [r for r in records if r.state == "pruned" and r.steps <= 44]
    assert any(record.verdict is Verdict.CUT_SHORT for record in early)
    assert not any(record.verdict is Verdict.PEAK_NOT_REACHED for record in records)


def test_the_report_says_how_many_were_cut(swept):
    pruned, _ = swept
    text = " ".join(pruned.summary().split())
    count = sum(r.verdict is Verdict.CUT_SHORT for r in pruned.region.records)
    assert f"{count} trials ended early, stopped for the loss alone" in text
    assert (pruned.folder / "map.png").exists()
    again = stabsweep.load(pruned.folder)
    assert again.pick == pruned.pick
