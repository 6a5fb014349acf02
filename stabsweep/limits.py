"""What hyperparameters may be: their ranges, and the checks of what was given for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stabsweep.errors import BadInput, unknown
from stabsweep.records import Value


@dataclass(frozen=True)
class Limit:
    """What a hyperparameter may be.

    Attributes:
        low, high: its least and greatest value.
        low_is_open, high_is_open: whether that value itself is left out.
        integer: whether only whole numbers count.
        optional: whether null switches it off.
        about: what it is, in a few words; those that have a key in `conf/config.yaml` are explained
            there.
    """

    low: float = -math.inf
    high: float = math.inf
    low_is_open: bool = False
    high_is_open: bool = False
    integer: bool = False
    optional: bool = False
    about: str = ""

    def allows(self, value: float) -> bool:
        """Whether a finite value lies within the limit."""
        above = value > self.low if self.low_is_open else value >= self.low
        below = value < self.high if self.high_is_open else value <= self.high
        return math.isfinite(value) and above and below

    def __str__(self) -> str:
        kind = "a whole number" if self.integer else "a finite number"
        low = f"{'>' if self.low_is_open else '>='} {self.low:g}" if self.low > -math.inf else ""
        high = f"{'<' if self.high_is_open else '<='} {self.high:g}" if self.high < math.inf else ""
        bounds = " and ".join(part for part in (low, high) if part)
        off = ", or null for none" if self.optional else ""
        return f"{kind}{' ' + bounds if bounds else ''}{off}"


MAX_COUNT = 2**63 - 1
"""The largest whole number that torch counts with, and that a generator takes as a seed."""

LARGE, SMALL = 1e38, 1e-38
"""What float32 holds, rounded; zero aside, every hyperparameter lies between them."""

LIMITS: Mapping[str, Limit] = {
    "lr": Limit(0, low_is_open=True, about="peak learning rate"),
    "warmup_steps": Limit(0, integer=True),
    "clip_norm": Limit(0, low_is_open=True, optional=True),
    "clip_value": Limit(0, low_is_open=True, about="largest entry of a gradient"),
    "clip_factor": Limit(
        0, low_is_open=True, about="largest gradient norm of a unit, in norms of its weights"
    ),
    "clip_percentile": Limit(
        0, 100, low_is_open=True, high_is_open=True, about="of the norms so far: the limit"
    ),
    "clip_z": Limit(0, low_is_open=True, about="deviations above the mean norm: the limit"),
    "clip_alpha": Limit(
        0,
        1,
        low_is_open=True,
        high_is_open=True,
        about="how slowly mean and variance of the norm follow",
    ),
    "init_gain": Limit(0, low_is_open=True),
    "momentum": Limit(0, 1, high_is_open=True, about="share of the last update in the next"),
    "dampening": Limit(0, 1, about="share of the gradient that does not enter the momentum"),
    "beta1": Limit(0, 1, high_is_open=True, about="memory of the gradient"),
    "beta2": Limit(
        0, 1, high_is_open=True, about="memory of its square (lion: of its one momentum)"
    ),
    "alpha": Limit(0, 1, high_is_open=True, about="memory of the squared gradient"),
    "momentum_decay": Limit(0, about="how fast beta1 rises to its value"),
    "eps": Limit(0, about="added to the root of the second moment"),
    "weight_decay": Limit(0, about="pull on the weights, in their own size"),
    "batch_size": Limit(1, integer=True),
}
"""Every numeric hyperparameter that can be an axis, with what it may be."""

CHOICES = ("optimizer", "clipper", "init", "schedule", "precision")
"""Every hyperparameter that is a choice of names."""


def check_value(name: str, value: Any, key: str = "") -> Value:
    """The value of a hyperparameter as a number or a name, or the reason why it is neither.

    Text that spells a number is a number (`1e-3` in a YAML file is text to some readers).

    Args:
        name: the hyperparameter.
        value: what was given for it.
        key: where it was given, for the message, when that is not simply `name`.

    Raises:
        BadInput: unknown name, not a number, not finite, or out of its limit.

    >>> check_value("lr", "1e-3")
    0.001
    """
    key = key or name
    if name in CHOICES:
        if not isinstance(value, str):
            raise BadInput(f"{key}={value!r} is not a name: give the name of one choice")
        return value
    if name not in LIMITS:
        raise unknown("axis", name, [*LIMITS, *CHOICES])
    limit = LIMITS[name]
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "off")):
        if limit.optional:
            return None
        raise BadInput(f"{key}={value} cannot be switched off: use {limit}")
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        shown = " ".join(repr(value).split())
        raise BadInput(f"{key}={shown} is not a number: use {limit}") from None
    if not limit.allows(number) or (limit.integer and number != int(number)):
        raise BadInput(f"{key}={value} is out of range: use {limit}")
    if number and not SMALL <= abs(number) <= LARGE:
        raise BadInput(
            f"{key}={value} is out of range: use a number that float32 holds, "
            f"{SMALL:g} to {LARGE:g}"
        )
    return int(number) if limit.integer else number


def check_margin(given: object) -> None:
    """Nothing, if a value can be a margin in decades.

    Raises:
        BadInput: it cannot.
    """
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 <= given <= math.log10(LARGE):  # type: ignore[operator]
        limit = "use a number >= 0"
        if is_number and math.isfinite(given) and given > 0:  # type: ignore[arg-type, operator]
            limit += f" and <= {math.log10(LARGE):g}"
        raise BadInput(f"margin_decades={given!r} is not allowed: {limit}")


def check_count(key: str, value: object, low: int = 1, high: int = MAX_COUNT) -> None:
    """Nothing, if `value` is a whole number from `low` to `high`.

    Args:
        key: where it was given, for the message, e.g. `task.length`.
        value: what was given.
        low: the least that is allowed.
        high: the most that is allowed.

    Raises:
        BadInput: it is something else.
    """
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if not is_count or not low <= value <= high:  # type: ignore[operator]
        # The upper end is news to those alone who are above it.
        limit = Limit(low, high if is_count and value > high else math.inf, integer=True)  # type: ignore[operator]
        raise BadInput(f"{key}={value!r} is not allowed: use {limit}")
