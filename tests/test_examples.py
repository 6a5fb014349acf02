"""Every example does what its first line says, and runs on the engine that its text promises."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from examples.tied import LanguageModel
from stabsweep.cli import main
from stabsweep.model import initialize
from stabsweep.store import read_records
from stabsweep.task import Text

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "examples").glob("*.py"))
SHORT = ["space=lr", "sampler=grid", "horizon=8", "num_trials=5", "seeds=1"]
SHORT += ["progress=plain", "device=cpu"]
SHORT += ["confirm=false", "stress=false", "curvature=false"]

ENGINES = {
    "cnn": r"cohort: up to \d+ trials as one program",
    "encoder": r"cohort: up to \d+ trials as one program",
    "lstm": r"loop: lstm \(LSTM\) cannot be stacked \(torch has no batching rule for aten::",
    "tied": r"cohort: up to \d+ trials as one program",
}


def command(name):
    """What the first line of an example says, without the name of the tool."""
    first = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()[0]
    words = shlex.split(first.removeprefix("# "))
    assert words[0] == "stabsweep"
    return words[1:]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs an example, and gives what was said of the engine and the records."""
    monkeypatch.chdir(ROOT)

    def run_example(name, *more):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert main([*command(name), *SHORT, *more, f"hydra.run.dir={folder}"]) in (0, 1)
        said = re.findall(r"engine ((?:cohort|loop).*)", capsys.readouterr().err)
        return said, read_records(folder)

    return run_example


def test_every_example_is_run():
    assert {path.stem for path in FILES} == set(ENGINES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENGINES)
def test_an_example_runs_and_says_on_which_engine_and_why(run, name):
    (said,), records = run(name)
    assert re.match(ENGINES[name], said), said
    assert len(records) == (10 if name == "cnn" else 5)
    assert sum(record.final_loss is not None for record in records) >= 3
    if name == "cnn":
        assert {record.point["width"] for record in records} == {8, 16}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "encoder", "tied"])
def test_one_by_one_an_example_gives_the_same(run, name):
    words = ["precision=fp64", "space.lr.high=1e-2", "batch_size=8"]
    (said,), stacked = run(name, *words)
    assert said.startswith("cohort")
    (said,), plain = run(name, "engine=loop", *words)
    assert said.startswith("loop")
    found, expected = (
        [r.final_loss for r in sorted(records, key=lambda r: r.trial)]
        for records in (stacked, plain)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_dropout_is_named_where_it_cannot_be_stacked(run):
    (said,), _ = run("encoder", "+model.args.dropout=0.1")
    assert re.match(r"loop: encoder\.layers\.0\.\S+ \(\w+\) cannot be stacked \(it draws", said), (
        said
    )


@pytest.mark.slow
def test_a_tied_weight_is_one_parameter():
    module = initialize(lambda: LanguageModel(Text().signature), 0)
    assert module.readout.weight is module.embedding.weight
    assert "readout.weight" not in dict(module.named_parameters())
