"""The space that is swept: axes with a range or a list of values, and points in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from stabsweep.errors import BadInput, unknown
from stabsweep.records import Point, Value


@dataclass(frozen=True)
class Limit:
    """What a hyperparameter may be: its least and greatest value, and whether they count."""

    low: float = -math.inf
    high: float = math.inf
    low_is_open: bool = False
    high_is_open: bool = False
    integer: bool = False
    optional: bool = False

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


LIMITS: Mapping[str, Limit] = {
    "lr": Limit(0, low_is_open=True),
    "warmup_steps": Limit(0, integer=True),
    "clip_norm": Limit(0, low_is_open=True, optional=True),
    "init_gain": Limit(0, low_is_open=True),
    "momentum": Limit(0, 1, high_is_open=True),
    "dampening": Limit(0, 1),
    "beta1": Limit(0, 1, high_is_open=True),
    "beta2": Limit(0, 1, high_is_open=True),
    "alpha": Limit(0, 1, high_is_open=True),
    "momentum_decay": Limit(0),
    "eps": Limit(0),
    "weight_decay": Limit(0),
}
"""Every numeric hyperparameter that can be an axis, with what it may be."""

CHOICES = ("optimizer", "init")
"""Every hyperparameter that is a choice of names."""

SPLITTING = ("optimizer",)
"""Axes that change the program, not only its numbers: their values run in cohorts of their own."""


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
    return int(number) if limit.integer else number


def check_count(key: str, value: object, low: int = 1) -> None:
    """Nothing, if `value` is a whole number of at least `low`.

    Args:
        key: where it was given, for the message, e.g. `task.length`.
        value: what was given.
        low: the least that is allowed.

    Raises:
        BadInput: it is something else.
    """
    limit = Limit(low, integer=True)
    if isinstance(value, bool) or not isinstance(value, int) or not limit.allows(value):
        raise BadInput(f"{key}={value!r} is not allowed: use {limit}")


@dataclass(frozen=True)
class Axis:
    """One swept hyperparameter: a range with a scale, or a list of values.

    Attributes:
        name: the hyperparameter.
        low, high: ends of the range, both included; None when `values` is given.
        scale: `log` or `linear`: how the range is divided.
        values: the values of the axis, in order; numbers are sorted, `None` (off) comes last.
    """

    name: str
    low: float | None = None
    high: float | None = None
    scale: Literal["log", "linear"] = "linear"
    values: tuple[Value, ...] = ()

    @classmethod
    def parse(cls, name: str, given: Any) -> Axis:
        """The axis that a config describes.

        Args:
            name: the hyperparameter.
            given: `{low, high, scale}` or `{values}`, or simply the list of values.

        Raises:
            BadInput: anything that is not such a description, in one line.
        """
        if name not in LIMITS and name not in CHOICES:
            raise unknown("axis", name, [*LIMITS, *CHOICES])
        if isinstance(given, Sequence) and not isinstance(given, str):
            given = {"values": given}
        if not isinstance(given, Mapping):
            shown = " ".join(str(given).split())
            raise BadInput(
                f"space.{name}={shown} is not an axis: give {{low, high, scale}} or a list of "
                f"values (a fixed value is {name}={shown} without space)"
            )
        for key in given:
            if key not in ("low", "high", "scale", "values"):
                raise unknown(f"space.{name} key", key, ["low", "high", "scale", "values"])
        if given.get("scale") not in (None, "log", "linear"):
            raise unknown(f"space.{name}.scale", given["scale"], ["log", "linear"])
        if given.get("values") is not None:
            return cls._from_values(name, given["values"])
        return cls._from_range(name, given)

    @classmethod
    def _from_values(cls, name: str, given: Any) -> Axis:
        if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
            raise BadInput(f"space.{name}.values={given!r} is empty or no list: give [a, b, ...]")
        key = f"space.{name}.values"
        values = dict.fromkeys(_canonical(check_value(name, value, key)) for value in given)
        if all(value is None or not isinstance(value, str) for value in values):
            values = sorted(values, key=lambda v: math.inf if v is None else float(v))  # type: ignore[arg-type]
        scale = "log" if name in LOG_AXES else "linear"
        return cls(name, scale=scale, values=tuple(values))

    @classmethod
    def _from_range(cls, name: str, given: Mapping[str, Any]) -> Axis:
        if name in CHOICES:
            raise BadInput(f"space.{name} is a choice of names: give values: [a, b, ...]")
        ends = {}
        for key in ("low", "high"):
            if given.get(key) is None:
                raise BadInput(f"space.{name}.{key} is missing: give low and high, or values")
            ends[key] = check_value(name, given[key], f"space.{name}.{key}")
            if ends[key] is None:
                raise BadInput(f"space.{name}.{key} is none: put it into values instead")
        low, high = ends["low"], ends["high"]
        if not low < high:
            raise BadInput(f"space.{name} is empty: low={low:g} is not below high={high:g}")
        scale = given.get("scale") or ("log" if name in LOG_AXES else "linear")
        if scale == "log" and low <= 0:
            raise BadInput(f"space.{name}.low={low:g} cannot be on a log scale: use low > 0")
        return cls(name, low, high, scale)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers (perhaps with `None` for "off")."""
        return not any(isinstance(value, str) for value in self.values)

    def as_dict(self) -> dict[str, Any]:
        """The description that `parse` reads."""
        if self.values:
            return {"values": list(self.values)}
        return {"low": self.low, "high": self.high, "scale": self.scale}

    def at(self, share: float) -> Value:
        """The value at a share of the axis: 0 is its low end, 1 its high end.

        A list of values is divided into equal parts.
        """
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        assert self.low is not None and self.high is not None
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        # Six digits are finer than any edge is known, and make equal points equal.
        value = round(value) if LIMITS[self.name].integer else float(f"{value:.6g}")
        return min(max(value, self.low), self.high)

    def share(self, value: float) -> float:
        """The inverse of `at` for an axis with a range: where in [0, 1] a value lies."""
        assert self.low is not None and self.high is not None
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def grid(self, num_values: int) -> list[Value]:
        """`num_values` values from end to end at equal distance (or ratio), without repeats."""
        if self.values:
            return list(self.values)
        shares = np.linspace(0, 1, num_values) if num_values > 1 else [0.5]
        return list(dict.fromkeys(self.at(float(share)) for share in shares))


def _canonical(value: Value) -> Value:
    """The value without the last digits that arithmetic leaves: 3 * 1e-4 and 3e-4 are one."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


LOG_AXES = ("lr", "clip_norm", "init_gain", "eps", "weight_decay", "momentum_decay")
"""Axes whose ratios matter, not their differences: `log` unless told otherwise."""

ROW_VALUES = 4
"""Values that a grid takes of a numeric axis other than the learning rate."""


@dataclass(frozen=True)
class Space:
    """The axes of a sweep; `lr` is always one of them.

    A *row* is all that is fixed but the learning rate.
    """

    axes: Mapping[str, Axis] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Space:
        """The space that a config describes: axis name -> description, see `Axis.parse`.

        An axis that is `null` is left out, so that a config can take one away.

        Raises:
            BadInput: an axis is wrong, or `lr` is missing.
        """
        if not isinstance(given, Mapping):
            raise BadInput(f"space={given!r} is not a space: give axes, or the name of a space")
        axes = {name: Axis.parse(name, axis) for name, axis in given.items() if axis is not None}
        if "lr" not in axes:
            raise BadInput("space has no lr axis: give space.lr={low: ..., high: ...}")
        if not axes["lr"].is_numeric:
            raise BadInput("space.lr must be numbers: give low and high")
        return cls(axes)

    @property
    def row_axes(self) -> list[Axis]:
        """The axes other than the learning rate, in the order in which they were given."""
        return [axis for name, axis in self.axes.items() if name != "lr"]

    def row(self, point: Point) -> tuple[Value, ...]:
        """What identifies the row of a point: its values on the row axes, in their order."""
        return tuple(point[axis.name] for axis in self.row_axes)

    def grid(self, num_points: int) -> list[Point]:
        """At least `num_points` points on a regular grid, row by row.

        Row axes with a range take `ROW_VALUES` values each; the learning rate takes the rest, at
        least five, so the grid may be larger than asked.
        """
        rows: list[dict[str, Value]] = [{}]
        for axis in self.row_axes:
            rows = [{**row, axis.name: v} for row in rows for v in axis.grid(ROW_VALUES)]
        rates = self.axes["lr"].grid(max(math.ceil(num_points / len(rows)), 5))
        return [{"lr": rate, **row} for row in rows for rate in rates]

    def at(self, shares: Sequence[float]) -> Point:
        """The point at a share in [0, 1] of each axis, in the order of the axes."""
        return {
            name: self.axes[name].at(share) for name, share in zip(self.axes, shares, strict=True)
        }

    def __iter__(self) -> Iterator[Axis]:
        return iter(self.axes.values())

    def as_dict(self) -> dict[str, Any]:
        """The description that `parse` reads."""
        return {axis.name: axis.as_dict() for axis in self}
