"""The engine that fits: stacked when the model stacks and agrees with the plain loop."""

from __future__ import annotations

import warnings

import numpy as np
import torch

from stabsweep.engine._base import Engine, Setup
from stabsweep.engine.cohort import Cohort
from stabsweep.engine.loop import Loop
from stabsweep.records import Trial

PROBE_STEPS = 2
"""Steps that member and loop must agree on: the second has seen one update."""

TOLERANCE = 1e-3
"""Relative difference of loss and gradient norm in float32 after two steps (chosen by us: rounding
stays below 1e-5 there, while untied weights or a shared buffer are off by far more)."""


def choose(setup: Setup, trials: list[Trial], capacity: int) -> tuple[Engine, str]:
    """The engine for a setup, and one line that says which and why.

    Two members are stacked on a real batch and compared with the plain loop. Whatever goes wrong
    (no batching rule, a branch on a value, other numbers) means the loop, never an end.

    Args:
        setup: what the trials share.
        trials: at least one trial to probe with.
        capacity: trials that a cohort may hold.
    """
    members = [Trial(number, trial.point, trial.seed) for number, trial in enumerate(trials[:2])]
    try:
        stacked = _first_steps(Cohort, setup, members)
    except Exception as error:  # noqa: BLE001  Any failure of the user's model must end in the loop.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Loop(setup), f"loop: the model cannot be stacked ({lines[0][:120]})"
    plain = np.concatenate([_first_steps(Loop, setup, [trial]) for trial in members])
    both = np.isfinite(stacked) & np.isfinite(plain)
    apart = np.abs(stacked - plain)[both] / np.maximum(np.abs(plain[both]), 1e-12)
    if apart.size and apart.max() > TOLERANCE:
        return Loop(setup), f"loop: stacked, the model differs by {apart.max():.1g} from alone"
    return Cohort(setup, capacity), f"cohort: up to {capacity} trials as one program"


def _first_steps(kind: type[Engine], setup: Setup, trials: list[Trial]) -> np.ndarray:
    """Loss and gradient norm of the first steps: (trials, 2, PROBE_STEPS)."""
    engine = kind(setup, len(trials))
    engine.admit(trials)
    with warnings.catch_warnings():
        # Without a batching rule vmap warns and runs a slow loop of its own: ours is faster.
        warnings.filterwarnings("error", message="There is a performance drop")
        chunks = engine.advance(min(PROBE_STEPS, setup.horizon))
    if setup.device.type == "cuda":
        torch.cuda.synchronize()
    return np.stack([chunk.curves[:2] for chunk in chunks])
