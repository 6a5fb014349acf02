from __future__ import annotations

import pytest
import torch

from stabsweep.optimizer import build


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_its_first_step_is_as_long_as_its_memory_is():
    rule, _ = build("rmsprop")
    hyper = {"alpha": column(0.99, 0.0), "eps": column(0.0, 0.0), "momentum": column(0.0, 0.9)}
    hyper["weight_decay"] = column(0.0, 0.0)
    theta_KP = torch.zeros(2, 3).double()
    grad_KP = torch.tensor([[1e-3, -2.0, 50.0]] * 2, dtype=torch.float64)
    found = rule.delta(
        theta_KP, grad_KP, rule.new_state(theta_KP), hyper, column(0.1, 0.1), column(0, 0)
    )
    expected = -torch.tensor([[1.0], [0.1]], dtype=torch.float64) * grad_KP.sign()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_momentum_adds_up_scaled_steps():
    # A gradient that stays: v is its square from the first step on with alpha = 0.
    rule, hyper = build("rmsprop", alpha=0.0, eps=0.0, momentum=0.5)
    columns = {key: column(value) for key, value in hyper.items()}
    theta_KP = torch.zeros(1, 2).double()
    state = rule.new_state(theta_KP)
    for step, expected in enumerate([1.0, 1.5, 1.75]):
        grad_KP = torch.tensor([[3.0, -0.2]], dtype=torch.float64)
        found = rule.delta(theta_KP, grad_KP, state, columns, column(1.0), column(step))
        assert found[0].tolist() == pytest.approx([-expected, expected])
