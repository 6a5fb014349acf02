"""What two fingerprints mean, in sentences: the same, expected, explained, or to be looked into."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from stabsweep.fingerprint.differences import (
    APART,
    BITWISE,
    EXPECTED,
    OTHER,
    TF32,
    CourseDifference,
    OutputDifference,
    limit,
)
from stabsweep.numerals import rate, share

INVESTIGATE = "investigate"

MAX_REASONS = 3
"""Reasons that the conclusion names; the tables mark them all."""


def reasons(
    operations: Iterable[OutputDifference], courses: Iterable[CourseDifference]
) -> Iterator[str]:
    """What must be looked into, a clause each; nothing where all is expected or explained."""
    for row in operations:
        if row.word == APART:
            yield (
                f"{row.name} differs by {rate(row.relative)} in {row.precision}, where rounding "
                f"explains {rate(limit(row.precision))}"
            )
    for row in courses:
        where = f"{row.name} in {row.precision}"
        if row.word == OTHER:
            yield f"{where} was given other weights or data, so that it says nothing"
        elif row.word == APART:
            yield f"the first loss of {where} differs by {rate(row.first_relative)}"
        if not row.keeps_verdict:
            yield verdicts(row)


def word_of(operations: Sequence[OutputDifference], courses: Sequence[CourseDifference]) -> str:
    """`bitwise`, `expected`, `tf32` or `investigate`."""
    if next(reasons(operations, courses), None):
        return INVESTIGATE
    words = {row.word for row in (*operations, *courses)}
    return next((word for word in (TF32, EXPECTED) if word in words), BITWISE)


def conclusion(
    operations: Sequence[OutputDifference],
    courses: Sequence[CourseDifference],
    switches: Iterable[str] = (),
) -> str:
    """The answer in one sentence.

    Args:
        operations: of the ladder, in its order.
        courses: the trainings.
        switches: TF32 switches that are on for one side only.
    """
    word = word_of(operations, courses)
    kept = f"all {len(courses)} trainings keep their verdict"
    if word == INVESTIGATE:
        found = list(reasons(operations, courses))
        more = len(found) - MAX_REASONS
        tail = f"; and {more} more" if more > 0 else ""
        return f"Investigate: {'; '.join(found[:MAX_REASONS])}{tail}."
    if word == BITWISE:
        return (
            f"Bitwise the same: {len(operations)} outputs and {len(courses)} trainings have the "
            "same bits here and there."
        )
    if word == TF32:
        rounded = [row for row in operations if row.word == TF32]
        on = f" ({', '.join(switches)} on for one side)" if switches else ""
        return (
            f"Explained as TF32{on}: {', '.join(names(rounded))} differ by up to "
            f"{rate(max(row.relative for row in rounded))} in fp32, as factors of 10 bits make "
            f"them, and not in fp64; {kept}."
        )
    apart = [row for row in operations if row.word != BITWISE]
    if not apart:
        return f"Expected drift: no operation differs, but trainings do; {kept}."
    return (
        f"Expected drift: {len(names(apart))} of {len(names(operations))} operations round "
        f"otherwise, first {apart[0].name}, by up to {_most(apart)}; {kept}."
    )


def growth_sentence(courses: Sequence[CourseDifference]) -> str:
    """How the difference of the losses grows over the steps of a training."""
    apart = [row for row in courses if row.growth.first_step is not None]
    if not apart:
        return "The losses have the same bits at every step."
    growing = [row for row in apart if row.growth.doubling_steps is not None]
    if not growing:
        row = max(apart, key=lambda row: row.growth.largest)
        return (
            "The difference of the losses does not grow: it stays within "
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
    rest = [name for name in names(courses) if name not in fastest]
    return f"{text}; it does not grow in {' and '.join(rest)}." if rest else f"{text}."


def matter_sentence(courses: Sequence[CourseDifference]) -> str:
    """Whether it would change what a sweep says."""
    changed = [row for row in courses if not row.keeps_verdict]
    if changed:
        return f"Yes: {'; '.join(map(verdicts, changed))}."
    most = max(courses, key=_size)
    if not most.final_difference:
        return "No: the final losses and the verdicts are the same."
    sizes = []
    if most.of_spread is not None:
        sizes.append(f"{rate(most.of_spread)} of what another seed changes")
    if math.isfinite(most.of_gap):
        part = share(most.of_gap) if most.of_gap >= 0.01 else rate(most.of_gap)
        sizes.append(f"{part} of what was learned")
    lead = "No: every verdict is the same"
    if most.of_spread is not None and most.of_spread >= 1:
        lead = "As much as another seed would, though every verdict is the same"
    return (
        f"{lead}; the final losses differ by at most {rate(most.final_difference)} ({most.name}, "
        f"{most.precision}), {', '.join(sizes)}. At an edge itself rounding decides."
    )


def names(rows: Iterable[OutputDifference | CourseDifference]) -> list[str]:
    """The names of rows, each once."""
    return list(dict.fromkeys(row.name for row in rows))


def verdicts(row: CourseDifference) -> str:
    """A training whose verdict changes, as a clause."""
    here, there = (verdict.label.replace("_", " ") for verdict in row.verdicts)
    return f"{row.name} in {row.precision} is {here} here and {there} there"


def _size(row: CourseDifference) -> float:
    size = row.of_gap if row.of_spread is None else row.of_spread
    return 0.0 if math.isnan(size) else size


def _most(rows: Iterable[OutputDifference]) -> str:
    parts: dict[str, float] = {}
    for row in rows:
        parts[row.precision] = max(parts.get(row.precision, 0.0), row.relative)
    shown = [f"{rate(error)} in {precision}" for precision, error in parts.items() if error]
    return " and ".join(shown) or "less than what is kept shows"
