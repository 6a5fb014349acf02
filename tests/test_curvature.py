from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian
from torch.func import functional_call

import stabsweep
from stabsweep.curvature import find_curvature, largest_eigenvalue
from stabsweep.records import Trial
from tests.laws import make_setup

TRIAL = Trial(0, {"lr": 0.1}, 0)


def test_lanczos_finds_the_largest_eigenvalue_and_not_the_one_of_largest_size():
    values = np.concatenate([[-50.0, 7.0], np.linspace(0, 5, 60)])
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((62, 62)))
    matrix = basis @ np.diag(values) @ basis.T
    assert largest_eigenvalue(lambda v: matrix @ v, 62) == pytest.approx(7.0, rel=0.01)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_tiny_matrix_is_no_special_case(size):
    matrix = np.diag(np.arange(1.0, size + 1))
    assert largest_eigenvalue(lambda v: matrix @ v, size) == pytest.approx(size, rel=0.01)


def test_a_product_that_is_not_finite_has_no_eigenvalue():
    assert np.isnan(largest_eigenvalue(lambda v: v * np.nan, 10))


@pytest.mark.parametrize(
    ("rule", "hyper", "factor"),
    [
        ("sgd", {"momentum": 0.0}, 2),
        ("sgd", {"momentum": 0.9}, 3.8),
        ("sgd", {"momentum": 0.9, "dampening": 0.5}, 7.6),
        ("sgd", {"momentum": 0.9, "nesterov": True}, 2 * 1.9 / 2.8),
    ],
)
def test_on_a_quadratic_theory_is_exact(rule, hyper, factor):
    found = find_curvature(make_setup("vector", rule, **hyper), TRIAL)
    assert found is not None
    assert found.eigenvalue == pytest.approx(1.0, rel=0.01)
    assert found.edge_lr == pytest.approx(factor, rel=0.01)
    low, high = 0.95 * factor, 1.05 * factor
    result = stabsweep.sweep(
        "vector",
        "quadratic",
        {"lr": [low, high]},
        {"name": rule, **hyper},
        horizon=400,
        num_trials=2,
        seeds=1,
        precision="fp64",
        watcher="off",
    )
    assert [record.verdict.is_stable for record in result.region.records] == [True, False]


@pytest.mark.parametrize("case", ["mlp", "rnn", "transformer"])
def test_it_is_that_of_the_whole_hessian(case):
    setup = make_setup(case, "sgd")
    module = setup.new_module(TRIAL)
    names, shapes = zip(*((n, p.shape) for n, p in module.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]
    from stabsweep.engine import Starts

    index = Starts(setup).order(TRIAL).probe(4)

    def loss(theta):
        parts = [p.view(s) for p, s in zip(theta.split(sizes), shapes, strict=True)]
        named = dict(zip(names, parts, strict=True))
        losses = []
        for row in index:
            inputs, targets = setup.task.batch(row)
            outputs = functional_call(module, named, (inputs,))
            losses.append(setup.task.criterion(outputs, targets))
        return torch.stack(losses).mean()

    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    exact = torch.linalg.eigvalsh(hessian(loss, theta)).max().item()
    found = find_curvature(setup, TRIAL)
    assert found is not None and found.eigenvalue == pytest.approx(exact, rel=0.02)


def test_adam_is_measured_by_its_preconditioned_curvature():
    plain = find_curvature(make_setup("mlp", "sgd"), TRIAL)
    adam = find_curvature(make_setup("mlp", "adam"), TRIAL)
    assert adam is not None and plain is not None
    assert adam.factor == pytest.approx(38)
    assert adam.eigenvalue > 10 * plain.eigenvalue


def test_a_rule_without_linear_theory_has_no_line():
    assert find_curvature(make_setup("mlp", "lion"), TRIAL) is None


def test_the_generators_and_the_weights_stay_as_they_were():
    setup = make_setup("mlp", "adam")
    before = torch.get_rng_state()
    first, again = find_curvature(setup, TRIAL), find_curvature(setup, TRIAL)
    assert torch.equal(torch.get_rng_state(), before)
    assert first == again
