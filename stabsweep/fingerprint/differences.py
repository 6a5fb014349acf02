"""Two fingerprints, number by number: how far apart they are, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stabsweep.fingerprint import bits
from stabsweep.fingerprint.ladder import OPERATIONS
from stabsweep.fingerprint.taken import Fingerprint, Key, Output
from stabsweep.fingerprint.trainings import NUM_STEPS, RECIPES, Course
from stabsweep.growth import Growth, find_growth
from stabsweep.records import CURVES, Trace, Verdict
from stabsweep.verdict import Judgement, judge

EXPECTED_EPS = 2**8
"""Relative error that another order of summation explains, in units of the format: 3.1e-5 in
float32, 5.7e-14 in float64. Ours: half way, in powers of ten, between the 1e-6 that other vector
levels and threads give and the 1e-3 that they never do."""

TF32_ERROR = 2.0**-9
"""Relative error that TF32 explains: twice the rounding of its factors, which have 10 bits."""

LIKENESS = 4
"""A matmul that lies so many times nearer to its value in TF32 than to the other is in TF32."""

BITWISE, EXPECTED, TF32, APART, OTHER = "bitwise", "expected", "tf32", "apart", "other inputs"
"""How two outputs or trainings compare, from the same bits to what is not comparable."""


@dataclass(frozen=True)
class OutputDifference:
    """How far apart two outputs of an operation are.

    Attributes:
        name, precision: of the operation.
        word: `bitwise`, `expected`, `tf32` or `apart`.
        ulps: the most numbers of the format from one value to the other, of those that are not
            small, see `bits.is_large`.
        relative: the largest difference over the largest value.
    """

    name: str
    precision: str
    word: str
    ulps: int
    relative: float

    @property
    def text(self) -> str:
        """For a cell of the table."""
        if self.word == BITWISE:
            return BITWISE
        if not self.relative:
            # The bits differ, but in none of the values that were kept.
            return "a few values"
        return f"{min(self.ulps, 10**12) or '< 1'} ulp, {self.relative:.1e}"


@dataclass(frozen=True)
class CourseDifference:
    """How far apart two trainings run.

    Attributes:
        name, precision: of the training.
        word: `bitwise`, `expected`, `tf32`, `apart` or `other inputs`.
        num_steps: that are compared.
        first_step: the first at which a curve differs; None where none does.
        first_relative: relative error of the first loss, before any step.
        growth: how the difference of the losses grows.
        judgements: here and there.
        gap: what was learned here: blind loss minus final loss.
        seed_spread: standard deviation of the final loss from seed to seed; None where it is not
            known, for another number of steps.
    """

    name: str
    precision: str
    word: str
    num_steps: int
    first_step: int | None
    first_relative: float
    growth: Growth
    judgements: tuple[Judgement, Judgement]
    gap: float
    seed_spread: float | None

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        """Here and there."""
        return self.judgements[0].verdict, self.judgements[1].verdict

    @property
    def keeps_verdict(self) -> bool:
        """Whether a sweep would say the same of both."""
        return self.verdicts[0] is self.verdicts[1]

    @property
    def final_difference(self) -> float:
        """Between the final losses; 0 where neither is finite."""
        here, there = (judgement.final_loss for judgement in self.judgements)
        if not math.isfinite(here) and not math.isfinite(there):
            return 0.0
        return abs(here - there) if math.isfinite(here - there) else math.inf

    @property
    def of_gap(self) -> float:
        """The same as a part of what was learned."""
        return self.final_difference / self.gap if self.gap > 0 else math.nan

    @property
    def of_spread(self) -> float | None:
        """The same as a part of what another seed changes."""
        return self.final_difference / self.seed_spread if self.seed_spread else None


def output_differences(here: Fingerprint, there: Fingerprint) -> list[OutputDifference]:
    """Every operation that both have, in the order of the ladder."""
    is_tf32 = _matmul_is_tf32(here, there)
    return [
        _output_difference(key, output, there.operations[key], (here, there), is_tf32)
        for key, output in here.operations.items()
        if key in there.operations
    ]


def course_differences(
    here: Fingerprint, there: Fingerprint, is_tf32: bool
) -> list[CourseDifference]:
    """Every training that both have.

    Args:
        here: the first.
        there: the second.
        is_tf32: whether operations differ as TF32 makes them.
    """
    num_steps = min(here.num_steps, there.num_steps)
    return [
        _course_difference(key, course, there.courses[key], num_steps, is_tf32)
        for key, course in here.courses.items()
        if key in there.courses
    ]


def limit(precision: str) -> float:
    """The relative error that rounding explains."""
    return EXPECTED_EPS * bits.eps(precision)


def tf32_switches(fingerprint: Fingerprint) -> Iterator[str]:
    """The switches that let this machine compute in TF32, as far as its snapshot tells."""
    switches = fingerprint.environment.get("switches") or {}
    variables = fingerprint.environment.get("variables") or {}
    if variables.get("NVIDIA_TF32_OVERRIDE") == "0" or not fingerprint.is_on_gpu:
        return
    is_forced = variables.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1"
    if switches.get("matmul_tf32") or is_forced:
        yield "matmul_tf32"
    if switches.get("cudnn_tf32"):
        yield "cudnn_tf32"


def _matmul_is_tf32(here: Fingerprint, there: Fingerprint) -> bool:
    """Whether one of the matmuls is that of rounded factors, and the other is not."""
    key = "matmul", "fp32"
    if key not in here.operations or key not in there.operations:
        return False
    sides = [side.operations[key].values for side in (here, there)]
    if {len(x) for x in sides} != {len(here.tf32)}:
        return False
    apart = bits.relative_error(*sides)
    nearest = min(bits.relative_error(x, here.tf32) for x in sides)
    return limit("fp32") < apart <= TF32_ERROR and nearest * LIKENESS < apart


def _output_difference(
    key: Key, a: Output, b: Output, sides: tuple[Fingerprint, Fingerprint], is_tf32: bool
) -> OutputDifference:
    if a.sha256 == b.sha256:
        return OutputDifference(*key, BITWISE, 0, 0.0)
    if a.size != b.size:
        return OutputDifference(*key, APART, 0, math.inf)
    relative = bits.relative_error(a.values, b.values)
    large = bits.is_large(a.values, b.values)
    ulps = int(bits.num_ulps(a.values, b.values)[large].max(initial=0))
    if relative <= limit(key[1]):
        return OutputDifference(*key, EXPECTED, ulps, relative)
    switch = OPERATIONS[key[0]].switch if key[0] in OPERATIONS else ""
    # TF32 takes the place of float32 alone, and only where products are summed.
    is_explained = key[1] == "fp32" and bool(switch) and relative <= TF32_ERROR
    is_switched = len({switch in tf32_switches(side) for side in sides}) == 2
    word = TF32 if is_explained and (is_tf32 or is_switched) else APART
    return OutputDifference(*key, word, ulps, relative)


def _course_difference(
    key: Key, a: Course, b: Course, num_steps: int, is_tf32: bool
) -> CourseDifference:
    curves = [course.curves[:, :num_steps] for course in (a, b)]
    judgements = tuple(judge(_trace(course, num_steps)) for course in (a, b))
    words = [np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}") for x in curves]
    steps = np.flatnonzero((words[0] != words[1]).any(0))
    first = bits.relative_error(curves[0][0, :1], curves[1][0, :1])
    if a.data != b.data and a.curves.shape == b.curves.shape:
        word = OTHER
    elif not len(steps) and all(b.weights.get(n, seen) == seen for n, seen in a.weights.items()):
        word = BITWISE
    elif first <= limit(key[1]):
        word = EXPECTED
    else:
        is_explained = is_tf32 and key[1] == "fp32" and first <= TF32_ERROR
        word = TF32 if is_explained else APART
    spreads = {recipe.name: recipe.seed_spread for recipe in RECIPES}
    blind = a.initial_loss if a.blind_loss is None else a.blind_loss
    return CourseDifference(
        *key,
        word,
        num_steps,
        int(steps[0]) if len(steps) else None,
        first,
        find_growth(curves[0][0], curves[1][0]),
        judgements,  # type: ignore[arg-type]
        blind - judgements[0].final_loss,
        spreads.get(key[0]) if num_steps == NUM_STEPS else None,
    )


def _trace(course: Course, num_steps: int) -> Trace:
    return Trace(
        **dict(zip(CURVES, course.curves[:, :num_steps], strict=True)),
        initial_loss=course.initial_loss,
        blind_loss=course.blind_loss,
        horizon=num_steps,
        displacement=course.displacement,
    )
