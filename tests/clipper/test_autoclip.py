from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stabsweep.clipper import build
from stabsweep.clipper.autoclip import WINDOW


def coefficients(norms, percentile=10.0):
    """What the twin multiplies gradients of such norms with."""
    clipper, hyper = build("autoclip", clip_percentile=percentile)
    twin, found = clipper.twin(hyper), []
    for norm in norms:
        parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        parameter.grad = torch.tensor([norm], dtype=torch.float64)
        coefficient = float(twin.clip_({"w": parameter}, torch.tensor(norm, dtype=torch.float64)))
        assert float(parameter.grad) == pytest.approx(norm * coefficient, rel=1e-15)
        found.append(coefficient)
    return found


def test_by_hand():
    # Percentile 50 of [4], [4, 2], [4, 2, 6], [4, 2, 6, 8]: 4, 3, 4, 5.
    assert coefficients([4.0, 2.0, 6.0, 8.0], 50.0) == [1.0, 1.0, 4 / 6, 5 / 8]


@pytest.mark.parametrize("percentile", [1, 10, 50, 99])
def test_the_limit_is_the_percentile_of_numpy(percentile):
    norms = np.random.default_rng(0).lognormal(size=60)
    limits = [np.percentile(norms[: n + 1], percentile) for n in range(60)]
    expected = [min(1.0, limit / norm) for limit, norm in zip(limits, norms, strict=True)]
    assert coefficients(norms, percentile) == pytest.approx(expected, rel=1e-12)


def test_the_oldest_norms_are_forgotten():
    clipper, _ = build("autoclip")
    hyper = {"clip_percentile": torch.tensor([[50.0]]).double()}
    theta_KP = torch.zeros(1, 2)
    state = clipper.new_state(theta_KP)
    norms = [*[1.0] * WINDOW, *[9.0] * (WINDOW // 2 + 2)]
    found = []
    for norm in norms:
        grad_KP = torch.tensor([[norm, 0.0]])
        norm_K1 = torch.tensor([[norm]])
        found.append(clipper.clip(grad_KP, theta_KP, norm_K1, state, hyper, norm_K1)[1].item())
    # Half of the window is 1 and half 9; a step later 9 is the median.
    assert found[WINDOW] == pytest.approx(1 / 9)
    assert found[-3:] == [pytest.approx(5 / 9), 1.0, 1.0]
    twin = clipper.twin({"clip_percentile": 50.0})
    for norm in norms:
        last = twin.clip_({}, torch.tensor(norm))
    assert float(last) == 1.0


def test_at_ten_nine_of_ten_steps_are_clipped():
    norms = np.random.default_rng(1).lognormal(size=400)
    assert np.mean(np.array(coefficients(norms))[50:] < 1) == pytest.approx(0.9, abs=0.03)
