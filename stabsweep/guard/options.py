"""What a guard may be asked for, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from stabsweep import clipper as clippers
from stabsweep.errors import BadInput, unknown
from stabsweep.guard.live import MODES
from stabsweep.guard.ranks import check_plain
from stabsweep.limits import check_count

POLICIES = ("warn", "skip", "rollback", "stop")
"""What is done about an attempt that is not finite: say so and step all the same, pass over it, go
back to the last verified checkpoint, or end the training."""


COUNTS = (
    "check_every",
    "watch_every",
    "max_consecutive_skips",
    "checkpoint_every",
    "keep",
    "max_rollbacks",
    "total_steps",
)
"""Arguments of a guard that are whole numbers of at least 1."""


def check_policy(policy: object, check_every: int, log: object) -> None:
    """Nothing, if a policy can be kept.

    Raises:
        BadInput: it is unknown, or needs what is not given.
    """
    if policy not in POLICIES:
        raise unknown("policy", policy, POLICIES)
    if policy == "skip" and check_every > 1:
        raise BadInput(
            f"check_every={check_every} finds a bad gradient up to {check_every - 1} steps after "
            "it was applied, when nothing can be skipped: use policy=rollback, stop or warn, or "
            "check_every=1"
        )
    if policy == "rollback" and log is None:
        raise BadInput("policy='rollback' needs a folder for its checkpoints: give log=DIR")


def check_counts(**counts: int | None) -> None:
    """Nothing, if all are whole numbers of at least 1, or None.

    Raises:
        BadInput: one is something else.
    """
    for key, value in counts.items():
        if value is not None:
            check_count(key, value)


def check_values(given: Mapping[str, Any]) -> None:
    """Nothing, if the arguments of a guard other than its parts can be used, as far as is known.

    Args:
        given: every argument with a plain value, by name.

    Raises:
        BadInput: one cannot.
    """
    check_counts(**{key: given[key] for key in COUNTS})
    check_policy(given["policy"], given["check_every"], given["log"])
    check_factor("skip_outliers", given["skip_outliers"], 1, math.inf)
    check_factor("rollback_factor", given["rollback_factor"], 0, 1)
    if given["progress"] not in MODES:
        raise unknown("progress", given["progress"], MODES)
    make_clipper(given["clip_norm"], given["clipper"])


def check_factor(key: str, value: float | None, low: float, high: float) -> None:
    """Nothing, if a number lies strictly between two, or is None.

    Raises:
        BadInput: it does not.
    """
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low < value < high:
        limit = f"> {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise BadInput(f"{key}={value!r} is not allowed: use a number {limit}")


def check_model(model: object, optimizer: object, scheduler: object, scaler: object) -> None:
    """Nothing, if a guard can watch over these.

    Raises:
        BadInput: one is of another kind.
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"model={type(model).__name__} is no torch.nn.Module: give the model")
    if not isinstance(optimizer, torch.optim.Optimizer):
        many = isinstance(optimizer, list | tuple | dict)
        cure = "make one guard for each optimizer" if many else "give the optimizer itself"
        raise BadInput(f"optimizer={type(optimizer).__name__} is no torch.optim.Optimizer: {cure}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise BadInput("optimizer=LBFGS needs a closure, which a guard cannot give: use another")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise BadInput(
            "scheduler=ReduceLROnPlateau needs a validation loss: leave it away, and call its step "
            "yourself after validation"
        )
    if scheduler is not None:
        if not hasattr(scheduler, "step"):
            raise BadInput(f"scheduler={type(scheduler).__name__} has no step: give a scheduler")
        own = getattr(scheduler, "optimizer", optimizer)
        if own is not optimizer:
            raise BadInput("scheduler belongs to another optimizer: make it for this one")
    if scaler is not None and not all(hasattr(scaler, m) for m in ("scale", "unscale_", "update")):
        raise BadInput(f"scaler={type(scaler).__name__} is no torch.amp.GradScaler")
    check_plain(model)


def make_clipper(clip_norm: float | None, clipper: str | Mapping[str, Any] | None) -> Any:
    """The clipper that was asked for, in its plain form, and its name and hyperparameters.

    Args:
        clip_norm: limit of the global norm, the usual one.
        clipper: a name, or `{"name": ..., **hyperparameters}`.

    Raises:
        BadInput: both are given, or one cannot be used.
    """
    named = {"name": clipper} if isinstance(clipper, str) else clipper or {"name": "norm"}
    given: dict[str, Any] = dict(named)
    name = given.pop("name", None)
    if clip_norm is not None:
        if name != "norm" or "clip_norm" in given:
            raise BadInput(
                f"clip_norm={clip_norm!r} and clipper={clipper!r} are two clippers: give one"
            )
        given["clip_norm"] = clip_norm
    rule, hyper = clippers.build(str(name), **given)
    shown = {key: None if math.isinf(value) else value for key, value in hyper.items()}
    return rule.twin(hyper), {"name": name, **shown}
