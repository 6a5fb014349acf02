"""Stored traces judged again: with today's thresholds, or with other ones.

Verdicts are cheap and traces are kept, so a better judge need not train anything anew.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.errors import BadInput, unknown
from stabsweep.evidence import DEFAULTS, Thresholds
from stabsweep.numerals import plural
from stabsweep.plain import save_yaml
from stabsweep.records import Array, Record, Verdict
from stabsweep.result import Result, load, whole_curves
from stabsweep.shift import Shift, find_shifts
from stabsweep.store import THRESHOLDS, read_records, replace_records
from stabsweep.verdict import judge

LEAST = {"tail_steps": 1, "spike_window": 4}
"""Thresholds that zero would leave without meaning: a window needs a step, and quarters."""

STOPS = "stop_"
"""Begin of the thresholds that only decide when a running trial is stopped."""


@dataclass(frozen=True)
class Rejudged:
    """A sweep judged again.

    Attributes:
        before, after: the results before and after.
        old, new: the records as they are stored, and as they would be.
        left: why a record was left as it is -> how many.
        thresholds: what it was judged with.
        is_saved: whether the folder holds what was found here.
        kept: where the old records are; None when no record had to be replaced.
    """

    before: Result
    after: Result
    old: tuple[Record, ...]
    new: tuple[Record, ...]
    left: Mapping[str, int]
    thresholds: Thresholds
    is_saved: bool = False
    kept: Path | None = None

    @cached_property
    def changed(self) -> list[tuple[Record, Record]]:
        """The trials with another verdict, as a reader sees them: each stall settled by its row."""
        return report.changed(self.before.region.records, self.after.region.records)

    @property
    def num_restated(self) -> int:
        """Trials with the same verdict, but another reason or other numbers."""
        pairs = zip(self.old, self.new, strict=True)
        changed = {new.trial for _, new in self.changed}
        return sum(old != new and new.trial not in changed for old, new in pairs)

    @property
    def num_judged(self) -> int:
        """Trials that were judged again."""
        return len(self.new) - sum(self.left.values())

    @property
    def shifts(self) -> list[Shift]:
        """The rows whose edge, usable edge or best rate changed."""
        return [s for s in find_shifts(self.before.region, self.after.region) if _is_other(s)]

    @property
    def overrides(self) -> dict[str, tuple[float, float]]:
        """The thresholds that are not today's: name -> today's value and the one used."""
        used = asdict(self.thresholds)
        return {k: (v, used[k]) for k, v in asdict(DEFAULTS).items() if used[k] != v}

    def summary(self) -> str:
        """What changed, as text."""
        head = f"{len(self.changed)} of {plural(self.num_judged, 'verdict')} changed"
        blocks = [textwrap.fill(f"{head}, judged with {self._judged_with()}", report.WIDTH)]
        if self.changed:
            blocks.append("\n".join(report.change_table(self.changed)))
            blocks.append("\n".join(report.examples(self.changed)))
        if self.shifts:
            blocks.append("\n".join(report.shift_table(self.shifts, "old", "new")))
        old, new = (_answer(result) for result in (self.before, self.after))
        notes = [("Pick", f"{new}, as before" if old == new else f"{old} -> {new}")]
        if not self.shifts:
            notes.append(("Edges", "as before"))
        if self.num_restated:
            text = f"{plural(self.num_restated, 'trial')} with other numbers or another reason"
            notes.append(("Restated", text))
        notes += [
            ("Left", f"{plural(n, 'trial')} as before: {why}") for why, n in self.left.items()
        ]
        without = [name for name in self.overrides if name.startswith(STOPS)]
        if without:
            text = f"{', '.join(without)}: decides when a running trial is stopped, no verdict"
            notes.append(("Note", text))
        if self.kept:
            notes.append(("Saved", f"the old records are {self.kept}"))
            if self.overrides:
                notes.append(("Note", "a later resume judges its trials with today's thresholds"))
        elif self.is_saved:
            notes.append(("Saved", "the report; no record is another one"))
        elif self.old != self.new:
            notes.append(("Saved", "nothing; save=true writes the new records and the report"))
        blocks.append("\n".join(report.entry(*note) for note in notes))
        return "\n\n".join(blocks)

    def _judged_with(self) -> str:
        if not self.overrides:
            return "today's thresholds"
        words = [f"{k}={used:g} (today {now:g})" for k, (now, used) in self.overrides.items()]
        return ", ".join(words)

    def as_dict(self) -> dict[str, Any]:
        """What changed, as plain values; every trial is listed."""
        return {
            "judged": self.num_judged,
            "changed": [
                {
                    "trial": new.trial,
                    "point": dict(new.point),
                    "seed": new.seed,
                    "before": old.verdict.label,
                    "after": new.verdict.label,
                    "reason": new.reason,
                }
                for old, new in self.changed
            ],
            "restated": self.num_restated,
            "left": dict(self.left),
            "rows": [
                {
                    "values": dict(shift.values),
                    "decades": shift.decades,
                    "before": shift.a and shift.a.as_dict(),
                    "after": shift.b and shift.b.as_dict(),
                }
                for shift in self.shifts
            ],
            "pick_before": self.before.pick.as_dict(),
            "pick_after": self.after.pick.as_dict(),
            "thresholds": asdict(self.thresholds),
            "saved": self.is_saved,
            "kept": str(self.kept) if self.kept else None,
        }


def rejudge(
    folder: str | Path, thresholds: Thresholds = DEFAULTS, *, save: bool = False
) -> Rejudged:
    """Judges the stored traces of a sweep again.

    Failed trials and those without a readable trace stay as they are, and so do trials that were
    cut short for their loss alone, unless they are seen to diverge. Any other pruned trial is
    judged on what it got to. It misleads where the trial would have gone on under the new
    thresholds: what was not run cannot be judged.

    Args:
        folder: the result folder.
        thresholds: the numbers to judge with.
        save: write the new records and the report; the old records are kept beside them.

    Raises:
        BadInput: it is no result folder, or it cannot be written to.
    """
    folder = Path(folder)
    before = load(folder)
    old = tuple(read_records(folder))
    left: Counter[str] = Counter()
    new = []
    for record in old:
        curves = whole_curves(folder, record)
        if record.state == "failed":
            left["they ended in an error"] += 1
        elif curves is None:
            left["without a trace that can be read"] += 1
        else:
            judged = _judged(record, curves, before.config, thresholds)
            # What a pruner cut for its loss alone was not seen to its end: only a divergence tells.
            if record.verdict is Verdict.CUT_SHORT and judged.verdict is not Verdict.DIVERGED:
                left["stopped for their loss alone"] += 1
            else:
                record = judged
        new.append(record)
    space, config = before.region.space, before.config
    known: dict[str, Any] = {"folder": folder, "notes": before.notes}
    before = Result.find(space, old, config, **known)
    after = Result.find(space, new, config, **known)
    found = Rejudged(before, after, old, tuple(new), dict(left), thresholds)
    return _saved(found, folder) if save else found


def parse_thresholds(given: Mapping[str, str]) -> Thresholds:
    """The thresholds with some of them given as text, as on the command line.

    Raises:
        BadInput: there is no such threshold, or the value is not a number that it can have.
    """
    now = asdict(DEFAULTS)
    values: dict[str, float] = {}
    for name, text in given.items():
        if name not in now:
            raise unknown("threshold", name, now)
        is_count = isinstance(now[name], int)
        least = LEAST.get(name, 0)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or number < least or is_count and number != int(number):
            kind = "whole number" if is_count else "finite number"
            raise BadInput(f"{name}={text!r} is not allowed: use a {kind} >= {least}")
        values[name] = int(number) if is_count else number
    return replace(DEFAULTS, **values)


THRESHOLD_NAMES = tuple(field.name for field in fields(Thresholds))


def _judged(
    record: Record, curves: Array, config: Mapping[str, Any], thresholds: Thresholds
) -> Record:
    """The record with what its curves say now."""
    warmup = record.point.get("warmup_steps", config.get("warmup_steps", 0))
    trace = record.with_curves(curves, int(warmup or 0))
    return replace(record, **judge(trace, thresholds).as_fields())


def _saved(found: Rejudged, folder: Path) -> Rejudged:
    try:
        kept = None
        if found.new != found.old:
            kept = replace_records(folder, found.new, found.old)
        save_yaml(folder / THRESHOLDS, asdict(found.thresholds))
    except OSError as error:
        raise BadInput(
            f"cannot write to {folder}: {error.strerror}; its records are as they were, or whole "
            "and new"
        ) from None
    found.after.save_report()
    return replace(found, is_saved=True, kept=kept)


def _is_other(shift: Shift) -> bool:
    if shift.a is None or shift.b is None:
        return True
    known = [
        (row.edge, row.usable_lr, row.best and (row.best.lr, row.best.loss))
        for row in (shift.a, shift.b)
    ]
    return known[0] != known[1]


def _answer(result: Result) -> str:
    pick = result.pick
    return " ".join(pick.overrides()) if pick.is_ok else "none"
