from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabsweep.clipper import build


def one(shape, weight, grad):
    parameter = nn.Parameter(torch.tensor(weight).reshape(shape))
    parameter.grad = torch.tensor(grad).reshape(shape)
    return parameter


def clip(named, factor=0.01, **given):
    clipper, hyper = build("agc", clip_factor=factor, **given)
    total = torch.cat([p.grad.reshape(-1) for p in named.values()]).norm()
    return clipper.twin(hyper).clip_(named, total)


def test_each_unit_by_hand():
    # Rows with |w| = 5, 0 and 1, and gradients of 10, 1 and 0.001.
    w = one((3, 2), [3.0, 4.0, 0.0, 0.0, 1.0, 0.0], [6.0, 8.0, 0.0, 1.0, 0.001, 0.0])
    before = w.grad.norm()
    coefficient = clip({"w": w})
    # 0.01 * 5 / 10, and 0.01 * 1e-3 / 1, and nothing: 0.001 is below 0.01 * 1.
    expected = torch.tensor([[0.03, 0.04], [0.0, 1e-5], [0.001, 0.0]])
    torch.testing.assert_close(w.grad, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(coefficient, expected.norm() / before, rtol=1e-6, atol=0)


def test_a_vector_is_one_unit_and_so_is_a_channel():
    bias = one((4,), [3.0, 0.0, 4.0, 0.0], [0.0, 5.0, 0.0, 0.0])
    conv = one((2, 1, 1, 2), [3.0, 4.0, 0.3, 0.4], [0.0, 1.0, 1.0, 0.0])
    clip({"bias": bias, "conv": conv}, 0.1)
    torch.testing.assert_close(bias.grad, torch.tensor([0.0, 0.5, 0.0, 0.0]))
    torch.testing.assert_close(conv.grad.flatten(), torch.tensor([0.0, 0.5, 0.05, 0.0]))


def test_the_last_linear_layer_is_left_out_by_its_name():
    def named():
        names = ("hidden.weight", "readout.weight", "lm_head.weight", "fc.weight", "a.fc.weight")
        return {name: one((1, 2), [1.0, 0.0], [1.0, 0.0]) for name in names}

    def untouched(**given):
        parameters = named()
        clip(parameters, **given)
        return {name for name, p in parameters.items() if p.grad.norm() == 1}

    assert untouched() == {"readout.weight", "lm_head.weight", "fc.weight"}
    assert untouched(exclude=["hidden.*"]) == {"hidden.weight"}
    assert untouched(exclude=[]) == set()


def test_what_is_infinite_spoils_its_unit_alone():
    w = one((2, 2), [3.0, 4.0, 3.0, 4.0], [math.inf, 1.0, 0.0, 1.0])
    clip({"w": w})
    assert w.grad[0].isnan().any() and w.grad[1].tolist() == pytest.approx([0.0, 0.05])


def test_in_half_precision_norms_are_those_of_float32():
    torch.manual_seed(0)
    theta_KP, grad_KP = torch.randn(2, 3000).bfloat16(), (100 * torch.randn(2, 3000)).bfloat16()
    clipper, _ = build("agc")
    clipper = clipper.laid_out([("w", torch.Size([1, 3000]))])
    hyper = {"clip_factor": torch.tensor([[0.01], [1.0]]).double()}
    norm_K1 = grad_KP.float().norm(dim=1, keepdim=True)
    found, coef_K1 = clipper.clip(grad_KP.clone(), theta_KP, norm_K1, {}, hyper, norm_K1)
    assert found.dtype == torch.bfloat16 and coef_K1.dtype == torch.float32
    limit_K1 = torch.tensor([[0.01], [1.0]]) * theta_KP.float().norm(dim=1, keepdim=True)
    torch.testing.assert_close(coef_K1, limit_K1 / norm_K1, rtol=2e-3, atol=0)
