"""The sharpness of a trial and its line, over the loss: the plain numbers, and the drawer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stabsweep.course import Sharpness
from stabsweep.numerals import rate
from stabsweep.records import Array
from stabsweep.report._axes import axis_ends, dress, loss_axis
from stabsweep.report.figure import SETTINGS
from stabsweep.report.sample_traces import thinned
from stabsweep.report.stability_map import LOG_SPAN
from stabsweep.report.style import INK, MUTED, STYLES

WIDTH_INCHES, HEIGHT_INCHES = 10, 6.4

ROOM = 1.25
"""Least factor between the line and the top of its axis."""


@dataclass(frozen=True)
class SharpnessInfo:
    """All that the picture shows.

    Attributes:
        title, sentence: which trial it is, and what to conclude.
        steps, sharpness: the points that were measured.
        line_steps, line: what the rate of each step draws.
        line_text: the line in words.
        matrix: that whose eigenvalue it is.
        range: ends of the axis of sharpness, and whether it is logarithmic.
        loss_steps, losses: the loss, thinned; NaN where it was not finite.
        loss_range: ends of its axis, and whether it is logarithmic.
        num_steps: steps up to the last that was finite.
        is_cut: whether there were more.
    """

    title: str
    sentence: str
    steps: tuple[int, ...]
    sharpness: tuple[float, ...]
    line_steps: tuple[float, ...]
    line: tuple[float, ...]
    line_text: str
    matrix: str
    range: tuple[float, float, bool]
    loss_steps: tuple[float, ...]
    losses: tuple[float, ...]
    loss_range: tuple[float, float, bool]
    num_steps: int
    is_cut: bool


def sharpness_info(
    points: Sequence[Sharpness],
    curves: Array,
    formula: str,
    is_preconditioned: bool,
    heads: tuple[str, str],
) -> SharpnessInfo:
    """The numbers of the picture of a trial's sharpness.

    Args:
        points: what was measured, at least one.
        curves: (5, T) of the trial, in the order of `CURVES`.
        formula: the line as theory writes it.
        is_preconditioned: whether the Hessian is.
        heads: which trial it is, and what to conclude.
    """
    last = points[-1]
    whole = np.asarray(curves[0], float)
    # What follows the last finite step is no part of the picture.
    num_steps = int(np.flatnonzero(np.isfinite(whole))[-1]) + 1
    line = last.line * last.lr / np.asarray(curves[4, :num_steps], float)
    line_steps, lines = thinned(line)
    values = [point.eigenvalue for point in points]
    # In a warmup the line begins far above: what matters is where sharpness comes near to it.
    floor = float(line.min())
    shown = [*values, floor, ROOM * floor]
    loss_steps, losses = thinned(whole[:num_steps])
    finite = losses[np.isfinite(losses)].tolist()
    ends = {rate(line.min(), digits=3), rate(line[-1], digits=3)}
    return SharpnessInfo(
        *heads,
        tuple(point.step for point in points),
        tuple(values),
        tuple(line_steps.astype(float).tolist()),
        tuple(lines.tolist()),
        f"{formula} = {ends.pop()}" if len(ends) == 1 else formula,
        "preconditioned Hessian" if is_preconditioned else "Hessian",
        axis_ends(shown, min(max(values), floor) * LOG_SPAN < max(*values, floor)),
        tuple(loss_steps.astype(float).tolist()),
        tuple(losses.tolist()),
        axis_ends(finite, max(finite) > LOG_SPAN * min(finite)),
        num_steps,
        num_steps < len(whole),
    )


def draw_sharpness(info: SharpnessInfo, outcome: str) -> Figure:
    """The picture of a trial's sharpness.

    What to conclude: below the line linear theory calls the training stable. Sharpness that rises
    to the line and stays there trains at the edge of stability: a higher rate would be answered by
    a lower sharpness, up to a point. Sharpness that crosses the line while the loss below turns up
    is how the run was lost; one that stays far below leaves room for a higher rate, or is that of
    small batches. A cross is where the loss was finite for the last time.

    Args:
        info: what to show.
        outcome: what the training did, a key of `STYLES`.
    """
    text = textwrap.wrap(info.sentence, 80)
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}):
        head = 0.42 + 0.3 * len(text) + 0.08
        height = HEIGHT_INCHES + head
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        lines = [(info.title, 11.5, "normal", MUTED), *((t, 15, "bold", INK) for t in text)]
        for number, (words, size, weight, colour) in enumerate(lines):
            figure.text(
                0.02, 1 - (0.26 + 0.3 * number) / height, words, fontsize=size, color=colour,
                fontweight=weight, va="center", parse_math=False,
            )  # fmt: skip
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, 0, 1, 1 - head / height), w_pad=0.12, h_pad=0.08)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[1.7, 1])
        _draw_curve(top, info)
        _draw_loss(bottom, info, outcome)
    return figure


def _draw_curve(axes: Axes, info: SharpnessInfo) -> None:
    low, high, log = info.range
    loss_axis(axes, low, high, log)
    axes.plot(info.line_steps, info.line, color=STYLES["diverged"].colour, lw=2, ls=(0, (5, 3)))
    axes.plot(info.steps, info.sharpness, "o-", color=INK, lw=1.8, ms=5, clip_on=False)
    axes.set_title(
        f"- - line of its rate: {info.line_text}", loc="right", fontsize="medium",
        color=STYLES["diverged"].colour, parse_math=False,
    )  # fmt: skip
    dress(axes, f"Sharpness of the {info.matrix}")


def _draw_loss(axes: Axes, info: SharpnessInfo, outcome: str) -> None:
    style = STYLES[outcome]
    loss_axis(axes, *info.loss_range)
    colour = MUTED if style.hatch else style.colour
    axes.plot(info.loss_steps, info.losses, color=colour, lw=1.5)
    if info.is_cut:
        axes.plot(
            info.loss_steps[-1], info.losses[-1], "x", ms=8, mew=2, color=colour, clip_on=False
        )
    axes.set_xlim(-0.02 * info.num_steps, 1.02 * info.num_steps)
    axes.set_xlabel("step")
    dress(axes, f"Loss ({style.label})")
