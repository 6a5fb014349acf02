from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import stabsweep
from stabsweep import log
from stabsweep.cli import main
from stabsweep.config import compose, read_arguments
from stabsweep.errors import BadInput
from stabsweep.log import _entry
from stabsweep.records import CURVES
from stabsweep.store import read_trace
from tests.log.conftest import GIVEN


def test_the_chosen_are_those_of_the_pick_beside_the_edge_and_one_of_each_outcome(folder):
    result = stabsweep.load(folder)
    chosen = _entry.choose(result)
    numbers = [record.trial for record, _ in chosen]
    assert numbers == sorted(set(numbers)) and len(numbers) <= _entry.MOST_TRIALS
    assert {r.verdict for r, _ in chosen} == {r.verdict for r in result.region.records}
    (row,) = result.region.rows
    rates = sorted({record.lr for record in result.region.records})
    by_why = {
        why: {record.lr for record, whys in chosen if why in whys.split(", ")}
        for why in ("pick", "best", "below the edge", "above the edge")
    }
    assert by_why == {
        "pick": {min(rates, key=lambda lr: abs(math.log(lr / result.pick.lr)))},
        "best": {row.best.lr},
        "below the edge": {max(lr for lr in rates if lr <= row.edge.lr)},
        "above the edge": {min(lr for lr in rates if lr > row.edge.lr)},
    }
    for lr in set().union(*by_why.values()):
        assert {record.seed for record, _ in chosen if record.lr == lr} == {0, 1}


def test_many_seeds_and_many_rows_stay_few(folder):
    result = stabsweep.load(folder)
    many = [
        replace(record, trial=10 * record.trial + seed, seed=seed)
        for record in result.region.records
        if record.seed == 0
        for seed in range(10)
    ]
    region = stabsweep.find_region(result.region.space, many)
    chosen = _entry.choose(replace(result, region=region))
    assert 8 <= len(chosen) <= 4 * _entry.MOST_SEEDS + 11 <= _entry.MOST_TRIALS
    assert not _entry.choose(replace(result, region=stabsweep.find_region(region.space, [])))


def test_what_is_not_finite_is_a_gap(folder):
    result = stabsweep.load(folder)
    entry = log.make_entry(result)
    assert entry.num_trials == 20 and entry.name == "a sweep" and entry.subject == "sgd on mlp"
    assert entry.answer == result.summary()
    gaps = 0
    for record in result.region.records:
        trial, curves = _entry._logged(result, record, "example"), read_trace(folder, record)
        for name, values in zip(CURVES, curves, strict=True):
            known = np.flatnonzero(np.isfinite(values))
            gaps += len(values) - len(known)
            assert np.array_equal(trial.curves[name].steps, known)
            assert np.array_equal(trial.curves[name].values, values[known].astype(np.float64))
        assert trial.metrics.get("bad_step") == record.bad_step
        assert trial.metrics["stable"] == record.verdict.is_stable
        assert trial.hyperparameters["verdict"] == record.verdict.label
        assert trial.hyperparameters["lr"] == record.lr
        assert all(math.isfinite(value) for value in trial.metrics.values())
    assert gaps > 0


def test_a_long_curve_keeps_its_extremes():
    values = np.ones(50_000)
    values[31_234], values[777] = 9.0, math.inf
    curve = _entry._curve(values)
    assert len(curve.steps) <= _entry.MOST_POINTS and curve.values.max() == 9.0
    assert curve.steps[curve.values.argmax()] == 31_234


def test_what_was_not_kept_has_no_curves(folder):
    (folder / "traces.npy").unlink()
    entry = log.make_entry(stabsweep.load(folder))
    assert entry.trials and not any(trial.curves for trial in entry.trials)


def missing(monkeypatch, *names):
    monkeypatch.setattr(log, "find_spec", lambda name: None if name in names else object())


def test_what_cannot_be_had_is_said_before_anything_runs(tmp_path, monkeypatch, capsys):
    missing(monkeypatch, "wandb", "mlflow")
    cases = {
        "tensorbord": "log='tensorbord' is not known: use one of mlflow, tensorboard, wandb",
        "wandb": r"log=wandb is not installed: pip install wandb, or leave log away",
    }
    for name, said in cases.items():
        with pytest.raises(BadInput, match=said):
            stabsweep.sweep(**GIVEN, folder=tmp_path / "run", log=name)
    with pytest.raises(BadInput, match="pip install wandb mlflow, or"):
        log.check(["wandb", "tensorboard", "mlflow"], tmp_path)
    with pytest.raises(BadInput, match="log=tensorboard is written beside the results"):
        stabsweep.sweep(**GIVEN, log="tensorboard")
    words = ["model=mlp", "log=[tensorboard,wandb]", f"hydra.run.dir={tmp_path / 'run'}"]
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("stabsweep: log=wandb is not installed")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], []),
        (["log=null"], []),
        (["log=tensorboard"], ["tensorboard"]),
        (["log=[wandb,mlflow]"], ["wandb", "mlflow"]),
    ],
)
def test_the_command_line_takes_one_or_several(words, names):
    assert read_arguments(compose(words))["log"] == names


@pytest.mark.parametrize("word", ["log=tensorbord", "log=[tensorboard,wandbb]", "log=true"])
def test_a_slip_on_the_command_line_is_one_line(word, capsys):
    assert main(["model=mlp", word]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "use one of mlflow, tensorboard, wandb" in err


def test_one_that_fails_takes_nothing_from_the_others(folder, monkeypatch):
    result = stabsweep.load(folder)

    def broken(entry, folder):
        raise ConnectionError("no such server\nand more")

    monkeypatch.setattr(log, "LOGS", {"mlflow": broken, "wandb": lambda entry, folder: "here"})
    lines = list(log.write(["mlflow", "wandb"], result))
    number = len(_entry.choose(result))
    assert lines == [
        f"log: writing {number} of 20 trials to mlflow",
        "log: mlflow failed (ConnectionError: no such server); try again with: "
        f"stabsweep report {folder} log=mlflow",
        f"log: writing {number} of 20 trials to wandb",
        f"log: wandb has {number} of 20 trials: here",
    ]


def test_ctrl_c_ends_the_writing_alone(folder, monkeypatch):
    def interrupted(entry, folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "LOGS", {"mlflow": interrupted, "wandb": interrupted})
    lines = list(log.write(["mlflow", "wandb"], stabsweep.load(folder)))
    assert len(lines) == 2 and lines[1].startswith("log: interrupted in mlflow; begin again with: ")
    assert lines[1].endswith(" log=mlflow,wandb")


def test_a_guarded_run_has_no_map_to_log(tmp_path, capsys):
    (tmp_path / "steps.jsonl").touch()
    assert main(["report", str(tmp_path), "log=tensorboard"]) == 2
    assert "log=tensorboard is for sweeps" in capsys.readouterr().err
