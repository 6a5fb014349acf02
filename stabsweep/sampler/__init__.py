"""Samplers: which points are tried, and in which order. Each is an Optuna sampler.

A *design* lays out its points beforehand, seeds included. `boundary` chooses them by the verdicts
so far, seeds included, and says when no more are needed. A *guide* (`tpe`, `optuna`) chooses the
next point by the losses so far and knows no seeds: the study runs each of its points with every
seed in turn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from optuna.samplers import BaseSampler

from stabsweep.errors import unknown
from stabsweep.sampler._design import DesignSampler
from stabsweep.sampler.boundary import Boundary
from stabsweep.sampler.grid import Grid
from stabsweep.sampler.optuna import from_target
from stabsweep.sampler.random import Random
from stabsweep.sampler.sobol import Sobol
from stabsweep.sampler.tpe import TPE
from stabsweep.space import Space

SAMPLERS: Mapping[str, Callable[..., BaseSampler]] = {
    "boundary": Boundary,
    "grid": Grid,
    "optuna": from_target,
    "random": Random,
    "sobol": Sobol,
    "tpe": TPE,
}
"""Every choice of `sampler=`."""

_OURS = ("self", "space", "num_trials", "seeds", "seed", "done")


def build(
    name: str,
    space: Space,
    num_trials: int,
    seeds: Sequence[int],
    seed: int = 0,
    done: Collection[int] = (),
    **given: Any,
) -> BaseSampler:
    """A sampler for a space.

    Args:
        name: one of `SAMPLERS`.
        space: what is swept.
        num_trials: trials wanted in all, seeds included.
        seeds: seeds that every point is run with.
        seed: of the sampler's own randomness.
        done: numbers of trials that are not handed out again.
        given: arguments of the sampler's own.

    Raises:
        BadInput: an unknown name or argument, or a target that cannot be used.
    """
    if name not in SAMPLERS:
        raise unknown("sampler", name, SAMPLERS)
    keys = [key for key in inspect.signature(SAMPLERS[name]).parameters if key not in _OURS]
    for key in given:
        if key not in keys:
            raise unknown("sampler key", key, ["name", "seed", *keys])
    return SAMPLERS[name](space, num_trials, seeds, seed, done, **given)


def num_planned(sampler: BaseSampler, num_trials: int) -> int:
    """How many trials a sampler gives when so many are wanted: a design is made of whole points.

    `boundary` gives so many at most.
    """
    ours = isinstance(sampler, DesignSampler | Boundary)
    return sampler.num_trials if ours else num_trials


__all__ = [
    "SAMPLERS",
    "TPE",
    "Boundary",
    "DesignSampler",
    "Grid",
    "Random",
    "Sobol",
    "build",
    "from_target",
    "num_planned",
]
