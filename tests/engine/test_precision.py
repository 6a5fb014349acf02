from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from stabsweep import task
from stabsweep.engine import PRECISIONS, Cohort, Loop, build
from stabsweep.records import Trace, Trial, Verdict
from stabsweep.verdict import judge
from tests.laws import CPU, make_setup, make_trials, task_of, train

TRIALS = make_trials({"lr": 0.02}, {"lr": 0.05, "clip_norm": 0.5}, {"lr": 0.01, "init_gain": 0.7})


def setup_in(precision, case="mlp", rule="sgd", **how):
    found = PRECISIONS[precision]
    data = task_of(case, found.dtype)
    return replace(make_setup(case, rule, **how), precision=found, task=data)


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
@pytest.mark.parametrize("case", ["mlp", "rnn", "transformer"])
@pytest.mark.parametrize("precision", ["bf16", "bf16_pure"])
def test_cohort_and_loop_agree_up_to_the_rounding_of_the_format(precision, case, rule):
    setup = setup_in(precision, case, rule)
    engine, why = build("auto", setup, TRIALS, 4)
    assert isinstance(engine, Cohort), why
    together = train(engine, TRIALS)
    for trial in TRIALS:
        alone = train(Loop(setup), [trial])[trial.number]
        np.testing.assert_allclose(together[trial.number]["loss"], alone["loss"], rtol=0.05)
        assert together[trial.number].curves.dtype == np.float32


def test_the_format_is_felt_and_its_rounding_is_small():
    exact = train(Cohort(setup_in("fp32"), 4), TRIALS)
    for precision in ("bf16", "bf16_pure"):
        rounded = train(Cohort(setup_in(precision), 4), TRIALS)
        for number, run in rounded.items():
            assert not np.array_equal(run["loss"], exact[number]["loss"])
            np.testing.assert_allclose(run["loss"], exact[number]["loss"], rtol=0.03)


@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_a_small_update_vanishes_in_pure_bfloat16_and_only_there(kind):
    trial = [Trial(0, {"lr": 1e-6, "momentum": 0.0}, 0)]
    runs = {name: train(kind(setup_in(name), 1), trial)[0] for name in ("bf16_pure", "bf16")}
    assert runs["bf16_pure"].displacement < 0.1 * runs["bf16"].displacement
    assert runs["bf16_pure"]["update_ratio"].max() < 0.1 * runs["bf16"]["update_ratio"].max()


def test_a_loss_scale_runs_one_by_one_and_says_so():
    engine, why = build("auto", setup_in("fp16"), TRIALS, 4)
    assert isinstance(engine, Loop)
    assert why == "loop: a loss scale belongs to one trial"


def test_clipping_sees_the_gradient_without_its_scale():
    found, exact = (train(Loop(setup_in(name)), TRIALS[1:2])[1] for name in ("fp16", "fp32"))
    assert exact["clip_coef"].min() < 0.9
    for name in ("loss", "grad_norm", "clip_coef", "update_ratio"):
        np.testing.assert_allclose(found[name], exact[name], rtol=0.02, err_msg=name)


class Steep(task.Digits):
    """Digits under a loss so steep that its gradient overflows at the first scales."""

    factor = 100.0

    def criterion(self, outputs, targets):
        return self.factor * super().criterion(outputs, targets)


class TooSteep(Steep):
    """The gradient overflows at every scale, while the loss is an ordinary number."""

    factor = 1e8


def trace_of(run, setup):
    names = ("loss", "grad_norm", "clip_coef", "update_ratio", "lr")
    curves = dict(zip(names, run.curves, strict=True))
    return Trace(**curves, initial_loss=run.initial_loss, blind_loss=None, horizon=setup.horizon)


def steep(kind):
    return replace(setup_in("fp16", horizon=60), task=kind().to(CPU), batch_size=64)


def test_an_overflow_skips_its_step_and_is_no_divergence():
    setup = steep(Steep)
    run = train(Loop(setup), [Trial(0, {"lr": 1e-5, "clip_norm": 1.0, "momentum": 0.0}, 0)])[0]
    trace = trace_of(run, setup)
    left_out = trace.skipped
    assert 1 <= left_out.sum() < 16 and left_out[0] and not left_out[-1]
    assert not np.isfinite(run["grad_norm"][left_out]).any()
    assert (run["clip_coef"][left_out] == 1).all() and (run["update_ratio"][left_out] == 0).all()
    # The weights stand still, so that the next loss differs by its batch alone.
    assert np.isfinite(run["loss"]).all() and run.displacement > 0
    found = judge(trace)
    assert found.verdict is not Verdict.DIVERGED and found.bad_step is None
    assert found.overflows == left_out.sum()


def test_a_scale_that_collapses_is_a_divergence_though_the_loss_looks_normal():
    setup = steep(TooSteep)
    run = train(Loop(setup), [Trial(0, {"lr": 1e-12, "momentum": 0.0}, 0)])[0]
    assert np.isfinite(run["loss"]).all()
    found = judge(trace_of(run, setup))
    assert found.verdict is Verdict.DIVERGED and found.bad_step == 15
    assert found.reason.startswith("The loss scale collapsed: 16 of the steps 0 to 15 overflowed")


def test_batch_norm_has_its_own_statistics_in_half_precision_or_runs_alone():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10)

        def forward(self, inputs):
            return self.last(self.norm(self.first(inputs)).relu())

    for precision in ("bf16", "bf16_pure"):
        setup = replace(setup_in(precision), build_model=Norm)
        engine, why = build("auto", setup, TRIALS, 4)
        assert len(train(engine, TRIALS)) == len(TRIALS), why
