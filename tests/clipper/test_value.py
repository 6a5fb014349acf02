from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabsweep.clipper import build


def clipped(grads, limit, **given):
    clipper, hyper = build("value", clip_value=limit, **given)
    named = {str(n): nn.Parameter(torch.zeros(len(grad))) for n, grad in enumerate(grads)}
    for parameter, grad in zip(named.values(), grads, strict=True):
        parameter.grad = torch.tensor(grad)
    total = torch.cat([torch.tensor(grad) for grad in grads]).norm()
    coefficient = clipper.twin(hyper).clip_(named, total)
    return [parameter.grad.tolist() for parameter in named.values()], float(coefficient)


def test_by_hand():
    grads, coefficient = clipped([[3.0, -4.0], [0.5]], 1.0)
    assert grads == [[1.0, -1.0], [0.5]]
    assert coefficient == pytest.approx(1.5 / math.sqrt(25.25), rel=1e-6)
    assert clipped([[3.0, -4.0], [0.5]], 4.0) == ([[3.0, -4.0], [0.5]], 1.0)


def test_it_is_that_of_torch():
    parameter = nn.Parameter(torch.zeros(4))
    parameter.grad = torch.tensor([3.0, -0.2, math.inf, math.nan])
    nn.utils.clip_grad_value_([parameter], 0.7)
    ((found,), _) = clipped([[3.0, -0.2, math.inf, math.nan]], 0.7)
    torch.testing.assert_close(torch.tensor(found), parameter.grad, equal_nan=True)


def test_a_total_that_was_rounded_otherwise_is_no_clipping():
    clipper, hyper = build("value")
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([0.3, 0.4])
    total = torch.nextafter(parameter.grad.norm(), torch.tensor(9.0))
    assert clipper.twin(hyper).clip_({"w": parameter}, total) == 1
