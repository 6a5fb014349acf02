"""The course of the sharpness along a trial, beside the line that its learning rate draws.

Gradient descent of rate lr is stable on a quadratic up to the curvature 2 / lr: the line. In full
batches the sharpness of a network rises to it and stays, which is called the edge of stability
(Cohen et al. 2021, arXiv:2103.00065; for rules with moments arXiv:2207.14484).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stabsweep.numerals import rate

AT_LINE = 0.8, 1.5
"""Sharpness over the line, lowest and highest, of a trial that stays at it. Ours: full-batch
trials of MLPs that hovered there had 0.8 to 1.2 on `regression`, and up to 1.3 on `digits`."""

TAIL = 4
"""The part of the steps, from the end, in which it is read where a trial has come to: one in so
many. Ours: what swings about the line is taken by its median."""


@dataclass(frozen=True)
class Sharpness:
    """The curvature at one step of a trial.

    Attributes:
        step: updates done before it, from 0.
        lr: the rate in force at the step, warmup and schedule applied.
        loss: of the step's batch.
        eigenvalue: the largest of the Hessian, preconditioned for a rule that divides by moments.
        line: the eigenvalue at which linear theory calls that rate unstable.
    """

    step: int
    lr: float
    loss: float
    eigenvalue: float
    line: float

    @property
    def ratio(self) -> float:
        """Eigenvalue over line: stable by linear theory below 1."""
        return self.eigenvalue / self.line


@dataclass(frozen=True)
class Course:
    """Where sharpness went, in one word and one sentence.

    It misleads in two ways. With small batches the sharpness of the mean loss settles below the
    line, and training is at an edge all the same (Andreyev and Beneventano 2024, arXiv:2412.20553).
    And what happens between two measured steps is not seen.

    Attributes:
        word: `below`, `at the line`, `came down`, `fell back`, `above`, or for a trial that was
            lost `crossed` or `lost below`.
        sentence: the same for a reader, with step and numbers.
    """

    word: str
    sentence: str


def find_course(points: Sequence[Sharpness], lost: str | None = None) -> Course:
    """What the sharpness of a trial did.

    Args:
        points: what was measured, at least one, in the order of the steps.
        lost: what a trial that did not hold did, `diverged`; None for one that held.
    """
    peak = peak_of(points)
    top = f"{rate(peak.ratio)}x the line at step {peak.step}"
    if lost and peak.ratio <= 1:
        return Course(
            "lost below",
            f"Sharpness was below the line wherever it was measured ({top} at most), and yet the "
            f"run was lost ({lost}): it crossed between two of these steps, or was lost otherwise.",
        )
    if lost:
        step = crossing(points)
        way = f"crossed the line at step {step}" if step else "was above the line from the start"
        # Where it only just crossed, or began at its highest, that is said already.
        far = "" if peak.step == (step or points[0].step) else f", reached {top}"
        return Course("crossed", f"Sharpness {way}{far}, and the run was lost ({lost}).")
    tail = points[-max(len(points) // TAIL, 1) :]
    end, (low, high) = statistics.median(point.ratio for point in tail), AT_LINE
    ends = f"{rate(end)}x in the last quarter"
    if end > high:
        return Course(
            "above",
            f"Sharpness is above the line ({ends}) and the run held: something that linear theory "
            "does not know (clipping, the loss beyond the quadratic) holds it.",
        )
    is_high = points[0].ratio > high
    near = [point.step for point in points if point.ratio >= low]
    began = f"began at {rate(points[0].ratio)}x the line"
    if end >= low:
        way = f"{began}, came down to it" if is_high else f"rose to the line by step {near[0]}"
        text = f"Sharpness {way} and stayed there ({ends}): the edge of stability."
        return Course("at the line", text)
    if is_high:
        fall = next(n for n, point in enumerate(points) if point.ratio <= 1)
        second = peak_of(points[fall:])
        again = f"; it rose to {rate(second.ratio)}x at step {second.step}"
        text = f"Sharpness {began} and came down{again if second.ratio > 1 else ''}; {ends}."
        return Course("came down", text)
    if peak.ratio > 1:
        return Course(
            "fell back",
            f"Sharpness rose to the line by step {near[0]} ({rate(peak.ratio)}x at most) and fell "
            f"below it after step {near[-1]} ({ends}).",
        )
    return Course("below", f"Sharpness stayed below the line: at most {top}.")


def peak_of(points: Sequence[Sharpness]) -> Sharpness:
    """Where sharpness was highest over its line."""
    return max(points, key=lambda point: point.ratio)


def crossing(points: Sequence[Sharpness]) -> int | None:
    """The first measured step above the line, of the rise to the peak; None without one below.

    >>> crossing([Sharpness(n, 1.0, 0.0, s, 2.0) for n, s in enumerate([1, 3, 1, 1, 4, 9, 0])])
    4
    """
    rise = list(points[: points.index(peak_of(points)) + 1])
    step = None
    while rise and rise[-1].ratio > 1:
        step = rise.pop().step
    return step if rise else None
