"""The truth table of `judge` row by row, its boundaries, its laws, and traces of real training."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from stabsweep.evidence import hold_steps
from stabsweep.records import Array, Verdict
from stabsweep.verdict import DEFAULTS, judge, reason_to_stop
from tests.traces import T, make_trace, train_adding, train_digits, train_quadratic, train_uv

STEPS = np.arange(T)


def label(loss, *args, **curves) -> str:
    return judge(make_trace(loss, *args, **curves)).verdict.label


def two_levels(first: float, last: float, start: float = 1.0) -> Array:
    return np.where(STEPS < 100, first, last) * (STEPS > 0) + start * (STEPS == 0)


def bump(height: float, after: float, at: int = 5) -> Array:
    """From 1 to `height` for five steps, and `after` from there on."""
    return np.where(STEPS < at, 1.0, np.where(STEPS < at + 5, height, after))


def flash(height: float) -> Array:
    """A peak of one step between 1 and 0."""
    return np.where(STEPS < 20, 1.0, np.where(STEPS == 20, height, 0.0))


def hops(height: float) -> Array:
    return 0.5 + height / 2 * np.where(STEPS < 20, 1 / height, (-1.0) ** STEPS)


def spikes(count: int, height: float = 1.0) -> Array:
    loss = np.maximum(0.1, 1 - np.arange(1000) / 50)
    loss[200 : 200 + 50 * count : 50] += height
    return loss


def clipped(share: float) -> Array:
    return np.where(STEPS % 100 < 100 * share, 0.5, 1.0)


ROWS = [
    ("invalid", dict(loss=np.ones(T), start=math.nan)),
    ("invalid", dict(loss=[math.inf, 1.0], start=1.0)),
    ("invalid", dict(loss=np.ones(T), grad_norm=np.where(STEPS == 0, math.nan, 1))),
    ("invalid", dict(loss=np.where(STEPS < 50, 1.0, math.nan), start=math.inf)),
    ("diverged", dict(loss=np.where(STEPS < 50, 1.0, math.nan))),
    ("diverged", dict(loss=np.ones(T), grad_norm=np.where(STEPS == 199, math.inf, 1))),
    ("diverged", dict(loss=1.01**STEPS)),
    ("diverged", dict(loss=1 + STEPS / 20)),
    ("collapsed", dict(loss=3 - 2 * np.exp(-STEPS / 40))),
    ("diverged", dict(loss=bump(1e5, 1e3))),
    ("diverged", dict(loss=1.05**STEPS, warmup_steps=300, horizon=T)),
    ("diverged", dict(loss=-(1.1**STEPS))),
    ("diverged", dict(loss=2.3 - 1e-3 * 1.15**STEPS, blind=2.3)),
    ("converged", dict(loss=-np.exp(STEPS / 60))),
    ("converged", dict(loss=1 - 1e4 * (1 - np.exp(-STEPS / 40)))),
    ("converged", dict(loss=1 - 10.0 * STEPS)),
    ("peak_not_reached", dict(loss=1 / (1 + STEPS), warmup_steps=200)),
    ("peak_not_reached", dict(loss=1 / (1 + STEPS), warmup_steps=181)),
    ("converged", dict(loss=1 / (1 + STEPS), warmup_steps=180)),
    ("converged", dict(loss=1 / (1 + STEPS), warmup_steps=150)),
    ("oscillating", dict(loss=two_levels(0.3, 0.3), clip_coef=0.5, update_ratio=1.0)),
    ("oscillating", dict(loss=hops(0.9), update_ratio=0.1)),
    ("converged", dict(loss=two_levels(0.1, 0.1), clip_coef=0.5, update_ratio=5e-3)),
    ("degraded", dict(loss=np.maximum(1 - STEPS / 20, 1e-3 * 1.02**STEPS))),
    ("collapsed", dict(loss=two_levels(0.2, 1.0))),
    ("collapsed", dict(loss=two_levels(0.5, 2.3, 2.3), blind=math.log(10))),
    ("degraded", dict(loss=two_levels(0.2, 0.6))),
    ("spiky", dict(loss=spikes(14))),
    ("recovered", dict(loss=bump(20.0, 0.1))),
    ("converged", dict(loss=np.exp(-STEPS / 30))),
    ("converged", dict(loss=10 * np.exp(-STEPS / 30) - 12)),
    ("collapsed", dict(loss=bump(20.0, 1.0))),
    ("collapsed", dict(loss=two_levels(1.5, 1.5))),
    ("collapsed", dict(loss=np.ones(T), grad_norm=np.where(STEPS < 20, 1, 1e-6))),
    ("too_slow", dict(loss=1 - STEPS / 1e5)),
    ("too_slow", dict(loss=4.58 - STEPS / 205, blind=3.1)),
    ("too_slow", dict(loss=np.maximum(4.58 - STEPS / 40, 3.1), blind=3.1)),
    ("too_slow", dict(loss=np.full(T, 0.5), blind=2.3)),
    ("too_slow", dict(loss=np.zeros(T))),
]


@pytest.mark.parametrize(("expected", "trace"), ROWS)
def test_rows_of_the_truth_table(expected, trace):
    judgement = judge(make_trace(**trace))
    assert judgement.verdict.label == expected, judgement.reason
    assert judgement.provisional == (expected == "too_slow")
    assert "step" in judgement.reason and judgement.reason.endswith(".")


BOUNDARIES = [
    ("learned", lambda x: dict(loss=two_levels(1 - x, 1 - x)), 0.05, "too_slow", "converged"),
    ("lost", lambda x: dict(loss=two_levels(0.2, 0.2 + 0.8 * x)), 0.3, "converged", "degraded"),
    ("lost_all", lambda x: dict(loss=two_levels(0.2, 0.2 + 0.8 * x)), 0.9, "degraded", "collapsed"),
    ("above", lambda x: dict(loss=two_levels(1 + x, 1 + x)), 0.1, "too_slow", "collapsed"),
    ("disturbed", lambda x: dict(loss=bump(1 + x, 1.0)), 0.5, "too_slow", "collapsed"),
    ("catapult", lambda x: dict(loss=bump(1 + x, 0.0)), 0.5, "converged", "recovered"),
    ("catapult_alone", lambda x: dict(loss=flash(1 + x)), 5.0, "converged", "recovered"),
    ("absurd", lambda x: dict(loss=two_levels(1 + x, 1 + x)), 100, "collapsed", "diverged"),
    ("hop", lambda x: dict(loss=hops(x / 2), update_ratio=0.1), 0.5, "converged", "oscillating"),
    ("hop_update_ratio", lambda x: dict(loss=hops(0.9), update_ratio=x), 0.02, "too_slow",
     "oscillating"),
    ("hidden_update_ratio", lambda x: dict(loss=two_levels(0.1, 0.1), clip_coef=0.5,
     update_ratio=x), 0.1, "converged", "oscillating"),
    ("hidden_clip_share", lambda x: dict(loss=two_levels(0.1, 0.1), clip_coef=clipped(x),
     update_ratio=1.0), 0.9, "converged", "oscillating"),
    ("spike_size", lambda x: dict(loss=spikes(14, 0.9 * x)), 0.5, "converged", "spiky"),
    ("spike_limit", lambda x: dict(loss=spikes(round(1000 * x))), 0.0105, "converged", "spiky"),
    ("dead", lambda x: dict(loss=np.ones(T), grad_norm=np.where(STEPS < 9, 1, x)), 1e-3,
     "collapsed", "too_slow"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "trace", "value", "below", "above"), BOUNDARIES)
def test_both_sides_of_a_threshold(name, trace, value, below, above):
    assert abs(getattr(DEFAULTS, name) - value) <= 0.05 * value
    assert label(**trace(0.94 * value)) == below
    assert label(**trace(1.06 * value)) == above


def test_a_threshold_can_be_changed():
    trace = make_trace(two_levels(0.2, 0.5))
    assert judge(trace).verdict is Verdict.DEGRADED
    assert judge(trace, replace(DEFAULTS, lost=0.5)).verdict is Verdict.CONVERGED


def test_a_clipped_run_that_still_falls_is_no_oscillation():
    for loss, expected in ((1 - STEPS / 220, "converged"), (two_levels(0.1, 0.1), "oscillating")):
        assert label(loss, clip_coef=0.5, update_ratio=0.2) == expected


def test_the_reason_tells_the_story():
    loss = np.where(STEPS < 41, 2 * 10.0 ** np.maximum(0, STEPS - 33), math.nan)
    judgement = judge(make_trace(loss))
    assert (
        judgement.reason == "Loss passed 1.0e7 times its start at step 40, not finite from step 41."
    )
    assert (judgement.bad_step, judgement.peak_loss) == (41, 2e7)
    assert math.isnan(judgement.final_loss)


CAUSES = [
    # curves of the run that fails at step 3, and what the reason must say
    (dict(update_ratio=20.0, grad_norm=1e4),
     ": the gradient exploded (norm 1.0e4, a step of 20 times the weights), which clip_norm may"),
    (dict(update_ratio=0.2, grad_norm=1e4),
     ": the forward pass failed after a step of 0.2 times the weights, so clipping cannot help"),
    (dict(update_ratio=20.0, clip_coef=0.5),
     ": the forward pass failed after a step of 20 times the weights though clipped, so clipping"),
    (dict(update_ratio=0.2, bad="grad_norm"),
     ": the backward pass overflowed after a step of 0.2 times the weights, so no clip norm can"),
    (dict(update_ratio=20.0, bad="grad_norm"), ": the gradient exploded (norm 1,"),
    (dict(update_ratio=math.nan), "Loss was 1 at step 2, not finite from step 3."),
]  # fmt: skip


@pytest.mark.parametrize(("curves", "cause"), CAUSES)
def test_a_run_that_dies_at_once_says_whether_clipping_could_have_helped(curves, cause):
    bad, lost = curves.get("bad", "loss"), np.where(STEPS < 3, 1.0, math.nan)
    curves = {name: curve for name, curve in curves.items() if name != "bad"}
    judgement = judge(make_trace(**{"loss": np.ones(T), **curves, bad: lost}, start=1.0))
    assert judgement.verdict is Verdict.DIVERGED and cause in judgement.reason
    moved = curves["update_ratio"]
    assert judgement.last_update_ratio == pytest.approx(moved, nan_ok=True)
    assert judgement.as_fields()["last_update_ratio"] == (None if math.isnan(moved) else moved)


@pytest.mark.parametrize(("moved", "cause"), [(0.49, "forward pass"), (0.51, "exploded")])
def test_a_long_step_is_half_of_the_weights(moved, cause):
    trace = make_trace(np.where(STEPS < 3, 1.0, math.nan), update_ratio=moved)
    assert cause in judge(trace).reason
    assert "forward pass" in judge(trace, replace(DEFAULTS, long_step=1.0)).reason


def test_before_the_first_update_it_is_neither_the_rate_nor_the_clip():
    judgement = judge(make_trace([math.nan, 1.0], start=math.nan))
    assert judgement.reason == "Loss not finite at step 0, before any update."
    for word in ("input", "init", "model", "rate", "clipping"):
        assert word in judgement.verdict.value
    assert judgement.as_fields()["last_update_ratio"] is None


def test_numbers_of_a_judgement():
    judgement = judge(make_trace(two_levels(0.2, 0.4), clip_coef=clipped(0.25)))
    assert judgement.final_loss == pytest.approx(0.4)
    assert judgement.best_loss == pytest.approx(0.2)
    assert (judgement.peak_loss, judgement.clip_share) == (1.0, 0.25)
    assert judge(make_trace(spikes(14))).spike_share == pytest.approx(0.014)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 4, 7, 8, 15, 16, 31, 100, 10_000])
def test_any_length(num_steps):
    steps = np.arange(num_steps)
    assert label(np.ones(num_steps)) == "too_slow"
    assert judge(make_trace(10.0 ** steps[:300])).verdict in (
        (Verdict.TOO_SLOW,) if num_steps == 1 else (Verdict.DIVERGED, Verdict.COLLAPSED)
    )
    if num_steps > 1:
        assert label(np.exp(-steps / num_steps * 5)) == "converged"


def test_no_step_is_an_error():
    with pytest.raises(ValueError, match="no steps"):
        judge(make_trace([], start=1.0))


def test_missing_curves_are_no_evidence():
    trace = make_trace(np.exp(-STEPS / 30), update_ratio=math.nan, clip_coef=math.nan)
    judgement = judge(trace)
    assert (judgement.verdict, judgement.clip_share) == (Verdict.CONVERGED, 0.0)
    assert math.isnan(judgement.update_ratio)


def test_law_not_finite_after_any_prefix_is_diverged():
    for _, row in ROWS[6:]:
        trace = make_trace(**row)
        for step in (1, 2, 50, trace.num_steps - 1):
            for name in ("loss", "grad_norm"):
                curve = getattr(trace, name).copy()
                curve[step] = math.nan
                judgement = judge(replace(trace, **{name: curve}))
                assert (judgement.verdict, judgement.bad_step) == (Verdict.DIVERGED, step)


@pytest.mark.parametrize("factor", [2.0**-60, 2.0**-7, 2.0**9, 2.0**60])
def test_law_the_unit_of_the_loss_does_not_matter(factor, real_traces):
    traces = [make_trace(**row) for _, row in ROWS[4:]] + list(real_traces.values())
    for trace in traces:
        blind = None if trace.blind_loss is None else factor * trace.blind_loss
        start = factor * trace.initial_loss
        scaled = replace(trace, loss=factor * trace.loss, initial_loss=start, blind_loss=blind)
        if np.isfinite(scaled.loss).sum() == np.isfinite(trace.loss).sum():
            assert judge(scaled).verdict is judge(trace).verdict


@pytest.mark.parametrize("offset", [-5.0, -1.0, 1.0])
def test_law_the_zero_of_the_loss_does_not_matter_to_what_learned(offset):
    for expected, row in ROWS[4:]:
        trace = make_trace(**row)
        if expected in ("converged", "recovered", "spiky", "degraded", "oscillating"):
            start, blind = trace.initial_loss + offset, trace.blind + offset
            moved = replace(trace, loss=trace.loss + offset, initial_loss=start, blind_loss=blind)
            assert judge(moved).verdict.label == expected


def test_noise_alone_changes_no_verdict():
    rng = np.random.default_rng(0)
    noises = [lambda: rng.normal(0, 0.15, T), lambda: 0.3 * (rng.exponential(size=T) - 1)]
    wrong = []
    for _ in range(150):
        for noise in noises:
            start = float(np.median(noise()[:5]))
            stall = judge(make_trace(2.3 + noise(), start=2.3 + start, blind=math.log(10)))
            falling = 0.5 + 1.8 * np.exp(-STEPS / 30)
            fall = judge(make_trace(falling + noise(), start=2.3 + start, blind=math.log(10)))
            wrong += [stall.reason] if stall.verdict is not Verdict.TOO_SLOW else []
            wrong += [fall.reason] if fall.verdict is not Verdict.CONVERGED else []
    assert len(wrong) <= 3, wrong


@pytest.mark.parametrize("height", [3.0, 100.0, 1e4])
@pytest.mark.parametrize("back", [3, 12, 30])
def test_a_spike_near_the_end_that_is_over_decides_nothing(height, back, real_traces):
    for key in DIGITS:
        trace = real_traces[("digits", *key)]
        if np.isfinite(trace.loss).all() and judge(trace).verdict.is_stable:
            loss = trace.loss.copy()
            loss[-back] += height
            spiked = judge(replace(trace, loss=loss))
            assert spiked.verdict.is_stable, (key, spiked.reason)


def test_what_is_still_high_at_the_end_is_no_spike():
    trace = make_trace(bump(1.0, 0.1, at=20) + np.where(STEPS < 196, 0.0, 20.0), blind=1.0)
    assert not judge(trace).verdict.is_stable


DIGITS = {
    ("sgd", 1e-4): "too_slow",
    ("sgd", 6e-3): "converged",
    ("sgd", 0.05): "converged",
    ("sgd", 0.4): "diverged",
    ("sgd", 10.0): "diverged",
    ("adamw", 1e-5): "too_slow",
    ("adamw", 3e-4): "converged",
    ("adamw", 6e-3): "converged",
    ("adamw", 0.3): "collapsed",
    ("adamw", 10.0): "collapsed",
}


@pytest.fixture(scope="module")
def real_traces():
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    traces = {("digits", *key): train_digits(*key) for key in DIGITS}
    traces["digits", "sgd", 0.1, "clip"] = train_digits("sgd", 0.1, clip_norm=0.1)
    traces["digits", "sgd", 10.0, "clip"] = train_digits("sgd", 10.0, clip_norm=1.0)
    traces |= {("adding", lr): train_adding(lr) for lr in (3e-5, 1e-2, 1.0)}
    torch.set_num_threads(num_threads)
    many = np.logspace(0, -3, 10)
    for edge in (0.5, 1.9, 1.98, 1.99, 2.005, 2.02, 2.5):
        for clip_norm in (math.inf, 1.0, 0.01):
            for curvatures in ((1.0,), (1.0, 0.1, 0.01), many):
                key = ("quadratic", edge, clip_norm, len(curvatures))
                traces[key] = train_quadratic(edge, curvatures, clip_norm=clip_norm)
    for c in (1, 2.5, 3, 3.9, 4.1):
        traces |= {("uv", c, width): train_uv(c, width) for width in (64, 512, 4096)}
    return traces


def test_digits_read_as_a_practitioner_reads_them(real_traces):
    for key, expected in DIGITS.items():
        judgement = judge(real_traces[("digits", *key)])
        assert judgement.verdict.label == expected, (key, judgement.reason)
    assert judge(real_traces["digits", "sgd", 0.1, "clip"]).verdict is Verdict.CONVERGED
    assert judge(real_traces["digits", "sgd", 10.0, "clip"]).verdict is Verdict.COLLAPSED


def test_adding_problem_stuck_at_its_blind_loss_never_converged(real_traces):
    assert judge(real_traces["adding", 3e-5]).verdict is Verdict.TOO_SLOW
    assert judge(real_traces["adding", 1e-2]).provisional
    assert judge(real_traces["adding", 1.0]).verdict is Verdict.COLLAPSED


def test_constant_predictor_never_converged():
    rng = np.random.default_rng(1)
    blind = math.log(10)
    assert label(blind + rng.normal(0, 0.05, T), start=2.35, blind=blind) == "too_slow"
    fallen = np.where(STEPS < 5, 300.0, blind) + rng.normal(0, 0.05, T)
    assert label(fallen, start=2.35, blind=blind) == "collapsed"


@pytest.mark.parametrize("curvatures", [(1.0,), (1.0, 0.1, 0.01), np.logspace(0, -3, 10)])
@pytest.mark.parametrize("seed", range(5))
def test_quadratic_edge_is_two(curvatures, seed):
    for edge in (0.1, 1.0, 1.98, 1.99):
        assert judge(train_quadratic(edge, curvatures, seed=seed)).verdict.is_stable
    assert not judge(train_quadratic(2.02, curvatures, seed=seed)).verdict.is_stable
    assert judge(train_quadratic(2.2, curvatures, seed=seed)).verdict is Verdict.DIVERGED


def test_warmup_does_not_move_the_quadratic_edge():
    for warmup_steps in (1, 10, 50, 100):
        for edge, is_stable in ((1.98, True), (1.995, True), (2.005, False), (2.02, False)):
            judgement = judge(train_quadratic(edge, warmup_steps=warmup_steps))
            assert judgement.verdict.is_stable == is_stable, (warmup_steps, edge, judgement)


def test_a_peak_that_is_held_too_shortly_is_not_judged():
    for num_steps in (40, 200, 400):
        held = hold_steps(num_steps)
        for warmup_steps, is_judged in ((num_steps - held, True), (num_steps - held + 1, False)):
            trace = train_quadratic(2.2, warmup_steps=warmup_steps, num_steps=num_steps)
            assert judge(trace).verdict.is_judged == is_judged, (num_steps, warmup_steps)
        for edge, is_stable in ((1.98, True), (2.05, False)):
            trace = train_quadratic(edge, warmup_steps=num_steps - held, num_steps=num_steps)
            assert judge(trace).verdict.is_stable == is_stable, (num_steps, edge)
    for held, words in ((19, "19 steps after a warmup of 181."), (-50, "inside a warmup of 250 ")):
        trace = train_quadratic(1.0, warmup_steps=T - held)
        assert words in judge(trace).reason


def test_clipping_cannot_hide_an_oscillation(real_traces):
    for clip_norm in (0.01, 0.1, 1.0):
        for edge in (2.1, 3.0, 20.0, 1000.0):
            judgement = judge(train_quadratic(edge, clip_norm=clip_norm, num_steps=400))
            assert judgement.verdict is Verdict.OSCILLATING, (clip_norm, edge, judgement.reason)
        assert judge(train_quadratic(1.9, clip_norm=clip_norm)).verdict is Verdict.CONVERGED


def test_uv_model_catapults_below_four_and_diverges_above(real_traces):
    for width in (64, 512, 4096):
        assert judge(real_traces["uv", 1, width]).verdict is Verdict.CONVERGED
        for c in (2.5, 3, 3.9):
            assert judge(real_traces["uv", c, width]).verdict is Verdict.RECOVERED
        assert judge(real_traces["uv", 4.1, width]).verdict is Verdict.DIVERGED
        assert judge(train_uv(3, width, warmup_steps=25)).verdict is Verdict.RECOVERED
    for c in (3.5, 3.6, 3.75):  # a narrow model is up for two or three steps only
        assert judge(train_uv(c, 64)).verdict is Verdict.RECOVERED


# Stopping early.


def stop(steps, losses, trace) -> str | None:
    return reason_to_stop(
        steps,
        losses,
        initial_loss=trace.initial_loss,
        horizon=trace.horizon,
        warmup_steps=trace.warmup_steps,
        blind_loss=trace.blind_loss,
    )


@pytest.mark.parametrize("rung", [1, 10, 25])
def test_no_trial_that_would_be_stable_is_stopped(rung, real_traces):
    num_stopped = 0
    for key, trace in real_traces.items():
        is_stable = judge(trace).verdict.is_stable
        for num_steps in range(rung, trace.num_steps + 1, rung):
            losses = np.median(trace.loss[:num_steps].reshape(-1, rung), axis=1)
            reason = stop(np.arange(rung - 1, num_steps, rung), losses, trace)
            if reason:
                assert not is_stable or num_steps == trace.horizon, (key, num_steps, reason)
                seen = judge(trace.truncated(num_steps))
                assert seen.verdict.is_judged and not seen.verdict.is_stable, (key, seen)
                num_stopped += 1
                break
    assert num_stopped >= 8


def test_what_stops_a_trial():
    trace = make_trace(np.ones(T))
    rising = 1.2**STEPS
    assert stop(STEPS, np.where(STEPS == 7, math.inf, 1), trace) == (
        "The loss was not finite at step 7."
    )
    assert "growing at step 90" in (stop(STEPS[:91], rising[:91], trace) or "")
    assert stop(STEPS[:80], rising[:80], trace) is None
    flat = two_levels(3, 3)
    assert stop(STEPS[:99], flat[:99], trace) is None
    assert "without falling" in (stop(STEPS[:100], flat[:100], trace) or "")
    assert stop(STEPS[:100], flat[:100], replace(trace, warmup_steps=60)) is None
    assert stop(STEPS[:100], 3 - STEPS[:100] / 60, trace) is None
    assert stop(STEPS, two_levels(1.9, 1.9), trace) is None
    assert stop([], [], trace) is None
    assert stop([0], [1.0], replace(trace, initial_loss=math.nan)) is not None


def test_a_stall_is_never_stopped():
    trace = make_trace(np.ones(T), blind=0.9)
    for level in (0.5, 0.9, 1.0, 1.5):
        assert all(stop(STEPS[:n], np.full(n, level), trace) is None for n in range(1, T))


def test_a_verdict_costs_little():
    trace = make_trace(spikes(14)[:T] + np.random.default_rng(0).normal(0, 0.05, T), start=1.0)
    seconds = []
    for _ in range(50):
        begin = time.perf_counter()
        judge(trace)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 1e-3
