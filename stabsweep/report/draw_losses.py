"""Draws the final losses that `loss_curves` describes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from stabsweep.report._axes import dress, halo, loss_axis, lr_axis, points
from stabsweep.report.draw_key import Key
from stabsweep.report.loss_curves import LossInfo, LossLine
from stabsweep.report.style import INK, MUTED, PAPER

MAX_LINES = 6
"""With more rows than this only the picked one (or the best) has a colour."""

LANE = 0.13
"""Share of the panel's height that the "not finite" lane takes."""

MARKERS = "osDPvp"  # none points up: that would be a loss above the axis

OTHERS = "#C4C4C4"

MAX_VECTOR_MARKS = 400
"""Above this many crosses of a row an SVG would grow too large: they are an image in it."""

ROW_COLOURS = LinearSegmentedColormap.from_list(
    "stabsweep_rows", ["#3B0F6F", "#8C2981", "#DE4968", "#FE9F6D"]
)
"""Rows from first to last: no hue of the map, and its lightness rises for all kinds of vision."""


def draw_losses(axes: Axes, info: LossInfo) -> None:
    """Draws what each learning rate ends with.

    What to conclude: the bottom of each valley is the best rate of its row, and how wide it is
    says how precisely you have to tune. Where a line reaches the level "knows nothing" the model
    has learned nothing, however quiet its curve. A pick on the flat part left of the edge costs
    little loss and buys distance. Crosses on top are trials whose loss ran away or was not
    finite; triangles are losses above the axis.
    """
    lr_axis(axes, *info.lr_range, most=6)
    loss_axis(axes, *info.loss_range, info.log_loss, headroom=LANE)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("final loss")
    order = sorted(range(len(info.lines)), key=lambda n: info.lines[n].is_main)
    for number in order:
        _draw_line(axes, info, number)
    _draw_runaways(axes, info)
    _draw_levels(axes, info)
    _draw_lane(axes)
    height = _free_height(axes, info)
    for lr, style in ((info.edge_lr, "-"), (info.pick_lr, ":")):
        if lr is not None:
            look: dict[str, Any] = {"lw": points(1.3), "ls": style, "alpha": 0.75}
            axes.axvline(lr, ymax=1 - LANE, color=INK, zorder=1, **look)
            # Away from the border that is near, else away from each other.
            low, high = np.log10(info.lr_range)
            place = (np.log10(lr) - low) / (high - low)
            to_right = place < 0.12 if style == ":" else place < 0.88
            word = f" {'edge' if style == '-' else 'pick'} "
            side = "left" if to_right else "right"
            axes.text(
                lr, height, word, ha=side, transform=axes.get_xaxis_transform(), fontsize="small",
                path_effects=halo(), zorder=6,
            )  # fmt: skip
    _draw_marks(axes, info)
    dress(axes)
    if not info.lines:
        axes.text(0.5, 0.45, "no trial finished", transform=axes.transAxes, ha="center")


def row_key(info: LossInfo) -> Key:
    """What the lines are, after what they differ in; nothing for a single line."""
    is_many = len(info.lines) > MAX_LINES
    named = [
        (number, line)
        for number, line in enumerate(info.lines)
        if line.lrs and line.label and (line.is_main or not is_many)
    ]
    if not named or len(info.lines) < 2:
        return [], []
    handles = [Line2D([], [], lw=0)]
    handles += [
        Line2D([], [], color=_colour(info, number), lw=_width(line), **_mark(info, number))
        for number, line in named
    ]
    labels = [info.title, *(line.label for _, line in named)]
    if is_many:
        handles.append(Line2D([], [], color=OTHERS, lw=points(1.4)))
        labels.append("other rows")
    return handles, labels


def draw_row_names(axes: Axes, beside: Axes, info: LossInfo) -> None:
    """Names the lines: in one line below the panel if that is wide enough, else inside it.

    Args:
        axes: an empty one below the panel.
        beside: the panel itself.
        info: what was drawn.
    """
    axes.axis("off")
    handles, labels = row_key(info)
    if not labels:
        return
    look = {"fontsize": "small", "handlelength": 1.3, "columnspacing": 1.1, "borderaxespad": 0}
    if sum(len(label) + 5 for label in labels) <= 57:
        legend = axes.legend(handles, labels, loc="center", ncols=9, frameon=False, **look)
    else:
        legend = beside.legend(
            handles[:0:-1], labels[:0:-1], loc="best", labelspacing=0.3, framealpha=0.85,
            edgecolor="none", **look,
        )  # fmt: skip
    legend.set_in_layout(False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _colour(info: LossInfo, number: int) -> Any:
    if len(info.lines) > MAX_LINES:
        return ROW_COLOURS(0.0) if info.lines[number].is_main else OTHERS
    return ROW_COLOURS(number / max(len(info.lines) - 1, 1))


def _width(line: LossLine) -> float:
    return points(2.6 if line.is_main else 1.4)


def _mark(info: LossInfo, number: int) -> dict[str, Any]:
    """Each row has a marker of its own, for who does not see its colour."""
    marker = MARKERS[number] if len(info.lines) <= MAX_LINES else "o"
    return {"marker": marker, "ms": _width(info.lines[number]) + points(1.6)}


def _draw_line(axes: Axes, info: LossInfo, number: int) -> None:
    line, colour = info.lines[number], _colour(info, number)
    low, high = info.loss_range
    clip = lambda values: np.clip(np.array(values, float), low, high)  # noqa: E731
    is_many = len(info.lines) > MAX_LINES
    if line.lrs:
        mark = {} if is_many and not line.is_main else _mark(info, number)
        axes.plot(
            line.lrs, clip(line.middle), color=colour, lw=_width(line),
            zorder=4 if line.is_main else 3, **mark,
        )  # fmt: skip
        if line.is_main or not is_many:
            axes.fill_between(
                line.lrs, clip(line.low), clip(line.high), color=colour, alpha=0.13, lw=0, zorder=2
            )
    off = [lr for lr, value in zip(line.lrs, line.high, strict=True) if value > high]
    if off:
        axes.plot(
            off, [high] * len(off), ls="none", marker="^", ms=points(6), color=colour, zorder=5
        )


def _draw_runaways(axes: Axes, info: LossInfo) -> None:
    """A cross in the lane for each rate at which a trial of a row ran away.

    Many rows share one height, the picked one has its own: 32 heights would be a grey carpet.
    """
    lane = blended_transform_factory(axes.transData, axes.transAxes)
    is_many = len(info.lines) > MAX_LINES
    heights = {n: (n + 1) / (len(info.lines) + 1) for n in range(len(info.lines))}
    if is_many:
        heights = {n: 0.3 if line.is_main else 0.7 for n, line in enumerate(info.lines)}
    spots: dict[tuple[float, Any], set[float]] = defaultdict(set)
    for number, line in enumerate(info.lines):
        spots[heights[number], _colour(info, number)] |= set(line.not_finite)
    for (height, colour), lrs in spots.items():
        axes.plot(
            sorted(lrs), [1 - LANE * (1 - height)] * len(lrs), ls="none", marker="x",
            ms=points(4.5), mew=points(1.1), color=colour, transform=lane, zorder=5,
            rasterized=len(lrs) > MAX_VECTOR_MARKS,
        )  # fmt: skip


def _draw_lane(axes: Axes) -> None:
    lane = Rectangle((0, 1 - LANE), 1, LANE, transform=axes.transAxes, fc="#EFEFEF", lw=0, zorder=0)
    axes.add_patch(lane)
    axes.text(
        -0.015, 1 - LANE / 2, "ran\naway", transform=axes.transAxes, ha="right", va="center",
        fontsize="small", linespacing=1.0, in_layout=False,
    )  # fmt: skip


def _draw_levels(axes: Axes, info: LossInfo) -> None:
    level = blended_transform_factory(axes.transAxes, axes.transData)
    named = [(info.blind, "knows nothing (blind)"), (info.initial, "untrained")]
    if info.blind is not None and info.initial is not None:
        blind, initial = axes.transData.transform([(1, info.blind), (1, info.initial)])[:, 1]
        if abs(blind - initial) < 0.09 * axes.bbox.height:
            # The words stand above both lines, the upper of them last.
            named = sorted([(info.blind, "knows nothing (blind)"), (info.initial, "untrained")])
            named = [(named[0][0], ""), (named[1][0], f"{named[0][1]}, {named[1][1]}")]
    for loss, text in named:
        if loss is not None:
            axes.axhline(loss, color=MUTED, lw=points(1), ls=(0, (5, 3)), zorder=1)
            axes.text(
                0.36, loss, text, transform=level, ha="center", va="bottom", fontsize="small",
                color=MUTED, path_effects=halo(), zorder=6,
            )  # fmt: skip


def _free_height(axes: Axes, info: LossInfo) -> float:
    """Where on the panel, from 0 to 1, a word stands clear of the words on the level lines."""
    levels = [(info.lr_range[0], v) for v in (info.blind, info.initial) if v is not None]
    taken = [axes.transAxes.inverted().transform(axes.transData.transform(at))[1] for at in levels]
    # A word on a line takes up to a tenth above it; another's middle lies in the upper part.
    free = [h for h in (0.68, 0.58, 0.48) if all(not -0.05 < h - y < 0.1 for y in taken)]
    return float(free[0]) if free else 0.38


def _draw_marks(axes: Axes, info: LossInfo) -> None:
    if info.pick_lr is None:
        return
    for line in info.lines:
        if line.is_main and line.lrs:
            x = np.log10(line.lrs)
            y = float(np.interp(np.log10(info.pick_lr), x, np.clip(line.middle, *info.loss_range)))
            star: dict[str, Any] = {"ms": points(17), "mfc": PAPER, "mec": INK, "mew": points(1.3)}
            axes.plot(info.pick_lr, y, "*", zorder=7, **star)
