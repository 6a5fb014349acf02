"""What one burst of a gradient does to Adam."""

from __future__ import annotations

import pytest
import torch

from stabsweep.optimizer import build

QUIET_STEPS, BURST = 500, 100.0


def steps_through_a_burst(beta2: float, lr: float) -> list[float]:
    """Updates over lr: after the quiet steps, and at the one whose gradient is a hundred times."""
    rule, hyper = build("adam", beta2=beta2)
    lr_K1, theta_KP = torch.full((1, 1), lr).double(), torch.zeros(1, 1).double()
    columns = {key: torch.full_like(lr_K1, value) for key, value in hyper.items()}
    state, found = rule.new_state(theta_KP), []
    for step in range(QUIET_STEPS + 1):
        gradient_KP = torch.full_like(theta_KP, BURST if step == QUIET_STEPS else 1.0)
        step_K1 = torch.full_like(lr_K1, step)
        found.append(float(rule.delta(theta_KP, gradient_KP, state, columns, lr_K1, step_K1)) / lr)
    return found[-2:]


@pytest.mark.parametrize("lr", [1e-3, 0.1])
@pytest.mark.parametrize(("beta2", "burst"), [(0.999, -2.1229), (0.95, -0.4870)])
def test_a_slow_second_moment_makes_a_burst_a_long_step(beta2, burst, lr):
    """By hand: m = 0.9 + 0.1 * 100, v = beta2 + (1 - beta2) * 1e4, both nearly unbiased by then."""
    quiet, loud = steps_through_a_burst(beta2, lr)
    assert quiet == pytest.approx(-1.0, abs=1e-6)
    assert loud == pytest.approx(burst, abs=5e-4)
    correction = 1 - beta2 ** (QUIET_STEPS + 1)
    second = beta2 * (1 - beta2**QUIET_STEPS) + (1 - beta2) * BURST**2
    assert loud == pytest.approx(-(0.9 + 0.1 * BURST) / (second / correction) ** 0.5, rel=1e-6)
