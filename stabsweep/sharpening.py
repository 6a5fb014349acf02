"""The sharpness of a recorded trial, which is trained again, against the line of its rate."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep import report
from stabsweep.course import Course, Sharpness, find_course, peak_of
from stabsweep.curvature import NUM_BATCHES, follow_curvature, line_formula
from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.numerals import duration, loss, rate, share
from stabsweep.progress import Watcher
from stabsweep.recorded import Recorded, other_end, record_of, title_of, watched
from stabsweep.records import Array, Record, Verdict
from stabsweep.region import Region
from stabsweep.result import Result
from stabsweep.target import one_line
from stabsweep.theory import answer_row

NUM_POINTS = 20
"""Steps at which curvature is measured, by default. Ours: each takes some dozens of products of
Hessian and vector, and fewer do not show a rise."""

MAX_POINTS = 10_000


@dataclass(frozen=True)
class Sharpening:
    """What the sharpness of one trial did while it was trained.

    Attributes:
        subject: what was swept, `sgd on mlp`.
        record: the trial as the sweep recorded it.
        verdict: what the training did this time.
        curves: (5, T) its curves this time, in the order of `CURVES`.
        points: what was measured, at least one step.
        formula: the line as theory writes it, `2 (1 + m) / lr`.
        is_preconditioned: whether the Hessian is, by the moments that the rule divides by.
        notes: what weakens the comparison, a sentence each.
        seconds: how long it took.
    """

    subject: str
    record: Record
    verdict: Verdict
    curves: Array
    points: tuple[Sharpness, ...]
    formula: str
    is_preconditioned: bool
    notes: tuple[str, ...]
    seconds: float

    @cached_property
    def course(self) -> Course:
        """What sharpness did, see `stabsweep.course`."""
        is_lost = self.verdict.is_judged and not self.verdict.is_stable
        return find_course(self.points, self.verdict.label if is_lost else None)

    @property
    def title(self) -> str:
        """Which trial it is, see `title_of`."""
        return title_of(self.subject, self.record)

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        peak = peak_of(self.points)
        rows = [("start", self.points[0]), ("peak", peak), ("end", self.points[-1])]
        table = [["", "step", "loss", "sharpness", "line", "of it"]]
        for word, at in rows:
            numbers = [loss(at.loss), rate(at.eigenvalue, digits=3), rate(at.line, digits=3)]
            table.append([word, str(at.step), *numbers, f"{rate(at.ratio)}x"])
        widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
        lines = [
            "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
            for line in table
        ]
        matrix = "preconditioned Hessian" if self.is_preconditioned else "Hessian"
        words = [("Line", f"{self.formula}, for the largest eigenvalue of the {matrix}")]
        words += [("Note", note) for note in self.notes]
        words += [("Took", duration(self.seconds))]
        return "\n\n".join(
            [
                textwrap.fill(f"{self.title}: {self.course.sentence}", report.WIDTH),
                "\n".join(lines),
                "\n".join(report.entry(*pair) for pair in words),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {
            "subject": self.subject,
            "trial": self.record.trial,
            "point": dict(self.record.point),
            "seed": self.record.seed,
            "verdict": self.verdict.label,
            "course": self.course.word,
            "sentence": self.course.sentence,
            "line": self.formula,
            "preconditioned": self.is_preconditioned,
            "points": [_plain(point) for point in self.points],
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def plot(self) -> Any:
        """The picture as a matplotlib figure: sharpness and its line, and the loss below."""
        heads = self.title, self.course.sentence
        info = report.sharpness_info(
            self.points, self.curves, self.formula, self.is_preconditioned, heads
        )
        return report.draw_sharpness(info, self.verdict.label)

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `curvature_trial_N.png`, `.svg` and `.csv`; returns their paths.

        Raises:
            BadInput: the folder cannot be written to.
        """
        name = f"curvature_trial_{self.record.trial}"
        path = Path(folder) / f"{name}.csv"
        try:
            import pandas as pd

            pd.DataFrame([_plain(point) for point in self.points]).to_csv(path, index=False)
            return [*report.save_figure(self.plot(), folder, name), path]
        except OSError as error:
            raise BadInput(f"cannot write {name} to {folder}: {error.strerror}") from None


def find_sharpening(
    result: Result,
    trial: int | None = None,
    *,
    num_points: int = NUM_POINTS,
    model: Any = None,
    task: Any = None,
    watcher: Watcher | str = "auto",
) -> Sharpening:
    """Trains a trial of a sweep again, in the plain loop, and measures its sharpness on the way.

    For a trial that diverged the steps end with the last one that was finite. Rounding is not that
    of the sweep where that was stacked: what balances on the edge may fall to the other side, which
    is said.

    Args:
        result: of the sweep, as `stabsweep.sweep` or `stabsweep.load` gives it.
        trial: its number; None is the trial nearest to the pick or, without one, to the edge.
        num_points: at how many steps to measure, from the first to the last.
        model: the model again, where it was a Python object.
        task: the task again, likewise.
        watcher: as `stabsweep.sweep` takes it.

    Raises:
        BadInput: there is no such trial, it cannot be trained again, its rule has no linear theory,
            or its model has more than `curvature.MAX_WEIGHTS` weights.
    """
    check_count("points", num_points, 2, MAX_POINTS)
    began = time.perf_counter()
    record = _followed(result.region, trial) if trial is not None else nearest(result)
    again = Recorded.find(result, record, "find_sharpening", model, task)
    setup, steps = again.setup, _steps(record, num_points)
    line = line_formula(setup, again.trial)
    title = f"curvature of trial {record.trial} of {result.subject}"
    try:
        with watched(watcher, title, len(steps), "point") as tell:
            curves, points = follow_curvature(setup, again.trial, steps, record.steps, tell)
    except BadInput:
        raise
    except (RuntimeError, NotImplementedError, TypeError, ValueError, MemoryError) as error:
        raise BadInput(
            f"trial {record.trial} cannot be trained again, or its loss cannot be differentiated "
            f"twice: {one_line(error)}"
        ) from error
    if not points:
        raise BadInput(f"the curvature of trial {record.trial} is not finite at any step")
    verdict = again.settled(again.judged(curves))
    notes = _notes(record, verdict, curves, setup.batch_size >= setup.task.num_examples)
    seconds = time.perf_counter() - began
    return Sharpening(
        result.subject, record, verdict, curves, tuple(points), *line, tuple(notes), seconds
    )


def nearest(result: Result) -> Record:
    """The trial nearest to the pick, in its row; without a pick to the edge of the best row.

    Raises:
        BadInput: no trial can be trained again.
    """
    region, pick = result.region, result.pick
    answer = answer_row(region, pick)
    row = answer[0] if answer else None
    records = [r for cell in row.cells for r in cell.records] if row else list(region.records)
    records = [r for r in records if _is_finite(r)]
    if not records:
        raise BadInput("no trial of this sweep has a finite step: there is nothing to measure")
    aim = pick.lr or (row.edge.lr if row else None)
    # Where nothing learned there is no best row: the least that failed says most.
    return min(
        records,
        key=lambda r: (abs(math.log(r.lr / aim)) if aim else r.lr, r.seed, r.trial),
    )


def _followed(region: Region, trial: int) -> Record:
    record = record_of(region, trial)
    if record.state == "failed":
        raise BadInput(f"trial={trial} ended in an error ({record.error}): choose another")
    if not _is_finite(record):
        raise BadInput(f"trial={trial} was not finite at its first step: choose another")
    return record


def _is_finite(record: Record) -> bool:
    """Whether a trial has a step at which curvature is a number."""
    return record.state != "failed" and record.steps > 0 and record.bad_step != 0


def _steps(record: Record, num_points: int) -> list[int]:
    """Evenly spaced steps from the first to the last, or to the last that was finite."""
    last = record.steps - 1 if record.bad_step is None else record.bad_step - 1
    return sorted(set(np.linspace(0, last, num_points).round().astype(int).tolist()))


def _notes(record: Record, verdict: Verdict, curves: Array, is_full_batch: bool) -> Iterable[str]:
    """What a reader should know before a conclusion."""
    both = (verdict, record.verdict)
    if all(word.is_judged for word in both) and verdict.is_stable != record.verdict.is_stable:
        yield other_end(verdict, record)
    if not is_full_batch:
        yield (
            f"Measured on the mean loss of {NUM_BATCHES} batches, trained on one after the other: "
            "with such noise the edge may lie below the line (arXiv:2412.20553)."
        )
    clipped = float((curves[2] < 1).mean())
    if clipped > 0:
        yield f"Clipping acted in {share(clipped)} of the steps; the line knows of none."


def _plain(point: Sharpness) -> dict[str, Any]:
    """A point under the words that a reader sees."""
    values = asdict(point)
    return {
        **{name: values[name] for name in ("step", "lr", "loss")},
        "sharpness": point.eigenvalue,
        "line": point.line,
        "of_line": point.ratio,
    }
