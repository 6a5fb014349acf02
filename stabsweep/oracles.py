"""Values that are known exactly, measured anew on this machine with the tool itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from stabsweep import model, optimizer, task
from stabsweep.api import DEFAULTS, sweep
from stabsweep.engine import Cohort, Engine, Loop
from stabsweep.plan import Plan
from stabsweep.records import Trial, Verdict
from stabsweep.signature import Signature

NUM_RATES = 41
"""Learning rates within 10 % of an expected edge: half a per cent apart."""

QUIET: Mapping[str, Any] = {
    "sampler": "grid",
    "device": "cpu",
    "extend": False,
    "confirm": False,
    "stress": False,
    "watcher": "off",
}
"""Of every sweep here: the same rates each time, on the device whose values are known, and for its
records alone."""

EXACT: Mapping[str, Any] = {
    **QUIET,
    "horizon": 400,
    "batch_size": 1,
    "engine": "cohort",
    "precision": "fp64",
}
"""Of a sweep without data."""

FROZEN_EPS = 1e30
"""Beside it gradients count for nothing, however far a run grows before it is stopped for it."""


@dataclass(frozen=True)
class Oracle:
    """A known value and how to measure it.

    Attributes:
        name: what is known.
        expected: the value.
        tolerance: greatest deviation that is ok: relative to `expected`, or absolute when that
            is 0.
        measure: measures it.
        source: where the value comes from.
    """

    name: str
    expected: float
    tolerance: float
    measure: Callable[[], float]
    source: str


@dataclass(frozen=True)
class Finding:
    """An oracle held against this machine."""

    oracle: str
    expected: float
    measured: float
    deviation: float
    ok: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measure(oracle: Oracle) -> Finding:
    """Measures one oracle now."""
    measured = oracle.measure()
    deviation = measured - oracle.expected
    if oracle.expected:
        deviation /= oracle.expected
    # Written so that NaN is not ok.
    ok = abs(deviation) <= oracle.tolerance
    return Finding(oracle.name, oracle.expected, measured, deviation, ok)


def as_table(findings: list[Finding]) -> str:
    """The findings as aligned text."""
    head = f"{'oracle':<46} {'expected':>10} {'measured':>10} {'deviation':>10}  ok"
    lines = [
        f"{f.oracle:<46} {f.expected:>10.6g} {f.measured:>10.6g} {f.deviation:>10.1e}  "
        f"{'yes' if f.ok else 'NO'}"
        for f in findings
    ]
    failed = sum(not f.ok for f in findings)
    end = f"{failed} of {len(findings)} are off" if failed else f"all {len(findings)} ok"
    return "\n".join([head, *lines, "", end])


def _edge(
    expected: float,
    rule: str = "sgd",
    unit: float = 1.0,
    eigenvalues: Sequence[float] = (0.01, 0.1, 1.0),
    warmup_steps: int = 0,
    clip_norm: float | None = None,
    **hyper: float | bool,
) -> Callable[[], float]:
    """Measures the edge of an update rule on a quadratic by a sweep around it, in `unit`s."""

    def run() -> float:
        return _swept_edge(
            "vector",
            {"name": "quadratic", "eigenvalues": list(eigenvalues)},
            expected * unit,
            {"name": rule, **hyper},
            warmup_steps=warmup_steps,
            clip_norm=clip_norm,
        ) / unit  # fmt: skip

    return run


def _swept_edge(
    name: str, task: Any, expected: float, rule: Mapping[str, Any], **more: Any
) -> float:
    """The edge of a model that takes no data, by a sweep of rates within 10 % of it."""
    result = sweep(
        name,
        task,
        {"lr": {"low": 0.9 * expected, "high": 1.1 * expected}},
        rule,
        num_trials=NUM_RATES,
        seeds=1,
        **{**EXACT, **more},
    )
    return result.region.rows[0].edge.lr or float("nan")


def _frozen(expected: float, rule: str, **hyper: float) -> Callable[[], float]:
    """Measures an edge of an adaptive rule whose preconditioner does not move.

    An eps far above every gradient freezes it: the sharpness of P^-1 H is 1 / eps, and the edge is
    counted in eps. The warmup outlasts Adam's bias correction, under which the first steps are
    too long by far and a stable run is thrown up by many decades.
    """
    return _edge(
        expected, rule, FROZEN_EPS, eigenvalues=(1.0,), warmup_steps=100, eps=FROZEN_EPS, **hyper
    )


def _catapult_edge() -> float:
    """The edge of the uv model times its first curvature."""
    start = model.initialize(lambda: model.build("uv", task.build("uv").signature), 0)
    size = sum(p.detach().double().square().sum().item() for p in start.parameters())
    curvature = 2 * size / sum(p.numel() for p in start.parameters())
    lr = _swept_edge("uv", "uv", 4 / curvature, {"name": "sgd", "momentum": 0.0})
    return lr * curvature


def _overflow_step() -> float:
    """The step at which a ReLU recurrence with 1.5 times the identity leaves float32."""
    net = model.RNN(Signature("sequence", 1, 1, length=300), cell="relu", hidden=4)
    pulse_1L1 = torch.zeros(1, 300, 1)
    pulse_1L1[0, 0] = 1.0
    with torch.no_grad():
        for name, parameter in net.recurrence.named_parameters():
            start = {"weight_hh_l0": 1.5 * torch.eye(4), "weight_ih_l0": torch.full((4, 1), 1.5)}
            parameter.copy_(start.get(name, torch.zeros(4)))
        states_L = torch.stack(net.recurrence(pulse_1L1)).amax((1, 2))
    return float(states_L.isfinite().sum())


def _share_oscillating() -> float:
    """Share of clipped trials beyond the edge of a quadratic that are called oscillating."""
    result = sweep(
        "vector",
        {"name": "quadratic", "eigenvalues": [1.0]},
        {"lr": {"low": 2.1, "high": 100.0}},
        {"name": "sgd", "momentum": 0.0},
        clip_norm=0.1,
        num_trials=20,
        seeds=2,
        **EXACT,
    )
    verdicts = [record.verdict for record in result.region.records]
    return verdicts.count(Verdict.OSCILLATING) / len(verdicts)


def _share_learned_at_blind() -> float:
    """Share of trials called learned among those that end at ln 10 or above it."""
    result = sweep(
        "mlp",
        "digits",
        {"lr": {"low": 1e-7, "high": 10.0}},
        "adamw",
        horizon=100,
        num_trials=16,
        seeds=1,
        **QUIET,
    )
    at_blind = [r for r in result.region.records if (r.final_loss or 99.0) > 0.99 * np.log(10)]
    return sum(record.verdict.is_learned for record in at_blind) / len(at_blind)


def _curves(kind: type[Engine], rule: Mapping[str, Any], num_trials: int) -> np.ndarray:
    """Curves of 50 steps of an MLP on digits in float64: (trials, 5, 50)."""
    asked = {
        "model": {"name": "mlp", "width": 16},
        "task": "digits",
        "space": {"lr": {"low": 1e-3, "high": 1e-2}},
        "optimizer": rule,
        "horizon": 50,
        "num_trials": num_trials,
        "batch_size": 16,
        "warmup_steps": 5,
        "clip_norm": 1.0,
        "schedule": "cosine",
        "device": "cpu",
        "precision": "fp64",
    }
    plan = Plan.make({**DEFAULTS, **asked})
    curves = []
    trials = [Trial(k, {"lr": 1e-3 * (k + 1)}, 0) for k in range(num_trials)]
    for batch in [trials] if kind is Cohort else [[trial] for trial in trials]:
        engine = kind(plan.setup({}), num_trials)
        engine.admit(batch)
        curves += [chunk.curves for chunk in engine.advance(50)]
    return np.stack(curves)


def _gap(rule: Mapping[str, Any]) -> Callable[[], float]:
    """Greatest relative difference of stacked curves and those of a loop with `torch.optim`."""

    def run() -> float:
        stacked, plain = _curves(Cohort, rule, 4), _curves(Loop, rule, 4)
        return float((np.abs(stacked - plain) / np.abs(plain)).max())

    return run


def _nesterov(momentum: float) -> float:
    return 2 * (1 + momentum) / (1 + 2 * momentum)


QUADRATIC = "exact, linear recurrence on a quadratic; measured with torch.optim in float64"

FROZEN = "exact: 2 (1 + beta1) / (1 - beta1), and 2 (1 + momentum) for RMSprop; arXiv 2207.14484"

ORACLES: tuple[Oracle, ...] = (
    Oracle("edge of SGD", 2.0, 0.01, _edge(2.0, momentum=0.0), QUADRATIC),
    Oracle("edge of heavy ball, momentum 0.9", 3.8, 0.01, _edge(3.8, momentum=0.9), QUADRATIC),
    Oracle(
        "edge of heavy ball, dampening 0.9",
        38.0,
        0.01,
        _edge(38.0, momentum=0.9, dampening=0.9),
        QUADRATIC,
    ),
    Oracle(
        "edge of Nesterov, momentum 0.9",
        _nesterov(0.9),
        0.01,
        _edge(_nesterov(0.9), momentum=0.9, nesterov=True),
        QUADRATIC,
    ),
    Oracle(
        "edge of SGD, coupled decay 0.1",
        2 / 1.1,
        0.01,
        _edge(2 / 1.1, momentum=0.0, weight_decay=0.1),
        QUADRATIC,
    ),
    Oracle(
        "edge of SGD, warmup of 100 of 400 steps",
        2.0,
        0.01,
        # One eigenvalue: warmup shrinks the largest far below the others, where its growth hides.
        _edge(2.0, warmup_steps=100, eigenvalues=(1.0,), momentum=0.0),
        "exact: warmup cannot move the edge of a quadratic",
    ),
    Oracle(
        "edge of Adam, frozen, beta1 0.9, in eps",
        38.0,
        0.01,
        _frozen(38.0, "adam"),
        FROZEN,
    ),
    Oracle(
        "edge of AdamW, frozen, decay 0.1, in eps",
        2 * 1.9 / (0.1 + 0.1 * 1.9),
        0.01,
        _frozen(2 * 1.9 / (0.1 + 0.1 * 1.9), "adamw", weight_decay=0.1 / FROZEN_EPS),
        "exact: heavy-ball-like recurrence with decoupled decay, derived for this table",
    ),
    Oracle(
        "edge of RMSprop, frozen, momentum 0.9, in eps",
        3.8,
        0.01,
        _frozen(3.8, "rmsprop", momentum=0.9),
        FROZEN,
    ),
    Oracle(
        "edge of a catapult: uv, times lambda_0",
        4.0,
        0.01,
        _catapult_edge,
        "exact: f = u.v / sqrt(n), arXiv 2003.02218; the linear edge is 2",
    ),
    Oracle(
        "edge of SGD, clipped at 0.1",
        2.0,
        0.01,
        _edge(2.0, eigenvalues=(1.0,), clip_norm=0.1, momentum=0.0),
        "exact: beyond 2 clipped steps hop for ever",
    ),
    Oracle(
        "clipped beyond the edge: share oscillating",
        1.0,
        0.0,
        _share_oscillating,
        "exact: hops between two points with loss from h lr^2 c^2 / 8 to h lr^2 c^2 / 2",
    ),
    Oracle(
        "ReLU recurrence, 1.5 x identity: overflows at",
        218.0,
        0.0,
        _overflow_step,
        "exact: 1.5^219 is the first power above the largest float32; no clipping can help",
    ),
    Oracle(
        "at ln 10 or above: share called learned",
        0.0,
        0.0,
        _share_learned_at_blind,
        "a classifier at ln C knows nothing (arXiv 2406.09405 has such runs)",
    ),
    *(
        Oracle(
            f"stacked {name} against torch.optim, 50 steps",
            0.0,
            1e-9,
            _gap({"name": name}),
            "the plain loop is the oracle of the stack",
        )
        for name in optimizer.STACKED
    ),
)
