from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import pytest
import torch

import stabsweep
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.records import Verdict
from stabsweep.result import load
from stabsweep.sharpening import find_sharpening, nearest

QUIET = {"confirm": False, "stress": False, "curvature": False, "watcher": "off"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A quadratic with eigenvalues up to 1 under momentum 0.5: the edge is at lr = 3."""
    folder = tmp_path_factory.mktemp("sharpening") / "quadratic"
    stabsweep.sweep(
        "vector",
        "quadratic",
        {"lr": [0.4, 1.5, 2.4, 6.0], "warmup_steps": [0, 20]},
        {"name": "sgd", "momentum": 0.5},
        horizon=100,
        num_trials=8,
        seeds=1,
        folder=folder,
        **QUIET,
    )
    return folder


def net():
    return torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Tanh(), torch.nn.Linear(8, 10))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A model of one's own, clipped."""
    folder = tmp_path_factory.mktemp("sharpening") / "own"
    space = {"lr": [0.1, 0.2]}
    kind = {"name": "sgd", "momentum": 0.0}
    return stabsweep.sweep(
        net, "digits", space, kind, horizon=30, num_trials=2, seeds=1, clip_norm=0.5,
        folder=folder, **QUIET,
    )  # fmt: skip


def trial_of(result, **point):
    return next(r.trial for r in result.region.records if dict(r.point) == point)


def test_on_a_quadratic_both_ends_of_the_question_are_exact(folder):
    result = load(folder)
    held = find_sharpening(result, trial_of(result, lr=1.5, warmup_steps=0), watcher="off")
    assert held.course.word == "below"
    assert len(held.points) == 20
    assert (held.points[0].step, held.points[-1].step) == (0, 99)
    assert all(point.ratio == pytest.approx(0.5, rel=0.01) for point in held.points)
    lost = find_sharpening(result, trial_of(result, lr=6.0, warmup_steps=0), watcher="off")
    assert lost.course.word == "crossed"
    assert lost.verdict is Verdict.DIVERGED
    assert "above the line from the start" in lost.course.sentence
    # A warmup crosses its line on the way up: at half of the rate, step 9 of 20.
    warm = trial_of(result, lr=6.0, warmup_steps=20)
    warm = find_sharpening(result, warm, num_points=10_000, watcher="off")
    assert "crossed the line at step 10" in warm.course.sentence


def test_without_a_number_it_is_the_trial_nearest_to_the_pick_or_to_the_edge(folder):
    result = load(folder)
    assert result.pick.is_ok
    found, rates = nearest(result), (0.4, 1.5, 2.4, 6.0)
    assert found.lr == nearest_of(rates, result.pick.lr)
    assert found.point["warmup_steps"] == result.pick.hyperparameters["warmup_steps"]
    without = replace(result, pick=replace(result.pick, status="none", lr=None))
    assert nearest(without).lr == nearest_of(rates, result.region.best_row.edge.lr) > found.lr


def nearest_of(rates, aim):
    return min(rates, key=lambda lr: abs(math.log(lr / aim)))


def test_the_command_prints_a_few_lines_and_writes_picture_and_numbers(folder, capsys):
    trial = trial_of(load(folder), lr=2.4, warmup_steps=20)
    assert main(["curvature", str(folder), f"trial={trial}", "points=5"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"sgd on vector, trial {trial} (lr 2.4, seed 0): Sharpness rose to the")
    assert "Line     2 (1 + m) / lr, for the largest eigenvalue of the Hessian\n" in out
    assert len(out.splitlines()) < 16
    assert all(len(line) <= 80 for line in out.splitlines()[:-1])
    assert "5/5 100%" in err and ", 5 points\n" in err
    files = [folder / f"curvature_trial_{trial}.{kind}" for kind in ("png", "svg", "csv")]
    assert all(path.is_file() and path.name in out for path in files)
    with open(files[2], newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 25, 50, 74, 99]
    assert float(rows[0]["lr"]) == pytest.approx(2.4 / 20)
    assert float(rows[-1]["of_line"]) == pytest.approx(0.8, rel=0.01)
    words = ["curvature", str(folder), "points=2", "format=json", "progress=off"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["course"] == "below" and len(answer["points"]) == 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trial=99"], "trial=99 is not among those that have ended: 0 to 7"),
        (["trial=-1"], "trial=-1 is not allowed"),
        (["trial=nine"], "trial=nine is not a whole number"),
        (["points=1"], "points=1 is not allowed"),
        (["progress=loud"], "progress='loud' is not known"),
        (["trail=1"], "did you mean trial?"),
    ],
)
def test_what_is_mistyped_is_one_line(folder, capsys, words, says):
    assert main(["curvature", str(folder), *words]) == 2
    out, err = capsys.readouterr()
    assert says in err and err.count("\n") == 1 and not out


def test_another_folder_is_one_line(tmp_path, capsys):
    assert main(["curvature", str(tmp_path)]) == 2
    assert "is no result folder" in capsys.readouterr().err


def test_a_python_object_is_given_again(own, capsys):
    assert main(["curvature", str(own.folder)]) == 2
    err = capsys.readouterr().err
    assert "model was the Python object" in err and "find_sharpening(result, model=" in err
    found = find_sharpening(load(own.folder), 1, model=net, num_points=3, watcher="off")
    assert [point.step for point in found.points] == [0, 14, 29]
    said = " ".join(found.notes)
    assert "mean loss of 4 batches" in said and "Clipping acted in" in said
    assert "Clipping acted in" in found.summary()


def test_a_trial_that_cannot_be_trained_again_is_one_line(own):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.tanh()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context, gradient):
            return gradient

    class Layer(torch.nn.Module):
        def forward(self, x):
            return Once.apply(x)

    def once():
        return torch.nn.Sequential(torch.nn.Linear(64, 10), Layer())

    with pytest.raises(BadInput, match="cannot be differentiated twice"):
        find_sharpening(own, 0, model=once, watcher="off")


def test_what_ended_in_an_error_or_at_once_cannot_be_followed(own):
    region = own.region
    first = region.records[0]
    for record, says in (
        (replace(first, state="failed", error="ValueError: no"), "ended in an error"),
        (replace(first, bad_step=0), "not finite at its first step"),
    ):
        broken = replace(own, region=replace(region, records=(record, *region.records[1:])))
        with pytest.raises(BadInput, match=says):
            find_sharpening(broken, first.trial, model=net, watcher="off")


def test_an_end_that_is_another_one_this_time_is_said(own):
    def followed(verdict):
        records = tuple(replace(r, verdict=verdict) for r in own.region.records)
        other = replace(own, region=replace(own.region, records=records))
        return find_sharpening(other, 1, model=net, num_points=2, watcher="off")

    now = followed(Verdict.CUT_SHORT).verdict
    assert now.is_learned
    said = f"This time the trial was {now.label}, in the sweep collapsed"
    assert followed(Verdict.COLLAPSED).notes[0].startswith(said)
    assert not any("rounding" in note for note in followed(Verdict.CUT_SHORT).notes)
