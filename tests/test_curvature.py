from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.autograd.functional import hessian
from torch.func import functional_call

import stabsweep
from stabsweep import model, task
from stabsweep.curvature import (
    Landscape,
    find_curvature,
    follow_curvature,
    largest_eigenvalue,
    line_formula,
)
from stabsweep.engine import Loop, LRScales, Starts
from stabsweep.errors import BadInput
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


def test_along_a_trial_a_quadratic_keeps_its_curvature():
    setup = make_setup("vector", "sgd", momentum=0.5, schedule="linear")
    trial = Trial(0, {"lr": 3.3, "warmup_steps": 4}, 0)
    curves, points = follow_curvature(setup, trial, [0, 3, 4, 11], 12)
    assert curves.shape == (5, 12)
    assert [point.step for point in points] == [0, 3, 4, 11]
    assert [point.eigenvalue for point in points] == pytest.approx([1.0] * 4, rel=0.01)
    # The line is that of the rate in force: a quarter of it in the first step of the warmup.
    assert [point.lr for point in points] == pytest.approx(curves[4][[0, 3, 4, 11]])
    assert [point.line for point in points] == pytest.approx(3 / curves[4][[0, 3, 4, 11]])
    assert points[0].lr == pytest.approx(3.3 / 4)
    assert [point.loss for point in points] == pytest.approx(curves[0][[0, 3, 4, 11]])


@pytest.mark.parametrize(
    ("rule", "hyper"),
    [
        ("adam", {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}),
        ("gi_adam", {"beta2": 0.9}),
        ("rmsprop", {"alpha": 0.9, "momentum": 0.5}),
    ],
)
def test_along_a_trial_it_is_that_of_the_whole_hessian_and_the_rules_own_divisor(rule, hyper):
    """Against plain lines: gradients of all steps, their moments, a dense Hessian."""
    setup = make_setup("mlp", rule, batch_size=9, **hyper)
    trial, steps = Trial(0, {"lr": 0.01}, 0), [0, 3]
    _, points = follow_curvature(setup, trial, steps, 4)
    loop = Loop(setup)
    loop.admit([trial])
    shapes = [(n, p.shape) for n, p in loop.module.named_parameters()]
    sizes = [shape.numel() for _, shape in shapes]
    starts = Starts(setup).order(trial)

    def loss(theta, index):
        parts = zip(shapes, theta.split(sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts}
        losses = []
        for row in index:
            inputs, targets = setup.task.batch(row)
            outputs = functional_call(loop.module, named, (inputs,))
            losses.append(setup.task.criterion(outputs, targets))
        return torch.stack(losses).mean()

    def value(name):
        return setup.fixed[name]

    second, expected = None, []
    for step in range(4):
        theta = torch.cat([p.detach().reshape(-1) for p in loop.module.parameters()])
        own = theta.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(own, starts.index(step, step + 1)), own)
        if rule == "rmsprop":
            second = 0 if second is None else second
            second = value("alpha") * second + (1 - value("alpha")) * gradient**2
            divisor = second.sqrt() + value("eps")
        else:
            first_moment = gradient**2 if rule == "gi_adam" else 0
            second = first_moment if second is None else second
            second = value("beta2") * second + (1 - value("beta2")) * gradient**2
            corrected = second / (1 - value("beta2") ** (step + 1))
            divisor = (1 - value("beta1") ** (step + 1)) * (corrected.sqrt() + value("eps"))
        if step in steps:
            whole = hessian(lambda t: loss(t, starts.probe(4)), theta)
            scaled = whole / (divisor[:, None] * divisor[None, :]).sqrt()
            expected.append(torch.linalg.eigvalsh(scaled).max().item())
        loop.advance(1)
    assert [point.eigenvalue for point in points] == pytest.approx(expected, rel=0.02)


def test_factors_of_the_rate_count():
    setup = make_setup("vector", "sgd", momentum=0.0)
    setup = replace(setup, lr_scales=LRScales({"theta": 0.25}))
    _, (point,) = follow_curvature(setup, TRIAL, [3], 4)
    assert point.eigenvalue == pytest.approx(0.25, rel=0.01)


def test_what_is_not_finite_any_more_is_no_point():
    setup = make_setup("mlp", "sgd", horizon=40, dtype=torch.float32)
    curves, points = follow_curvature(setup, Trial(0, {"lr": 1e8}, 0), [0, 30, 39], 40)
    assert [point.step for point in points] == [0]
    assert not np.isfinite(curves[0, -1])


def test_full_batches_are_measured_once():
    whole = make_setup("mlp", "sgd", batch_size=10**4)
    landscape = Landscape(whole, TRIAL, whole.new_module(TRIAL))
    assert len(landscape.gradients_RP) == 1
    some = make_setup("mlp", "sgd")
    assert len(Landscape(some, TRIAL, some.new_module(TRIAL)).gradients_RP) == 4


def test_full_batch_gradient_descent_sharpens_up_to_its_line():
    """Cohen et al. 2021: in full batches sharpness rises to 2 / lr and stays there."""
    data = task.build("regression").to(torch.device("cpu"), torch.float32)
    setup = replace(
        make_setup("mlp", "sgd", horizon=400, dtype=torch.float32, momentum=0.0),
        build_model=lambda: model.build("mlp", signature=data.signature),
        task=data,
        batch_size=data.num_examples,
    )
    steps = [0, 200, 250, 300, 350, 399]
    _, points = follow_curvature(setup, Trial(0, {"lr": 0.1}, 0), steps, 400)
    assert points[0].ratio < 0.4
    assert all(0.8 < point.ratio < 1.3 for point in points[1:])


def test_a_rule_without_theory_and_a_model_too_large_say_so(monkeypatch):
    with pytest.raises(BadInput, match="optimizer=lion has no line in linear theory"):
        follow_curvature(make_setup("mlp", "lion"), TRIAL, [0], 1)
    monkeypatch.setattr("stabsweep.curvature.MAX_WEIGHTS", 100)
    with pytest.raises(BadInput, match="weights: curvature is measured up to 100"):
        follow_curvature(make_setup("mlp", "sgd"), TRIAL, [0], 1)


def test_the_line_is_named_for_the_rate():
    assert line_formula(make_setup("mlp", "sgd"), TRIAL) == ("2 (1 + m) / lr", False)
    assert line_formula(make_setup("mlp", "adamw"), TRIAL) == ("2 (1 + b) / ((1 - b) lr)", True)
