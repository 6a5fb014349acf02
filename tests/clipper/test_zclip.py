from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stabsweep.clipper import build
from stabsweep.clipper.zclip import NUM_WARMUP


def after(norms, **given):
    """The norms after clipping."""
    clipper, hyper = build("zclip", **given)
    twin, found = clipper.twin(hyper), []
    for norm in norms:
        parameter = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        parameter.grad = torch.tensor([norm], dtype=torch.float64)
        twin.clip_({"w": parameter}, torch.tensor(norm, dtype=torch.float64))
        found.append(float(parameter.grad))
    return found


# Mean 2 and, with as many 1s as 3s and one 2, variance 24 / 25.
FIRST = [1.0, 3.0] * 12 + [2.0]


def test_the_first_spike_by_hand():
    assert len(FIRST) == NUM_WARMUP
    # z = (12 - 2) / sigma, and mu + 2.5^2 / z * sigma = 2 + 6.25 * 0.96 / 10.
    assert after([*FIRST, 12.0])[-1] == pytest.approx(2.6, rel=1e-5)
    # 4.4 is 2.45 deviations above the mean.
    assert after([*FIRST, 4.4])[-1] == 4.4
    assert after([*FIRST, 4.4], clip_z=2.0)[-1] == pytest.approx(2 + 4 * 0.96 / 2.4, rel=1e-5)


def test_a_spike_is_remembered_as_what_it_was_held_down_to():
    # mu = 0.9 * 2 + 0.1 * 2.6 = 2.06; sigma^2 = 0.9 * 0.96 + 0.1 * (2.6 - 2.06)^2 = 0.89316.
    found = after([*FIRST, 12.0, 12.0], clip_alpha=0.9)[-1]
    assert found == pytest.approx(2.06 + 6.25 * 0.89316 / (12 - 2.06), rel=1e-5)


def test_the_first_norms_are_never_clipped():
    norms = [1.0] * 10 + [1000.0] + [1.0] * 14
    assert len(norms) == NUM_WARMUP and after(norms) == norms


def test_norms_that_grow_slowly_are_let_through():
    norms = list(np.geomspace(1.0, 100.0, 500))
    assert np.mean(np.array(after(norms)) < norms) < 0.05


def test_norms_that_rise_at_once_and_stay_are_held_down_for_ever():
    # What its docstring warns of: the mean sees nothing but what was held down.
    found = after([*FIRST, *[12.0] * 300])[NUM_WARMUP:]
    assert max(found) < 3


def test_norms_that_do_not_vary_are_no_spikes():
    norms = [1.0] * 60
    assert after(norms) == norms
    # Nor is what rounding adds to them.
    norms[40] += 1e-12
    assert after(norms) == norms


def test_the_scale_of_the_gradients_does_not_matter():
    norms = np.random.default_rng(0).lognormal(size=200)
    found = np.array(after(norms))
    assert (found < norms).any()
    np.testing.assert_allclose(np.array(after(1e-9 * norms)) / 1e-9, found, rtol=1e-9)
