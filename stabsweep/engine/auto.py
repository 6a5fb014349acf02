"""The engine that fits: stacked when the model stacks and agrees with the plain loop."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import nn

from stabsweep.engine._base import Engine, Setup, is_out_of_memory
from stabsweep.engine.cohort import Cohort, Objective
from stabsweep.engine.loop import Loop
from stabsweep.records import Trial
from stabsweep.task import CannotStack

PROBE_STEPS = 2
"""Steps that member and loop must agree on: the second has seen one update."""

PROBE_TRIALS, TIMED_STEPS = 8, 3
"""Trials and steps by which engines are timed."""

CLEARLY = 2.0
"""How many times as long a stacked step must take for the loop to be chosen: what is nearly as fast
is stacked, so that noise does not choose (ours; reference models measure 0.1 to 1.1 in a stack of
eight, 1.5 alone)."""

REASONS = {
    r"(?i:batching rule).*?(?:for|over) ([\w:]+)": "torch has no batching rule for {}",
    r"data-dependent control flow": "it branches on a value, or reads one out with .item()",
    r"dynamic shape": "the shape of a tensor depends on values",
    r"saved tensor hooks|setup_context": "it uses checkpointing, or an old autograd.Function",
    r"mutate a captured|in-place": "it changes a buffer in place",
    r"random operation": "it draws random numbers, as dropout does",
}
"""What torch says of a model that cannot be stacked -> what that means."""


def choose(setup: Setup, trials: list[Trial], capacity: int) -> tuple[Engine, str]:
    """The engine for a setup, and one line that says which and why.

    Stacked, unless that cannot be, or one by one is clearly faster: both are timed on the first
    steps of a few trials. Stacked convolutions, for one, may be slow on a CPU.

    Args:
        setup: what the trials share.
        trials: at least one trial to probe with.
        capacity: trials that a cohort may hold.
    """
    reason = obstacle(setup, trials)
    if reason:
        return Loop(setup), f"loop: {reason}"
    engine = Cohort(setup, capacity)
    if setup.horizon <= TIMED_STEPS:
        # Every step would be a first one.
        return engine, f"cohort: up to {capacity} trials as one program"
    members = [replace(trials[0], number=number) for number in range(min(capacity, PROBE_TRIALS))]
    try:
        stacked, alone = _seconds(engine, members), _seconds(Loop(setup), members[:1])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        # Whoever runs it halves it.
        stacked, alone, engine = 0.0, 1.0, Cohort(setup, capacity)
    if stacked > CLEARLY * alone:
        return Loop(setup), "loop: stacked, a step of a trial takes more than twice as long here"
    return engine, f"cohort: up to {capacity} trials as one program"


def _seconds(engine: Engine, trials: list[Trial]) -> float:
    """Time of a trial-step, the least of a few; the engine is empty afterwards."""
    engine.admit(trials)
    taken = []
    for _ in range(TIMED_STEPS + 1):
        began = time.perf_counter()
        engine.advance(1)
        taken.append(time.perf_counter() - began)
    for trial in trials:
        engine.drop(trial.number)
    # The first one traces, and finds nothing in the cache.
    return min(taken[1:]) / len(trials)


def obstacle(setup: Setup, trials: list[Trial], allow_slow: bool = False) -> str | None:
    """Why the trials cannot be stacked; None when they can.

    Two members are stacked on a real batch and compared with the plain loop. Whatever goes wrong
    (no batching rule, a branch on a value, other numbers) is an obstacle, never an end. They are
    those of the lowest rates, since at the highest rounding alone may carry two runs apart.

    Args:
        setup: what the trials share.
        trials: at least one trial to probe with.
        allow_slow: let pass what torch stacks only by a slow loop of its own.
    """
    if not setup.optimizer.stacks:
        return f"optimizer={setup.optimizer.name} has no stacked form"
    if setup.precision.scales:
        return "a loss scale belongs to one trial"
    lowest = sorted(trials, key=lambda trial: setup.number(trial, "lr"))[:2]
    members = [replace(trial, number=number) for number, trial in enumerate(lowest)]
    # First, since a model that fails alone is broken: the reader needs its own error.
    plain = np.concatenate([_first_steps(Loop, setup, [trial]) for trial in members])
    with warnings.catch_warnings():
        # Without a batching rule vmap warns and runs a slow loop of its own: ours is faster.
        action = "ignore" if allow_slow else "error"
        warnings.filterwarnings(action, message="There is a performance drop")
        where: list[str] = []
        try:
            with _tracing(where):
                stacked = _first_steps(partial(Cohort, traces=False), setup, members)
        except CannotStack as error:
            return str(error)
        except Exception as error:  # noqa: BLE001  Any failure to stack must end in the loop.
            return f"{where[-1] if where else 'the model'} cannot be stacked ({_meaning(error)})"
    is_finite = np.isfinite(plain)
    if not np.array_equal(is_finite, np.isfinite(stacked)):
        return "stacked, the model is finite where alone it is not, or the other way round"
    stacked, plain = stacked[is_finite], plain[is_finite]
    apart = np.abs(stacked - plain) / np.maximum(np.abs(plain), 1e-12)
    if apart.size and apart.max() > setup.precision.tolerance:
        return f"stacked, the model differs by {apart.max():.1g} from alone"
    return None


@contextmanager
def _tracing(where: list[str]) -> Iterator[None]:
    """Keeps `where` a list of the modules that are running, outermost first, as readers know them.

    After an error it still holds those that the error came through; nothing when it came from a
    backward pass, or from the loss itself.
    """
    names: dict[nn.Module, str] = {}

    def enter(module: nn.Module, _: object) -> None:
        if isinstance(module, Objective):
            names.update((part, name) for name, part in module.model.named_modules())
        else:
            where.append(f"{names.get(module) or 'the model'} ({type(module).__name__})")

    def leave(module: nn.Module, *_: object) -> None:
        if not isinstance(module, Objective):
            where.pop()

    hooks = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _meaning(error: Exception) -> str:
    """An error in a few words: those of `REASONS`, else its own."""
    text = " ".join(str(error).split()) or type(error).__name__
    for pattern, meaning in REASONS.items():
        found = re.search(pattern, text)
        if found:
            return meaning.format(*found.groups())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _first_steps(
    kind: Callable[[Setup, int], Engine], setup: Setup, trials: list[Trial]
) -> np.ndarray:
    """Loss and gradient norm of the first steps: (trials, 2, PROBE_STEPS)."""
    engine = kind(setup, len(trials))
    engine.admit(trials)
    chunks = engine.advance(min(PROBE_STEPS, setup.horizon))
    if setup.device.type == "cuda":
        torch.cuda.synchronize()
    return np.stack([chunk.curves[:2] for chunk in chunks])
