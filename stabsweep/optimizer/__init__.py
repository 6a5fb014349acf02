"""Optimizers of stacked trials, and the schedule that belongs to a step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from stabsweep.errors import BadInput, unknown
from stabsweep.limits import check_value
from stabsweep.optimizer._base import Optimizer
from stabsweep.optimizer._schedule import SCHEDULES, learning_rates
from stabsweep.optimizer.adam import Adam
from stabsweep.optimizer.adamw import AdamW
from stabsweep.optimizer.gi_adam import GIAdam
from stabsweep.optimizer.lion import Lion
from stabsweep.optimizer.muon import Muon
from stabsweep.optimizer.nadam import NAdam
from stabsweep.optimizer.radam import RAdam
from stabsweep.optimizer.rmsprop import RMSprop
from stabsweep.optimizer.sgd import SGD
from stabsweep.optimizer.torch import Torch

OPTIMIZERS: Mapping[str, type[Optimizer]] = {
    cls.name: cls for cls in (SGD, Adam, AdamW, RMSprop, RAdam, NAdam, Lion, GIAdam, Muon, Torch)
}
"""Every choice of `optimizer=`."""

STACKED = tuple(name for name, cls in OPTIMIZERS.items() if cls.stacks)
"""Those that have a stacked form."""


def build(name: str, **given: Any) -> tuple[Optimizer, dict[str, float]]:
    """An optimizer and its hyperparameters.

    Args:
        name: one of `OPTIMIZERS`.
        given: hyperparameters other than the defaults, and flags of the optimizer's own.

    Raises:
        BadInput: an unknown name, or a value out of range.

    >>> build("sgd", momentum=0.5, nesterov=True)[1]
    {'momentum': 0.5, 'dampening': 0.0, 'weight_decay': 0.0}
    """
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    cls = OPTIMIZERS[name]
    flags = dict(inspect.signature(cls).parameters)
    for key, value in given.items():
        if key not in cls.defaults and key not in flags:
            raise unknown(f"optimizer.{name} key", key, [*cls.defaults, *flags])
        if key in flags and isinstance(flags[key].default, bool) and not isinstance(value, bool):
            raise BadInput(f"optimizer.{key}={value!r} is no switch: use true or false")
    hyper = {
        key: float(check_value(key, given.get(key, default), f"optimizer.{key}"))  # type: ignore[arg-type]
        for key, default in cls.defaults.items()
    }
    rule = cls(**{key: given[key] for key in flags if key in given})
    rule.check(hyper)
    return rule, hyper


__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "STACKED",
    "Optimizer",
    "build",
    "learning_rates",
]
