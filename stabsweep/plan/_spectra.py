"""What is said of a spectral init before the first trial."""

from __future__ import annotations

import math

import torch

from stabsweep.engine import Setup
from stabsweep.model import find_spectrum
from stabsweep.numerals import rate
from stabsweep.records import Point, Trial
from stabsweep.task import BatchOrder

SEED = 0
"""Of the weights and the batch that are looked at: the first of most sweeps."""


def spectrum_note(setup: Setup, init: str, split: Point) -> str | None:
    """The radius of an init and what it does to the gradient through time, in one line.

    Args:
        setup: gives model and task.
        init: to be looked at.
        split: what axes give to model and task, to be named.

    Returns:
        None where there is nothing to say, see `stabsweep.model.find_spectrum`.
    """
    device = setup.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        module = setup.new_module(Trial(0, {"init": init}, SEED))
        index_B = BatchOrder(SEED, setup.task.num_examples, setup.batch_size).index(0, 1)[0]
        batch = setup.task.batch(index_B.to(device))
        found = find_spectrum(module, lambda module: setup.loss(module, batch))
    if found is None:
        return None
    where = "".join(f", {name}={value}" for name, value in split.items())
    power = f"rho^{found.num_steps - 1} = {rate(found.linear)}"
    carried = f"gradient through {found.num_steps} steps x {rate(found.ratio)} ({power})"
    if not math.isfinite(found.ratio):
        carried = f"the gradient through {found.num_steps} steps is not finite ({power})"
    return f"init {init}{where}: spectral radius {found.radius:.3g}; {carried}"
