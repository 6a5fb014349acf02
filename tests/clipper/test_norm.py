from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabsweep.clipper import clip_coefficient


def clipped_by_torch(grads, limit):
    parameters = [nn.Parameter(torch.zeros_like(grad)) for grad in grads]
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.grad = grad.clone()
    norm = nn.utils.clip_grad_norm_(parameters, limit)
    return norm, [parameter.grad for parameter in parameters]


def norm_of(grads):
    return torch.linalg.vector_norm(torch.cat(grads))


GRADS = {
    "small": [[0.3, 0.0], [0.4]],
    "at the limit": [[0.6, 0.0], [0.8]],
    "large": [[30.0, -10.0], [40.0]],
    "zero": [[0.0, 0.0], [0.0]],
    "nan": [[math.nan, 1.0], [2.0]],
    "inf": [[math.inf, 1.0], [2.0]],
    "a norm that overflows": [[1e200, 1.0], [1e200]],
}


@pytest.mark.parametrize("limit", [1.0, 0.01, 100.0])
@pytest.mark.parametrize("name", GRADS)
def test_a_gradient_is_clipped_as_torch_does_it(name, limit):
    grads = [torch.tensor(grad, dtype=torch.float64) for grad in GRADS[name]]
    norm, expected = clipped_by_torch(grads, limit)
    assert torch.equal(norm_of(grads), norm) or (norm.isnan() and norm_of(grads).isnan())
    coefficient = clip_coefficient(norm, torch.tensor(limit, dtype=torch.float64))
    for grad, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad * coefficient, wanted, rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize("norm", [0.0, 3.0, 1e30, math.inf, math.nan])
def test_without_a_limit_nothing_is_touched(norm):
    assert clip_coefficient(torch.tensor(norm), torch.tensor(math.inf)) == 1


def test_a_failure_stays_visible():
    for bad in (math.nan, math.inf):
        grad = torch.tensor([bad, 1.0])
        coefficient = clip_coefficient(torch.linalg.vector_norm(grad), torch.tensor(1.0))
        assert not (grad * coefficient).isfinite().all()


def test_every_trial_has_its_own_norm_and_limit():
    norm_K1 = torch.tensor([[2.0], [2.0], [math.nan], [2.0], [0.5]])
    limit_K1 = torch.tensor([[1.0], [math.inf], [1.0], [4.0], [1.0]])
    found = clip_coefficient(norm_K1, limit_K1)
    assert found.shape == (5, 1)
    expected = torch.tensor([[1 / (2 + 1e-6)], [1.0], [math.nan], [1.0], [1.0]])
    torch.testing.assert_close(found, expected, equal_nan=True)
