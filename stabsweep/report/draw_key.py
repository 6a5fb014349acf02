"""Draws what the colours, glyphs and lines of a map mean, in as many columns as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import text_to_path

from stabsweep.numerals import loss
from stabsweep.report._axes import FONT_SIZE, LOSS_MAP, points, without_glyph_warnings
from stabsweep.report.draw_map import DASHES, DOTS, is_on, tried_look
from stabsweep.report.stability_map import MapInfo
from stabsweep.report.style import FAINT, HATCH, INK, ON_SCALE, PAPER, STYLES

SPACING: dict[str, Any] = {"handlelength": 1.5, "handletextpad": 0.6, "columnspacing": 1.5}
"""matplotlib's words for how wide a legend is set, in sizes of its text."""

SMALL = 9.6
"""Points of a `small` text where the picture's own is `FONT_SIZE`."""

Key = tuple[list[Any], list[str]]
"""What is drawn beside each word of a legend, and the words."""


def text_points(text: str, size: float) -> float:
    """How wide a text is in points."""
    with without_glyph_warnings():
        font = FontProperties(size=size)
        return text_to_path.get_text_width_height_descent(text, font, False)[0]


def num_columns(labels: Sequence[str], room: float, size: float | None = None) -> int:
    """Columns of a legend that fit, with rows as equally full as can be.

    Args:
        labels: its words.
        room: points that it may be wide.
        size: points of its text; the picture's own when not given.
    """
    size = points(FONT_SIZE) if size is None else size
    widths = [text_points(label, size) for label in labels]
    beside = (SPACING["handlelength"] + SPACING["handletextpad"]) * size
    for count in range(len(labels), 1, -1):
        columns = [column for column in np.array_split(widths, count) if len(column)]
        wide = sum(max(column) + beside for column in columns)
        if wide + (count - 1) * SPACING["columnspacing"] * size <= room:
            num_rows = -(-len(labels) // count)
            return -(-len(labels) // num_rows)
    return 1


def draw_colour_bar(axes: Axes, info: MapInfo, room: float) -> None:
    """Draws the loss scale with both ends named in words, the good one first.

    Args:
        axes: an empty panel.
        info: the map.
        room: points that it is wide; where that is little the words take two lines.
    """
    axes.axis("off")
    if info.losses is None:
        return
    best, worst = info.losses
    texts = [f"final loss: best {loss(best)}", f"{loss(worst)} {info.bad_end}"]
    size = points(FONT_SIZE)
    if sum(text_points(text, size) for text in texts) > 0.6 * room:
        size = points(SMALL)
        texts = [texts[0].replace(": ", ":\n"), texts[1].replace(", ", ",\n")]
    wide = [max(text_points(line, size) for line in text.split("\n")) / room for text in texts]
    gap = 0.8 * size / room
    left = wide[0] + gap
    right = left + min(max(1 - wide[1] - gap - left, 0.15), 0.32)
    # Where a norm puts a loss is what the colour map is given, so an even ramp is right for both.
    axes.imshow(
        np.linspace(0, 1, 256)[None], LOSS_MAP, aspect="auto", extent=(left, right, 0, 1),
        transform=axes.transAxes, interpolation="nearest",
    )  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(0, 1))
    for x, align, text in ((left - gap, "right", texts[0]), (right + gap, "left", texts[1])):
        axes.text(
            x, 0.5, text, ha=align, va="center", fontsize=size, linespacing=1.1,
            in_layout=False, parse_math=False,
        )  # fmt: skip


def outcome_mark(name: str, on_scale: bool = True) -> Any:
    """What stands for an outcome in a legend: its colour with its glyph on it.

    Args:
        name: a key of `STYLES`.
        on_scale: whether what learned is coloured by its loss, as on the map.
    """
    style = STYLES[name]
    is_spiky = name == "spiky" and on_scale
    patch = Patch(
        fc=LOSS_MAP(0.4) if is_spiky else style.colour, ec=HATCH if style.hatch else "none",
        hatch=style.hatch,
    )  # fmt: skip
    mark = Line2D(
        [], [], ls="none", marker=style.marker, ms=points(5), mec=style.ink, mew=points(0.9),
        mfc=style.colour if is_spiky else style.ink,
        alpha=0 if style.hatch else 1 if is_spiky else 0.6,
    )  # fmt: skip
    return patch, mark


def map_key(info: MapInfo) -> Key:
    """What the colours, glyphs and lines of the map mean, only those that occur."""
    handles: list[Any] = []
    labels = []
    for name, count in info.counts.items():
        if name == "spiky" or name not in ON_SCALE:
            handles.append(outcome_mark(name))
            labels.append(f"{STYLES[name].label} ({count:,})")
    if info.is_scattered:
        handles.append(Line2D([], [], **tried_look()))
        labels.append("rate tried")
    if info.has_gaps:
        handles.append(Patch(fc=PAPER, ec=FAINT, hatch="////", lw=0))
        labels.append("not run")
    if any(row.edge.status == "found" for row in info.rows):
        handles += [
            Line2D([], [], color=INK, lw=points(2.6)),
            Patch(fc=PAPER, ec=INK, lw=points(1.1)),
            Line2D([], [], color=INK, lw=points(1.6), ls=DASHES),
        ]
        labels += ["edge: half fail", "95% interval", "safe edge: 5% fail"]
    mark: dict[str, Any] = {"ls": "none", "mec": INK}
    if any(row.edge.status == "above" for row in info.rows):
        handles.append(Line2D([], [], **mark, marker=">", ms=points(8), mfc=INK))
        labels.append("edge not reached")
    if any(is_on(info, row.theory_lr) for row in info.rows):
        handles.append(Line2D([], [], color=INK, lw=points(1.4), ls=DOTS))
        labels.append("edge of linear theory")
    if info.pick is not None:
        star: dict[str, Any] = {"marker": "*", "ms": points(13), "mfc": PAPER, "mew": points(1.2)}
        handles.append(Line2D([], [], **mark, **star))
        labels.append("pick")
    return handles, labels


def draw_legend(
    where: Axes | Figure,
    key: Key,
    room: float,
    loc: Any = "center",
    size: float | None = None,
) -> None:
    """Draws a legend in as many columns as fit.

    Args:
        where: an empty panel, or a figure that makes room at its border.
        key: what it says, see `map_key`.
        room: points that it may be wide.
        loc: where in it.
        size: points of its text; the picture's own when not given.
    """
    handles, labels = key
    if isinstance(where, Axes):
        where.axis("off")
    if not labels:
        return
    legend = where.legend(
        handles, labels, loc=loc, ncols=num_columns(labels, room, size), frameon=False, **SPACING,
        fontsize=points(FONT_SIZE) if size is None else size,
        borderaxespad=0, handleheight=1.0, labelspacing=0.5,
        handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    legend.set_in_layout(isinstance(where, Figure))
