"""Draws the edges of two sweeps side by side, which `edge_shifts` describes."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from stabsweep.report._axes import dress, halo, lr_axis
from stabsweep.report.edge_shifts import ShiftInfo, Span
from stabsweep.report.figure import SETTINGS
from stabsweep.report.style import FAINT, INK, MUTED, PAPER, SIDES, clean

WIDTH_INCHES, ROW_INCHES = 11, 0.6

SIDE_STEP = 0.17
"""Distance of A and B from the middle of their row, in rows."""


def draw_shifts(info: ShiftInfo) -> Figure:
    """The picture of two sweeps: the edge of each row in both, with its interval.

    What to conclude: where the two bars of a row share no learning rate, the edge has moved, by
    the distance named at the right. Where they overlap the sweeps cannot tell: more learning rates
    or seeds make the bars shorter. A bar that ends in an arrow is an edge that was not met.
    """
    # A title that is too long breaks where it takes breath.
    parts = [info.title] if len(info.title) <= 78 else info.title.replace("; ", ";\n").split("\n")
    title = [line for part in parts for line in textwrap.wrap(part, 78)]
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}):
        body = ROW_INCHES * max(len(info.rows), 2) + 1.0
        legend = 0.32 * len(info.names) + 0.12
        head = 0.33 * len(title) + legend + 0.15
        height = head + body
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        for number, line in enumerate(title):
            figure.text(
                0.015, 1 - (0.3 + 0.33 * number) / height, line, fontsize=16, fontweight="bold",
                color=INK, va="center", parse_math=False,
            )  # fmt: skip
        layout: Any = figure.get_layout_engine()
        layout.set(rect=(0, 0, 1, body / height), w_pad=0.12, h_pad=0.08)
        axes = figure.subplots()
        _draw_rows(axes, info)
        handles = [_handle(side) for side in (0, 1)]
        labels = [
            f"{word}  {clean(name, 100)}" for word, name in zip("AB", info.names, strict=True)
        ]
        figure.legend(
            handles, labels, loc="upper left", frameon=False, borderaxespad=0.0,
            bbox_to_anchor=(0.015, 1 - (0.33 * len(title) + 0.18) / height), fontsize=13,
        ).set_in_layout(False)  # fmt: skip
    return figure


def _handle(side: int) -> Line2D:
    face = PAPER if side == 0 else SIDES[side]
    return Line2D(
        [], [], color=SIDES[side], lw=3, marker="oD"[side], ms=8, mfc=face, mec=SIDES[side],
        mew=1.8,
    )  # fmt: skip


def _draw_rows(axes: Axes, info: ShiftInfo) -> None:
    lr_axis(axes, *info.lr_range)
    axes.set_xlabel("learning rate of the edge, with its 95 % interval", fontsize=13)
    axes.set_ylim(-0.6, max(len(info.rows), 1) - 0.4)
    places = range(len(info.rows))
    axes.set_yticks(places, [row.label for row in info.rows], parse_math=False)
    axes.tick_params(labelsize=13)
    if info.axis:
        axes.set_ylabel(info.axis, parse_math=False, fontsize=13)
    for place, row in enumerate(info.rows):
        if place:
            axes.axhline(place - 0.5, color=FAINT, lw=0.8, zorder=0)
        for side, span in enumerate((row.a, row.b)):
            if span is not None:
                # A above B, as in the legend.
                _draw_span(axes, info, span, place + SIDE_STEP * (1 - 2 * side), side)
        axes.text(
            1.025, place, row.text, transform=axes.get_yaxis_transform(), va="center",
            fontsize=13, color=INK if row.is_moved else MUTED,
            fontweight="bold" if row.is_moved else "normal", parse_math=False,
        )  # fmt: skip
    axes.text(
        1.025, 1.02, "decades", transform=axes.transAxes, va="bottom", fontsize="small",
        color=MUTED, in_layout=False,
    )  # fmt: skip
    if info.num_hidden:
        axes.set_title(f"{info.num_hidden} more rows are not drawn", loc="right", fontsize=11.5)
    dress(axes)
    if not info.axis:
        axes.set_yticks([])


def _draw_span(axes: Axes, info: ShiftInfo, span: Span, y: float, side: int) -> None:
    colour = SIDES[side]
    low, high = span.low or info.lr_range[0], span.high or info.lr_range[1]
    axes.plot([low, high], [y, y], color=colour, lw=3, solid_capstyle="butt", zorder=2)
    for end, x, marker in ((span.low, low, "<"), (span.high, high, ">")):
        if end is None:
            axes.plot(x, y, marker, color=colour, ms=9, zorder=3, clip_on=False)
        else:
            axes.plot(x, y, "|", color=colour, ms=9, mew=2, zorder=2)
    if span.lr is not None:
        axes.plot(
            span.lr, y, "oD"[side], ms=8, mfc=PAPER if side == 0 else colour, mec=colour,
            mew=1.8, zorder=4, path_effects=halo(2.0),
        )  # fmt: skip
