from __future__ import annotations

import numpy as np
import pytest

from stabsweep.course import Sharpness
from stabsweep.report.figure import png_bytes
from stabsweep.report.sharpness_curve import draw_sharpness, sharpness_info

HEADS = "sgd on mlp, trial 9 (lr 0.1, seed 0)", "Sharpness rose to the line by step 20."


def info(sharpness, lrs, losses, preconditioned=False):
    lrs, num_steps = np.asarray(lrs, float), len(losses)
    curves = np.stack([np.asarray(losses, float), *[np.ones(num_steps)] * 3, lrs])
    steps = np.linspace(0, num_steps - 1, len(sharpness)).astype(int)
    points = [
        Sharpness(int(step), float(lrs[step]), float(losses[step]), value, 2 / float(lrs[step]))
        for step, value in zip(steps, sharpness, strict=True)
    ]
    return sharpness_info(points, curves, "2 / lr", preconditioned, HEADS)


def test_a_constant_rate_has_one_line_in_sight_and_named():
    found = info([5, 10, 21, 19], [0.1] * 40, np.linspace(2, 1, 40))
    assert found.line_text == "2 / lr = 20"
    assert found.line == pytest.approx([20] * 40)
    low, high, log = found.range
    assert low == 0 and high > 25 and not log
    assert found.matrix == "Hessian"
    assert found.steps == (0, 13, 26, 39)


def test_a_schedule_bends_the_line():
    found = info([5, 10, 21], np.linspace(0.1, 0.001, 30), np.ones(30), preconditioned=True)
    assert found.line_text == "2 / lr"
    assert found.line[0] == pytest.approx(20) and found.line[-1] == pytest.approx(2000)
    # Its far end is no reason to press the sharpness to the ground.
    assert found.range[1] < 30
    assert found.matrix == "preconditioned Hessian"


def test_a_runaway_is_logarithmic_and_what_is_not_finite_is_no_end():
    found = info([1, 30, 1e9], [0.1] * 20, [*np.geomspace(1, 1e12, 19), np.nan])
    assert found.range[2] and found.range[0] < 1 and found.range[1] > 1e9
    assert (found.num_steps, found.is_cut, found.loss_steps[-1]) == (19, True, 18)
    assert found.loss_range[2] and 1e12 < found.loss_range[1] < 1e14


def test_curvature_may_be_negative():
    found = info([-5, 10, 21, 19], [0.1] * 40, np.linspace(2, -1, 40))
    assert found.range[0] < -5 and found.loss_range[0] < -1


@pytest.mark.parametrize("outcome", ["converged", "diverged", "invalid"])
def test_it_is_drawn(outcome):
    found = info([1, 30, 1e9], [0.1] * 20, [*np.geomspace(1, 1e12, 19), np.nan])
    figure = draw_sharpness(found, outcome)
    assert png_bytes(figure)[:4] == b"\x89PNG"
    top, bottom = figure.axes
    assert top.get_title(loc="right") == "- - line of its rate: 2 / lr = 20"
    assert bottom.get_xlabel() == "step"
