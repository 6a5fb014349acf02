from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import stabsweep
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.guard import Cause
from stabsweep.records import Verdict
from stabsweep.replay import find_replay, telling
from stabsweep.result import load, whole_curves
from stabsweep.sharpening import find_sharpening

QUIET = {
    "confirm": False,
    "stress": False,
    "curvature": False,
    "extend": False,
    "watcher": "off",
    "sampler": "grid",
    "seeds": 1,
    "num_trials": 16,
}
MLP = {"name": "mlp", "depth": 3, "width": 16}


def swept(folder, model, task, space, optimizer="sgd", horizon=40, **more):
    return stabsweep.sweep(
        model, task, space, optimizer, horizon=horizon, folder=folder, **{**QUIET, **more}
    )


def trial_of(result, **point):
    return next(r.trial for r in result.region.records if point.items() <= dict(r.point).items())


def replayed(result, trial=None, **more):
    return find_replay(result, trial, watcher="off", **more)


@pytest.fixture(scope="module")
def mlp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay") / "mlp"
    return swept(folder, MLP, "digits", {"lr": [0.1, 1e3, 1e5]})


@pytest.fixture(scope="module")
def overflow(tmp_path_factory):
    """`experiment=relu_rnn_overflow`, in part: what a ReLU recurrence of 250 steps does."""
    return swept(
        tmp_path_factory.mktemp("replay") / "rnn",
        {"name": "rnn", "cell": "relu", "hidden": 32},
        {"name": "adding", "length": 250},
        {"lr": [10.0], "init": ["spectral(1.3)", "spectral(2.2)"], "clip_norm": [1.0, None]},
        {"name": "sgd", "momentum": 0.0},
        horizon=4,
        batch_size=16,
        engine="loop",
        executor="local",
    )


class Root(torch.nn.Module):
    """Its output is finite, its gradient is none: that of a root at zero."""

    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(64, 8), torch.nn.Linear(8, 10)

    def forward(self, x):
        hidden = self.body(x)
        return self.head(hidden) + (0 * hidden).sqrt().sum()


class Fragile(torch.nn.Module):
    """Refuses what has grown: an error of the model's own, some steps into training."""

    limit = 5.0

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(64, 10)

    def forward(self, x):
        if float(self.body.weight.detach().norm()) > self.limit:
            raise ValueError("too heavy\nfor me")
        return self.body(x)


# ------------------------------------------------------------------------------ where it broke


def test_an_mlp_that_diverges_breaks_where_the_sweep_says_and_its_layers_are_named(mlp):
    found = replayed(mlp, trial_of(mlp, lr=1e5))
    stored = found.record
    assert stored.verdict is found.verdict is Verdict.DIVERGED
    assert found.is_broken and found.step == stored.bad_step == found.num_steps - 1
    first = found.first
    # The first step is where all grew: its update is many times the weights.
    assert first is not None and first.step == 1 < found.step
    assert {one.layer for one in found.runaways} == {"hidden.0", "hidden.1", "readout"}
    assert {one.kind for one in found.runaways} == {"gradient", "weights", "output"}
    assert f"Broke at step {found.step}: " in found.sentence
    assert f" of {first.layer} ran away first, at step 1" in found.sentence
    assert found.warnings[0][:2] == (0, "update_ratio")
    assert "nothing is left of what they were" in " ".join(found.summary().split())


def test_a_norm_whose_squares_overflow_is_told_from_a_gradient_that_is_not_finite(mlp):
    found = replayed(mlp, trial_of(mlp, lr=1e5))
    # Above this the sum of squares leaves float32, though no entry does.
    assert found.diagnosis is None and 1.8e19 < found.lost_norm < 1e38
    assert "the gradient was finite, but not the sum of its squares" in found.sentence


def test_a_recurrence_that_overflows_is_named_with_the_step_of_its_sequence(overflow):
    lost = replayed(overflow, trial_of(overflow, init="spectral(1.3)", clip_norm=None))
    assert lost.step == lost.record.bad_step > 0
    assert lost.diagnosis.module == "recurrence"
    assert "the output of recurrence was not finite" in lost.sentence
    assert "first in recurrence (Recurrence): output[" in lost.diagnosis.evidence
    assert lost.diagnosis.cause is Cause.LEARNING_RATE
    clipped = replayed(overflow, trial_of(overflow, init="spectral(1.3)", clip_norm=1.0))
    assert clipped.step == clipped.record.bad_step
    assert clipped.agreement.parts_at is None


def test_what_is_broken_before_training_is_not_the_rate(overflow):
    found = replayed(overflow, trial_of(overflow, init="spectral(2.2)", clip_norm=1.0))
    assert (found.step, found.num_steps, found.verdict) == (0, 1, Verdict.INVALID)
    assert found.diagnosis.cause is Cause.START and found.first is None
    assert found.sentence == "Broke at step 0: the output of recurrence was not finite."
    assert "Not the learning rate: nothing had been trained yet." in found.summary()


def test_one_that_held_says_so_and_what_grew_most(mlp):
    found = replayed(mlp, trial_of(mlp, lr=0.1))
    assert not found.is_broken and found.step is None and found.diagnosis is None
    assert found.verdict is Verdict.CONVERGED and found.num_steps == 40
    assert found.sentence.startswith("Did not break in 40 steps (converged). Largest growth: the ")
    most = max(found.runaways, key=lambda one: one.factor)
    assert most.name in found.sentence and most.factor < 100
    short = replayed(mlp, trial_of(mlp, lr=0.1), steps=10)
    assert short.num_steps == 10 and not short.notes
    assert "over all 10 steps" in short.agreement.sentence


def test_one_that_failed_without_a_number_that_is_not_finite(tmp_path):
    result = swept(tmp_path / "adam", MLP, "digits", {"lr": [3.0]}, "adam")
    found = replayed(result)
    assert found.verdict is Verdict.COLLAPSED and found.is_broken and found.step is None
    assert found.sentence.startswith("Broke, though all was finite (collapsed). The ")
    assert found.first is not None and found.first.step == 1
    assert found.as_dict()["broke"] is True and found.as_dict()["step"] is None


def test_a_loss_scale_that_collapses_is_said_with_the_layers_that_overflowed(tmp_path):
    result = swept(tmp_path / "fp16", Root, "digits", {"lr": [0.1]}, precision="fp16")
    found = replayed(result, model=Root)
    assert found.verdict is Verdict.DIVERGED and found.step == found.record.bad_step == 15
    assert "the loss scale collapsed, last in the gradient of body." in found.sentence
    assert not any(one.kind == "gradient" and one.layer == "body" for one in found.runaways)
    plain = swept(tmp_path / "fp32", Root, "digits", {"lr": [0.1]})
    found = replayed(plain, model=Root)
    assert found.step == 0 and found.diagnosis.is_loss_finite
    assert "the gradient of body.weight was not finite, the loss was" in found.sentence


class Powers(torch.nn.Module):
    """h, 1.5 h, 2.25 h, ...: float32 ends between the powers 218 and 219."""

    def forward(self, h):
        return [h * 1.5**n for n in range(1, 20)] + [h * torch.tensor(1.5) ** n for n in (218, 219)]


class Steep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.powers = torch.nn.Linear(64, 10), Powers()

    def forward(self, x):
        return self.body(x) + 0 * self.powers(torch.ones(len(x), 1))[-1]


def test_in_a_list_of_outputs_the_first_that_overflows_is_named(tmp_path):
    result = swept(tmp_path / "own", Steep, "digits", {"lr": [0.1]}, engine="loop")
    found = replayed(result, model=Steep)
    assert found.diagnosis.module == "powers"
    assert "first in powers (Powers): output[20] (64 Inf of 64" in found.diagnosis.evidence


# ------------------------------------------------------------------- the same trial once more


@pytest.mark.parametrize(
    ("space", "optimizer", "more"),
    [
        ({"lr": [0.05], "clip_norm": [0.1]}, {"name": "sgd", "momentum": 0.9}, {}),
        ({"lr": [0.01], "warmup_steps": [10]}, "adam", {"schedule": "cosine"}),
        ({"lr": [0.01], "width": [8, 24]}, "adamw", {}),
        ({"lr": [0.05]}, "sgd", {"precision": "bf16"}),
        ({"lr": [0.05]}, "sgd", {"precision": "fp16"}),
        ({"lr": [0.01]}, "muon", {"precision": "fp64"}),
    ],
    ids=["clip", "warmup", "width", "bf16", "fp16", "muon_fp64"],
)
def test_the_curve_is_that_of_the_sweep_however_it_was_trained(tmp_path, space, optimizer, more):
    model = {"name": "mlp", "depth": 3} if "width" in space else MLP
    result = swept(tmp_path / "a", model, "digits", space, optimizer, horizon=30, **more)
    for record in result.region.records:
        found = replayed(result, record.trial)
        stored = whole_curves(result.folder, record)
        assert found.agreement.num_steps == 30 and found.agreement.parts_at is None
        rounding = {"fp64": 1e-9, "bf16": 0.1}.get(more.get("precision"), 1e-3)
        assert found.run.columns["loss"] == pytest.approx(stored[0], rel=rounding)
        assert found.run.columns["lr"] == pytest.approx(stored[4])
        assert found.verdict is record.verdict
        if "width" in space:
            # (out, in): the first row of the first layer is as wide as the trial says.
            assert len(found.run.layers) == 3


def test_alone_it_is_the_same_to_the_last_digit_and_watching_changes_nothing(tmp_path):
    more = {"engine": "loop", "executor": "local", "clip_norm": 0.5}
    result = swept(tmp_path / "loop", MLP, "digits", {"lr": [0.3]}, "adam", horizon=30, **more)
    found = replayed(result, 0)
    assert found.agreement.largest == 0.0 and "to the last digit" in found.agreement.sentence
    assert found.run.columns["grad_norm"].tolist() == found.stored[1].tolist()


def test_norms_of_the_layers_are_those_of_the_whole(mlp):
    found = replayed(mlp, trial_of(mlp, lr=0.1))
    layers = np.stack([table[:, 1:] for table in found.run.layers.values()])
    total = np.sqrt((layers**2).sum(0))
    assert total[:, 0] == pytest.approx(found.run.columns["grad_norm"], rel=1e-4)
    ratio = total[:, 2] / total[:, 1]
    assert ratio == pytest.approx(found.run.columns["update_ratio"], rel=1e-3)


def test_what_differs_from_the_sweep_is_said(mlp):
    # As after a change of the model: the start is another one.
    other = replace(mlp, config={**mlp.config, "model": {**MLP, "width": 17}})
    found = replayed(other, trial_of(mlp, lr=0.1))
    assert found.agreement.parts_at == 0 and "no rounding" in found.agreement.sentence
    records = tuple(replace(r, verdict=Verdict.COLLAPSED) for r in mlp.region.records)
    other = replace(mlp, region=replace(mlp.region, records=records), folder=None)
    found = replayed(other, trial_of(mlp, lr=0.1))
    assert found.agreement is None
    assert "This time the trial was converged, in the sweep collapsed" in found.notes[0]
    assert "kept no curves" in found.notes[1] and "kept no curves" in found.summary()


# ------------------------------------------------------------------------------ which trial


def test_without_a_number_it_is_the_lowest_rate_that_broke(mlp):
    verdicts = {r.lr: r.verdict for r in mlp.region.records}
    assert verdicts[0.1].is_stable and verdicts[1e5] is Verdict.DIVERGED
    lowest = min(lr for lr, verdict in verdicts.items() if verdict is Verdict.DIVERGED)
    assert telling(mlp).lr == lowest

    def with_verdicts(**of):
        records = tuple(
            replace(r, verdict=of.get(f"lr{r.lr:g}", Verdict.CONVERGED)) for r in mlp.region.records
        )
        return replace(mlp, region=replace(mlp.region, records=records))

    assert telling(with_verdicts()).lr == 1e5
    assert telling(with_verdicts(lr1000=Verdict.COLLAPSED)).lr == 1e3
    both = with_verdicts(lr1000=Verdict.COLLAPSED, **{"lr100000": Verdict.DIVERGED})
    assert telling(both).lr == 1e5
    with pytest.raises(BadInput, match="nothing to replay"):
        telling(replace(mlp, region=replace(mlp.region, records=())))


# ------------------------------------------------------------------- what the command does


def test_the_command_prints_an_answer_and_writes_picture_and_table(mlp, capsys):
    trial = trial_of(mlp, lr=1e5)
    assert main(["replay", str(mlp.folder), f"trial={trial}"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"sgd on mlp, trial {trial} (lr 1.0e5, seed 0): Broke at step ")
    assert all(len(line) <= 80 for line in out.splitlines()[:-1])
    assert f"replay of trial {trial} of sgd on mlp" in err
    files = [mlp.folder / f"replay_trial_{trial}.{kind}" for kind in ("png", "svg", "csv")]
    assert all(path.is_file() and path.name in out for path in files)
    assert files[0].read_bytes()[:4] == b"\x89PNG"
    with open(files[2], newline="") as file:
        rows = list(csv.DictReader(file))
    found = replayed(mlp, trial)
    assert len(rows) == 3 * found.num_steps
    assert [row["layer"] for row in rows[:3]] == ["hidden.0", "hidden.1", "readout"]
    assert float(rows[0]["loss"]) == float(rows[0]["loss_in_sweep"])
    assert float(rows[1]["grad_norm"]) == pytest.approx(found.run.layers["hidden.1"][0, 1])
    assert float(rows[-1]["output"]) == pytest.approx(found.run.outputs["readout"][-1][1])


def test_as_json_it_is_plain_numbers(mlp, overflow, capsys):
    words = ["replay", str(mlp.folder), "format=json", "progress=off", "trial=0", "steps=5"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["broke"], answer["steps"], answer["trial"]) == (False, 5, 0)
    assert answer["curve"]["num_steps"] == 5
    trial = trial_of(overflow, init="spectral(1.3)", clip_norm=None)
    words = ["replay", str(overflow.folder), "format=json", "progress=off", f"trial={trial}"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["broke"], answer["module"]) == (True, "recurrence")
    assert answer["cause"] == "learning_rate"
    assert answer["sentence"].endswith("Nothing had grown tenfold before.")
    assert answer["first"] is None
    # A factor that is infinite has no number in JSON.
    assert any(one["factor"] is None for one in answer["runaways"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trial=99"], "trial=99 is not among those that have ended: 0 to 2"),
        (["trial=-1"], "trial=-1 is not allowed"),
        (["trial=nine"], "trial=nine is not a whole number"),
        (["steps=0"], "steps=0 is not allowed"),
        (["steps=41"], "steps=41 is not allowed"),
        (["progress=loud"], "progress='loud' is not known"),
        (["format=xml"], "format='xml' is not known"),
        (["trail=1"], "did you mean trial?"),
    ],
)
def test_what_is_mistyped_is_one_line(mlp, capsys, words, says):
    assert main(["replay", str(mlp.folder), *words]) == 2
    out, err = capsys.readouterr()
    assert says in err and err.count("\n") == 1 and not out


def test_another_folder_is_one_line(tmp_path, capsys):
    assert main(["replay", str(tmp_path)]) == 2
    assert "is no result folder" in capsys.readouterr().err


def test_a_python_object_is_given_again(tmp_path, capsys):
    result = swept(tmp_path / "own", Root, "digits", {"lr": [0.1]}, horizon=4)
    assert main(["replay", str(result.folder)]) == 2
    err = capsys.readouterr().err
    assert "model was the Python object" in err and "find_replay(result, model=" in err
    # The page names the call that can do it, not the command that cannot.
    page = (result.folder / "report.html").read_text()
    assert "stabsweep.find_replay(stabsweep.load(" in page and "stabsweep replay" not in page
    assert stabsweep.find_replay(load(result.folder), model=Root, watcher="off").step == 0


def test_a_trial_that_ended_in_an_error_ends_so_again_in_one_line(tmp_path):
    result = swept(tmp_path / "own", Fragile, "digits", {"lr": [1.0]}, engine="loop")
    (record,) = result.region.records
    assert record.state == "failed"
    with pytest.raises(BadInput, match=r"^trial=0 ended in an error at step \d+: ") as caught:
        replayed(result, model=Fragile)
    assert "ValueError: too heavy" in str(caught.value) and "\n" not in str(caught.value)
    # The curvature of it cannot be followed either, and says so in its own words.
    with pytest.raises(BadInput, match="ended in an error"):
        find_sharpening(result, 0, model=Fragile, watcher="off")


def test_one_that_gets_past_its_error_this_time_says_so(tmp_path, monkeypatch):
    result = swept(tmp_path / "own", Fragile, "digits", {"lr": [0.1]}, engine="loop", horizon=30)
    monkeypatch.setattr(Fragile, "limit", math.inf)
    (record,) = result.region.records
    assert record.state == "failed"
    found = replayed(result, model=Fragile)
    assert found.num_steps == 30 and not found.is_broken and found.agreement is None
    assert "In the sweep it ended in an error (ValueError: too heavy" in found.summary()


def test_a_folder_that_cannot_be_written_to_is_one_line(mlp, tmp_path):
    found = replayed(mlp, 0, steps=3)
    with pytest.raises(BadInput, match="cannot write replay_trial_0"):
        found.save(tmp_path / "none")


# ------------------------------------------------------------------------------ the picture


def test_the_picture_shows_both_curves_and_the_outputs(mlp, monkeypatch):
    from stabsweep import report

    seen = []
    draw = report.draw_run
    monkeypatch.setattr(report, "draw_run", lambda info: seen.append(info) or draw(info))
    found = replayed(mlp, trial_of(mlp, lr=1e5))
    figure = found.plot()
    (info,) = seen
    assert info.noun == "step" and info.title == f"{found.title}: {found.sentence}"
    assert set(info.lanes) >= {"not_finite", "runaway", "update_ratio"}
    assert "stopped" not in info.lanes
    loss, norm, *others = info.panels
    assert loss.before.values[:2] == pytest.approx(found.stored[0, :2])
    assert norm.before is not None and all(panel.before is None for panel in others)
    assert [heat.title for heat in info.heats] == [
        "Gradient norm by layer", "Update over weights by layer", "Largest output by layer",
    ]  # fmt: skip
    assert info.heats[2].values[:, 0] == pytest.approx(
        [found.run.outputs[name][0, 1] for name in found.run.layers]
    )
    assert figure.axes[-1].get_xlabel() == "step" or any(
        axes.get_xlabel() == "step" for axes in figure.axes
    )
