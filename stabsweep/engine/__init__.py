"""Engines: how trials are trained, all giving the same curves."""

from __future__ import annotations

from stabsweep.engine._base import (
    PROBE_NOISE,
    TRAIN_NOISE,
    Chunk,
    Engine,
    Setup,
    Starts,
    borrowed_generators,
    is_out_of_memory,
    no_memory,
    seed_generators,
    trained,
    untrained,
)
from stabsweep.engine._lr_scales import LRScales
from stabsweep.engine._precision import PRECISIONS, Precision
from stabsweep.engine.auto import choose, obstacle
from stabsweep.engine.cohort import Cohort, Objective
from stabsweep.engine.loop import INITIAL_SCALE, Loop, begin
from stabsweep.errors import BadInput, unknown
from stabsweep.records import Trial

ENGINES = ("auto", "cohort", "loop")
"""Every choice of `engine=`."""


def build(name: str, setup: Setup, trials: list[Trial], capacity: int) -> tuple[Engine, str]:
    """An engine, and one line that says which it is and why.

    Args:
        name: one of `ENGINES`.
        setup: what the trials share.
        trials: trials that are about to run, to probe with.
        capacity: trials that a cohort may hold, at least 1.

    Raises:
        BadInput: an unknown name, or a cohort was asked for that cannot be right.
    """
    if name == "auto":
        return choose(setup, trials, capacity)
    if name == "cohort":
        reason = obstacle(setup, trials, allow_slow=True)
        if reason:
            raise BadInput(f"engine=cohort is not possible: {reason}; use engine=auto or loop")
        return Cohort(setup, capacity), f"cohort: up to {capacity} trials as one program, as asked"
    if name == "loop":
        return Loop(setup), "loop: one trial at a time, as asked"
    raise unknown("engine", name, ENGINES)


__all__ = [
    "ENGINES",
    "INITIAL_SCALE",
    "PRECISIONS",
    "PROBE_NOISE",
    "TRAIN_NOISE",
    "Chunk",
    "Cohort",
    "Engine",
    "LRScales",
    "Loop",
    "Objective",
    "Precision",
    "Setup",
    "Starts",
    "begin",
    "borrowed_generators",
    "build",
    "choose",
    "is_out_of_memory",
    "no_memory",
    "seed_generators",
    "trained",
    "untrained",
]
