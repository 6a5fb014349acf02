"""The answer: whether two machines compute the same, and whether it matters that they do not."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.errors import BadInput
from stabsweep.fingerprint.differences import (
    APART,
    BITWISE,
    EXPECTED,
    OTHER,
    TF32,
    CourseDifference,
    OutputDifference,
    course_differences,
    limit,
    output_differences,
)
from stabsweep.fingerprint.surroundings import Change, find_changes
from stabsweep.fingerprint.taken import Fingerprint
from stabsweep.numerals import loss, plural, rate, share
from stabsweep.records import finite

INVESTIGATE = "investigate"

MAX_CHANGES = 8
"""Changes of the environment that are printed; `format=json` has them all."""

MAX_TITLED = 2
"""Of them, those above a picture."""


@dataclass(frozen=True)
class Comparison:
    """Two fingerprints side by side; `here` is the first.

    Attributes:
        here, there: the two.
        there_name: how a reader knows the second.
        operations: one difference an operation and precision, in the order of the ladder.
        courses: one a training.
        changes: what differs in their environments.
    """

    here: Fingerprint
    there: Fingerprint
    there_name: str
    operations: Sequence[OutputDifference]
    courses: Sequence[CourseDifference]
    changes: Sequence[Change]

    @property
    def word(self) -> str:
        """`bitwise`, `expected`, `tf32` or `investigate`."""
        if list(self._reasons()):
            return INVESTIGATE
        words = {row.word for row in (*self.operations, *self.courses)}
        return next((word for word in (TF32, EXPECTED) if word in words), BITWISE)

    @property
    def exit_code(self) -> int:
        """0 for what is the same, expected or explained, and changes no verdict; 1 otherwise."""
        return int(self.word == INVESTIGATE)

    @property
    def first(self) -> OutputDifference | None:
        """The first operation of the ladder that differs."""
        return next((row for row in self.operations if row.word != BITWISE), None)

    @property
    def furthest(self) -> CourseDifference | None:
        """The training that drifts furthest, as a part of what it learned."""
        apart = [row for row in self.courses if row.growth.largest > 0]
        return max(apart, key=lambda row: row.growth.largest / max(row.gap, 1e-12), default=None)

    @property
    def sentence(self) -> str:
        """The conclusion."""
        kept = sum(row.keeps_verdict for row in self.courses)
        verdicts = f"all {len(self.courses)} trainings keep their verdict"
        if self.word == INVESTIGATE:
            return f"Investigate: {'; '.join(self._reasons())}."
        if self.word == BITWISE:
            return (
                f"Bitwise the same: {len(self.operations)} outputs and {kept} trainings have the "
                "same bits here and there."
            )
        if self.word == TF32:
            named = ", ".join(_names(row for row in self.operations if row.word == TF32))
            most = max(row.relative for row in self.operations if row.word == TF32)
            return (
                f"Explained as TF32: {named} differ by up to {rate(most)} in fp32, as factors "
                f"rounded to 10 bits make them, and not in fp64; {verdicts}."
            )
        apart = _names(row for row in self.operations if row.word != BITWISE)
        if self.first is None:
            return f"Expected drift: no operation differs, but trainings do; {verdicts}."
        of = len(_names(self.operations))
        return (
            f"Expected drift: {len(apart)} of {of} operations are rounded otherwise, first "
            f"{self.first.name}, by up to {self._most()}; {verdicts}."
        )

    @property
    def growth_sentence(self) -> str:
        """How the difference grows over the steps of a training."""
        if self.furthest is None:
            return "The losses have the same bits at every step."
        growing = [row for row in self.courses if row.growth.doubling_steps is not None]
        if not growing:
            row = self.furthest
            return (
                f"The difference of the losses does not grow: it stays within "
                f"{rate(row.growth.largest)} ({row.name}, {row.precision})."
            )
        growing.sort(key=lambda row: row.growth.doubling_steps or math.inf)
        fastest = {row.name: row for row in reversed(growing)}
        text = ""
        for row in sorted(fastest.values(), key=growing.index):
            times, (step, level) = row.growth.doubling_steps, row.growth.corners[-1]
            lead = ", and every" if text else "The difference doubles every"
            end = f"to {rate(level)} by step {step:.0f}"
            if row.growth.is_saturated:
                end += ", where it levels off"
            text += f"{lead} {times:.2g} steps in {row.name} ({row.precision}), {end}"
        rest = [name for name in _names(self.courses) if name not in fastest]
        return f"{text}; it does not grow in {' and '.join(rest)}." if rest else f"{text}."

    @property
    def matter_sentence(self) -> str:
        """Whether it would change what a sweep says."""
        changed = [row for row in self.courses if not row.keeps_verdict]
        if changed:
            return "Yes: " + "; ".join(map(_verdicts, changed)) + "."
        most = max(self.courses, key=lambda row: row.of_spread or row.of_gap, default=None)
        if most is None or not most.final_difference:
            return "No: the final losses and the verdicts are the same."
        sizes = []
        if most.of_spread is not None:
            sizes.append(f"{rate(most.of_spread)} of what another seed changes")
        if math.isfinite(most.of_gap):
            sizes.append(f"{_part(most.of_gap)} of what was learned")
        lead = "No verdict changes"
        if most.of_spread is not None and most.of_spread >= 1:
            lead += ", but it is as much as another seed"
        return (
            f"{lead}: the final losses differ by at most {rate(most.final_difference)} "
            f"({most.name}, {most.precision}), {', '.join(sizes)}. At an edge itself rounding "
            "decides."
        )

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        words = [("Growth", self.growth_sentence), ("Matters", self.matter_sentence)]
        words += [("Again", _repeated(self.here, "here") + "; " + _repeated(self.there, "there"))]
        changes = [str(change) for change in self.changes[:MAX_CHANGES]]
        more = len(self.changes) - len(changes)
        changes += [f"and {more} more (format=json)"] if more else []
        words += [("Differs", "; ".join(changes) or "nothing in the environments")]
        sides = f"{self.here.device} here, {self.there.device} there ({self.there_name})"
        words += [("Sides", f"{sides}, {self.there.time[:10]}")]
        return "\n\n".join(
            [
                textwrap.fill(self.sentence, report.WIDTH),
                self._operation_table(),
                self._course_table(),
                "\n".join(report.entry(*pair) for pair in words),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values; what is not finite is None."""
        return {
            "word": self.word,
            "sentence": self.sentence,
            "growth": self.growth_sentence,
            "matters": self.matter_sentence,
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
            "trainings": [
                {
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
                    "verdict_here": row.verdicts[0].label,
                    "verdict_there": row.verdicts[1].label,
                    "final_here": finite(row.judgements[0].final_loss),
                    "final_there": finite(row.judgements[1].final_loss),
                    "of_learned": finite(row.of_gap),
                    "of_seed_spread": None if row.of_spread is None else finite(row.of_spread),
                }
                for row in self.courses
            ],
            "repeated_here": not self.here.unrepeated,
            "repeated_there": not self.there.unrepeated,
            "environment": [change._asdict() for change in self.changes],
            "device_here": self.here.device,
            "device_there": self.there.device,
        }

    def plot(self) -> Any:
        """The picture as a matplotlib figure: the difference of the losses over the steps."""
        num_steps = min(self.here.num_steps, self.there.num_steps)
        lines = [
            report.DriftCurve(
                row.name,
                row.precision,
                self.here.courses[row.name, row.precision].curves[0, :num_steps],
                self.there.courses[row.name, row.precision].curves[0, :num_steps],
                row.growth,
                row.gap,
            )
            for row in self.courses
        ]
        title = f"{self.here.device} here, {self.there.device} there"
        if self.changes:
            title += ": " + "; ".join(map(str, self.changes[:MAX_TITLED]))
        return report.draw_drift(report.drift_info(lines, (title, self.growth_sentence)))

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

    def _reasons(self) -> Iterable[str]:
        """What must be looked into, a clause each."""
        if self.here.inputs != self.there.inputs:
            yield "the inputs themselves differ (is numpy's Philox broken?)"
        for row in self.operations:
            if row.word == APART:
                yield (
                    f"{row.name} differs by {rate(row.relative)} in {row.precision}, where "
                    f"rounding explains {rate(limit(row.precision))}"
                )
        for row in self.courses:
            where = f"{row.name} in {row.precision}"
            if row.word == OTHER:
                yield f"{where} was given other weights or data, so that it says nothing"
            elif row.word == APART:
                yield f"the first loss of {where} differs by {rate(row.first_relative)}"
            if not row.keeps_verdict:
                yield _verdicts(row)

    def _most(self) -> str:
        parts = []
        for precision in ("fp32", "fp64"):
            found = [row.relative for row in self.operations if row.precision == precision]
            if max(found, default=0):
                parts.append(f"{rate(max(found))} in {precision}")
        return " and ".join(parts) or "less than what is kept shows"

    def _operation_table(self) -> str:
        rows = {row.name: ["-", "-"] for row in self.operations}
        for row in self.operations:
            mark = {APART: " !", TF32: " TF32"}.get(row.word, "")
            rows[row.name][row.precision == "fp64"] = row.text + mark
        head = ["operation", "fp32: ulp, relative", "fp64: ulp, relative"]
        return _aligned([head, *([name, *cells] for name, cells in rows.items())])

    def _course_table(self) -> str:
        table = [["training", "differs from", "first loss", "largest", "doubles in", "verdict"]]
        for row in self.courses:
            if row.word == BITWISE:
                cells = ["never", "", "", ""]
            else:
                times = row.growth.doubling_steps
                step = "" if row.first_step is None else f"step {row.first_step}"
                doubling = "no growth" if times is None else f"{times:.2g} steps"
                errors = row.first_relative, row.growth.largest
                sizes = [rate(error) if error else "the same" for error in errors]
                cells = [step, *sizes, doubling]
            here, there = (verdict.label.replace("_", " ") for verdict in row.verdicts)
            verdict = here if here == there else f"{here} / {there}"
            table.append([f"{row.name} {row.precision}", *cells, verdict])
        return _aligned(table)


def compare(here: Fingerprint, there: Fingerprint, there_name: str = "the other") -> Comparison:
    """What differs between two fingerprints.

    Args:
        here: the first.
        there: the second.
        there_name: how a reader knows the second: the name of its file.

    Raises:
        BadInput: they have no operation or no training in common.
    """
    operations = output_differences(here, there)
    is_tf32 = any(row.word == TF32 for row in operations)
    courses = course_differences(here, there, is_tf32)
    if not operations or not courses:
        raise BadInput(f"{there_name} has no operation and training of this ladder: take it again")
    changes = find_changes(here.environment, there.environment)
    return Comparison(here, there, there_name, operations, courses, changes)


def summary(fingerprint: Fingerprint) -> str:
    """A fingerprint in a few lines, for a terminal."""
    num_steps = plural(fingerprint.num_steps, "step")
    head = (
        f"Fingerprint {fingerprint.digest[:12]}: {len(fingerprint.operations)} outputs and "
        f"{len(fingerprint.courses)} trainings of {num_steps} on {fingerprint.device}."
    )
    finals = {
        f"{name} {loss(float(course.curves[0, -1]))} in {precision}"
        for (name, precision), course in fingerprint.courses.items()
    }
    words = [
        ("Again", _repeated(fingerprint, "here")),
        ("Losses", "at the last step: " + ", ".join(sorted(finals))),
        ("Took", f"{fingerprint.seconds:.0f} s"),
    ]
    return "\n".join([textwrap.fill(head, report.WIDTH), *(report.entry(*pair) for pair in words)])


def _repeated(fingerprint: Fingerprint, where: str) -> str:
    """What a second run in the same process gave."""
    apart = fingerprint.unrepeated
    if not apart:
        return f"bitwise the same at a second run {where}"
    names = ", ".join(dict.fromkeys(name for name, _ in apart))
    return f"within {rate(max(apart.values()))} at a second run {where} ({names})"


def _names(rows: Iterable[OutputDifference | CourseDifference]) -> list[str]:
    return list(dict.fromkeys(row.name for row in rows))


def _verdicts(row: CourseDifference) -> str:
    here, there = (verdict.label.replace("_", " ") for verdict in row.verdicts)
    return f"{row.name} in {row.precision} is {here} here and {there} there"


def _aligned(table: Sequence[Sequence[str]]) -> str:
    """Cells in columns, the first to the left and the others to the right."""
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    lines = []
    for line in table:
        first, *others = zip(line, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(t.rjust(w) for t, w in others)]))
    return "\n".join(line.rstrip() for line in lines)


def _part(value: float) -> str:
    return share(value) if value >= 0.01 else rate(value)
