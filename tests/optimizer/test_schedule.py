from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from stabsweep.optimizer import SCHEDULES, learning_rates

HORIZON = 40


def rates(schedule, warmup_steps=0, lr=0.5, horizon=HORIZON):
    found = learning_rates(
        np.arange(horizon), np.array(lr), np.array(warmup_steps), horizon, schedule
    )
    return np.broadcast_to(found, (horizon,))


def factor(schedule, past):
    """What is left of the peak rate after a share of the way from the peak to the horizon."""
    if schedule == "cosine":
        return (1 + math.cos(math.pi * past)) / 2
    if schedule == "cosine_tenth":
        return 0.1 + 0.9 * (1 + math.cos(math.pi * past)) / 2
    if schedule == "linear":
        return 1 - past
    if schedule == "step":
        return 1.0 if past < 0.5 else 0.1 if past < 0.75 else 0.01
    return 1.0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup_steps", [0, 1, 2, 7, HORIZON - 1])
def test_the_rate_rises_to_the_peak_and_then_follows_its_formula(schedule, warmup_steps):
    found = rates(schedule, warmup_steps)
    peak_step = max(warmup_steps - 1, 0)
    for step in range(HORIZON):
        if step <= peak_step:
            expected = 0.5 * (step + 1) / (peak_step + 1)
        else:
            expected = 0.5 * factor(schedule, (step - peak_step) / (HORIZON - peak_step))
        assert found[step] == pytest.approx(expected, rel=1e-12), step


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup_steps", [0, 1, 2, 7, HORIZON - 1])
def test_no_step_is_wasted_on_a_rate_of_zero(schedule, warmup_steps):
    found = rates(schedule, warmup_steps)
    assert (found > 0).all()
    assert found.max() == found[max(warmup_steps - 1, 0)] == 0.5


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_step_of_warmup_is_none(schedule):
    assert np.array_equal(rates(schedule, 0), rates(schedule, 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_rate_never_rises_after_the_peak(schedule):
    assert (np.diff(rates(schedule, 7)[6:]) <= 0).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_is_that_of_torch_without_warmup(schedule):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = torch.optim.lr_scheduler
    theirs = {
        "constant": lambda: scheduler.ConstantLR(optimizer, 1.0),
        "cosine": lambda: scheduler.CosineAnnealingLR(optimizer, HORIZON),
        "cosine_tenth": lambda: scheduler.CosineAnnealingLR(optimizer, HORIZON, eta_min=0.05),
        "linear": lambda: scheduler.LinearLR(optimizer, 1.0, 0.0, HORIZON),
        "step": lambda: scheduler.MultiStepLR(optimizer, [HORIZON // 2, HORIZON * 3 // 4]),
    }[schedule]()
    found = []
    for _ in range(HORIZON):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose(rates(schedule), found, rtol=1e-9)


def test_warmup_is_that_of_torch():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    theirs = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 8, 1.0, total_iters=7)
    found = []
    for _ in range(HORIZON):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    np.testing.assert_allclose(rates("constant", 8), found, rtol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_trials_of_their_own_rate_warmup_and_step_are_found_at_once(schedule):
    steps_RK = np.array([[0, 3, 30], [1, 4, 31]])
    lr_K, warmup_K = np.array([1.0, 0.1, 0.01]), np.array([0, 5, 20])
    found = learning_rates(steps_RK, lr_K, warmup_K, HORIZON, schedule)
    alone = [
        [rates(schedule, w, lr)[step] for step, lr, w in zip(row, lr_K, warmup_K, strict=True)]
        for row in steps_RK
    ]
    np.testing.assert_allclose(np.broadcast_to(found, steps_RK.shape), alone, rtol=1e-12)


def test_a_horizon_of_one_step_has_the_peak_rate():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [rates(schedule, 0, 0.5, 1).tolist() for schedule in SCHEDULES] == [[0.5]] * 5
