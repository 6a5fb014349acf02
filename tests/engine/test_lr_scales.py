"""Learning rates that differ between the parameters of one model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from stabsweep import sweep
from stabsweep.engine import PRECISIONS, Cohort, Loop, LRScales
from stabsweep.errors import BadInput
from stabsweep.records import CURVES, Trial
from tests.laws import (
    CPU,
    FELT,
    WANDERING,
    assert_close,
    assert_same,
    make_setup,
    make_trials,
    train,
)

BOTH = pytest.mark.parametrize("kind", [Cohort, Loop])
RULES = {
    "sgd": {"momentum": 0.9, "weight_decay": 0.1},
    "adamw": {"weight_decay": 0.5},
    "rmsprop": {"momentum": 0.9},
    "muon": {"weight_decay": 0.5},
    "lion": {"weight_decay": 0.5},
}
RATE = {"sgd": 0.02, "lion": 1e-3}
NAMES = ["hidden.0.weight", "hidden.0.bias", "readout.weight", "readout.bias"]
ONE = dict.fromkeys(NAMES, 1.0)


def setup_of(rule="sgd", scales=None, case="mlp", **how):
    setup = make_setup(case, rule, **{**RULES.get(rule, {}), **how})
    return replace(setup, lr_scales=scales or LRScales())


# ------------------------------------------------------------------------------ the factors


def test_patterns_multiply_where_they_overlap():
    scales = LRScales({"*.bias": 2.0, "readout.*": 0.1, "*": 3.0}, {"head": "readout.weight"})
    trial = Trial(0, {"lr": 0.1, "head": 5.0}, 0)
    found = scales.factors(trial, NAMES, {"hidden.*": 7.0}, ONE)
    assert found == pytest.approx([21.0, 42.0, 1.5, 0.6], rel=1e-12)


def test_a_rate_axis_is_the_rate_itself():
    scales = LRScales(rate_axes={"head_lr": "readout.*"})
    for lr in (0.1, 1e-3):
        trial = Trial(0, {"lr": lr, "head_lr": 0.05}, 0)
        found = scales.factors(trial, NAMES, {}, ONE)
        assert [lr * f for f in found] == pytest.approx([lr, lr, 0.05, 0.05], rel=1e-12)


def test_what_the_model_asks_for_is_taken_in_the_power_of_the_rule():
    powers = {**ONE, "hidden.0.weight": 0.5}
    scales = LRScales({"*": 3.0})
    found = scales.factors(Trial(0, {"lr": 0.1}, 0), NAMES, {"*": 0.25}, powers)
    assert found == [1.5, 0.75, 0.75, 0.75]


@pytest.mark.parametrize("rule, asked", [("sgd", 2.0), ("adam", 0.25), ("muon", 0.5)])
def test_a_model_is_asked_in_the_terms_of_the_rule(rule, asked):
    class Scaled(torch.nn.Sequential):
        def lr_scales(self, is_adaptive):
            return {"0.weight": 0.25 if is_adaptive else 2.0}

    setup = setup_of(rule)
    trial, module = Trial(0, {"lr": 0.1}, 0), Scaled(torch.nn.Linear(64, 10))
    assert setup.lr_factors(trial, module) == [asked, 1.0]
    # An attribute of that name that is something else is none of ours.
    module.lr_scales = {"0.weight": 3.0}
    assert setup.lr_factors(trial, module) is None


# ------------------------------------------------------------------------------ in engines


@BOTH
def test_without_any_it_is_as_it_was(kind):
    trials = make_trials({"lr": 0.02}, {"lr": 0.05})
    plain = train(kind(setup_of(), 2), trials)
    found = train(kind(setup_of(scales=LRScales({"*": 1.0})), 2), trials)
    assert_same(found, plain, bitwise=True)


@BOTH
@pytest.mark.parametrize("rule", RULES)
def test_a_factor_for_all_is_another_rate(kind, rule):
    rate = RATE.get(rule, 0.003)
    plain = train(kind(setup_of(rule), 1), make_trials({"lr": rate}))[0]
    found = train(kind(setup_of(rule, LRScales({"*": 0.5})), 1), make_trials({"lr": 2 * rate}))[0]
    for curve in ("loss", "grad_norm", "update_ratio"):
        np.testing.assert_allclose(found[curve], plain[curve], rtol=1e-9)
    # What is recorded is the rate that is swept.
    assert found["lr"] == pytest.approx(2 * plain["lr"])


@pytest.mark.parametrize("case", ["mlp", "transformer"])
@pytest.mark.parametrize("rule", RULES)
def test_cohort_and_loop_agree(rule, case):
    pattern = "readout.*" if case == "mlp" else "*attention*"
    scales = LRScales({"*.bias": 2.0}, {"scale": "*.weight"}, {"own": pattern})
    setup = setup_of(rule, scales, case, horizon=50, schedule="cosine")
    rate = RATE.get(rule, 0.003)
    trials = make_trials(
        {"lr": rate, "scale": 1.0, "own": rate},
        {"lr": 2 * rate, "scale": 0.3, "own": rate / 3, "warmup_steps": 7},
        {"lr": rate / 2, "scale": 0.1, "own": 2 * rate, "clip_norm": 0.3},
    )
    together = train(Cohort(setup, 4), trials, rung_steps=20)
    for trial in trials:
        alone = train(Loop(setup), [trial])[trial.number]
        curves = FELT if (case, rule) in WANDERING else CURVES
        assert_close(together[trial.number], alone, curves=curves)


@pytest.mark.parametrize("rule", RULES)
def test_company_changes_nothing(rule):
    scales = LRScales({"*.bias": 2.0}, {"scale": "readout.*"})
    setup = setup_of(rule, scales, dtype=torch.float32)
    points = [{"lr": 0.002, "scale": s} for s in (0.1, 1.0, 10.0)]
    trials = make_trials(*points)
    together = train(Cohort(setup, 3), trials)
    for capacity in (1, 2):
        assert_same(train(Cohort(setup, capacity), trials), together, bitwise=True)
    engine = Cohort(setup, 3)
    survivors = train(engine, trials, look=lambda chunks: engine.drop(1))
    assert_same(survivors, together, bitwise=True)


@BOTH
def test_decoupled_decay_is_scaled_too(kind):
    # Weights without a gradient do nothing but decay, by lr * factor * weight_decay a step.
    class Spare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.spare = torch.nn.Linear(64, 10), torch.nn.Linear(3, 2)

        def forward(self, inputs):
            return self.net(inputs)

    factors = {"net.*": 1e-14, "spare.weight": 0.1}
    setup = replace(setup_of("adamw", LRScales(factors)), build_model=Spare)
    trial = Trial(0, {"lr": 0.2}, 0)
    first = dict(setup.new_module(trial).named_parameters())
    moved = [
        (1 - (1 - 0.2 * factor * 0.5) ** setup.horizon) * first[name].norm().item()
        for name, factor in (("spare.weight", 0.1), ("spare.bias", 1.0))
    ]
    whole = np.linalg.norm([p.norm().item() for p in first.values()])
    found = train(kind(setup, 1), [trial])[0]
    assert found.displacement == pytest.approx(np.linalg.norm(moved) / whole, rel=1e-9)


@BOTH
def test_a_rate_axis_stays_when_lr_moves(kind):
    # All but the readout stands still at so small a rate: only the readout's own is left.
    setup = setup_of(scales=LRScales(rate_axes={"own": "readout.*"}), momentum=0.0)
    points = [{"lr": 1e-13, "own": 0.1}, {"lr": 1e-14, "own": 0.1}, {"lr": 1e-14, "own": 1e-14}]
    found = train(kind(setup, 3), make_trials(*points, num_seeds=1))
    one, other, still = (found[number]["loss"] for number in range(3))
    np.testing.assert_allclose(one, other, rtol=1e-9)
    assert one[-1] < still[-1] - 0.005


@BOTH
@pytest.mark.parametrize(
    "scales", [LRScales({"*": 100.0}), LRScales(rate_axes={"own": "*"})], ids=["factor", "rate"]
)
@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_warmup_and_schedule_apply_to_all_rates(kind, schedule, scales):
    setup = setup_of(schedule=schedule)
    plain = train(kind(setup, 1), make_trials({"lr": 0.1, "warmup_steps": 3}))[0]
    point = {"lr": 0.001, "own": 0.1, "warmup_steps": 3}
    found = train(kind(replace(setup, lr_scales=scales), 1), make_trials(point))[0]
    for curve in ("loss", "grad_norm", "update_ratio"):
        np.testing.assert_allclose(found[curve], plain[curve], rtol=1e-9)
    np.testing.assert_allclose(found["lr"], 0.01 * plain["lr"], rtol=1e-12)


def test_factors_are_not_rounded_to_bfloat16():
    # 0.999 would be 1 there.
    setup = make_setup("mlp", "sgd", momentum=0.0, dtype=torch.bfloat16)
    data = setup.task.to(CPU, torch.bfloat16)
    setup = replace(setup, task=data, precision=PRECISIONS["bf16_pure"])
    setup = replace(setup, lr_scales=LRScales({"*": 0.999}))
    engine = Cohort(setup, 1)
    engine.admit(make_trials({"lr": 0.1}))
    assert engine._rows is not None
    assert engine._rows.factor["lr"].unique().tolist() == pytest.approx([0.999], rel=1e-6)


# ------------------------------------------------------------------------------ in a sweep


def swept(space, **more):
    return sweep(
        {"name": "mlp", "depth": 2, "width": 8},
        "digits",
        {"lr": [0.01, 0.1], **space},
        {"name": "sgd", "momentum": 0.0},
        **{"horizon": 8, "num_trials": 4, "seeds": 1, "batch_size": 8, **more},
        device="cpu",
        precision="fp64",
        watcher="off",
    )


def losses(result, *by):
    return result.records.sort_values(["lr", *by])["final_loss"].to_numpy()


@pytest.mark.parametrize("engine", ["cohort", "loop"])
def test_an_axis_that_is_a_factor_equals_a_factor_that_is_fixed(engine):
    axis = {"values": [0.1, 2.0], "to": "lr_scale:readout.*"}
    found = swept({"head": axis}, engine=engine)
    assert len(set(losses(found))) == 4
    for factor in (0.1, 2.0):
        fixed = swept({}, lr_scales={"readout.*": factor}, num_trials=2, engine=engine)
        ours = found.records.query("head == @factor").sort_values("lr")["final_loss"]
        np.testing.assert_allclose(ours, losses(fixed), rtol=1e-12)


@pytest.mark.parametrize("engine", ["cohort", "loop"])
def test_an_axis_that_is_a_rate_equals_the_factor_of_each_lr(engine):
    axis = {"values": [0.02, 0.2], "to": "lr:readout.*"}
    found = swept({"head_lr": axis}, engine=engine).records
    for lr in (0.01, 0.1):
        for rate in (0.02, 0.2):
            scales = {"readout.*": rate / lr}
            fixed = swept({"lr": [lr]}, lr_scales=scales, num_trials=1, engine=engine)
            ours = found.query("lr == @lr and head_lr == @rate")["final_loss"]
            np.testing.assert_allclose(ours, losses(fixed), rtol=1e-12)


def test_a_range_is_an_axis_too():
    axis = {"low": 0.1, "high": 10.0, "to": "lr_scale:readout.*"}
    found = swept({"head": axis}, num_trials=20).records
    assert sorted(set(found["head"])) == pytest.approx([0.1, 0.464159, 2.15443, 10.0])


BAD = [
    (
        {"lr_scales": {"redout.*": 0.1}},
        {},
        r"lr pattern 'redout\.\*' matches no parameter of model=",
    ),
    (
        {},
        {"a": {"values": [1.0], "to": "lr_scale:x*"}},
        r"lr pattern 'x\*' matches no parameter of",
    ),
    (
        {},
        {"a": {"values": [1.0], "to": "lr:x*"}},
        r"lr pattern 'x\*' matches no parameter of model",
    ),
    ({"lr_scales": {"readout.*": 0}}, {}, r"lr_scales\.readout\.\*=0 is out of range: use .*> 0"),
    ({"lr_scales": {"readout.*": "x"}}, {}, r"lr_scales\.readout\.\*='x' is not a number: use"),
    ({"lr_scales": 3}, {}, r"lr_scales=3 is no mapping: give \{pattern: factor\}"),
    (
        {},
        {"a": {"values": [-1.0], "to": "lr:readout.*"}},
        r"space\.a\.values=-1\.0 is out of range",
    ),
    ({}, {"a": {"values": [1.0], "to": "lr:"}}, r"space\.a\.to='lr:' is not known: use one of"),
    (
        {},
        {"a": {"values": [1.0], "to": "rate:x"}},
        r"space\.a\.to='rate:x' is not known: use one of",
    ),
    (
        {},
        {"lr": {"values": [1.0], "to": "lr:readout.*"}},
        r"space\.lr\.to=.* is not allowed: lr is",
    ),
]


@pytest.mark.parametrize("given, space, message", BAD, ids=[str(bad[:2]) for bad in BAD])
def test_what_is_wrong_is_said_in_one_line(given, space, message):
    with pytest.raises(BadInput, match=message) as caught:
        swept(space, **given)
    assert "\n" not in str(caught.value)


def test_an_unmatched_pattern_tells_the_names_that_there_are():
    with pytest.raises(BadInput, match=r"it has hidden\.0\.weight, hidden\.0\.bias, readout\.wei"):
        swept({}, lr_scales={"head.*": 0.1})
