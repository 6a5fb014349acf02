"""The space that is swept: axes with a range or a list of values, and points in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from stabsweep.errors import BadInput, unknown
from stabsweep.limits import CHOICES, LIMITS, check_value
from stabsweep.records import Point, Value

SPLITTING = ("optimizer", "clipper", "schedule", "precision", "batch_size")
"""Axes that change the program, not only its numbers: their values run in cohorts of their own."""

ARGUMENTS = ("model", "task", "optimizer")
"""Whose arguments an axis may be, by `to: model`; such an axis splits as well."""

RATES = ("lr", "lr_scale")
"""What an axis may be for some of the parameters, by `to: lr:PATTERN`: their learning rate, or a
factor of the trial's."""


@dataclass(frozen=True)
class Axis:
    """One swept hyperparameter: a range with a scale, or a list of values.

    Attributes:
        name: the hyperparameter.
        low, high: ends of the range, both included; None when `values` is given.
        scale: `log` or `linear`: how the range is divided.
        values: the values of the axis, in order; numbers are sorted, `None` (off) comes last.
        to: what the axis feeds when it is no hyperparameter of its own: `model`, `task` or
            `optimizer`, whose argument it then names; or `lr:PATTERN` or `lr_scale:PATTERN`, with a
            pattern of parameter names.
    """

    name: str
    low: float | None = None
    high: float | None = None
    scale: Literal["log", "linear"] = "linear"
    values: tuple[Value, ...] = ()
    to: str | None = None

    @classmethod
    def parse(cls, name: str, given: Any) -> Axis:
        """The axis that a config describes.

        Args:
            name: the hyperparameter.
            given: `{low, high, scale}` or `{values}`, each perhaps with `to`, or simply the list of
                values.

        Raises:
            BadInput: anything that is not such a description, in one line.
        """
        to = _check_to(name, given.get("to") if isinstance(given, Mapping) else None)
        if to is None and name not in LIMITS and name not in CHOICES:
            raise BadInput(
                f"{unknown('axis', name, [*LIMITS, *CHOICES])}; an argument of the model is an "
                "axis with to: model"
            )
        if isinstance(given, Sequence) and not isinstance(given, str):
            given = {"values": given}
        if not isinstance(given, Mapping):
            shown = " ".join(str(given).split())
            raise BadInput(
                f"space.{name}={shown} is not an axis: give {{low, high, scale}} or a list of "
                f"values (a fixed value is {name}={shown} without space)"
            )
        for key in given:
            if key not in ("low", "high", "scale", "values", "to"):
                raise unknown(f"space.{name} key", key, ["low", "high", "scale", "values", "to"])
        if given.get("scale") not in (None, "log", "linear"):
            raise unknown(f"space.{name}.scale", given["scale"], ["log", "linear"])
        if given.get("values") is not None:
            return cls._from_values(name, given["values"], to)
        if to in ARGUMENTS or (to is None and name in SPLITTING):
            raise BadInput(
                f"space.{name} makes one program of each value: give values: [a, b, ...]"
            )
        return cls._from_range(name, given, to)

    @classmethod
    def _from_values(cls, name: str, given: Any, to: str | None) -> Axis:
        if isinstance(given, str) or not isinstance(given, Sequence) or not len(given):
            raise BadInput(f"space.{name}.values={given!r} is empty or no list: give [a, b, ...]")
        key = f"space.{name}.values"
        values = dict.fromkeys(_canonical(_check(name, value, key, to)) for value in given)
        if not any(isinstance(value, str | bool) for value in values):
            values = sorted(values, key=lambda v: math.inf if v is None else float(v))  # type: ignore[arg-type]
        scale = "log" if name in LOG_AXES or to else "linear"
        return cls(name, scale=scale, values=tuple(values), to=to)

    @classmethod
    def _from_range(cls, name: str, given: Mapping[str, Any], to: str | None) -> Axis:
        if name in CHOICES:
            raise BadInput(f"space.{name} is a choice of names: give values: [a, b, ...]")
        ends = {}
        for key in ("low", "high"):
            if given.get(key) is None:
                raise BadInput(f"space.{name}.{key} is missing: give low and high, or values")
            ends[key] = _check(name, given[key], f"space.{name}.{key}", to)
            if ends[key] is None:
                raise BadInput(f"space.{name}.{key} is none: put it into values instead")
        low, high = ends["low"], ends["high"]
        if not low < high:
            raise BadInput(f"space.{name} is empty: low={low:g} is not below high={high:g}")
        scale = given.get("scale") or ("log" if name in LOG_AXES or to else "linear")
        if scale == "log" and low <= 0:
            raise BadInput(f"space.{name}.low={low:g} cannot be on a log scale: use low > 0")
        return cls(name, low, high, scale, to=to)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers (perhaps with `None` for "off")."""
        return not any(isinstance(value, str | bool) for value in self.values)

    @property
    def is_integer(self) -> bool:
        """Whether a range holds whole numbers only."""
        return self.to is None and self.name in LIMITS and LIMITS[self.name].integer

    @property
    def is_splitting(self) -> bool:
        """Whether each value is a program of its own."""
        return self.to in ARGUMENTS if self.to else self.name in SPLITTING

    def pattern(self, of: str) -> str | None:
        """The parameter names that the axis is a rate for, `of` being one of `RATES`; else None."""
        kind, colon, pattern = (self.to or "").partition(":")
        return pattern if colon and kind == of else None

    def as_dict(self) -> dict[str, Any]:
        """The description that `parse` reads."""
        to = {"to": self.to} if self.to else {}
        if self.values:
            return {"values": list(self.values), **to}
        return {"low": self.low, "high": self.high, "scale": self.scale, **to}

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
        value = round(value) if self.is_integer else float(f"{value:.6g}")
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


def _check_to(name: str, to: Any) -> str | None:
    """What an axis feeds, if it may.

    Raises:
        BadInput: it may not.
    """
    if to is None:
        return None
    kind, colon, pattern = to.partition(":") if isinstance(to, str) else ("", "", "")
    if to not in ARGUMENTS and not (kind in RATES and pattern):
        raise unknown(f"space.{name}.to", to, [*ARGUMENTS, *(f"{rate}:PATTERN" for rate in RATES)])
    if name in ("lr", "warmup_steps", "clip_norm", "init", "init_gain", *SPLITTING):
        raise BadInput(f"space.{name}.to={to!r} is not allowed: {name} is an axis of its own")
    return to


def _check(name: str, value: Any, key: str, to: str | None) -> Value:
    """A value of an axis, checked by what the axis is."""
    if to is None:
        return check_value(name, value, key)
    if to not in ARGUMENTS:
        return check_value("lr", value, key)
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise BadInput(f"{key}={value!r} is not allowed: give numbers, names, true, false or null")
    return value


def _canonical(value: Value) -> Value:
    """The value without the last digits that arithmetic leaves: 3 * 1e-4 and 3e-4 are one."""
    return float(f"{value:.12g}") if isinstance(value, float) else value


LOG_AXES = (
    "lr",
    "clip_norm",
    "clip_value",
    "clip_factor",
    "init_gain",
    "eps",
    "weight_decay",
    "momentum_decay",
    "batch_size",
)
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
    def splitting(self) -> list[Axis]:
        """The axes whose values are programs of their own."""
        return [axis for axis in self if axis.is_splitting]

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
