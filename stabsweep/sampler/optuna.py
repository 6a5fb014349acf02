"""Any Optuna sampler, by its target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from optuna.samplers import BaseSampler, BruteForceSampler, GridSampler

from stabsweep.errors import BadInput
from stabsweep.space import Space
from stabsweep.target import load, make, parameters


def from_target(
    space: Space,
    num_trials: int,
    seeds: Sequence[int],
    seed: int = 0,
    done: Collection[int] = (),
    target: Any = None,
    args: Mapping[str, Any] | None = None,
) -> BaseSampler:
    """The Optuna sampler that a target names.

    What is said of `TPE` holds for any sampler that learns from losses. Where the target takes a
    `seed` and `args` gives none, it gets ours.

    Args:
        space: what is swept.
        num_trials: trials wanted in all: exactly so many.
        seeds: seeds that every point is run with; the study gives them out.
        seed: of the sampler's own randomness.
        done: numbers of trials that were run before.
        target: `module:attribute`, such as `optuna.samplers:CmaEsSampler`.
        args: its keyword arguments.

    Raises:
        BadInput: the target cannot be used.
    """
    if target is None:
        raise BadInput(
            "sampler=optuna needs sampler.target=module:attribute, such as "
            "sampler.target=optuna.samplers:QMCSampler"
        )
    takes_seed = "seed" in parameters(load("sampler.target", target))
    own = {"seed": seed + len(done)} if takes_seed else {}
    sampler = make("sampler", target, args, BaseSampler, **own)
    if isinstance(sampler, GridSampler | BruteForceSampler):
        raise BadInput(
            f"sampler.target={target!r} stops a study of its own, which no cohort survives: "
            "use sampler=grid"
        )
    return sampler
