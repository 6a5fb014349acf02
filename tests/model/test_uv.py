import math

import pytest
import torch

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.signature import Signature

ONE = Signature("nothing", num_inputs=0, num_outputs=1)


def start(seed, width):
    module = model.initialize(lambda: model.build("uv", ONE, width=width), seed)
    return module.u.detach().double(), module.v.detach().double()


def sharpness(u, v):
    return ((u.square().sum() + v.square().sum()) / len(u)).item()


def descent(u, v, lr, num_steps=200):
    """Losses of gradient descent, by hand."""
    losses = []
    for _ in range(num_steps):
        f = (u @ v).item() / math.sqrt(len(u))
        losses.append(f * f / 2)
        if not losses[-1] < 1e30:
            break
        slope = lr * f / math.sqrt(len(u))
        u, v = u - slope * v, v - slope * u
    return losses


def test_is_the_scaled_product_of_its_vectors_whatever_the_inputs():
    module = model.build("uv", ONE, width=9)
    assert [tuple(p.shape) for p in module.parameters()] == [(9,), (9,)]
    found = module(torch.zeros(7))
    assert found.shape == (1,)
    assert found.item() == pytest.approx((module.u @ module.v).item() / 3)


def test_starts_at_a_standard_normal_whatever_the_init():
    u, v = start(0, 20_000)
    assert u.std().item() == pytest.approx(1, abs=0.02) and abs(u.mean().item()) < 0.03
    assert abs((u @ v).item()) / 20_000 < 0.03
    other = model.initialize(lambda: model.build("uv", ONE, width=20_000), 0, "xavier", 3.0)
    assert torch.equal(other.u.detach().double(), u)


def test_its_curvature_depends_on_the_seed_and_is_about_two():
    found = [sharpness(*start(seed, 256)) for seed in range(20)]
    assert len(set(found)) == 20
    assert all(value == pytest.approx(2, abs=0.6) for value in found)
    assert found[0] == pytest.approx(2.068, abs=1e-3)  # as in the file of experiment=uv_catapult


def test_one_step_of_gradient_descent_is_the_formula_of_its_docstring():
    module = model.initialize(lambda: model.build("uv", ONE, width=16), 3).double()
    lr, n, curvature = 0.7, 16, sharpness(module.u, module.v)
    f = module(torch.zeros(1))
    gradients = torch.autograd.grad(0.5 * f.square().sum(), list(module.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter -= lr * gradient
        f, now = f.item(), module(torch.zeros(1)).item()
    assert now == pytest.approx(f * (1 - lr * curvature + lr**2 * f**2 / n), rel=1e-12)
    expected = curvature + lr * f**2 / n * (lr * curvature - 4)
    assert sharpness(module.u, module.v) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_it_catapults_below_four_and_diverges_above(seed):
    u, v = start(seed, 512)
    curvature = sharpness(u, v)
    below = descent(u, v, 3.95 / curvature)
    assert max(below) > 10 * below[0] and below[-1] < 1e-6 * below[0]
    assert not descent(u, v, 4.05 / curvature)[-1] < 1e30


@pytest.mark.parametrize(
    "num_outputs, width, message",
    [
        (1, 0, "model.width=0 is not allowed"),
        (5, 4, "model=uv gives one output, but the task reads 5: use task=uv, or model=vector"),
    ],
)
def test_names_what_is_wrong(num_outputs, width, message):
    with pytest.raises(BadInput, match=message):
        model.build("uv", Signature("nothing", 0, num_outputs), width=width)
