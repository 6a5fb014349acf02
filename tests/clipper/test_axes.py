"""Clippers and their numbers as axes of a sweep, stacked and in the plain loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from stabsweep import load, sweep
from stabsweep.api import DEFAULTS
from stabsweep.cli import main
from stabsweep.clipper import CLIPPERS, build, clip_coefficient
from stabsweep.engine import Cohort, Loop
from stabsweep.errors import BadInput
from stabsweep.plan import Plan
from stabsweep.records import Trial, Verdict
from stabsweep.result import Result
from stabsweep.store import read_records, read_trace
from tests.laws import NAN, assert_same, make_setup, train

AXES = [(name, key) for name, cls in CLIPPERS.items() for key in cls.defaults]
VALUES = {
    "clip_norm": [0.1, 1.0, None],
    "clip_value": [0.01, 1.0],
    "clip_factor": [1e-3, 0.1],
    "clip_percentile": [10.0, 60.0],
    "clip_z": [0.1, 1.0],
    "clip_alpha": [0.3, 0.97],
}
RATES = [1e-3, 0.01, 0.1, 1.0, 10.0]
MLP, ROWS = {"name": "mlp", "width": 8}, {"name": "sequential_digits", "step": "row"}
SMALL = {
    "task": "digits",
    "batch_size": 8,
    "horizon": 60,
    "seeds": 1,
    "sampler": "grid",
    "device": "cpu",
    "extend": False,
    "confirm": False,
    "stress": False,
    "curvature": False,
    "watcher": "off",
}


def swept(space, **more) -> Result:
    given = {"model": MLP, "optimizer": "sgd", "precision": "fp64", **SMALL, **more}
    return sweep(space=space, num_trials=2, **given)


@pytest.mark.parametrize("name, key", AXES)
def test_every_number_of_a_clipper_can_be_swept_and_both_engines_agree(name, key):
    space = {"lr": [0.05, 0.2], key: VALUES[key]}
    tables = [
        swept(space, clipper=name, engine=engine).records.sort_values([key, "lr"])
        for engine in ("cohort", "loop")
    ]
    stacked, plain = (table["final_loss"].to_numpy() for table in tables)
    assert len(set(stacked)) == len(stacked), "the axis changes nothing"
    np.testing.assert_allclose(stacked, plain, rtol=1e-6)
    assert (tables[0]["clip_share"].to_numpy() == tables[1]["clip_share"].to_numpy()).all()


@pytest.fixture(scope="module")
def all_five(tmp_path_factory):
    """A folder and the result of a sweep over every clipper, on a recurrent net in float32."""
    folder = tmp_path_factory.mktemp("clippers") / "run"
    more = {"model": {"name": "rnn", "hidden": 8}, "task": ROWS, "precision": "fp32"}
    more |= {"clipper": {"name": "agc", "clip_factor": 0.03}, "clip_norm": 0.5}
    space = {"lr": RATES, "clipper": [*CLIPPERS]}
    return folder, swept(space, folder=folder, engine="cohort", **more)


def test_the_clipper_itself_is_an_axis_of_the_map(all_five):
    _, result = all_five
    assert [row.values for row in result.region.rows] == [{"clipper": name} for name in CLIPPERS]
    losses = {
        tuple(r.final_loss for c in row.cells for r in c.records) for row in result.region.rows
    }
    assert len(losses) == 5 and all(len(row) == len(RATES) for row in losses)
    assert "\n>" in result.summary() and "autoclip" in result.summary()


def test_a_trial_among_all_is_that_of_a_sweep_of_its_clipper_alone(all_five):
    folder, result = all_five
    more = {"model": {"name": "rnn", "hidden": 8}, "task": ROWS, "precision": "fp32"}
    alone = swept({"lr": RATES}, clipper={"name": "agc", "clip_factor": 0.03}, **more)
    ours = [r for r in result.region.records if r.point["clipper"] == "agc"]
    told = [
        {r.lr: (r.final_loss, r.clip_share) for r in records}
        for records in (ours, alone.region.records)
    ]
    assert told[0] == told[1] and len(told[0]) == len(RATES)


def test_the_norm_clipper_is_what_it_was_to_the_last_bit(all_five):
    folder, _ = all_five
    records = [r for r in read_records(folder) if r.point["clipper"] == "norm"]
    assert len(records) == len(RATES)
    for record in records:
        loss, norm, coefficient, *_ = map(torch.tensor, read_trace(folder, record))
        assert coefficient.dtype == torch.float32 and (coefficient < 1).any()
        assert torch.equal(coefficient, clip_coefficient(norm, torch.tensor(0.5)))


def test_a_pick_carries_its_clipper_and_what_that_clips_by(all_five):
    folder, result = all_five
    for name in CLIPPERS:
        # As if all had held: there is no margin to fall short of.
        held = {"verdict": Verdict.CONVERGED, "final_loss": 1.0}
        records = [replace(r, **held) for r in result.region.records if r.point["clipper"] == name]
        pick = Result.find(result.region.space, records, result.config).pick
        assert pick.is_ok, pick.reason
        own = {"agc": {"clip_factor": 0.03}, "norm": {"clip_norm": 0.5}}
        own = own.get(name, build(name)[1])
        assert pick.hyperparameters == {"optimizer": "sgd", "clipper": name, **own}
        assert pick.as_dict()["hyperparameters"]["clipper"] == name
        words = [f"clipper={name}", *(f"{key}={value}" for key, value in own.items())]
        assert set(words) <= set(pick.overrides())
        assert {f"--{word.replace('_', '-')}" for word in words} <= set(pick.flags())
    assert load(folder).pick == result.pick


def test_by_default_a_pick_says_nothing_of_a_clipper():
    result = swept({"lr": [0.01, 0.1]})
    assert result.pick.hyperparameters == {"optimizer": "sgd"}
    # Neither does the folder of a version that knew none.
    config = {key: value for key, value in result.config.items() if key != "clipper"}
    again = Result.find(result.region.space, result.region.records, config)
    assert again.pick == result.pick and again.advice == result.advice


def test_a_clipper_other_than_the_norm_can_be_a_clip_axis():
    result = swept({"lr": [0.01, 0.05]}, clipper={"name": "autoclip", "clip_percentile": 5})
    assert all(record.clip_share > 0.5 for record in result.region.records)
    assert "The learning rate axis is really a clip axis at 2 of 2 rates" in " ".join(
        result.summary().split()
    )


@pytest.mark.parametrize("kind", [Cohort, Loop])
@pytest.mark.parametrize("name", CLIPPERS)
def test_neighbours_late_rows_and_dropped_ones_change_nothing(name, kind):
    # Little enough for the small gradients of this net.
    limits = {"value": {"clip_value": 0.05}, "zclip": {"clip_z": 0.5}, "norm": {"clip_norm": 1.0}}
    clipper, hyper = build(name, **limits.get(name, {}))
    setup = make_setup("mlp", horizon=40, dtype=torch.float32)
    setup = replace(setup, clipper=clipper, fixed={**setup.fixed, **hyper})
    trials = [Trial(n, {"lr": lr}, n % 2) for n, lr in enumerate((0.01, 0.05, 0.3))]
    calm = train(kind(setup, 8), trials)
    beside = train(kind(setup, 8), [trials[0], NAN, *trials[1:]])
    lost = beside.pop(NAN.number)
    assert not np.isfinite(lost["grad_norm"][-1])
    assert_same(beside, calm, bitwise=True)
    # Two places: the others are admitted when a row has ended.
    assert_same(train(kind(setup, 2), trials, rung_steps=7), calm, bitwise=True)
    assert all((run["clip_coef"] < 1).any() for run in calm.values())


@pytest.mark.parametrize("name", CLIPPERS)
def test_a_loss_scale_is_no_matter_and_an_overflow_is_not_remembered(name):
    given = {"model": MLP, "optimizer": "sgd", "clipper": name, "clip_norm": 0.5, **SMALL}
    given.pop("watcher")
    plan = Plan.make({**DEFAULTS, **given, "space": {"lr": [0.1]}, "precision": "fp16"})
    setup = plan.setup({})
    run = train(Loop(setup), [Trial(0, {"lr": 0.1}, 0)])[0]
    exact = replace(setup, precision=replace(setup.precision, scales=False, compute=None))
    other = train(Loop(exact), [Trial(0, {"lr": 0.1}, 0)])[0]
    np.testing.assert_allclose(run["loss"][:20], other["loss"][:20], rtol=0.05)
    # The scale begins too high for infinite norms to be missing.
    left_out = ~np.isfinite(run["grad_norm"])
    assert np.isfinite(run["clip_coef"]).all() and (run["clip_coef"][left_out] == 1).all()


# ------------------------------------------------------------------------------ bad input

LR = {"lr": {"low": 1e-3, "high": 1.0}}
BAD = [
    ({"clipper": "acg"}, r"clipper='acg' is not known: use one of .*did you mean agc"),
    ({"clipper": 3}, r"clipper=3 is not a choice: give a name"),
    ({"clipper": {"name": "agc", "clip_z": 2}}, r"clipper\.agc key='clip_z' is not known"),
    ({"clipper": {"name": "agc", "clip_factor": 0}}, r"clipper\.clip_factor=0 is out of range"),
    ({"clipper": {"name": "norm", "clip_norm": 2}}, r"clipper\.clip_norm=2 .*use clip_norm=2"),
    ({"space": {**LR, "clip_factor": [0.1]}}, r"space\.clip_factor has no effect on norm: take"),
    (
        {"clipper": "agc", "space": {**LR, "clip_norm": [1, None]}},
        r"space\.clip_norm has no effect on agc: .*choose another clipper",
    ),
    (
        {"space": {**LR, "clipper": ["agc", "norm"], "clip_z": [2, 3]}},
        r"space\.clip_z has no effect on agc, norm: .*choose another clipper",
    ),
    ({"space": {**LR, "clipper": ["nrom"]}}, r"space\.clipper='nrom' is not known: .*mean norm"),
    ({"space": {**LR, "clipper": {"low": 1, "high": 2}}}, r"space\.clipper .*give values"),
    ({"space": {**LR, "clip_factor": [0]}, "clipper": "agc"}, r"clip_factor.*=0 is out of range"),
    (
        {"space": {**LR, "clip_value": [1, None]}, "clipper": "value"},
        r"clip_value.*=None cannot be switched off",
    ),
]


@pytest.mark.parametrize("given, message", BAD, ids=str)
def test_what_cannot_be_swept_says_why_in_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        swept(**{"space": LR, **given})
    assert "\n" not in str(caught.value)


def test_an_axis_that_one_of_the_clippers_uses_is_fine():
    result = swept({"lr": [0.05, 0.1], "clipper": ["norm", "agc"], "clip_factor": [0.01, 0.1]})
    assert len(result.region.rows) == 4


def test_a_clip_norm_that_is_not_used_is_said():
    result = swept({"lr": [0.05, 0.1]}, clipper="zclip", clip_norm=5.0)
    assert "clipper: zclip clips; clip_norm=5 is not used" in result.notes
    assert not any("clip_norm" in word for word in result.pick.overrides())
    assert "clip_norm" not in " ".join(swept({"lr": [0.05]}, clip_norm=5.0).notes)


def test_on_the_command_line_it_is_a_group_and_an_axis(tmp_path, capsys):
    words = ["model.width=8", "horizon=20", "num_trials=4", "seeds=1", "sampler=grid", "space=lr"]
    words += ["progress=off", "confirm=false", "stress=false", "curvature=false", "device=cpu"]
    folder = tmp_path / "one"
    one = ["clipper=agc", "clipper.clip_factor=0.02", "clipper.exclude=[]"]
    main([*words, *one, f"hydra.run.dir={folder}"])
    config = load(folder).config
    assert config["clipper"] == {"name": "agc", "clip_factor": 0.02, "exclude": []}
    folder = tmp_path / "all"
    main([*words, "+space.clipper=[norm,agc,zclip]", f"hydra.run.dir={folder}"])
    assert load(folder).config["clipper"] == "norm"
    assert {r.point["clipper"] for r in read_records(folder)} == {"norm", "agc", "zclip"}
    capsys.readouterr()
    for word, says in {
        "clipper=acg": "clipper",
        "clipper.clip_norm=1": "set here: use clip_norm=...",
        "clip_factor=1": "clip_factor is not a key that can be set here: use clipper=NAME",
        "+clipper.clip_norm=1": "use clip_norm=1",
        "clipper.clip_factor=1": "use clipper=NAME clipper.clip_factor=...",
        "+clipper=agc": "leave the + away, clipper=agc",
    }.items():
        assert main([*words, word, f"hydra.run.dir={tmp_path / 'bad'}"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and says in said, said
