"""Optimizers of the user's own, by their target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from stabsweep import sweep
from stabsweep.engine import Loop, LRScales
from stabsweep.engine import build as build_engine
from stabsweep.engine.loop import _split_groups
from stabsweep.errors import BadInput
from stabsweep.optimizer import STACKED, build
from stabsweep.progress import Silence
from tests.laws import assert_close, assert_same, make_setup, make_trials, train

HERE = __name__
SMALL = {"horizon": 10, "num_trials": 3, "seeds": 1, "batch_size": 1, "watcher": "off"}
TRIALS = make_trials({"lr": 0.01}, {"lr": 0.03, "clip_norm": 0.5, "warmup_steps": 4})


# What targets name: factories, with and without a rate of their own.


def two_groups(params, lr, ratio=10.0):
    """Biases `ratio` times as fast as matrices."""
    params = list(params)
    return torch.optim.SGD(
        [
            {"params": [p for p in params if p.ndim > 1], "lr": lr},
            {"params": [p for p in params if p.ndim == 1], "lr": ratio * lr},
        ]
    )


def own_rates(params):
    """The same with rates that it chose itself."""
    return two_groups(params, lr=0.3)


def by_name(named_parameters, lr):
    """The same by the names of a certain model."""
    named = dict(named_parameters)
    readout = [named.pop("readout.weight"), named.pop("readout.bias")]
    biases = [p for name, p in named.items() if name.endswith("bias")]
    rest = [p for name, p in named.items() if not name.endswith("bias")]
    return torch.optim.SGD(
        [
            {"params": [*rest, readout[0]], "lr": lr},
            {"params": [*biases, readout[1]], "lr": 10 * lr},
        ]
    )


def with_names(named_parameters, lr):
    """torch keeps the names that it is given beside the parameters."""
    return torch.optim.SGD(named_parameters, lr=lr)


def hidden_rate(params, **given):
    """One that cannot be asked what it takes."""
    return torch.optim.SGD(params, **given)


def at_rest(params):
    """A first group that nothing can be a ratio to."""
    return torch.optim.SGD(params, lr=0.0)


def rateless(params):
    """No rate that a sweep could set."""
    made = torch.optim.SGD(params, lr=0.1)
    del made.param_groups[0]["lr"]
    return made


def no_optimizer(params, lr):
    """Something else."""
    return list(params)


class Picky(torch.optim.SGD):
    """Takes only some parameters, as Muon takes none but matrices."""

    def __init__(self, params, lr):
        params = list(params)
        if any(p.ndim == 1 for p in params):
            raise ValueError("vectors are not for me")
        super().__init__(params, lr=lr)


class Needy(torch.optim.SGD):
    """Wants to be told something before its first step."""

    def step(self, closure=None):
        raise RuntimeError("call train() first")


def rule_of(target, **args):
    return {"name": "torch", "target": target, **({"args": args} if args else {})}


def setup_of(target, **args):
    return make_setup("mlp", "torch", target=target, args=args)


def swept(optimizer, model="vector", task="quadratic", space=None, **more):
    return sweep(
        model,
        task,
        space or {"lr": [0.01, 0.1, 1.0]},
        optimizer,
        device="cpu",
        precision="fp64",
        **{**SMALL, **more},
    )


# ------------------------------------------------------------------------------ it is the rule


@pytest.mark.parametrize(
    "target, args, rule, flags",
    [
        ("torch.optim:SGD", {"momentum": 0.9, "nesterov": True}, "sgd", {"nesterov": True}),
        ("torch.optim:AdamW", {"weight_decay": 0.1}, "adamw", {"weight_decay": 0.1}),
    ],
)
def test_it_trains_as_the_rule_of_that_name(target, args, rule, flags):
    found = train(Loop(setup_of(target, **args)), TRIALS)
    assert_same(found, train(Loop(make_setup("mlp", rule, **flags)), TRIALS), bitwise=True)


@pytest.mark.parametrize("target", ["two_groups", "own_rates", "by_name"])
def test_groups_keep_the_ratio_of_their_rates(target):
    plain = make_setup("mlp", "sgd", momentum=0.0)
    plain = replace(plain, lr_scales=LRScales({"*bias": 10.0}))
    expected = train(Loop(plain), TRIALS)
    found = train(Loop(setup_of(f"{HERE}:{target}")), TRIALS)
    for number in expected:
        assert_close(found[number], expected[number], 1e-12)


@pytest.mark.parametrize("target", ["with_names", "hidden_rate"])
def test_however_it_is_called_the_rate_is_the_swept_one(target):
    found = train(Loop(setup_of(f"{HERE}:{target}")), TRIALS)
    expected = train(Loop(make_setup("mlp", "sgd", momentum=0.0)), TRIALS)
    assert_same(found, expected, bitwise=True)


def test_factors_go_on_top_of_its_own_groups_and_names_stay_with_their_parameters():
    scales = LRScales({"readout.*": 0.1, "*bias": 0.5})
    found = train(Loop(replace(setup_of(f"{HERE}:two_groups"), lr_scales=scales)), TRIALS)
    scales = LRScales({"readout.*": 0.1, "*bias": 5.0})
    plain = replace(make_setup("mlp", "sgd", momentum=0.0), lr_scales=scales)
    expected = train(Loop(plain), TRIALS)
    for number in expected:
        assert_close(found[number], expected[number], 1e-12)

    parameters = {name: torch.nn.Parameter(torch.zeros(1)) for name in "abc"}
    made = with_names(list(parameters.items()), 1.0)
    _split_groups(made, dict(zip(parameters.values(), (2.0, 1.0, 2.0), strict=True)))
    assert [group["lr"] for group in made.param_groups] == [2.0, 1.0]
    if "param_names" in made.param_groups[0]:
        assert [group["param_names"] for group in made.param_groups] == [["a", "c"], ["b"]]


# ------------------------------------------------------------------------------ in a sweep


def test_adafactor_runs_one_by_one_and_says_why():
    lines = []

    class Notes(Silence):
        def note(self, message):
            lines.append(message)

    result = swept(rule_of("torch.optim:Adafactor", weight_decay=0.1), watcher=Notes())
    assert any("loop: optimizer=torch has no stacked form" in line for line in lines), lines
    assert len(result.records) == 3 and result.records["final_loss"].notna().all()
    with pytest.raises(BadInput, match="engine=cohort is not possible: optimizer=torch has no st"):
        swept(rule_of("torch.optim:Adafactor"), engine="cohort")


def test_it_has_no_stacked_form():
    assert "torch" not in STACKED
    rule, hyper = build("torch", target="torch.optim:Adafactor")
    assert hyper == {} and not rule.stacks
    engine, why = build_engine("auto", setup_of("torch.optim:Adafactor"), TRIALS, 4)
    assert isinstance(engine, Loop)
    assert why == "loop: optimizer=torch has no stacked form"


def test_an_axis_feeds_its_arguments():
    axis = {"values": [0.0, 0.5], "to": "optimizer"}
    found = swept(
        rule_of("torch.optim:SGD", nesterov=False),
        space={"lr": [0.01, 0.1], "momentum": axis},
        num_trials=4,
    )
    expected = swept("sgd", space={"lr": [0.01, 0.1], "momentum": [0.0, 0.5]}, num_trials=4)
    columns = ["lr", "momentum"]
    losses = [
        result.records.sort_values(columns)["final_loss"].to_numpy() for result in (found, expected)
    ]
    assert len(set(losses[0])) == 4
    np.testing.assert_allclose(*losses, rtol=1e-12)


def test_an_axis_feeds_a_flag_of_a_rule_that_stacks():
    axis = {"values": [False, True], "to": "optimizer"}
    found = swept("sgd", space={"lr": [0.01, 0.1], "nesterov": axis}, num_trials=4)
    for flag in (False, True):
        losses = found.records.query("nesterov == @flag").sort_values("lr")["final_loss"]
        expected = swept({"name": "sgd", "nesterov": flag}, space={"lr": [0.01, 0.1]}, num_trials=2)
        assert losses.tolist() == expected.records.sort_values("lr")["final_loss"].tolist()


def test_it_may_stand_beside_optimizers_that_stack():
    space = {"lr": [0.01, 0.1], "optimizer": ["sgd", "torch"]}
    found = swept(rule_of("torch.optim:SGD", momentum=0.9), space=space, num_trials=4).records
    losses = [
        found[found["optimizer"] == name].sort_values("lr")["final_loss"].to_numpy()
        for name in ("sgd", "torch")
    ]
    np.testing.assert_allclose(*losses, rtol=1e-9)


# ------------------------------------------------------------------------------ what it refuses

BAD = [
    ({}, r"optimizer=torch needs optimizer\.target=module:attribute, such as"),
    ({"target": "AdamW"}, r"optimizer\.target='AdamW' is not module:attribute"),
    ({"target": "torch.optim:Adamw"}, r"torch\.optim has no Adamw; did you mean torch\.optim:Adam"),
    ({"target": "no_such:Thing"}, r"module no_such cannot be imported"),
    (
        {"target": "torch.optim:SGD", "args": {"lr": 0.1}},
        r"optimizer\.args\.lr is not allowed: the",
    ),
    ({"target": "torch.optim:SGD", "args": [1]}, r"optimizer\.args=\[1\] is no mapping"),
    (
        {"target": "torch.optim:SGD", "args": {"moment": 0.9}},
        r"cannot be called with \(lr=1\.0, moment=0\.9\): TypeError: .*moment",
    ),
    (
        {"target": "torch.optim:SGD", "args": {"momentum": -1}},
        r"cannot be called with \(.*momentum=-1\): ValueError: Invalid momentum",
    ),
    ({"target": "torch.optim:LBFGS"}, r"optimizer\.target='torch\.optim:LBFGS' needs a closure"),
    ({"target": "torch.optim:SparseAdam"}, r"cannot take a step \(RuntimeError: SparseAdam does"),
    ({"target": f"{HERE}:no_optimizer"}, r"gives list: give a class that extends torch\.optim"),
    ({"target": f"{HERE}:at_rest"}, r"gives its first group lr=0: give it a rate above 0"),
    ({"target": f"{HERE}:rateless"}, r"keeps no lr in its groups: there is no rate that the sweep"),
    (
        {"target": f"{HERE}:Picky"},
        r"cannot be called with \(lr=1\.0\): ValueError: vectors are not",
    ),
    ({"target": f"{HERE}:Needy"}, r"cannot take a step \(RuntimeError: call train\(\) first\)"),
]


@pytest.mark.parametrize("given, message", BAD, ids=[str(given) for given, _ in BAD])
def test_what_no_trial_could_run_is_refused_before_the_first_in_one_line(given, message):
    with pytest.raises(BadInput, match=message) as caught:
        swept({"name": "torch", **given})
    assert "\n" not in str(caught.value)


def test_it_is_refused_where_an_axis_brings_it_too():
    space = {"lr": [0.01, 0.1], "optimizer": ["sgd", "torch"]}
    with pytest.raises(BadInput, match="needs a closure"):
        swept(rule_of("torch.optim:LBFGS"), space=space)
    with pytest.raises(BadInput, match="optimizer=torch needs optimizer.target"):
        swept("sgd", space=space)


def test_what_one_model_has_may_be_asked_for_by_name():
    mlp = {"name": "mlp", "depth": 2, "width": 4}
    assert len(swept(rule_of(f"{HERE}:by_name"), mlp, "digits", batch_size=8).records) == 3
    with pytest.raises(BadInput, match=r"cannot be called with \(lr=1\.0\): KeyError"):
        swept(rule_of(f"{HERE}:by_name"))


def test_the_check_leaves_the_global_generators_alone():
    before = torch.get_rng_state()
    swept(rule_of("torch.optim:Adafactor"))
    assert torch.equal(torch.get_rng_state(), before)
