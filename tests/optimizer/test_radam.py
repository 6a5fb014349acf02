from __future__ import annotations

import math

import pytest
import torch

from stabsweep.optimizer import build

BETA2 = [0.999, 0.9, 0.8, 0.7, 0.66, 0.0]
FIRST_RECTIFIED = [6, 6, 7, 10, math.inf, math.inf]


def column(values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def rho(beta2, t):
    return 2 / (1 - beta2) - 1 - 2 * t * beta2**t / (1 - beta2**t)


def test_each_row_is_rectified_from_the_step_at_which_it_knows_enough():
    rule, hyper = build("radam", beta1=0.0, eps=0.0)
    columns = {key: column([value] * len(BETA2)) for key, value in hyper.items()}
    columns["beta2"] = column(BETA2)
    theta_KP = torch.zeros(len(BETA2), 2).double()
    state, one_K1 = rule.new_state(theta_KP), column([1.0] * len(BETA2))
    for t in range(1, 40):
        grad_KP = torch.tensor([[3.0, -0.2]] * len(BETA2), dtype=torch.float64)
        found = rule.delta(theta_KP, grad_KP, state, columns, one_K1, t * one_K1 - 1)
        assert found.isfinite().all()
        for row, (beta2, first) in enumerate(zip(BETA2, FIRST_RECTIFIED, strict=True)):
            assert (rho(beta2, t) > 5) == (t >= first), (beta2, t)
            if t < first:
                # As long as the gradient itself.
                expected = [-3.0, 0.2]
            else:
                now, end = rho(beta2, t), 2 / (1 - beta2) - 1
                r = math.sqrt((now - 4) * (now - 2) * end / ((end - 4) * (end - 2) * now))
                assert 0 < r < 1
                expected = [-r, r]
            assert found[row].tolist() == pytest.approx(expected, rel=1e-9), (beta2, t)


def test_the_warmup_that_the_docstring_gives():
    def r(t):
        now, end = rho(0.999, t), 1999
        return math.sqrt((now - 4) * (now - 2) * end / ((end - 4) * (end - 2) * now))

    assert [round(r(t), 2) for t in (6, 50, 1000)] == [0.03, 0.15, 0.65]
