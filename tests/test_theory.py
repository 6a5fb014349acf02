import math
import re
from dataclasses import replace

import pytest
import torch
import yaml

import stabsweep
from stabsweep import curvature
from stabsweep.curvature import small_curvature
from stabsweep.engine import LRScales
from stabsweep.pick import Pick, find_pick
from stabsweep.records import Record, Trial, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space
from stabsweep.theory import Theory, answer_row
from tests.laws import make_setup

TRIAL = Trial(0, {"lr": 0.1}, 0)
SPACE = Space.parse({"lr": [0.01, 0.1, 1.0, 10.0], "warmup_steps": [0, 5]})
THEORY = Theory({"warmup_steps": 5}, 12.3, 0.31, "2 (1 + m) / lambda")


def region(edge):
    records = []
    for warmup in (0, 5):
        for lr in (0.01, 0.1, 1.0, 10.0):
            verdict = Verdict.CONVERGED if lr < edge else Verdict.DIVERGED
            end = 1 - lr / 100 - warmup / 1000 if lr < edge else None
            fields = {"final_loss": end, "blind_loss": 2.0, "horizon": 100}
            point = {"lr": lr, "warmup_steps": warmup}
            records.append(Record(len(records), point, 0, verdict, **fields))
    return find_region(SPACE, records)


@pytest.mark.parametrize(
    ("edge", "says"),
    [
        (0.5, r"\(lambda 12\): the measured edge is 0\.\d\d decades (below|above)\."),
        (100, r"no edge was met up to 10\."),
        (1e-9, r"nothing held, down to 1\.0e-2\."),
    ],
)
def test_it_is_said_beside_what_was_measured(edge, says):
    text = THEORY.sentence(region(edge))
    assert text.startswith("2 (1 + m) / lambda = 0.31 at the first weights")
    assert re.search(says, text)


def test_the_distance_is_that_of_its_own_row():
    found = region(0.5)
    row = THEORY.row(found)
    assert row is found.rows[1]
    assert THEORY.decades(found) == pytest.approx(math.log10(row.edge.lr / 0.31))
    assert THEORY.row(find_region(Space.parse({"lr": [1.0]}), [])) is None


def test_the_answer_speaks_of_the_row_of_the_pick_else_of_the_best_one():
    found = region(0.5)
    row, point = answer_row(found, find_pick(found))
    assert row.values == {"warmup_steps": 5} and point["warmup_steps"] == 5
    row, _ = answer_row(found, Pick("none", "Nothing."))
    assert row is found.best_row
    row, _ = answer_row(found, Pick("ok", "Moved.", 0.03, {"warmup_steps": 0}))
    assert row.values == {"warmup_steps": 0}
    assert answer_row(region(1e-9), Pick("none", "Nothing.")) is None


def test_what_is_written_is_read():
    assert Theory.from_dict(yaml.safe_load(yaml.safe_dump(THEORY.as_dict()))) == THEORY


def test_a_sweep_computes_it_and_the_folder_keeps_it(tmp_path):
    swept = stabsweep.sweep(
        "vector",
        "quadratic",
        {"lr": [0.5, 1.0, 1.5, 3.0, 6.0], "warmup_steps": [0, 10]},
        {"name": "sgd", "momentum": 0.0},
        horizon=60,
        num_trials=10,
        seeds=1,
        confirm=False,
        stress=False,
        folder=tmp_path,
        watcher="off",
    )
    assert swept.theory is not None and swept.theory.lr == pytest.approx(2.0, rel=0.02)
    assert (
        "Theory   2 / lambda = 2 at the first weights (lambda 1): the measured" in swept.summary()
    )
    assert swept.as_dict()["theory"]["edge_decades"] == pytest.approx(0, abs=0.2)
    assert "2 / lambda = 2 at the first weights" in (tmp_path / "report.html").read_text()
    assert stabsweep.load(tmp_path).theory == swept.theory
    again = stabsweep.resume(tmp_path, watcher="off")
    assert again.theory == swept.theory
    (tmp_path / "theory.yaml").write_text("values: 3")
    assert stabsweep.load(tmp_path).theory is None


@pytest.mark.parametrize(
    "given",
    [
        {"curvature": False},
        {"optimizer": "lion", "curvature": True},
        {"model": lambda: torch.nn.Linear(64, 10)},
    ],
)
def test_where_it_is_not_wanted_or_not_known_nothing_is_said(given):
    more = {"horizon": 20, "num_trials": 4, "seeds": 1, "confirm": False, "watcher": "off"}
    args = {"model": {"name": "mlp", "width": 4}, "task": "digits", "space": {"lr": [1e-3, 1e-2]}}
    assert stabsweep.sweep(**{**args, **more, "stress": False, **given}).theory is None


def test_a_large_model_and_rates_of_their_own_are_left_alone(monkeypatch):
    setup = make_setup("mlp", "sgd")
    assert small_curvature(setup, TRIAL) is not None
    other = replace(setup, lr_scales=LRScales({"*bias": 0.1}))
    assert small_curvature(other, TRIAL) is None
    monkeypatch.setattr(curvature, "MAX_WEIGHTS", 10)
    assert small_curvature(setup, TRIAL) is None


def test_a_model_that_cannot_be_differentiated_twice_is_no_error(monkeypatch):
    def broken(*_):
        raise RuntimeError("derivative for aten::_thing_backward is not implemented")

    monkeypatch.setattr(curvature, "find_curvature", broken)
    assert small_curvature(make_setup("mlp", "sgd"), TRIAL) is None
