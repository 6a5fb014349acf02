"""The axes of a space beside what was configured: whether each means something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stabsweep import clipper as clippers
from stabsweep import optimizer as optimizers
from stabsweep.clipper import CLIPPERS, HYPERPARAMETERS
from stabsweep.engine import ENGINES, PRECISIONS
from stabsweep.errors import BadInput, unknown
from stabsweep.evidence import hold_steps
from stabsweep.limits import LIMITS
from stabsweep.model import check_init
from stabsweep.optimizer import OPTIMIZERS, SCHEDULES
from stabsweep.plan._made import with_arguments
from stabsweep.records import Value
from stabsweep.space import Space

FIXED = ("warmup_steps", "clip_norm", "init", "init_gain")
"""Hyperparameters that hold for every trial unless an axis sweeps them."""

NAMED = {"engine": ENGINES, "precision": PRECISIONS, "schedule": SCHEDULES}
"""Arguments that are one name out of some."""


def check_name(key: str, given: Any, allowed: Any) -> None:
    """Nothing, if a name is one of those allowed.

    Raises:
        BadInput: it is not.
    """
    if not isinstance(given, str) or given not in allowed:
        raise unknown(key, given, allowed)


def inits_of(space: Space, fixed: Mapping[str, Value]) -> list[str]:
    """Every init that a trial may start from."""
    swept = space.axes["init"].values if "init" in space.axes else (fixed["init"],)
    return [str(init) for init in swept]


def choices_of(group: str, configured: Mapping[str, Any], space: Space) -> list[str]:
    """The choices of a group that trials are run with."""
    axis = space.axes.get(group)
    return [str(value) for value in axis.values] if axis else [configured["name"]]


def chosen(group: str, configured: Mapping[str, Any], split: Mapping[str, Value]) -> dict[str, Any]:
    """The choice of a group that a trial is run with; one that is not configured has defaults."""
    name = str(split.get(group, configured["name"]))
    return dict(configured) if name == configured["name"] else {"name": name}


def check_space(
    space: Space,
    fixed: Mapping[str, Value],
    optimizer: Mapping[str, Any],
    clipper: Mapping[str, Any],
    horizon: int,
) -> None:
    """Nothing, if every value of a space can be run, and every axis means something.

    Args:
        space: what is swept.
        fixed: hyperparameters that hold where no axis sweeps them.
        optimizer: as configured, name -> hyperparameters.
        clipper: likewise.
        horizon: steps of a trial.

    Raises:
        BadInput: one cannot, or does not.
    """
    choices = {"optimizer": OPTIMIZERS, "clipper": CLIPPERS}
    for key, allowed in {**choices, **NAMED}.items():
        for name in space.axes[key].values if key in space.axes else ():
            check_name(f"space.{key}", name, allowed)
    rule, hyper = optimizers.build(**_with_axes(optimizer, space))
    clippers.build(**clipper)
    if "clip_norm" in clipper:
        limit = clipper["clip_norm"]
        raise BadInput(f"clipper.clip_norm={limit} has a key of its own: use clip_norm={limit}")
    configured = {"optimizer": optimizer, "clipper": clipper}
    names = {group: choices_of(group, given, space) for group, given in configured.items()}
    used = {"lr", "batch_size", *FIXED} - {*HYPERPARAMETERS}
    for group, known in choices.items():
        used |= {key for name in names[group] for key in known[name].defaults}
    for axis in space:
        if axis.to:
            continue
        if axis.name in LIMITS and axis.name not in used:
            group = "clipper" if axis.name in HYPERPARAMETERS else "optimizer"
            raise BadInput(
                f"space.{axis.name} has no effect on {', '.join(names[group])}: take the axis away "
                f"or choose another {group}"
            )
        if axis.name in hyper and optimizer["name"] in names["optimizer"]:
            for value in axis.values or (axis.low, axis.high):
                rule.check({**hyper, axis.name: float(value)})  # type: ignore[arg-type]
    for init in inits_of(space, fixed):
        check_init(init)
    if "warmup_steps" in space.axes:
        axis = space.axes["warmup_steps"]
        longest, key = (axis.values[-1] if axis.values else axis.high), "space.warmup_steps"
    else:
        longest, key = fixed["warmup_steps"], "warmup_steps"
    _check_hold(key, float(longest or 0), horizon)


def _check_hold(key: str, longest: float, horizon: int) -> None:
    """Whether the peak rate is held for long enough after the longest warmup."""
    hold = hold_steps(horizon)
    if longest <= 1 or longest + hold <= horizon:
        return
    cure = f"raise horizon, use {key} up to {max(horizon - hold, 1)}"
    if key.startswith("space."):
        cure += ", or sweep no warmup (space=lr)"
    raise BadInput(
        f"{key}={longest:g} is too long for horizon={horizon}: the peak rate is to be held for "
        f"{hold} steps after it; {cure}"
    )


def _with_axes(optimizer: Mapping[str, Any], space: Space) -> dict[str, Any]:
    """The configured optimizer with the first value of what axes give it: one that can be built."""
    more = {axis.name: axis.values[0] for axis in space if axis.to == "optimizer"}
    is_meant = "optimizer" not in space.axes or optimizer["name"] in space.axes["optimizer"].values
    return with_arguments(optimizer, more) if is_meant else dict(optimizer)
