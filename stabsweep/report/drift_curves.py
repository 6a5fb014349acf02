"""How two trainings of the same thing drift apart: the plain numbers, and the drawer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stabsweep.growth import Growth
from stabsweep.records import Array
from stabsweep.report._axes import dress, halo, loss_axis
from stabsweep.report.figure import SETTINGS
from stabsweep.report.style import FAINT, INK, MUTED, STYLES, clean

WIDTH_INCHES, HEIGHT_INCHES = 12, 4.2

COLOURS: Mapping[str, str] = {
    "fp32": STYLES["diverged"].colour,
    "fp64": STYLES["converged"].colour,
}
"""Precision -> colour; the lines are also named where they end."""

SAME = 1e-18
"""The bottom of the axis where no difference is smaller: below the last bit of any loss."""


class DriftCurve(NamedTuple):
    """One training on two machines.

    Attributes:
        model, precision: which one.
        here, there: (T,) its losses.
        growth: how their difference grows.
        gap: what was learned: blind loss minus final loss.
    """

    model: str
    precision: str
    here: Array
    there: Array
    growth: Growth
    gap: float


@dataclass(frozen=True)
class DriftLine:
    """One line of a panel.

    Attributes:
        label: precision, and its doubling time where it has one.
        colour: of the line.
        steps, differences: where the losses differ, by how much.
        fit: (step, difference) of the fit's corners and ends; empty without growth.
    """

    label: str
    colour: str
    steps: tuple[int, ...]
    differences: tuple[float, ...]
    fit: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class DriftPanel:
    """One model.

    Attributes:
        model: its name.
        lines: those that differ somewhere.
        same: precisions in which every loss has the same bits.
        gap: what was learned: a difference as large would be everything.
    """

    model: str
    lines: tuple[DriftLine, ...]
    same: tuple[str, ...]
    gap: float


@dataclass(frozen=True)
class DriftInfo:
    """All that the picture shows.

    Attributes:
        title, sentence: which machines, and what to conclude.
        panels: one a model.
        range: ends of the logarithmic axis that they share.
        num_steps: of the trainings.
    """

    title: str
    sentence: str
    panels: tuple[DriftPanel, ...]
    range: tuple[float, float]
    num_steps: int


def drift_info(curves: Sequence[DriftCurve], heads: tuple[str, str]) -> DriftInfo:
    """The numbers of the picture.

    Args:
        curves: at least one, those of a model one after the other.
        heads: which machines, and what to conclude.
    """
    panels = []
    for model in dict.fromkeys(curve.model for curve in curves):
        own = [curve for curve in curves if curve.model == model]
        lines = tuple(_line(curve) for curve in own if curve.growth.first_step is not None)
        same = tuple(curve.precision for curve in own if curve.growth.first_step is None)
        panels.append(DriftPanel(model, lines, same, own[0].gap))
    shown = [value for panel in panels for line in panel.lines for value in line.differences]
    gaps = [panel.gap for panel in panels if panel.gap > 0]
    low, high = min(shown, default=SAME), max([*shown, *gaps], default=1.0)
    low = min(low, high / 10)
    room = (high / low) ** 0.07
    return DriftInfo(*heads, tuple(panels), (low / room, high * room), len(curves[0].here))


def _line(curve: DriftCurve) -> DriftLine:
    apart = np.abs(curve.here.astype(np.float64) - curve.there.astype(np.float64))
    # A difference of 0 has no place on a logarithmic axis: between two crossing losses.
    steps = np.flatnonzero(np.isfinite(apart) & (apart > 0))
    growth, label, fit = curve.growth, curve.precision, ()
    if growth.doubling_steps is not None:
        label += f": doubles every {growth.doubling_steps:.2g} steps"
        (start, low), (end, high) = growth.corners
        fit = ((float(steps[0]), low), (start, low), (end, high), (float(steps[-1]), high))
    values = apart[steps]
    colour = COLOURS.get(curve.precision, MUTED)
    return DriftLine(label, colour, tuple(steps.tolist()), tuple(values.tolist()), fit)


def draw_drift(info: DriftInfo) -> Figure:
    """The picture of two machines that drift apart.

    What to conclude: a level line is rounding that training does not feed. A straight rise is
    chaos: there the last digits of one machine are lost for another after some doublings, whatever
    the precision, and a level at the end is as far apart as two such trainings can be. Below the
    grey line, which is what was learned, a final loss is the same for a reader; verdicts are
    compared beside the picture.

    Args:
        info: what to show.
    """
    text = textwrap.wrap(info.sentence, 96)
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}):
        head = 0.5 + 0.3 * len(text) + 0.05
        height = HEIGHT_INCHES + head
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        title = textwrap.shorten(clean(info.title), 150, placeholder=" ...")
        lines = [(title, 11.5, "normal", MUTED), *((t, 15, "bold", INK) for t in text)]
        for number, (words, size, weight, colour) in enumerate(lines):
            figure.text(
                0.017, 1 - (0.26 + 0.3 * number) / height, words, fontsize=size, color=colour,
                fontweight=weight, va="center", parse_math=False,
            )  # fmt: skip
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, 0, 1, 1 - head / height), w_pad=0.12, h_pad=0.08)
        panels = figure.subplots(1, len(info.panels), squeeze=False, sharey=True)[0]
        for axes, panel in zip(panels, info.panels, strict=True):
            _draw_panel(axes, panel, info)
        panels[0].set_ylabel("difference of the losses")
    return figure


def _draw_panel(axes: Axes, panel: DriftPanel, info: DriftInfo) -> None:
    loss_axis(axes, *info.range, True)
    axes.set_xlim(-0.02 * info.num_steps, 1.02 * info.num_steps)
    axes.set_xlabel("step")
    if math.isfinite(panel.gap) and panel.gap > 0:
        axes.axhline(panel.gap, color=FAINT, lw=1.5, zorder=0)
        axes.text(
            0, panel.gap, "all that was learned", fontsize="small", color=MUTED, va="bottom",
            parse_math=False,
        )  # fmt: skip
    for line in panel.lines:
        axes.plot(line.steps, line.differences, ".", ms=3.5, color=line.colour, alpha=0.55)
        if line.fit:
            axes.plot(*zip(*line.fit, strict=True), color=line.colour, lw=2.2)
        top = max(line.differences)
        axes.text(
            info.num_steps, _below_ceiling(top, info), line.label, color=line.colour, ha="right",
            va="bottom", fontsize="medium", path_effects=halo(), parse_math=False,
        )  # fmt: skip
    if panel.same:
        axes.text(
            0.5, 0.04, f"{' and '.join(panel.same)}: the same bits at every step", color=MUTED,
            ha="center", transform=axes.transAxes, parse_math=False,
        )  # fmt: skip
    dress(axes, panel.model)


def _below_ceiling(top: float, info: DriftInfo) -> float:
    """Where a line is named: above its points, and inside the panel."""
    low, high = info.range
    room = (high / low) ** 0.03
    return min(top * room, high / (high / low) ** 0.09)
