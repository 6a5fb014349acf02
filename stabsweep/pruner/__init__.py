"""Pruners: which trials are stopped before their horizon. Each is an Optuna pruner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from optuna.pruners import BasePruner

from stabsweep.errors import unknown
from stabsweep.pruner.divergence import DivergencePruner
from stabsweep.pruner.none import Unpruned
from stabsweep.pruner.optuna import from_target

PRUNERS: Mapping[str, Callable[..., BasePruner]] = {
    "divergence": DivergencePruner,
    "none": Unpruned,
    "optuna": from_target,
}
"""Every choice of `pruner=`."""


def build(name: str, **given: Any) -> BasePruner:
    """A pruner.

    Args:
        name: one of `PRUNERS`.
        given: arguments of the pruner's own.

    Raises:
        BadInput: an unknown name or argument, or a target that cannot be used.
    """
    if name not in PRUNERS:
        raise unknown("pruner", name, PRUNERS)
    # A pruner object to wrap cannot be written in a config; `optuna` takes its target.
    keys = [key for key in inspect.signature(PRUNERS[name]).parameters if key != "wrapped"]
    for key in given:
        if key not in keys:
            raise unknown("pruner key", key, ["name", *keys])
    return PRUNERS[name](**given)


__all__ = ["PRUNERS", "DivergencePruner", "Unpruned", "build", "from_target"]
