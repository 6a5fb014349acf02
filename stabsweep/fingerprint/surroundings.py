"""What differs between two environments that can move the last digits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PARTS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("model",),
    "gpu": ("names", "driver"),
    "threads": (),
    "torch": ("version", "cuda", "hip", "cudnn", "cpu_capability", "blas", "libraries"),
    "switches": (),
    "variables": (),
    "versions": ("numpy", "scikit-learn"),
}
"""Part of a snapshot -> its keys that are compared; all of them where none is named."""


class Change(NamedTuple):
    """One key that has two values; None where one side has none."""

    key: str
    here: Any
    there: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.here)} here, {_shown(self.there)} there"


def find_changes(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[Change]:
    """The keys of two snapshots that differ, in the order of `PARTS`."""
    changes = []
    for part, names in PARTS.items():
        sides = [side.get(part) or {} for side in (here, there)]
        # A part that could not be read says why, under a key of its own.
        for name in names or sorted({*sides[0], *sides[1]}):
            a, b = (side.get(name) if isinstance(side, Mapping) else side for side in sides)
            if isinstance(a, list) and isinstance(b, list):
                a, b = _only(a, b), _only(b, a)
            if a != b:
                changes.append(Change(f"{part}.{name}", a, b))
    return changes


def _only(these: list[Any], those: list[Any]) -> list[Any]:
    """What stands in one list alone; the vector level has a key of its own."""
    return [x for x in these if x not in those and not str(x).startswith("CPU capability")]


def _shown(value: Any) -> str:
    if value is None or value == []:
        return "none"
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
