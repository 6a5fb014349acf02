"""Guarded runs, healthy and failing, with all that the guard looked at: for `early_warning.py`."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from stabsweep import GradientGuard, sweep
from stabsweep.api import DEFAULTS
from stabsweep.engine import Starts, begin
from stabsweep.guard.trends import Look, Trends
from stabsweep.optimizer import learning_rates
from stabsweep.plan import Plan
from stabsweep.records import CURVES, Array, Trace, Trial
from stabsweep.verdict import judge

_RNN = {
    "model": {"name": "rnn", "hidden": 32},
    "task": {"name": "sequential_digits", "step": "row"},
}
_TEXT = {"task": {"name": "text", "length": 16}, "optimizer": "adamw", "batch_size": 8}
_SMALL = {"name": "transformer", "depth": 2, "width": 32, "heads": 2}
_MLP = {"model": {"name": "mlp", "width": 64}, "task": "digits"}

SETUPS = {
    "mlp, SGD": {**_MLP, "optimizer": "sgd"},
    "mlp, AdamW": {**_MLP, "optimizer": "adamw"},
    "mlp, AdamW, bf16": {**_MLP, "optimizer": "adamw", "precision": "bf16_pure"},
    "mlp, SGD, regression": {**_MLP, "task": "regression", "optimizer": "sgd"},
    "rnn, Adam": {**_RNN, "optimizer": "adam", "batch_size": 32, "clip_norm": 5.0},
    "pre-LN, AdamW": {**_TEXT, "model": _SMALL, "clip_norm": 1.0},
    "post-LN, AdamW": {**_TEXT, "model": {**_SMALL, "norm": "post"}, "clip_norm": 1.0},
}
"""The reference models, somewhat smaller than by default, with their usual clipping; one in pure
half precision, the only one of which `stuck` speaks; and a regression, whose loss can explode."""

EDGE_SEEDS, EDGE_STEPS = (100, 101), 300
"""Of the sweep that finds the edges: seeds of neither half."""

SEEDS = {"tune": (0, 1), "held_out": (2, 3)}

HEALTHY = tuple(
    (part, schedule, horizon, None)
    for part in (1 / 30, 1 / 10, 1 / 3)
    for schedule in ("constant", "cosine")
    for horizon in (300, 1000)
)
FAILING = (
    *((times, "constant", 300, None) for times in (2.0, 5.0, 10.0)),
    *((times, "constant", 1000, None) for times in (1.0, 1.4)),
    *((part, "constant", 600, 10.0) for part in (1 / 3, 1 / 10)),
    (3.0, "ramp", 1000, None),
)
"""Rate in edges, schedule, horizon, factor by which the rate jumps at half of it."""

WARMUP = {"constant": 0.0, "cosine": 0.1, "ramp": 0.5}
"""Part of the horizon that is warmup; a ramp crosses the edge slowly, and is constant after it."""


@dataclass(eq=False)
class Run:
    """A run and what its guard was told, step by step.

    Attributes:
        setup, seed, part, schedule, jump: which run: `part` is its rate over the edge.
        start: the step of the jump, or 0: alarms before it announce nothing.
        trace: its curves, up to the first step that was not finite.
        verdict: the word of the judge.
        lost: step of the guard's `lost` event, the first it has beside early warnings; or None.
        names: layers, and attention layers.
        layers: (T, n, 3) of a close look at each step; logits: (T, m); unmoved: (T, n) or None.
    """

    setup: str
    seed: int
    part: float
    schedule: str
    jump: float | None
    start: int
    trace: Trace
    verdict: str
    lost: int | None
    names: tuple[tuple[str, ...], tuple[str, ...]]
    layers: Array
    logits: Array
    unmoved: Array | None

    def looks(self, every: int) -> Iterator[Look]:
        """What a guard reads that looks closely at every n-th step, not at that of a jump."""
        first = every // 2 if self.jump else 0
        curves = (getattr(self.trace, name).tolist() for name in CURVES[1:])
        for step, (norm, coef, ratio, lr) in enumerate(zip(*curves, strict=True)):
            if step % every != first:
                yield Look(norm, coef, lr)
                continue
            layers = dict(zip(self.names[0], map(tuple, self.layers[step].tolist()), strict=True))
            logits = dict(zip(self.names[1], self.logits[step].tolist(), strict=True))
            unmoved = {}
            if self.unmoved is not None:
                unmoved = dict(zip(self.names[0], self.unmoved[step].tolist(), strict=True))
            yield Look(norm, coef, lr, ratio, layers, logits, unmoved)


class _Kept(Trends):
    """Keeps what it is told, and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Look] = []

    def read(self, look: Look) -> list:
        self.looks.append(look)
        return []


def find_edge(setup: str) -> float:
    """The rate up to which all trials of a row are stable, between it and the next one."""
    rates = [float(f"{rate:.4g}") for rate in np.geomspace(1e-3, 3, 22)]
    found = sweep(
        **{**SETUPS[setup], "horizon": EDGE_STEPS}, space={"lr": rates}, sampler="grid",
        seeds=list(EDGE_SEEDS), num_trials=len(rates) * len(EDGE_SEEDS), device="cpu",
        watcher="off", bracket=False, extend=False, confirm=False, stress=False, curvature=False,
    )  # fmt: skip
    failed = [r.lr for r in found.region.records if not r.verdict.is_stable]
    first = min(failed, default=math.inf)
    held = [rate for rate in rates if rate < first]
    if not failed or not held:
        raise RuntimeError(f"{setup}: no edge between {rates[0]} and {rates[-1]}")
    return math.sqrt(held[-1] * first)


def train(setup: str, edge: float, seed: int, which: tuple) -> Run:
    """Trains one run under a guard that looks closely at each step, until it is not finite."""
    part, schedule, horizon, jump = which
    lr, warmup_steps = part * edge, int(WARMUP[schedule] * horizon)
    shape = "cosine" if schedule == "cosine" else "constant"
    start = horizon // 2 if jump else 0
    given = {
        **DEFAULTS, **SETUPS[setup], "space": {"lr": [lr]}, "seeds": [seed], "num_trials": 1,
        "horizon": horizon, "schedule": shape, "warmup_steps": warmup_steps, "device": "cpu",
        "sampler": "grid", "bracket": False, "extend": False, "confirm": False, "stress": False,
        "curvature": False,
    }  # fmt: skip
    plan = Plan.make(given)
    setup_of = plan.setup({})
    trial, starts = Trial(0, {"lr": lr}, seed), Starts(setup_of)
    module, optimizer = begin(setup_of, trial)
    for group in optimizer.param_groups:
        group["lr"] *= lr

    def factor(step: int) -> float:
        step = min(step, horizon - 1)
        own = float(learning_rates(step, 1.0, warmup_steps, horizon, shape))
        return own * jump if jump and step >= start else own

    known = {
        "initial_loss": starts[trial].initial_loss,
        "blind_loss": setup_of.task.blind_loss,
        "warmup_steps": warmup_steps,
    }
    with mock.patch("stabsweep.guard.journal.Trends", _Kept):
        guard = GradientGuard(
            module, optimizer, clip_norm=SETUPS[setup].get("clip_norm"), policy="warn",
            scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, factor), total_steps=horizon,
            watch_every=1, progress="off", **known,
        )  # fmt: skip
    order, columns = starts.order(trial), guard._attempts.journal.columns
    for step in range(horizon):
        batch = setup_of.task.batch(order.index(step, step + 1)[0])
        guard.step(setup_of.loss(module, batch), batch)
        last = [columns.last(name, 1) for name in ("loss", "grad_norm")]
        if not np.isfinite(last).all():
            break
    guard.close()
    looks = guard._attempts.journal._trends.looks
    curves = {name: columns[name] for name in CURVES}
    trace = Trace(**curves, horizon=horizon, **known)
    losts = [attempt for attempt, kind, _ in guard.events if kind == "lost"]
    names = (tuple(looks[0].layers), tuple(looks[0].logits))
    return Run(
        setup, seed, part, schedule, jump, start, trace, judge(trace).verdict.label,
        min(losts, default=None), names,
        _array([list(look.layers.values()) for look in looks]),
        _array([list(look.logits.values()) for look in looks]),
        _array([list(look.unmoved.values()) for look in looks]) if looks[0].unmoved else None,
    )  # fmt: skip


def read_or_train(folder: Path, half: str) -> list[Run]:
    """The runs of a half, from a folder where they are there."""
    found = []
    for setup in SETUPS:
        edge = read_or_find_edge(folder, setup)
        for seed in SEEDS[half]:
            path = folder / f"{setup}, {seed}.pickle"
            runs = pickle.loads(path.read_bytes()) if path.exists() else {}
            if missing := [which for which in (*HEALTHY, *FAILING) if which not in runs]:
                runs.update((which, train(setup, edge, seed, which)) for which in missing)
                path.write_bytes(pickle.dumps(runs))
                print(f"{half}: {setup}, seed {seed}: {len(missing)} runs trained", flush=True)
            found += [runs[which] for which in (*HEALTHY, *FAILING)]
    return found


def read_or_find_edge(folder: Path, setup: str) -> float:
    """The edge of a setup, from a folder where it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "edges.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    if setup not in known:
        known[setup] = find_edge(setup)
        path.write_text(json.dumps(known, indent=1) + "\n")
    return known[setup]


def _array(rows: list) -> Array:
    return np.array(rows, np.float32)
