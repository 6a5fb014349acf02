"""Every optimizer against `torch.optim`, alone and as one row beside others."""

from __future__ import annotations

import contextlib
import math
from inspect import signature
from pathlib import Path

import pytest
import torch
import yaml

from stabsweep.errors import BadInput
from stabsweep.optimizer import OPTIMIZERS, STACKED, Optimizer, build

NUM_STEPS = 50
SIZE = 12

# Name and flags -> hyperparameters of the rows of one cohort.
ROWS = {
    ("sgd", False): [
        {"momentum": 0.0},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.9},
        {"momentum": 0.0, "dampening": 0.5, "weight_decay": 0.01},
        {"momentum": 0.5, "dampening": 0.2, "weight_decay": 0.1},
    ],
    ("sgd", True): [
        {"momentum": 0.9},
        {"momentum": 0.0, "weight_decay": 0.1},
        {"momentum": 0.5, "weight_decay": 0.01},
    ],
    ("adam", False): [
        {},
        {"beta1": 0.0, "beta2": 0.0},
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2},
        {"beta2": 0.95, "weight_decay": 0.1},
    ],
    ("adamw", False): [
        {},
        {"beta1": 0.0, "beta2": 0.0, "weight_decay": 0.0},
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2},
        {"beta2": 0.95, "weight_decay": 0.3},
    ],
    ("rmsprop", False): [
        {},
        {"momentum": 0.9},
        {"alpha": 0.0, "eps": 1e-2},
        {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.1},
    ],
    # rho passes 5 at step 6, 6, never, and 7.
    ("radam", False): [
        {},
        {"beta1": 0.5, "weight_decay": 0.1},
        {"beta1": 0.0, "beta2": 0.0},
        {"beta2": 0.8, "eps": 1e-2},
    ],
    ("nadam", False): [
        {},
        {"beta1": 0.0, "beta2": 0.0},
        {"momentum_decay": 0.0, "weight_decay": 0.1},
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2, "momentum_decay": 0.5},
    ],
    ("lion", False): [
        {},
        {"beta1": 0.0, "weight_decay": 0.1},
        {"beta2": 0.0},
        {"beta1": 0.5, "beta2": 0.9, "weight_decay": 1.0},
    ],
    ("gi_adam", False): [
        {},
        {"beta1": 0.0, "beta2": 0.0},
        {"beta1": 0.5, "beta2": 0.9, "eps": 1e-2},
        {"beta2": 0.95, "weight_decay": 0.1},
    ],
}
CASES = [(*key, row) for key, rows in ROWS.items() for row in range(len(rows))]


def rate(row, step):
    """A rate of each row's own, that rises and then swings."""
    return 0.02 * (row + 1) * min(1, (step + 1) / 10) * (1 + 0.1 * math.sin(step))


def gradient(theta, step):
    """A gradient that depends on the weights and the step; works for (P,) and for (K, P)."""
    index = torch.arange(SIZE, dtype=theta.dtype)
    return torch.sin(3 * theta + 0.7 * step + index) + 0.3 * theta * torch.cos(index)


def column(values):
    return torch.tensor([[value] for value in values], dtype=torch.float64)


def first_weights(num_rows, dtype):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_rows, SIZE, generator=generator, dtype=torch.float64).to(dtype)


class Formula:
    """The rules that torch lacks, for one tensor: the papers' lines, with lists for memory."""

    def __init__(self, name, theta_P, given):
        self.name, self.theta, self.given = name, theta_P, given
        self.param_groups = [{"lr": 1.0}]
        self.grads = []

    def step(self):
        lr, given = self.param_groups[0]["lr"], self.given
        beta1, decay = given.get("beta1", 0.9), given.get("weight_decay", 0.0)
        theta = self.theta.detach()
        if self.name == "lion":
            beta2 = given.get("beta2", 0.99)
            momentum = self.mean(beta2)
            update = torch.sign(beta1 * momentum + (1 - beta1) * self.theta.grad) + decay * theta
            self.grads.append(self.theta.grad)
        else:
            beta2 = given.get("beta2", 0.999)
            self.grads.append(self.theta.grad + decay * theta)
            t = len(self.grads)
            mean = self.mean(beta1) / (1 - beta1**t)
            square = self.mean(beta2, 2) + beta2**t * self.grads[0] ** 2
            update = mean / (torch.sqrt(square / (1 - beta2**t)) + given.get("eps", 1e-8))
        self.theta.data = theta - lr * update

    def mean(self, beta, power=1):
        """The exponential mean of all gradients so far, as a sum over them."""
        terms = [(1 - beta) * beta**age * g**power for age, g in enumerate(reversed(self.grads))]
        return sum(terms, torch.zeros_like(self.theta.data))


TORCH = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "radam": torch.optim.RAdam,
    "nadam": torch.optim.NAdam,
}


@contextlib.contextmanager
def default_type(dtype):
    """torch keeps a number of NAdam in its default type, whatever the type of the weights."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    yield
    torch.set_default_dtype(before)


def oracle(name, nesterov, row, dtype):
    """The weights after each step with `torch.optim`, its arguments written out here."""
    given = dict(ROWS[name, nesterov][row])
    theta_P = torch.nn.Parameter(first_weights(len(ROWS[name, nesterov]), dtype)[row])
    if name not in TORCH:
        optimizer = Formula(name, theta_P, given)
    else:
        if "beta1" in OPTIMIZERS[name].defaults:
            given["betas"] = given.pop("beta1", 0.9), given.pop("beta2", 0.999)
        # torch refuses Nesterov without momentum, where it is plain SGD.
        look_ahead = {"nesterov": True} if nesterov and given["momentum"] else {}
        optimizer = TORCH[name]([theta_P], lr=1.0, **given, **look_ahead)
    path = []
    with default_type(dtype):
        for step in range(NUM_STEPS):
            theta_P.grad = gradient(theta_P.detach(), step)
            optimizer.param_groups[0]["lr"] = rate(row, step)
            optimizer.step()
            path.append(theta_P.detach().clone())
    return torch.stack(path)


def stacked(name, nesterov, rows, dtype, late=0):
    """The same from the stacked rule, for some rows at once: (T, rows, P).

    Args:
        late: steps by which the last row lags behind the others, as when it was admitted later.
    """
    given = ROWS[name, nesterov]
    rule, _ = build(name, **({"nesterov": True} if nesterov else {}))
    hypers = [build(name, **given[row])[1] for row in rows]
    hyper = {key: column(h[key] for h in hypers) for key in rule.defaults}
    theta_KP = first_weights(len(given), dtype)[rows]
    state = rule.new_state(theta_KP)
    lag = [0] * (len(rows) - 1) + [late]
    path = []
    for step in range(NUM_STEPS):
        steps = [step - behind for behind in lag]
        if late and step == late:
            # The row is new: its weights and its memory are the first ones.
            theta_KP[-1] = first_weights(len(given), dtype)[rows[-1]]
            for key, buffer in rule.new_state(theta_KP[-1:]).items():
                state[key][-1] = buffer[0]
        lr_K1 = column(rate(r, max(s, 0)) for r, s in zip(rows, steps, strict=True))
        step_K1 = column(max(s, 0) for s in steps)
        pairs = zip(theta_KP, steps, strict=True)
        grad_KP = torch.stack([gradient(theta, s) for theta, s in pairs])
        theta_KP = theta_KP + rule.delta(theta_KP, grad_KP, state, hyper, lr_K1, step_K1)
        path.append(theta_KP)
    return torch.stack(path)


@pytest.mark.parametrize("name, nesterov, row", CASES, ids=str)
def test_a_row_alone_agrees_with_torch_over_50_steps(name, nesterov, row):
    found = stacked(name, nesterov, [row], torch.float64)[:, 0]
    torch.testing.assert_close(
        found, oracle(name, nesterov, row, torch.float64), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("name, nesterov, row", CASES, ids=str)
def test_a_row_beside_other_values_agrees_with_torch_over_50_steps(name, nesterov, row):
    found = stacked(name, nesterov, range(len(ROWS[name, nesterov])), torch.float64)[:, row]
    torch.testing.assert_close(
        found, oracle(name, nesterov, row, torch.float64), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("name, nesterov, row", CASES, ids=str)
def test_a_row_agrees_with_torch_in_float32(name, nesterov, row):
    found = stacked(name, nesterov, range(len(ROWS[name, nesterov])), torch.float32)[:, row]
    expected = oracle(name, nesterov, row, torch.float32)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


FUSED = [case for case in CASES if OPTIMIZERS[case[0]].moves_rows]


@pytest.mark.parametrize("name, nesterov, row", FUSED, ids=str)
def test_moved_in_one_pass_a_row_agrees_with_torch_over_50_steps(name, nesterov, row):
    rule, _ = build(name, **({"nesterov": True} if nesterov else {}))
    hyper = build(name, **ROWS[name, nesterov][row])[1]
    theta_P = first_weights(len(ROWS[name, nesterov]), torch.float64)[row]
    state = rule.new_state(theta_P)
    path = []
    for step in range(NUM_STEPS):
        given = {**hyper, "lr": rate(row, step)}
        rule.move_row(theta_P, gradient(theta_P, step), state, given, step)
        path.append(theta_P.clone())
    expected = oracle(name, nesterov, row, torch.float64)
    torch.testing.assert_close(torch.stack(path), expected, rtol=1e-10, atol=1e-10)


def test_a_rule_with_another_formula_inherits_no_kernel():
    for name in STACKED:
        rule = OPTIMIZERS[name]
        assert rule.moves_rows == ("move_row" in vars(rule)), name
    assert {name for name in STACKED if OPTIMIZERS[name].moves_rows} == {"adam", "adamw", "sgd"}


@pytest.mark.parametrize("name, nesterov", ROWS, ids=str)
def test_a_row_that_is_admitted_late_counts_its_own_steps(name, nesterov):
    rows = list(range(len(ROWS[name, nesterov])))
    found = stacked(name, nesterov, rows, torch.float64, late=7)[7:, -1]
    expected = oracle(name, nesterov, rows[-1], torch.float64)[: NUM_STEPS - 7]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name, nesterov", ROWS, ids=str)
def test_its_twin_is_the_same_rule(name, nesterov):
    rule, _ = build(name, **({"nesterov": True} if nesterov else {}))
    for row, given in enumerate(ROWS[name, nesterov]):
        theta_P = torch.nn.Parameter(first_weights(len(ROWS[name, nesterov]), torch.float64)[row])
        twin = rule.twin({"w": theta_P}, build(name, **given)[1])
        for step in range(NUM_STEPS):
            theta_P.grad = gradient(theta_P.detach(), step)
            twin.param_groups[0]["lr"] = rate(row, step)
            twin.step()
        expected = oracle(name, nesterov, row, torch.float64)[-1]
        torch.testing.assert_close(theta_P.detach(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", STACKED)
def test_a_nan_stays_in_its_row(name):
    rule, defaults = build(name)
    hyper = {key: torch.full((3, 1), value).double() for key, value in defaults.items()}
    theta_KP = first_weights(3, torch.float64)
    grad_KP = gradient(theta_KP, 0)
    one_K1, step_K1 = torch.ones(3, 1).double(), torch.zeros(3, 1).double()
    calm = rule.delta(theta_KP, grad_KP.clone(), rule.new_state(theta_KP), hyper, one_K1, step_K1)
    grad_KP[1] = math.nan
    found = rule.delta(theta_KP, grad_KP, rule.new_state(theta_KP), hyper, one_K1, step_K1)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], calm[[0, 2]])


@pytest.mark.parametrize("name", STACKED)
def test_the_weights_are_left_alone(name):
    rule, defaults = build(name, weight_decay=0.1)
    hyper = {key: torch.full((2, 1), value).double() for key, value in defaults.items()}
    theta_KP = first_weights(2, torch.float64)
    before = theta_KP.clone()
    one_K1 = torch.ones(2, 1).double()
    rule.delta(theta_KP, gradient(theta_KP, 0), rule.new_state(theta_KP), hyper, one_K1, one_K1 - 1)
    assert torch.equal(theta_KP, before)


# ------------------------------------------------------------------------------ build, conf


def test_build_gives_the_rule_and_every_hyperparameter():
    rule, hyper = build("sgd", momentum="5e-1", nesterov=True)
    assert isinstance(rule, Optimizer) and rule.name == "sgd" and rule.nesterov
    assert hyper == {"momentum": 0.5, "dampening": 0.0, "weight_decay": 0.0}
    assert build("adamw")[1] == {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}


@pytest.mark.parametrize(
    "name, given, message",
    [
        ("adamm", {}, r"optimizer='adamm' is not known: use one of .*did you mean adam"),
        ("adam", {"beta": 0.9}, r"optimizer\.adam key='beta' is not known: use one of .*beta1"),
        ("adam", {"nesterov": True}, r"optimizer\.adam key='nesterov' is not known"),
        ("sgd", {"nesterov": 1}, r"optimizer\.nesterov=1 is no switch: use true or false"),
        ("sgd", {"momentum": 1.0}, r"optimizer\.momentum=1\.0 is out of range: use .*>= 0 and < 1"),
        ("sgd", {"momentum": "fast"}, r"optimizer\.momentum='fast' is not a number: use"),
        ("sgd", {"momentum": None}, r"optimizer\.momentum=None cannot be switched off: use"),
        ("sgd", {"dampening": 1.5}, r"optimizer\.dampening=1\.5 is out of range"),
        ("adam", {"beta1": -0.1}, r"optimizer\.beta1=-0\.1 is out of range"),
        ("adam", {"beta2": 1}, r"optimizer\.beta2=1 is out of range"),
        ("adam", {"eps": math.nan}, r"optimizer\.eps=nan is out of range"),
        ("adamw", {"weight_decay": math.inf}, r"optimizer\.weight_decay=inf is out of range"),
        (
            "sgd",
            {"nesterov": True, "dampening": 0.5},
            r"optimizer\.dampening=0\.5 does not go with nesterov=true: use dampening=0",
        ),
    ],
)
def test_what_cannot_be_built_says_why_in_one_line(name, given, message):
    with pytest.raises(BadInput, match=message) as caught:
        build(name, **given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", STACKED)
def test_its_config_file_holds_every_argument_with_its_default(name):
    conf = Path(__file__).parents[2] / "conf" / "optimizer" / f"{name}.yaml"
    flags = {key: flag.default for key, flag in signature(OPTIMIZERS[name]).parameters.items()}
    flags = {
        key: list(value) if isinstance(value, tuple) else value for key, value in flags.items()
    }
    expected = {"name": name, **OPTIMIZERS[name].defaults, **flags}
    assert yaml.safe_load(conf.read_text()) == expected


@pytest.mark.parametrize("name", TORCH)
def test_its_defaults_are_those_of_torch_but_for_momentum(name):
    defaults = dict(OPTIMIZERS[name].defaults)
    if name == "sgd":
        assert defaults.pop("momentum") == 0.9
    theirs = dict(TORCH[name]([torch.nn.Parameter(torch.zeros(1))]).defaults)
    if "betas" in theirs:
        theirs["beta1"], theirs["beta2"] = theirs["betas"]
    assert defaults == {key: theirs[key] for key in defaults}
