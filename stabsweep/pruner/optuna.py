"""Any Optuna pruner, by its target, inside the one that stops what diverges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.pruners import BasePruner

from stabsweep.errors import BadInput
from stabsweep.pruner.divergence import DivergencePruner
from stabsweep.target import make


def from_target(target: Any = None, args: Mapping[str, Any] | None = None) -> DivergencePruner:
    """A `DivergencePruner` that asks an Optuna pruner where it sees no reason itself.

    It saves time where only the best rate is wanted. It misleads as a map: what is stopped for a
    high loss while it goes well is `cut_short`, which is left out of edges, shares and losses, so
    the map gets holes where it is poor. Such a pruner compares trials with each other: which ones
    it stops depends on the cohort, the order and a resume, as nothing else here does.

    Args:
        target: `module:attribute`, such as `optuna.pruners:MedianPruner`.
        args: its keyword arguments.

    Raises:
        BadInput: the target cannot be used.
    """
    if target is None:
        raise BadInput(
            "pruner=optuna needs pruner.target=module:attribute, such as "
            "pruner.target=optuna.pruners:MedianPruner"
        )
    return DivergencePruner(make("pruner", target, args, BasePruner))
