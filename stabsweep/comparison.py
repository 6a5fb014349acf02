"""Two sweeps side by side: which edges moved, by how much, and what was asked differently."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.environment.difference import Difference, diff
from stabsweep.errors import BadInput
from stabsweep.numerals import loss, plural, rate
from stabsweep.pick import Pick
from stabsweep.result import Result
from stabsweep.shift import Shift, find_shifts
from stabsweep.store import DERIVED, read_environment


@dataclass(frozen=True)
class Comparison:
    """Two sweeps of the same axes, row by row.

    Attributes:
        a, b: the results.
        shifts: how each row's edge differs, see `stabsweep.shift`.
    """

    a: Result
    b: Result
    shifts: tuple[Shift, ...]

    @property
    def can_tell(self) -> bool:
        """Whether any row says something: an edge that moved, or two that cannot be told apart."""
        return any(shift.is_decided for shift in self.shifts)

    @cached_property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """What the two configs say differently: dotted key -> values of A and B, None if absent."""
        first, second = _flat(self.a.config), _flat(self.b.config)
        keys = [*first, *(key for key in second if key not in first)]
        keys = [key for key in keys if key.split(".")[0] not in DERIVED]
        return {
            key: (first.get(key), second.get(key))
            for key in keys
            if first.get(key) != second.get(key)
        }

    @property
    def conclusion(self) -> str:
        """The answer in one sentence."""
        return report.shift_sentence(self.shifts)

    @property
    def names(self) -> tuple[str, str]:
        """What A and B are: subject, what is set differently (when that is little), folder."""
        few = list(self.differences.items())[:2] if len(self.differences) <= 2 else []
        names = []
        for side, result in enumerate((self.a, self.b)):
            words = [result.subject, *(f"{key}={_said(pair[side])}" for key, pair in few)]
            words += [f"({result.folder})"] if result.folder else []
            names.append(" ".join(words))
        return names[0], names[1]

    def plot(self) -> Any:
        """The picture as a matplotlib figure: the edge of each row in both, with its interval."""
        return report.draw_shifts(report.shift_info(self.shifts, self.names))

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `compare.html`, `compare.png` and `compare.svg`; returns their paths.

        Raises:
            BadInput: the folder cannot be made or written to.
        """
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            pictures = report.save_figure(self.plot(), folder, "compare")
            page = report.render_compare_page(
                self.shifts,
                pictures[0].read_bytes(),
                self.names,
                dict(self._picks),
                {key: (_said(a), _said(b)) for key, (a, b) in self.differences.items()},
                self.environments,
                [text for _, text in self._notes],
            )
            return [report.save_page(folder, page, "compare"), *pictures]
        except OSError as error:
            raise BadInput(
                f"cannot write the page to {folder}: {error.strerror}; choose another out=DIR"
            ) from None

    @property
    def environments(self) -> Difference:
        """What differs between the machines of A and B, as far as their folders tell."""
        a, b = (read_environment(r.folder) if r.folder else {} for r in (self.a, self.b))
        return diff(a, b, ("A", "B"))

    @property
    def _picks(self) -> list[tuple[str, str]]:
        """The two recommendations, and how far they lie apart: a word and a text each."""
        picks = [("Pick A", pick_text(self.a.pick)), ("Pick B", pick_text(self.b.pick))]
        moved = self.pick_decades
        if moved is not None:
            text = f"B's rate is {moved:+.2f} decades from A's" if moved else "the same rate"
            picks.append(("", text))
        return picks

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        blocks = [textwrap.fill(self.conclusion, report.WIDTH)]
        sides = [("A", self.names[0]), ("B", self.names[1])]
        blocks.append("\n".join(report.entry(*side) for side in sides))
        blocks.append("\n".join(report.shift_table(self.shifts)))
        blocks.append("\n".join(report.entry(*pick) for pick in self._picks))
        notes = [
            ("Differ", f"{k}: {_said(a)} -> {_said(b)}") for k, (a, b) in self.differences.items()
        ]
        notes = notes or [("Differ", "in nothing: both were asked for the same")]
        notes = [(word if n == 0 else "", text) for n, (word, text) in enumerate(notes)]
        blocks.append("\n".join(report.entry(*note) for note in notes + self._notes))
        return "\n\n".join(block for block in blocks if block)

    @property
    def _notes(self) -> list[tuple[str, str]]:
        """What makes the comparison weaker than it looks."""
        notes = []
        for name, result in (("A", self.a), ("B", self.b)):
            done, planned = len(result.region.records), result.config.get("num_planned")
            if planned is not None and done < planned:
                notes.append(("Note", f"{name}: only {done} of {plural(planned, 'trial')} ran"))
            if len(result.region.seeds) == 1:
                text = (
                    "one seed only, so its intervals do not know how the edge moves with the seed"
                )
                notes.append(("Note", f"{name}: {text}"))
        return notes

    @property
    def pick_decades(self) -> float | None:
        """How far the pick moved, as log10(B / A); None unless both have one."""
        first, second = self.a.pick.lr, self.b.pick.lr
        return math.log10(second / first) if first and second else None

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {
            "conclusion": self.conclusion,
            "a": {
                "subject": self.a.subject,
                "folder": _path(self.a),
                "pick": self.a.pick.as_dict(),
            },
            "b": {
                "subject": self.b.subject,
                "folder": _path(self.b),
                "pick": self.b.pick.as_dict(),
            },
            "pick_decades": self.pick_decades,
            "rows": [shift_dict(shift) for shift in self.shifts],
            "differences": {key: list(pair) for key, pair in self.differences.items()},
            "notes": [text for _, text in self._notes],
        }


def compare(a: Result, b: Result) -> Comparison:
    """Two sweeps of the same axes side by side.

    Args:
        a: what to compare with, e.g. the sweep before a change.
        b: what is compared, e.g. the sweep after it.

    Raises:
        BadInput: they sweep other axes.
    """
    return Comparison(a, b, tuple(find_shifts(a.region, b.region)))


def pick_text(pick: Pick) -> str:
    """A pick in a line: its values, or why there is none."""
    if not pick.is_ok:
        return f"none. {pick.reason}"
    return f"{' '.join(pick.overrides())}, final loss {loss(pick.final_loss)}"


def shift_dict(shift: Shift) -> dict[str, Any]:
    """One row of a comparison as plain values."""
    return {
        "values": dict(shift.values),
        "says": shift.says,
        "decades": shift.decades,
        "least_decades": shift.least_decades,
        "usable_decades": shift.usable_decades,
        "a": shift.a and shift.a.as_dict(),
        "b": shift.b and shift.b.as_dict(),
    }


def _path(result: Result) -> str | None:
    return str(result.folder) if result.folder else None


def _flat(config: Mapping[str, Any], lead: str = "") -> dict[str, Any]:
    """A config with dotted keys; lists stay whole."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{lead}{key}.")
        else:
            flat[f"{lead}{key}"] = value
    return flat


def _said(value: Any) -> str:
    if isinstance(value, float):
        return rate(value) if 0 < abs(value) < 0.01 else f"{value:g}"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
