from __future__ import annotations

import math

import pytest
import torch

from stabsweep.optimizer import build


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def steps(name, grads, **given):
    """The update of one weight for each of some gradients, with lr = 1."""
    rule, hyper = build(name, **given)
    columns = {key: column(value) for key, value in hyper.items()}
    theta_KP, found = torch.ones(1, 1).double(), []
    state = rule.new_state(theta_KP)
    for step, grad in enumerate(grads):
        grad_KP = torch.full((1, 1), grad).double()
        delta = rule.delta(theta_KP, grad_KP, state, columns, column(1.0), column(step))
        found.append(delta.item())
    return found


def test_gradients_of_constant_size_warm_it_up():
    adam = steps("adam", [3.0] * 2000, eps=0.0)
    found = steps("gi_adam", [3.0] * 2000, eps=0.0)
    expected = [-math.sqrt(1 - 0.999**t) for t in range(1, 2001)]
    assert adam == pytest.approx([-1.0] * 2000)
    assert found == pytest.approx(expected, rel=1e-9)
    assert [round(found[t - 1], 2) for t in (1, 1000)] == [-0.03, -0.8]


def test_a_first_gradient_that_includes_decay_starts_it():
    # The weight is 1: decay turns the gradient from -0.5 into 0.5.
    found = steps("gi_adam", [-0.5], weight_decay=1.0, eps=0.0)
    assert found == pytest.approx([-math.sqrt(0.001)])


def test_a_large_first_gradient_is_remembered():
    # v_0 fades as beta2^t: after a spike at the first step the others are small ones for long.
    found = steps("gi_adam", [100.0, 1.0, 1.0], beta1=0.0)
    v = [1e4, 0.999 * 1e4 + 0.001, 0.999**2 * 1e4 + 0.999 * 0.001 + 0.001]
    v_hat = [value / (1 - 0.999**t) for t, value in enumerate(v, 1)]
    expected = [-g / math.sqrt(x) for g, x in zip([100.0, 1.0, 1.0], v_hat, strict=True)]
    assert found == pytest.approx(expected, rel=1e-6)
