"""Samplers: which points are tried, and in which order. Each is an Optuna sampler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from stabsweep.errors import unknown
from stabsweep.sampler._design import DesignSampler
from stabsweep.sampler.grid import Grid
from stabsweep.sampler.random import Random
from stabsweep.sampler.sobol import Sobol
from stabsweep.space import Space

SAMPLERS: Mapping[str, Callable[..., DesignSampler]] = {
    "grid": Grid,
    "random": Random,
    "sobol": Sobol,
}
"""Every choice of `sampler=`."""


def build(
    name: str,
    space: Space,
    num_trials: int,
    seeds: Sequence[int],
    seed: int = 0,
    done: Collection[int] = (),
) -> DesignSampler:
    """A sampler for a space.

    Args:
        name: one of `SAMPLERS`.
        space: what is swept.
        num_trials: trials wanted in all, seeds included.
        seeds: seeds that every point is run with.
        seed: of the sampler's own randomness.
        done: numbers of trials that are not handed out again.
    """
    if name not in SAMPLERS:
        raise unknown("sampler", name, SAMPLERS)
    return SAMPLERS[name](space, num_trials, seeds, seed, done)


__all__ = ["SAMPLERS", "DesignSampler", "Grid", "Random", "Sobol", "build"]
