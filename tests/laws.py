"""Laws that every engine must keep (design: what a trial's result may depend on).

A test module subclasses `StackedEngineLaws` (or `EngineLaws`, for an engine that trains one trial
at a time), names its engine, and has all of them as tests:

    class TestMine(StackedEngineLaws):
        kind = Mine
"""

from __future__ import annotations

import functools
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from stabsweep import model, optimizer, task
from stabsweep.engine import Chunk, Engine, Loop, Precision, Setup
from stabsweep.records import CURVES, Trial, Value

CPU = torch.device("cpu")

FIXED: Mapping[str, Value] = {
    "warmup_steps": 0,
    "clip_norm": None,
    "init": "default",
    "init_gain": 1.0,
}

CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "mlp": ({"name": "mlp", "depth": 3, "width": 10}, {"name": "digits"}),
    "rnn": (
        {"name": "rnn", "hidden": 6},
        {"name": "sequential_digits", "step": "row"},
    ),
    "transformer": (
        {"name": "transformer", "depth": 1, "width": 8, "heads": 2, "tie_embedding": True},
        {"name": "text", "path": str(Path(__file__)), "length": 6},
    ),
    "vector": ({"name": "vector"}, {"name": "quadratic"}),
}
"""Case -> arguments of a model and of the task that it reads, both tiny."""

POINTS: Mapping[str, list[dict[str, Value]]] = {
    "sgd": [
        {"lr": 0.05, "momentum": 0.0},
        {"lr": 0.02, "momentum": 0.9, "clip_norm": 0.3, "warmup_steps": 7, "init": "xavier"},
        {"lr": 0.03, "momentum": 0.5, "dampening": 0.3, "weight_decay": 0.1, "init_gain": 0.7},
        {"lr": 0.04, "momentum": 0.0, "dampening": 0.5, "clip_norm": 1.0, "init": "orthogonal"},
    ],
    "adam": [
        {"lr": 0.002},
        {"lr": 0.01, "beta1": 0.0, "clip_norm": 0.3, "warmup_steps": 7, "init": "kaiming"},
        # Not with an init that sets biases to zero: the gradient of a key's bias is zero but for
        # rounding, which Adam would blow up to full steps.
        {"lr": 0.003, "beta2": 0.9, "weight_decay": 0.1, "init_gain": 0.7},
        {"lr": 0.005, "beta1": 0.5, "eps": 1e-3, "warmup_steps": 1, "init": "normal(0.1)"},
    ],
}
POINTS = {
    **POINTS,
    "adamw": POINTS["adam"],
    "rmsprop": [
        {"lr": 0.001},
        {"lr": 0.003, "alpha": 0.9, "momentum": 0.9, "clip_norm": 0.3, "warmup_steps": 7},
        {"lr": 0.002, "alpha": 0.5, "weight_decay": 0.1, "init_gain": 0.7},
        {"lr": 0.005, "momentum": 0.5, "eps": 1e-3, "init": "normal(0.1)"},
    ],
    "radam": POINTS["adam"],
    "nadam": [*POINTS["adam"][:3], {"lr": 0.005, "eps": 1e-3, "momentum_decay": 0.5}],
    "lion": [
        {"lr": 0.001},
        {"lr": 0.003, "beta1": 0.0, "clip_norm": 0.3, "warmup_steps": 7, "init": "kaiming"},
        {"lr": 0.002, "beta2": 0.9, "weight_decay": 0.1, "init_gain": 0.7},
    ],
    "gi_adam": POINTS["adam"],
    "muon": [
        *POINTS["adam"][2:],
        {"lr": 0.002},
        {"lr": 0.01, "momentum": 0.0, "clip_norm": 0.3, "warmup_steps": 7},
        {"lr": 0.003, "momentum": 0.5, "weight_decay": 0.3, "init": "normal(0.1)"},
    ],
}
"""Optimizer -> points that lie far from each other, for one cohort."""

FELT = ("loss", "grad_norm", "clip_coef", "lr")
"""Curves that say nothing of weights which the loss does not feel."""

WANDERING = {("transformer", "lion")}
"""Case and optimizer where such weights (the keys' biases) go by the sign of a rounding error, so
that two engines agree on `FELT` alone: see `Lion`."""


@functools.cache
def task_of(case: str, dtype: torch.dtype) -> task.Task:
    """The task of a case."""
    return task.build(**CASES[case][1]).to(CPU, dtype)


def make_setup(
    case: str = "mlp",
    rule: str = "sgd",
    horizon: int = 12,
    dtype: torch.dtype = torch.float64,
    schedule: str = "constant",
    batch_size: int = 6,
    **hyper: Any,
) -> Setup:
    """The setup of a case; `hyper` are hyperparameters and flags of the optimizer."""
    data = task_of(case, dtype)
    found, defaults = optimizer.build(rule, **hyper)
    return Setup(
        build_model=lambda: model.build(signature=data.signature, **CASES[case][0]),
        task=data,
        optimizer=found,
        horizon=horizon,
        batch_size=batch_size,
        schedule=schedule,
        fixed={**defaults, **FIXED},
        device=CPU,
        precision=Precision(dtype),
    )


def make_trials(*points: Mapping[str, Value], num_seeds: int = 2) -> list[Trial]:
    """Trials of points, the seeds in turn."""
    return [Trial(number, point, number % num_seeds) for number, point in enumerate(points)]


@dataclass(frozen=True)
class Run:
    """What an engine told of one trial, its pieces put together."""

    curves: np.ndarray
    initial_loss: float
    displacement: float

    def __getitem__(self, name: str) -> np.ndarray:
        return self.curves[CURVES.index(name)]


def train(
    engine: Engine,
    trials: Sequence[Trial],
    rung_steps: int = 5,
    look: Callable[[list[Chunk]], None] = lambda chunks: None,
) -> dict[int, Run]:
    """Trains trials to their end, each as soon as there is room; those dropped are left out.

    Args:
        engine: what trains them.
        trials: in the order in which they are admitted.
        rung_steps: steps between two looks.
        look: called after every rung; may drop trials.
    """
    waiting, chunks, done = deque(trials), {}, set()
    while waiting or engine.trials:
        room = engine.capacity - len(engine.trials)
        engine.admit([waiting.popleft() for _ in range(min(room, len(waiting)))])
        assert len(engine.trials) <= engine.capacity
        told = engine.advance(rung_steps)
        assert told, "a rung without a step would go on for ever"
        for chunk in told:
            chunks.setdefault(chunk.trial, []).append(chunk)
            if chunk.is_done:
                done.add(chunk.trial)
        look(told)
    return {
        number: Run(
            np.concatenate([chunk.curves for chunk in pieces], axis=1),
            pieces[-1].initial_loss,
            pieces[-1].displacement,
        )
        for number, pieces in chunks.items()
        if number in done
    }


def assert_same(found: Mapping[int, Run], expected: Mapping[int, Run], bitwise: bool) -> None:
    """Fails unless the trials of `found` went as they did in `expected`."""
    assert found
    for number, run in found.items():
        other = expected[number]
        if bitwise:
            assert np.array_equal(run.curves, other.curves, equal_nan=True), number
            assert np.array_equal(run.initial_loss, other.initial_loss, equal_nan=True), number
            assert np.array_equal(run.displacement, other.displacement, equal_nan=True), number
        else:
            np.testing.assert_allclose(run.curves, other.curves, rtol=1e-5, atol=1e-6)


def assert_close(
    found: Run, expected: Run, tolerance: float = 1e-9, curves: Sequence[str] = CURVES
) -> None:
    """Fails unless two runs agree: to `tolerance`, relative where a value is above 1.

    Args:
        found, expected: the runs.
        tolerance: greatest difference.
        curves: those that must agree; the displacement too when they are all.
    """
    assert found.curves.shape == expected.curves.shape
    for name in curves:
        np.testing.assert_allclose(
            found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )
    ends = [(found.initial_loss, expected.initial_loss)]
    if curves == CURVES:
        ends.append((found.displacement, expected.displacement))
    for ours, theirs in ends:
        assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance)


TRIALS = make_trials(
    {"lr": 0.01},
    {"lr": 0.03, "clip_norm": 0.5},
    {"lr": 0.1, "warmup_steps": 4, "momentum": 0.0},
    {"lr": 0.02, "init_gain": 1.5},
    {"lr": 0.05, "init": "orthogonal", "weight_decay": 0.1},
)
NAN = Trial(99, {"lr": 1e38}, 0)
"""Diverges to NaN within twelve steps, whatever the model and the type."""


class EngineLaws:
    """The laws as tests. A subclass gives `kind`; see the module."""

    kind: ClassVar[Callable[[Setup, int], Engine]]
    bitwise: ClassVar[bool] = True
    """Whether neighbours may not even change the last bit: true on a CPU."""

    @pytest.fixture(params=list(CASES))
    def setup(self, request):
        # The type of most sweeps, in which the last bit is the first to go.
        dtype = torch.float64 if request.param == "vector" else torch.float32
        return make_setup(request.param, dtype=dtype)

    def train(self, setup: Setup, trials: Sequence[Trial], capacity: int = 8, **how: Any):
        return train(type(self).kind(setup, capacity), trials, **how)

    def test_the_order_of_trials_changes_nothing(self, setup):
        forward = self.train(setup, TRIALS)
        assert_same(self.train(setup, TRIALS[::-1]), forward, self.bitwise)

    def test_a_trial_alone_runs_as_it_does_in_company(self, setup):
        together = self.train(setup, TRIALS)
        for trial in TRIALS:
            assert_same(self.train(setup, [trial]), together, self.bitwise)

    def test_a_neighbours_nan_never_leaks(self, setup):
        calm = self.train(setup, TRIALS)
        beside = self.train(setup, [TRIALS[0], NAN, *TRIALS[1:]])
        assert np.isnan(beside.pop(NAN.number)["loss"][-1])
        assert all(np.isfinite(run.curves).all() for run in beside.values())
        assert_same(beside, calm, self.bitwise)

    def test_dropping_a_trial_leaves_the_others_as_they_were(self, setup):
        calm = self.train(setup, TRIALS)
        engine = type(self).kind(setup, 8)

        def drop(chunks):
            if any(chunk.trial == 1 for chunk in chunks):
                engine.drop(1)
                engine.drop(1)
                assert all(trial.number != 1 for trial in engine.trials)

        survivors = train(engine, TRIALS, look=drop)
        assert sorted(survivors) == [0, 2, 3, 4]
        assert_same(survivors, calm, self.bitwise)

    def test_a_place_that_is_filled_again_changes_nothing(self, setup):
        together = self.train(setup, TRIALS)
        assert_same(self.train(setup, TRIALS, capacity=2), together, self.bitwise)

    def test_a_trial_that_comes_late_changes_nothing(self, setup):
        together = self.train(setup, TRIALS)
        engine = type(self).kind(setup, 8)
        late = deque(TRIALS[1:])

        def admit(chunks):
            if late and len(engine.trials) < engine.capacity:
                engine.admit([late.popleft()])

        assert_same(train(engine, TRIALS[:1], 3, admit), together, self.bitwise)
        assert not late

    @pytest.mark.parametrize("rung_steps", [1, 7, 12, 100])
    def test_the_length_of_a_rung_changes_nothing(self, setup, rung_steps):
        expected = self.train(setup, TRIALS)
        found = self.train(setup, TRIALS, rung_steps=rung_steps)
        assert_same(found, expected, self.bitwise)

    def test_a_trial_ends_at_its_horizon_and_its_pieces_join(self, setup):
        engine = type(self).kind(setup, 3)
        seen: dict[int, list[Chunk]] = {}

        def look(chunks):
            for chunk in chunks:
                assert chunk.curves.shape[0] == len(CURVES)
                assert 1 <= chunk.curves.shape[1] <= 5
                assert chunk.error is None
                pieces = seen.setdefault(chunk.trial, [])
                assert chunk.start_step == sum(piece.curves.shape[1] for piece in pieces)
                pieces.append(chunk)
                assert chunk.is_done == all(t.number != chunk.trial for t in engine.trials)

        train(engine, TRIALS, look=look)
        for pieces in seen.values():
            assert [piece.is_done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
            assert sum(piece.curves.shape[1] for piece in pieces) == setup.horizon
            assert len({piece.initial_loss for piece in pieces}) == 1
            assert all(piece.seconds >= 0 for piece in pieces)
        assert engine.advance(5) == []

    def test_a_seed_gives_every_point_the_same_weights_and_batches(self, setup):
        # So small a rate leaves the weights alone: what is left of the loss is the batches'.
        points = [{"lr": 1e-30}, {"lr": 1e-29, "clip_norm": 0.1, "momentum": 0.0}]
        alike = self.train(setup, [Trial(n, point, 3) for n, point in enumerate(points)])
        assert np.array_equal(alike[0]["loss"], alike[1]["loss"])
        assert np.array_equal(alike[0]["grad_norm"], alike[1]["grad_norm"])
        assert alike[0].initial_loss == alike[1].initial_loss
        other = self.train(setup, [Trial(0, points[0], 4)])[0]
        assert other.initial_loss != alike[0].initial_loss
        assert other["loss"][0] != alike[0]["loss"][0]
        if setup.task.num_examples > 1:
            assert len(set(alike[0]["loss"])) == setup.horizon

    def test_the_global_generators_stay_as_they_were(self, setup):
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()
        self.train(setup, TRIALS)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1]
        assert np.array_equal(np.random.get_state()[1], before[2][1])

    def test_the_global_generators_change_nothing(self, setup):
        expected = self.train(setup, TRIALS)
        with torch.random.fork_rng():
            torch.manual_seed(123)
            assert_same(self.train(setup, TRIALS), expected, bitwise=True)

    def test_the_norm_is_that_before_clipping(self, setup):
        limit = 0.05
        free, clipped = self.train(
            setup, [Trial(0, {"lr": 0.1}, 0), Trial(1, {"lr": 0.1, "clip_norm": limit}, 0)]
        ).values()
        assert free["grad_norm"][0] == clipped["grad_norm"][0] > limit
        assert (free["clip_coef"] == 1).all()
        expected = limit / (clipped["grad_norm"] + 1e-6)
        np.testing.assert_allclose(clipped["clip_coef"], expected, rtol=1e-5)
        # At the first step momentum does nothing yet. The loop knows its update only as the
        # difference of rounded weights.
        shrunk = clipped["update_ratio"][0] / free["update_ratio"][0]
        assert shrunk == pytest.approx(expected[0], rel=1e-3)

    def test_the_rate_is_warmed_up_and_scheduled(self, setup):
        setup = replace(setup, schedule="linear")
        trials = [Trial(0, {"lr": 0.06, "warmup_steps": 3}, 0), Trial(1, {"lr": 0.012}, 0)]
        slow, fast = self.train(setup, trials).values()
        warm = [0.02, 0.04, 0.06, *(0.06 * (1 - t / 10) for t in range(1, 10))]
        np.testing.assert_allclose(slow["lr"], warm, rtol=1e-6)
        np.testing.assert_allclose(fast["lr"], 0.001 * np.arange(12, 0, -1), rtol=1e-6)

    def test_a_quadratic_follows_its_formula(self):
        setup = make_setup("vector", momentum=0.0)
        first = setup.new_module(Trial(0, {}, 5)).theta.detach().numpy()
        curvature = setup.task.eigenvalues_D.numpy()
        rates = [0.5, 1.9, 2.1]
        runs = self.train(setup, [Trial(n, {"lr": lr}, 5) for n, lr in enumerate(rates)])
        for lr, run in zip(rates, runs.values(), strict=True):
            theta = [first * (1 - lr * curvature) ** t for t in range(setup.horizon + 1)]
            norm = np.linalg.norm
            loss = [0.5 * (curvature * x**2).sum() for x in theta[:-1]]
            np.testing.assert_allclose(run["loss"], loss, rtol=1e-10)
            np.testing.assert_allclose(run["grad_norm"], [norm(curvature * x) for x in theta[:-1]])
            ratio = [norm(b - a) / norm(a) for a, b in zip(theta, theta[1:], strict=False)]
            np.testing.assert_allclose(run["update_ratio"], ratio, rtol=1e-10)
            assert run.initial_loss == pytest.approx(loss[0], rel=1e-12)
            moved = norm(theta[-1] - first) / norm(first)
            assert run.displacement == pytest.approx(moved, rel=1e-10)


class StackedEngineLaws(EngineLaws):
    """The laws for an engine that trains several trials at once: the loop is its oracle."""

    @pytest.mark.parametrize("rule", POINTS)
    @pytest.mark.parametrize("case", CASES)
    def test_it_agrees_with_the_plain_loop_over_50_steps(self, case, rule):
        setup = make_setup(case, rule, horizon=50, schedule="cosine")
        trials = make_trials(*POINTS[rule])
        together = self.train(setup, trials, rung_steps=20)
        assert len(together) == len(trials)
        curves = FELT if (case, rule) in WANDERING else CURVES
        for trial in trials:
            alone = train(Loop(setup), [trial])[trial.number]
            assert_close(together[trial.number], alone, curves=curves)

    @pytest.mark.parametrize("case", CASES)
    def test_a_cohort_of_one_equals_the_plain_loop(self, case):
        setup = make_setup(case, "adamw")
        for trial in make_trials({"lr": 0.003}):
            assert_close(self.train(setup, [trial], 1)[0], train(Loop(setup), [trial])[0])
