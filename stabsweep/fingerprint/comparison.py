"""The answer: whether two machines compute the same, and whether it matters that they do not."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.environment.difference import ABSENT, Change, diff
from stabsweep.errors import BadInput
from stabsweep.fingerprint.conclusion import (
    INVESTIGATE,
    conclusion,
    growth_sentence,
    matter_sentence,
    word_of,
)
from stabsweep.fingerprint.differences import (
    BITWISE,
    TF32,
    CourseDifference,
    OutputDifference,
    course_differences,
    output_differences,
    tf32_switches,
)
from stabsweep.fingerprint.tables import course_table, operation_table, repeated
from stabsweep.fingerprint.taken import Fingerprint
from stabsweep.records import finite

MAX_CHANGES = 8
"""Changes of the environment that are printed; `format=json` has them all."""

MAX_TITLED = 2
"""Of them, those above a picture."""


@dataclass(frozen=True)
class Comparison:
    """Two fingerprints side by side; `here` is the first.

    Attributes:
        here, there: the two.
        names: how a reader knows them.
        operations: one difference an operation and precision, in the order of the ladder.
        courses: one a training.
        changes: what differs in their environments.
    """

    here: Fingerprint
    there: Fingerprint
    names: tuple[str, str]
    operations: Sequence[OutputDifference]
    courses: Sequence[CourseDifference]
    changes: Sequence[Change]

    @property
    def word(self) -> str:
        """`bitwise`, `expected`, `tf32` or `investigate`."""
        return word_of(self.operations, self.courses)

    @property
    def exit_code(self) -> int:
        """0 for what is the same, expected or explained, and changes no verdict; 1 otherwise."""
        return int(self.word == INVESTIGATE)

    @property
    def first(self) -> OutputDifference | None:
        """The first operation of the ladder that differs."""
        return next((row for row in self.operations if row.word != BITWISE), None)

    @property
    def sentence(self) -> str:
        """The conclusion."""
        switches = {*tf32_switches(self.here)} ^ {*tf32_switches(self.there)}
        return conclusion(self.operations, self.courses, sorted(switches))

    @property
    def growth(self) -> str:
        """How the difference grows over the steps of a training, in a sentence."""
        return growth_sentence(self.courses)

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        changes = [_told(change) for change in self.changes[:MAX_CHANGES]]
        more = len(self.changes) - len(changes)
        changes += [f"and {more} more (format=json)"] if more else []
        sides = zip(("here", "there"), self.names, (self.here, self.there), strict=True)
        words = [
            ("Growth", self.growth),
            ("Matters", matter_sentence(self.courses)),
            ("Again", f"{repeated(self.here, 'here')}; {repeated(self.there, 'there')}"),
            ("Differs", "; ".join(changes) or "nothing in the environments"),
            ("Sides", "; ".join(f"{w}: {n}, {s.device}, {s.time[:10]}" for w, n, s in sides)),
        ]
        return "\n\n".join(
            [
                textwrap.fill(self.sentence, report.WIDTH),
                operation_table(self.operations),
                course_table(self.courses),
                "\n".join(report.entry(*pair) for pair in words),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values; what is not finite is None."""
        return {
            "word": self.word,
            "sentence": self.sentence,
            "growth": self.growth,
            "matters": matter_sentence(self.courses),
            "first": self.first.name if self.first else None,
            "operations": [
                {
                    "name": row.name,
                    "precision": row.precision,
                    "word": row.word,
                    "ulps": row.ulps,
                    "relative": finite(row.relative),
                }
                for row in self.operations
            ],
            "trainings": [_plain(row) for row in self.courses],
            "repeated": {
                "here": not self.here.unrepeated,
                "there": not self.there.unrepeated,
            },
            "environment": [asdict(change) for change in self.changes],
            "here": {"name": self.names[0], "device": self.here.device},
            "there": {"name": self.names[1], "device": self.there.device},
        }

    def plot(self) -> Any:
        """The picture as a matplotlib figure: the difference of the losses over the steps."""
        curves = []
        for row in self.courses:
            key = row.name, row.precision
            here, there = (
                side.courses[key].curves[0, : row.num_steps] for side in (self.here, self.there)
            )
            curves.append(report.DriftCurve(*key, here, there, row.growth, row.gap))
        title = f"{self.here.device} here, {self.there.device} there"
        if self.changes:
            title += ": " + "; ".join(map(_told, self.changes[:MAX_TITLED]))
        return report.draw_drift(report.drift_info(curves, (title, self.growth)))

    def save(self, folder: str | Path) -> list[Path]:
        """Draws `drift.png` and `drift.svg` into a folder, which is made; returns their paths.

        Raises:
            BadInput: the folder cannot be written to.
        """
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            return report.save_figure(self.plot(), folder, "drift")
        except OSError as error:
            raise BadInput(f"cannot write drift.png to {folder}: {error.strerror}") from None


def compare(
    here: Fingerprint, there: Fingerprint, names: tuple[str, str] = ("this machine", "the other")
) -> Comparison:
    """What differs between two fingerprints.

    Args:
        here: the first.
        there: the second.
        names: how a reader knows them: the names of their files.

    Raises:
        BadInput: they had other inputs, or no operation or training in common.
    """
    operations = output_differences(here, there)
    is_tf32 = any(row.word == TF32 for row in operations)
    courses = course_differences(here, there, is_tf32)
    if not operations or not courses or here.inputs != there.inputs:
        raise BadInput(
            f"{names[1]} was not computed from the inputs of {names[0]}: take both with the same "
            "version of stabsweep"
        )
    changes = diff(here.environment, there.environment).numeric
    return Comparison(here, there, names, operations, courses, changes)


def _plain(row: CourseDifference) -> dict[str, Any]:
    """A training under the words that a reader sees."""
    here, there = row.judgements
    return {
        "model": row.name,
        "precision": row.precision,
        "word": row.word,
        "steps": row.num_steps,
        "first_step": row.first_step,
        "first_relative": finite(row.first_relative),
        "largest": finite(row.growth.largest),
        "doubling_steps": row.growth.doubling_steps,
        "corners": [list(corner) for corner in row.growth.corners],
        "saturated": row.growth.is_saturated,
        "verdict_here": here.verdict.label,
        "verdict_there": there.verdict.label,
        "final_here": finite(here.final_loss),
        "final_there": finite(there.final_loss),
        "of_learned": finite(row.of_gap),
        "of_seed_spread": None if row.of_spread is None else finite(row.of_spread),
    }


def _told(change: Change) -> str:
    """A change of the environment as a clause."""
    here, there = ("none" if value == ABSENT else value for value in (change.a, change.b))
    return f"{change.what} {here} here, {there} there"
