"""The real run: the sweep's own trial under a guard; it survives what is done to it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import stabsweep
from stabsweep import training
from stabsweep.cli import main
from stabsweep.engine import Setup
from stabsweep.guard import Cause
from stabsweep.prediction import Prediction, predict
from stabsweep.records import CURVES, Trial, Verdict
from stabsweep.runlog import read_run
from stabsweep.store import read_trace
from tests.guard.runs import INF, NAN

SMALL = {
    "mlp": {
        "model": {"name": "mlp", "width": 16, "depth": 2},
        "task": "digits",
        "optimizer": "adamw",
    },
    "rnn": {
        "model": {"name": "rnn", "hidden": 16},
        "task": {"name": "sequential_digits", "step": "row"},
        "optimizer": "adam",
        "clip_norm": 1.0,
    },
    "transformer": {
        "model": {"name": "transformer", "width": 16, "depth": 1, "heads": 2},
        "task": {"name": "text", "length": 16},
        "optimizer": "adamw",
        "clip_norm": 1.0,
        "batch_size": 8,
    },
}


def run(folder: Path, model: str = "mlp", lr: float = 1e-2, **more: Any) -> training.Training:
    given = {**SMALL[model], "horizon": more.pop("horizon", 30)}
    return training.train(given, lr, folder, progress="off", **more)


def weights_of(folder: Path) -> list[Tensor]:
    last = sorted((folder / "checkpoints").iterdir())[-1]
    state = torch.load(last, weights_only=True)
    return list(state["model"].values())


@pytest.mark.parametrize("model", SMALL)
def test_a_run_is_the_trial_of_the_sweep(model: str, tmp_path: Path) -> None:
    swept = stabsweep.sweep(
        **SMALL[model],
        space={"lr": [1e-2]},
        seeds=1,
        num_trials=1,
        horizon=30,
        warmup_steps=5,
        schedule="cosine",
        engine="loop",
        confirm=False,
        stress=False,
        curvature=False,
        folder=tmp_path / "sweep",
        watcher="off",
    )
    curves = read_trace(tmp_path / "sweep", swept.region.records[0])
    given = {**SMALL[model], "horizon": 30, "warmup_steps": 5, "schedule": "cosine"}
    found = training.train(given, 1e-2, tmp_path / "run", watch_every=1, progress="off")
    columns = read_run(tmp_path / "run").columns
    for name, curve in zip(CURVES, curves, strict=True):
        np.testing.assert_allclose(columns[name], curve, rtol=2e-5, err_msg=name)
    assert found.judgement is not None
    assert found.judgement.verdict is swept.region.records[0].verdict


def break_batch(number: int, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes one batch of a run fail: in its data, in the last layer, or in a gradient."""
    now = {"number": -1}
    begin, seed_generators = training.begin, training.seed_generators

    def is_bad(place: str) -> bool:
        return where == place and now["number"] == number

    def seeded(*words: Any) -> None:
        now["number"] = words[-1]
        seed_generators(*words)

    def begun(setup: Setup, trial: Trial) -> tuple[nn.Module, torch.optim.Optimizer]:
        module, optimizer = begin(setup, trial)
        *_, last = module.modules()
        last.register_forward_hook(lambda _, __, out: out * INF if is_bad("forward") else out)
        weight = last.weight if isinstance(last.weight, Tensor) else None
        assert weight is not None
        weight.register_hook(lambda grad: grad * NAN if is_bad("gradient") else grad)
        real = setup.task.batch

        def batch(index_B: Tensor) -> Any:
            inputs, *rest = real(index_B)
            if is_bad("data"):
                inputs = inputs.clone()
                inputs.view(-1)[3] = NAN
            return (inputs, *rest)

        monkeypatch.setattr(setup.task, "batch", batch)
        return module, optimizer

    monkeypatch.setattr(training, "begin", begun)
    monkeypatch.setattr(training, "seed_generators", seeded)


@pytest.mark.parametrize(
    ("model", "where"),
    [
        (model, where)
        for model in SMALL
        for where in ("data", "forward", "gradient")
        # It reads tokens, and integers are finite.
        if (model, where) != ("transformer", "data")
    ],
)
def test_the_template_survives_an_injected_failure(
    model: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_batch(12, where, monkeypatch)
    found = run(tmp_path, model)
    assert found.is_ok
    assert found.summary_values["outcomes"] == {"stepped": 30, "skipped_not_finite": 1}
    line = json.loads((tmp_path / "steps.jsonl").read_text().splitlines()[12])
    (event,) = [event for event in line["events"] if event["kind"] == "not_finite"]
    cause = {"data": Cause.DATA, "forward": Cause.FORWARD, "gradient": Cause.GRADIENT}[where]
    assert cause.value in event["message"]
    assert "of batch 12 (after 12 steps) not finite" in event["message"]
    if where == "gradient":
        assert math.isfinite(line["loss"]) and line["not_finite"]["grad_norm"] == "nan"
        assert "gradient of readout.weight" in event["message"]
    else:
        assert line["loss"] is None and line["not_finite"]["loss"] in ("nan", "inf")
    if where == "forward":
        assert "first in readout (Linear)" in event["message"]
    if where == "data":
        assert "batch[0] (1 NaN of" in event["message"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_a_run_that_is_ended_goes_on_bit_by_bit(number: signal.Signals, tmp_path: Path) -> None:
    """A real process, ended while it trains, and `train resume=DIR`."""
    command = ["train", "model=mlp", "lr=1e-2", "optimizer=adamw", "horizon=120"]
    command += ["model.width=16", "checkpoint_every=10", "progress=off"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "stabsweep", *words],
            cwd=Path(__file__).parents[1],
            env=env,
            stdout=subprocess.DEVNULL,
            # A job of a shell ignores Ctrl-C, and so would its child.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    cut, whole = tmp_path / "cut", tmp_path / "whole"
    process = start(*command, f"out={cut}")
    steps = cut / "steps.jsonl"
    until = time.monotonic() + 120
    while not (steps.exists() and steps.read_bytes().count(b"\n") > 44):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.002)
    process.send_signal(number)
    code = process.wait()
    assert code == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert steps.read_bytes().count(b"\n") < 120
    assert (cut / "summary.yaml").exists() == (number is signal.SIGINT)
    assert start("train", f"resume={cut}", "progress=off").wait() == 0
    assert start(*command, f"out={whole}").wait() == 0
    assert all(map(torch.equal, weights_of(cut), weights_of(whole)))
    columns = [read_run(folder).columns for folder in (cut, whole)]
    for name in ("loss", "grad_norm", "lr", "step"):
        assert columns[0][name].tolist() == columns[1][name].tolist()


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swept") / "sweep"
    stabsweep.sweep(
        **SMALL["mlp"],
        space={"lr": {"low": 1e-3, "high": 10.0, "scale": "log"}, "warmup_steps": [0, 10]},
        horizon=60,
        seeds=1,
        num_trials=40,
        sampler="grid",
        confirm=False,
        stress=False,
        folder=folder,
        watcher="off",
    )
    return folder


def test_the_pick_of_a_sweep_is_trained_and_held_against_its_map(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", f"from={swept}/pick.yaml", "horizon=120", "progress=off"]
    assert main([*words, f"out={tmp_path / 'a'}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The map expected stable (" in said and "as it was: converged." in said
    about = read_run(tmp_path / "a").about
    pick = stabsweep.load(swept).pick
    assert about["lr"] == pick.lr and about["warmup_steps"] == pick.hyperparameters["warmup_steps"]
    assert about["total_steps"] == 120
    # Of another model the map knows nothing.
    assert main([*words, f"out={tmp_path / 'c'}", "model.width=24", "batch_size=32"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The map could not tell (its trials had another model.width, batch_size)" in said
    # Another rate than the pick's: beyond the edge, and so it goes.
    assert main([*words, f"out={tmp_path / 'b'}", "lr=8"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "The map expected unstable (" in said and "above the edge" in said
    assert read_run(tmp_path / "b").summary["predicted"]["expected"] == "unstable"


def test_what_a_map_expects_of_a_rate(swept: Path) -> None:
    result = stabsweep.load(swept)
    row = result.region.rows[0]
    edge = row.edge
    assert edge.lr and edge.safe_lr and edge.high
    for lr, expected in ((edge.safe_lr * 0.9, "stable"), (edge.high * 1.1, "unstable")):
        assert predict(result, lr, row.values).expected == expected
    between = (edge.safe_lr * edge.lr) ** 0.5
    found = predict(result, between, row.values)
    assert found.expected == "open" and "between the safe edge" in found.text
    beside = predict(result, (edge.lr * edge.high) ** 0.5, row.values)
    assert beside.expected == "open" and "above the safe edge" in beside.text
    assert predict(result, 1.0, {"warmup_steps": 7}).text == "it has no row warmup_steps=7"
    again = Prediction.from_dict(found.as_dict())
    assert (again.expected, again.text, again.horizon) == ("open", found.text, 60)
    stable = predict(result, edge.safe_lr * 0.9, row.values)
    assert "as it was: converged" in stable.compared(Verdict.CONVERGED, 60)
    failed = stable.compared(Verdict.DIVERGED, 600)
    assert "the run was unstable" in failed and "an edge can fall in longer runs" in failed


def says(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "lr='' is not a number: give lr=RATE, or from=SWEEP"),
        (["lr=fast"], "lr='fast' is not a number"),
        (["lr=-1"], "lr=-1.0 is out of range"),
        (["lr=1e-2", "seed=x"], "seed=x is not a whole number"),
        (["lr=1e-2", "policy=mend"], "policy='mend' is not known"),
        (["lr=1e-2", "seeds=3"], "seeds has no effect on a run, which has one rate"),
        (["lr=1e-2", "space=lr"], "space has no effect on a run"),
        (["lr=1e-2", "executor=local"], "executor has no effect on a run"),
        (["lr=1e-2", "modle=rnn"], "modle"),
        (["lr=1e-2", "loud"], "usage: stabsweep train"),
        (["from=/nowhere"], "/nowhere is no folder"),
        (["resume=/nowhere"], "/nowhere holds no run: there is no run.yaml"),
        (["resume=/nowhere", "lr=1"], "goes on as it was asked for: leave lr away"),
    ],
)
def test_bad_words_are_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in says(words, capsys)
    assert not any(tmp_path.iterdir()), "nothing is left behind"


def test_a_folder_with_a_run_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, horizon=5)
    before = (tmp_path / "steps.jsonl").read_text()
    words = ["model=mlp", "lr=1e-2", "horizon=5", f"out={tmp_path}"]
    assert "holds a run already" in says(words, capsys)
    assert (tmp_path / "steps.jsonl").read_text() == before


def test_half_precision_runs_with_its_scaler(tmp_path: Path) -> None:
    given = {**SMALL["mlp"], "horizon": 20, "precision": "fp16"}
    found = training.train(given, 1e-3, tmp_path, progress="off")
    assert found.is_ok and read_run(tmp_path).scales[0, 1] == 2.0**16
