from __future__ import annotations

import math

import pytest
import torch

from stabsweep.engine import Cohort, Loop
from stabsweep.optimizer import build
from stabsweep.optimizer.lion import PlainLion
from tests.laws import CASES, POINTS, assert_close, make_setup, make_trials, train


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_a_step_is_as_long_as_the_rate_whatever_the_gradient():
    rule, hyper = build("lion")
    columns = {key: column(value, value) for key, value in hyper.items()}
    columns["weight_decay"] = column(0.0, 0.5)
    theta_KP = torch.tensor([[1.0, -2.0, 4.0]] * 2, dtype=torch.float64)
    grad_KP = torch.tensor([[1e-30, -1e30, 0.0]] * 2, dtype=torch.float64)
    lr_K1 = column(0.1, 0.2)
    found = rule.delta(theta_KP, grad_KP, rule.new_state(theta_KP), columns, lr_K1, column(0, 0))
    assert found[0].tolist() == pytest.approx([-0.1, 0.1, 0.0], rel=1e-12)
    # Decay is a share of the weights: lr * weight_decay = 0.1.
    assert found[1].tolist() == pytest.approx([-0.2 - 0.1, 0.2 + 0.2, -0.4], rel=1e-12)


def test_the_momentum_that_is_kept_is_not_the_one_that_is_followed():
    rule, hyper = build("lion", beta1=0.5, beta2=0.9)
    columns = {key: column(value) for key, value in hyper.items()}
    theta_KP, lr_K1 = torch.zeros(1, 1).double(), column(1.0)
    state = rule.new_state(theta_KP)
    # Kept: 1, 0.8. Followed at step 2: 0.5 * 1 - 0.5 * 1.05 < 0, with the kept one it were > 0.
    for step, (grad, expected, kept) in enumerate([(10.0, -1.0, 1.0), (-1.05, 1.0, 0.795)]):
        grad_KP = torch.full((1, 1), grad).double()
        found = rule.delta(theta_KP, grad_KP, state, columns, lr_K1, column(step))
        assert (found.item(), state["exp_avg"].item()) == pytest.approx((expected, kept))


def test_a_nan_is_not_hidden_by_the_sign():
    theta_P = torch.nn.Parameter(torch.ones(2))
    theta_P.grad = torch.tensor([math.nan, 1.0])
    PlainLion([theta_P], beta1=0.9, beta2=0.99, weight_decay=0.0, lr=0.1).step()
    assert theta_P.tolist() == pytest.approx([math.nan, 0.9], nan_ok=True)


def test_decay_bounds_the_weights():
    # arXiv 2310.05898: the largest weight ends within 1 / weight_decay, wherever it starts.
    rule, hyper = build("lion", weight_decay=2.0)
    columns = {key: column(value) for key, value in hyper.items()}
    theta_KP, lr_K1 = torch.tensor([[30.0, -0.1]], dtype=torch.float64), column(0.1)
    state = rule.new_state(theta_KP)
    for step in range(200):
        grad_KP = torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
        theta_KP = theta_KP + rule.delta(theta_KP, grad_KP, state, columns, lr_K1, column(step))
    assert theta_KP[0].tolist() == pytest.approx([0.5, -0.5])


def test_engines_agree_on_all_curves_where_the_loss_feels_every_weight(monkeypatch):
    # Norms on queries and keys: a key's bias is felt, so its gradient is no rounding error, and
    # `WANDERING` of the laws needs no exception.
    monkeypatch.setitem(CASES["transformer"][0], "qk_norm", True)
    setup = make_setup("transformer", "lion", horizon=50, schedule="cosine")
    trials = make_trials(*POINTS["lion"])
    together = train(Cohort(setup, 8), trials)
    for trial in trials:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])
