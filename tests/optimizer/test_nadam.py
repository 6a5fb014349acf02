from __future__ import annotations

import math

import pytest
import torch

from stabsweep.optimizer import build


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_the_product_of_mu_is_one_number_a_trial_in_float64():
    rule, hyper = build("nadam")
    theta_KP = torch.zeros(3, 4)
    state = rule.new_state(theta_KP)
    assert state["mu_product"].shape == (3, 1) and state["mu_product"].dtype == torch.float64
    columns = {key: column([value] * 3) for key, value in hyper.items()}
    columns["beta1"], columns["momentum_decay"] = column([0.9, 0.5, 0.0]), column([4e-3, 0.5, 0.1])
    expected = [1.0] * 3
    for t in range(1, 30):
        step_K1 = column([t - 1.0] * 3)
        found = rule.delta(theta_KP, torch.ones(3, 4), state, columns, column([0.1] * 3), step_K1)
        assert found.dtype == torch.float32 and found.isfinite().all()
        for row, (beta1, decay) in enumerate([(0.9, 4e-3), (0.5, 0.5), (0.0, 0.1)]):
            expected[row] *= beta1 * (1 - 0.5 * 0.96 ** (t * decay))
        assert state["mu_product"][:, 0].tolist() == pytest.approx(expected, rel=1e-13)


def test_its_first_step_looks_ahead():
    rule, hyper = build("nadam", eps=0.0)
    columns = {key: column([value]) for key, value in hyper.items()}
    theta_KP = torch.zeros(1, 2).double()
    grad_KP = torch.tensor([[3.0, -0.2]], dtype=torch.float64)
    found = rule.delta(
        theta_KP, grad_KP, rule.new_state(theta_KP), columns, column([1.0]), column([0.0])
    )
    mu, mu_next = (0.9 * (1 - 0.5 * 0.96 ** (t * 4e-3)) for t in (1, 2))
    # g / sqrt(v_hat) is the sign of g, and m is (1 - beta1) g.
    size = (1 - mu) / (1 - mu) + mu_next * 0.1 / (1 - mu * mu_next)
    assert found[0].tolist() == pytest.approx([-size, size], rel=1e-12)


def test_its_twin_keeps_the_product_in_the_type_of_the_weights():
    # What torch alone would lose: the reason for filling in its state.
    ends = []
    for is_filled in (True, False):
        theta_P = torch.nn.Parameter(torch.ones(2).double())
        twin = build("nadam")[0].twin({"w": theta_P}, build("nadam")[1])
        if not is_filled:
            twin.state.clear()
        for step in range(50):
            theta_P.grad = torch.full((2,), math.cos(step)).double()
            twin.param_groups[0]["lr"] = 0.1
            twin.step()
        ends.append(float(theta_P.detach()[0]))
    assert 1e-12 < abs(ends[0] - ends[1]) < 1e-5
