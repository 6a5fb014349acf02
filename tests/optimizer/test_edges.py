"""The edges on a quadratic that the docstrings give, measured with the rules themselves.

An eps far above the gradient makes the preconditioner 1 / eps: it is frozen, and the rule linear.
"""

from __future__ import annotations

import math

import pytest
import torch

from stabsweep.optimizer import build

EPS = 1e120

CASES = [
    ("sgd", {"momentum": 0.9}, 3.8),
    ("adam", {}, 38.0),
    ("adam", {"beta1": 0.5}, 6.0),
    ("rmsprop", {}, 2.0),
    ("rmsprop", {"momentum": 0.9}, 3.8),
    ("radam", {"beta2": 0.9}, 38.0),
    ("radam", {"beta1": 0.5, "beta2": 0.9}, 6.0),
    ("nadam", {"momentum_decay": 0.0}, 3.8 / (1.9 - 0.81)),
    ("nadam", {"momentum_decay": 1e3}, 3.8 / (1.9 - 1.62)),
    ("nadam", {"momentum_decay": 1e3, "beta1": 0.0}, 2.0),
    ("gi_adam", {}, 38.0),
    ("gi_adam", {"beta1": 0.5}, 6.0),
]


def growth(name, given, rates):
    """Decades a thousand steps that the weight of h = 1 grows by, for each rate."""
    rule, hyper = build(name, **given)
    # Beyond what may be configured, which float32 would have to hold.
    hyper = {**hyper, **({} if name == "sgd" else {"eps": EPS})}
    lr_K1 = torch.tensor(rates, dtype=torch.float64)[:, None] * hyper.get("eps", 1.0)
    columns = {key: torch.full_like(lr_K1, value) for key, value in hyper.items()}
    theta_KP = torch.full_like(lr_K1, 1e-6)
    state, sizes = rule.new_state(theta_KP), []
    for step in range(2000):
        step_K1 = torch.full_like(lr_K1, step)
        # RAdam's first steps know no eps: they would be eps times too long.
        known_K1 = lr_K1 / hyper["eps"] if name == "radam" and step < 20 else lr_K1
        theta_KP = theta_KP + rule.delta(
            theta_KP, theta_KP.clone(), state, columns, known_K1, step_K1
        )
        sizes.append(theta_KP[:, 0].abs())
    first, last = (torch.stack(sizes[end - 200 : end]).amax(0) for end in (1000, 2000))
    return (last / first).log10().tolist()


@pytest.mark.parametrize("name, given, edge", CASES, ids=str)
def test_the_edge_of_a_frozen_preconditioner_is_the_one_that_is_documented(name, given, edge):
    below, above = growth(name, given, [0.995 * edge, 1.005 * edge])
    assert below < -1 and 1 < above < math.inf, (below, above)


@pytest.mark.parametrize("rate", [1e-3, 1.0, 1e3])
def test_lion_has_no_edge(rate):
    assert abs(growth_of_lion(rate)) < 1e-9


def growth_of_lion(rate):
    rule, hyper = build("lion")
    columns = {key: torch.tensor([[value]]).double() for key, value in hyper.items()}
    lr_K1 = torch.tensor([[rate]]).double()
    theta_KP = 0.3 * lr_K1
    state, sizes = rule.new_state(theta_KP), []
    for step in range(2000):
        step_K1 = torch.full_like(lr_K1, step)
        theta_KP = theta_KP + rule.delta(theta_KP, theta_KP.clone(), state, columns, lr_K1, step_K1)
        sizes.append(float(theta_KP.abs()))
    first, last = max(sizes[800:1000]), max(sizes[1800:])
    assert rate / 4 < last < 50 * rate
    return math.log10(last / first)
