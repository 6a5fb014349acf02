"""Synthetic sweeps that look like real ones, and the states that a report must survive."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stabsweep.pick import find_pick
from stabsweep.records import Record, Verdict
from stabsweep.region import find_region
from stabsweep.space import Space

INITIAL, BLIND, BEST, HORIZON = 4.58, 3.1, 1.72, 200

LR_WARMUP = Space.parse(
    {
        "lr": {"low": 1e-5, "high": 1.0},
        "warmup_steps": {"low": 0, "high": 50},
    }
)


def _ending(gap, depth, rng):
    """Verdict and final loss at a distance (decades) below the edge; negative: above it."""
    wobble = rng.normal(0, 0.015)
    if gap > 2.35:
        return Verdict.TOO_SLOW, INITIAL - 0.12 * depth + wobble
    if gap > 0:
        loss = BEST + (BLIND - BEST) * min(1.25, 0.055 + 0.42 * max(0.0, gap - 0.62) ** 1.7)
        loss += 0.45 * math.exp(-gap / 0.09) + wobble
        if gap < 0.12:
            return rng.choice([Verdict.SPIKY, Verdict.RECOVERED]), loss
        return Verdict.CONVERGED, loss
    if gap > -0.2:
        return Verdict.DEGRADED, BEST + 0.75 * (BLIND - BEST) + wobble
    if gap > -0.95:
        return Verdict.COLLAPSED, BLIND + 0.03 + abs(wobble)
    if gap > -1.35:
        return Verdict.OSCILLATING, 6.4 + 9 * abs(wobble)
    return Verdict.DIVERGED, None if rng.random() < 0.6 else 10 ** rng.uniform(2, 18)


def _record(trial, point, seed, verdict, loss):
    steps = HORIZON if verdict is not Verdict.DIVERGED else 20 + 10 * (trial % 6)
    return Record(
        trial=trial,
        point=point,
        seed=seed,
        verdict=verdict,
        state="pruned" if verdict is Verdict.DIVERGED else "complete",
        reason=f"Synthetic: {verdict.label}.",
        steps=steps,
        horizon=HORIZON,
        initial_loss=INITIAL,
        final_loss=loss,
        best_loss=min(loss or INITIAL, INITIAL),
        peak_loss=INITIAL,
        blind_loss=BLIND,
        seconds=0.4,
        trace=f"traces/{trial:05d}.npz",
    )


def _edge(row):
    """log10 of the true edge of a row."""
    edge = math.log10(1.1e-2)
    if "warmup_steps" in row:
        edge += 0.45 * math.log10(1 + row["warmup_steps"] / 8)
    if row.get("optimizer") == "sgd":
        edge += 1.3
    if row.get("clip_norm", 1) is None:
        edge -= 0.3
    return edge


def make_records(space=LR_WARMUP, num_points=96, num_seeds=2, points=None, seed=0):
    """A plausible sweep: a noisy edge that moves with the row, and every verdict."""
    rng = np.random.default_rng(seed)
    records = []
    for point in points or space.grid(num_points):
        for number in range(num_seeds):
            gap = _edge(point) - math.log10(point["lr"]) + rng.normal(0, 0.09)
            verdict, loss = _ending(gap, math.log10(point["lr"] / 1e-5), rng)
            records.append(_record(len(records), point, number, verdict, loss))
    return records


def make_trace(record):
    """(5, T) curves that end as the record says."""
    rng = np.random.default_rng(record.trial)
    steps = np.arange(record.steps)
    end = record.final_loss if record.final_loss is not None else math.inf
    loss = INITIAL + (min(end, 8.0) - INITIAL) * (1 - np.exp(-steps / 25))
    if record.verdict in (Verdict.DEGRADED, Verdict.COLLAPSED):
        loss = loss - 1.4 * np.exp(-(((steps - 50) / 25) ** 2))
    if record.verdict is Verdict.RECOVERED:
        loss = loss + 5 * np.exp(-(((steps - 12) / 6) ** 2))
    if record.verdict is Verdict.OSCILLATING:
        loss = loss + 2.5 * np.sin(steps * 1.9)
    loss = loss + rng.normal(0, 0.06, len(steps))
    if record.verdict is Verdict.SPIKY:
        loss[40::33] += 2.2
    if record.verdict is Verdict.DIVERGED:
        loss = INITIAL * np.exp(steps / 4.0)
        loss[-6:] = math.nan if record.final_loss is None else loss[-6:]
    one = np.ones_like(loss)
    return np.stack([loss, 0.8 * one, one, 1e-3 * one, record.lr * one])


def make_sweep(records=None, space=LR_WARMUP, num_planned=None, **kwargs):
    """A region and its pick."""
    records = make_records(space, **kwargs) if records is None else records
    region = find_region(space, records)
    return region, find_pick(region, num_planned=num_planned)


def _scattered():
    space = Space.parse({"lr": {"low": 1e-5, "high": 1.0}, "warmup_steps": {"values": [0, 10, 50]}})
    rng = np.random.default_rng(3)
    points = [space.at(rng.random(2)) for _ in range(80)]
    return make_sweep(space=space, points=points, num_seeds=1)


def _sobol():
    rng = np.random.default_rng(5)
    return make_sweep(points=[LR_WARMUP.at(rng.random(2)) for _ in range(80)])


def _two_axes():
    space = Space.parse(
        {
            "lr": {"low": 1e-4, "high": 10.0},
            "optimizer": {"values": ["sgd", "adamw"]},
            "clip_norm": {"values": [0.25, 1.0, None]},
        }
    )
    return make_sweep(space=space, num_points=120, num_seeds=3)


def _one_strip():
    space = Space.parse({"lr": {"low": 1e-5, "high": 1.0}})
    return make_sweep(space=space, num_points=30, num_seeds=3)


def _interrupted():
    records = make_records()
    kept = [r for r in records if r.trial % 3 == 0][:40]
    return make_sweep(kept, num_planned=192)


def _edge_not_reached():
    return make_sweep([r for r in make_records() if r.lr < 4e-3])


def _none_safe():
    records = [
        replace(r, verdict=Verdict.DIVERGED, state="pruned", final_loss=None)
        for r in make_records()
    ]
    return make_sweep(records)


def _pocket():
    records = [
        replace(r, verdict=Verdict.CONVERGED, final_loss=2.6, state="complete")
        if 0.12 < r.lr < 0.4 and r.point["warmup_steps"] == 33
        else r
        for r in make_records()
    ]
    return make_sweep(records)


def _failed():
    records = [
        replace(r, state="failed", verdict=Verdict.INVALID, error="out of <memory> & more")
        if r.trial % 11 == 0
        else replace(r, verdict=Verdict.PEAK_NOT_REACHED)
        if r.trial % 13 == 0
        else r
        for r in make_records()
    ]
    return make_sweep(records)


def _nothing_learned():
    records = [
        replace(r, verdict=Verdict.TOO_SLOW, provisional=True, final_loss=BLIND + 0.01)
        if r.lr < 0.02
        else r
        for r in make_records()
    ]
    return make_sweep(records)


def _all_failed():
    records = [
        replace(r, state="failed", verdict=Verdict.INVALID, error="no such thing")
        for r in make_records()
    ]
    return make_sweep(records)


def _insane_loss():
    records = [
        replace(r, verdict=Verdict.TOO_SLOW, final_loss=2.4e18) if r.trial == 60 else r
        for r in make_records()
    ]
    return make_sweep(records)


def _negative_losses():
    records = [
        replace(
            r,
            final_loss=None if r.final_loss is None else r.final_loss - 10,
            initial_loss=INITIAL - 10,
            blind_loss=BLIND - 10,
        )
        for r in make_records()
    ]
    return make_sweep(records)


STATES = {
    "whole": lambda: make_sweep(),
    "scattered": _scattered,
    "sobol": _sobol,
    "two_axes": _two_axes,
    "one_strip": _one_strip,
    "interrupted": _interrupted,
    "no_records": lambda: make_sweep([], num_planned=192),
    "one_record": lambda: make_sweep(make_records()[60:61], num_planned=192),
    "one_seed": lambda: make_sweep(num_seeds=1),
    "edge_not_reached": _edge_not_reached,
    "none_safe": _none_safe,
    "pocket": _pocket,
    "failed": _failed,
    "nothing_learned": _nothing_learned,
    "all_failed": _all_failed,
    "insane_loss": _insane_loss,
    "negative_losses": _negative_losses,
}


@pytest.fixture(scope="session")
def states():
    """Name -> (region, pick) for every state that a report must survive."""
    return {name: build() for name, build in STATES.items()}


@pytest.fixture(scope="session")
def sweep(states):
    """Region and pick of a whole, healthy sweep."""
    return states["whole"]


@pytest.fixture(scope="session")
def load_trace():
    """The loader that a store would be."""
    return make_trace
