"""Fingerprints and their differences in rows and columns, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from stabsweep import report
from stabsweep.fingerprint.differences import (
    APART,
    BITWISE,
    TF32,
    CourseDifference,
    OutputDifference,
)
from stabsweep.fingerprint.taken import Fingerprint
from stabsweep.numerals import loss, plural, rate

_MARKS = {APART: " !", TF32: " TF32"}


def operation_table(operations: Sequence[OutputDifference]) -> str:
    """One line an operation: how far apart in each precision; `!` marks what is too far."""
    rows = {row.name: ["-", "-"] for row in operations}
    for row in operations:
        rows[row.name][row.precision == "fp64"] = row.text + _MARKS.get(row.word, "")
    head = ["operation", "fp32: ulp, relative", "fp64: ulp, relative"]
    return _aligned([head, *([name, *cells] for name, cells in rows.items())])


def course_table(courses: Sequence[CourseDifference]) -> str:
    """One line a training: where the curves part, how far, how fast, and what a sweep would say."""
    table = [["training", "differs from", "first loss", "largest", "doubles in", "verdict"]]
    for row in courses:
        if row.word == BITWISE:
            cells = ["never", "", "", ""]
        else:
            times = row.growth.doubling_steps
            step = "last weights" if row.first_step is None else f"step {row.first_step}"
            errors = row.first_relative, row.growth.largest
            sizes = [rate(error) if error else "the same" for error in errors]
            cells = [step, *sizes, "no growth" if times is None else f"{times:.2g} steps"]
        here, there = (verdict.label.replace("_", " ") for verdict in row.verdicts)
        verdict = here if here == there else f"{here} / {there}"
        table.append([f"{row.name} {row.precision}", *cells, verdict + _MARKS.get(row.word, "")])
    return _aligned(table)


def repeated(fingerprint: Fingerprint, where: str) -> str:
    """What a second run in the same process gave."""
    apart = fingerprint.unrepeated
    if not apart:
        return f"bitwise the same at a second run {where}"
    named = ", ".join(dict.fromkeys(name for name, _ in apart))
    return f"within {rate(max(apart.values()))} at a second run {where} ({named})"


def summary(fingerprint: Fingerprint) -> str:
    """A fingerprint in a few lines."""
    head = (
        f"Fingerprint {fingerprint.digest[:12]}: {len(fingerprint.operations)} outputs and "
        f"{len(fingerprint.courses)} trainings of {plural(fingerprint.num_steps, 'step')} on "
        f"{fingerprint.device}."
    )
    finals: dict[str, list[str]] = {}
    for (name, precision), course in fingerprint.courses.items():
        finals.setdefault(name, []).append(f"{loss(float(course.curves[0, -1]))} ({precision})")
    words = [
        ("Again", repeated(fingerprint, "here")),
        ("Losses", ", ".join(f"{name} {' '.join(found)}" for name, found in finals.items())),
        ("Took", f"{fingerprint.seconds:.0f} s"),
    ]
    return "\n".join([textwrap.fill(head, report.WIDTH), *(report.entry(*pair) for pair in words)])


def _aligned(table: Sequence[Sequence[str]]) -> str:
    """Cells in columns, the first to the left and the others to the right."""
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    lines = []
    for line in table:
        first, *others = zip(line, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(t.rjust(w) for t, w in others)]))
    return "\n".join(line.rstrip() for line in lines)
