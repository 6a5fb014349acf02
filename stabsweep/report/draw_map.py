"""Draws the stability map that `stability_map` describes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize, to_rgba_array
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import SubplotSpec
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from stabsweep.numerals import loss
from stabsweep.report._axes import LOSS_MAP, dress, halo, lr_axis
from stabsweep.report.stability_map import MapCell, MapInfo, MapRow, Part
from stabsweep.report.style import FAINT, INK, ON_SCALE, PAPER, STYLES

MAX_VECTOR_PARTS = 800
"""Above this many rectangles an SVG would grow too large: they are drawn as an image in it."""

DASHES, DOTS = (0, (3.2, 2)), (0, (1, 1.6))

TRIED = {"ls": "none", "marker": "o", "ms": 3, "mfc": PAPER, "mec": INK, "mew": 0.6}
TRIED_HEIGHT = 0.3
"""How rates that were tried are marked: below the glyphs of failures, which lie in the middle."""

MAX_LABELS = 16
"""Row labels that fit beside the map."""


def draw_map(axes: Axes, info: MapInfo) -> None:
    """Draws where training is stable.

    What to conclude: blue is where training works, the darker the better. Follow your row from
    the left until the black line: there half of the trials fail. Stay left of the dashed line;
    the star is the recommendation, its arrow how far the edge is. A wide box on the line means
    that the edge is known only roughly: run more trials or seeds there. The thin dotted line is
    the edge of linear theory at the first weights, for comparison. A rectangle of several
    colours is a rate at which the seed decides.
    """
    lr_axis(axes, *info.lr_range)
    axes.set_xlabel("learning rate")
    axes.set_ylim(0, max(len(info.rows), 1))
    # Empty means not run; the hatch says that it is no colour of the scale.
    blank = Rectangle((0, 0), 1, 1, transform=axes.transAxes, zorder=0, lw=0, fc=PAPER, ec=FAINT)
    blank.set_hatch("////")
    axes.add_patch(blank)
    _draw_cells(axes, info)
    if info.is_scattered:
        _draw_tried(axes, info)
    _label_rows(axes, info)
    tall = 0.16 * min(len(info.rows) / 4, 1)
    for number, row in enumerate(info.rows):
        _draw_edge(axes, number, row, tall)
        _draw_theory(axes, number, row, info)
    if info.pick is not None:
        _draw_pick(axes, info)
    dress(axes)
    axes.tick_params(axis="y", length=0)
    if not info.rows:
        axes.set_yticks([])
        axes.text(
            0.5,
            0.5,
            "no trial finished",
            transform=axes.transAxes,
            ha="center",
            path_effects=halo(),
        )


def _draw_cells(axes: Axes, info: MapInfo) -> None:
    norm = _norm(info)
    boxes, colours, losses, marks = [], [], {}, []
    hatched: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(info.rows):
        for cell in row.cells:
            for part in cell.parts:
                style = STYLES[part.name]
                if part.loss is not None:
                    losses[len(boxes)] = part.loss
                if style.hatch:
                    hatched[part.name].append(len(boxes))
                boxes.append((cell.low, cell.high, number + part.bottom, number + part.top))
                colours.append(style.colour)
                glyph = part.name not in ON_SCALE and _has_room(info, cell, part)
                if glyph or part.name == "spiky":
                    marks.append((part.name, cell.lr, number + (part.bottom + part.top) / 2))
    raster = len(boxes) > MAX_VECTOR_PARTS
    left, right, bottom, top = np.array(boxes).reshape(-1, 4).T
    corners = np.stack([left, bottom, right, bottom, right, top, left, top], 1).reshape(-1, 4, 2)
    colours = to_rgba_array(colours)
    if losses and norm is not None:
        colours[list(losses)] = LOSS_MAP(norm(list(losses.values())))
    # An edge in the cell's own colour closes the hairlines that viewers leave between rectangles.
    look: dict[str, Any] = {"lw": 0.3, "rasterized": raster}
    axes.add_collection(PolyCollection(list(corners), fc=colours, ec=colours, zorder=1, **look))
    for name, places in hatched.items():
        look |= {"fc": "none", "ec": "#8A8A8A", "hatch": STYLES[name].hatch, "zorder": 1.1}
        axes.add_collection(PolyCollection(list(corners[places]), **look))
    for name, style in STYLES.items():
        spots = [(x, y) for found, x, y in marks if found == name]
        if spots and not style.hatch:
            x, y = np.array(spots).T
            look = {"mfc": style.ink, "mec": style.ink, "ms": 4.5, "alpha": 0.6, "zorder": 2}
            if name == "spiky":
                look |= {"mfc": style.colour, "mec": INK, "ms": 6, "alpha": 1, "zorder": 2.1}
            axes.plot(x, y, ls="none", marker=style.marker, mew=0.9, rasterized=raster, **look)


def _draw_tried(axes: Axes, info: MapInfo) -> None:
    """A dot at each rate that was tried: between scattered ones the colour is that of the next."""
    spots = [(cell.lr, n + TRIED_HEIGHT) for n, row in enumerate(info.rows) for cell in row.cells]
    x, y = np.array(spots).T
    axes.plot(x, y, zorder=2.2, rasterized=len(spots) > MAX_VECTOR_PARTS, **TRIED)


def _has_room(info: MapInfo, cell: MapCell, part: Part) -> bool:
    """Whether a glyph of 9 points fits into a part of a cell, on a map of about 500 x 270."""
    low, high = info.lr_range
    wide = 500 * np.log(cell.high / cell.low) / np.log(high / low)
    return bool(min(wide, 270 * (part.top - part.bottom) / len(info.rows)) >= 9)


def _label_rows(axes: Axes, info: MapInfo) -> None:
    every = max(-(-len(info.rows) // MAX_LABELS), 1)
    shown = range(0, len(info.rows), every)
    labels = [info.rows[n].label for n in shown] if info.axis else [""] * len(shown)
    axes.set_yticks([n + 0.5 for n in shown], labels, parse_math=False)
    if info.axis:
        axes.set_ylabel(info.axis, parse_math=False)
    for number in range(1, len(info.rows)):
        parted = info.rows[number].group != info.rows[number - 1].group
        axes.axhline(
            number, color=PAPER, lw=4 if parted else min(1.2, 14 / len(info.rows)), zorder=2.5
        )


def _draw_edge(axes: Axes, number: int, row: MapRow, tall: float) -> None:
    edge = row.edge
    inside = {"solid_capstyle": "butt", "clip_on": True}
    if edge.status == "found" and edge.lr and edge.low and edge.high:
        if edge.safe_lr:
            ends = [number + 0.02, number + 0.98]
            axes.plot([edge.safe_lr] * 2, ends, color=PAPER, lw=4.2, zorder=4.9, **inside)
            axes.plot([edge.safe_lr] * 2, ends, color=INK, lw=1.6, ls=DASHES, zorder=5, **inside)
        axes.plot(
            [edge.lr] * 2, [number, number + 1], color=INK, lw=2.6, path_effects=halo(6), zorder=6,
            **inside,
        )  # fmt: skip
        axes.add_patch(
            Rectangle(
                (edge.low, number + tall / 2), edge.high - edge.low, tall, fc=PAPER, ec=INK, lw=1.1,
                zorder=5.5,
            )
        )  # fmt: skip
    elif edge.status == "above" and row.cells:
        axes.plot(
            row.cells[-1].high, number + 0.25, marker=">", ms=9, color=INK, path_effects=halo(4),
            zorder=6, clip_on=False,
        )  # fmt: skip


def _is_on(info: MapInfo, lr: float) -> bool:
    """Whether a learning rate is on the map."""
    return info.lr_range[0] < lr < info.lr_range[1]


def _draw_theory(axes: Axes, number: int, row: MapRow, info: MapInfo) -> None:
    """A thin line where linear theory has the edge: for comparison, nothing to stay left of."""
    lr = row.theory_lr
    if lr is None or not _is_on(info, lr):
        return
    ends = [number + 0.02, number + 0.98]
    axes.plot([lr] * 2, ends, color=PAPER, lw=3.2, zorder=4.7)
    axes.plot([lr] * 2, ends, color=INK, lw=1.4, ls=DOTS, zorder=4.8)
    if len(info.rows) <= 8:
        axes.annotate(
            "theory", (lr, number + 0.06), (3, 0), textcoords="offset points", va="bottom",
            fontsize="small", path_effects=halo(3), zorder=7,
        )  # fmt: skip


def _draw_pick(axes: Axes, info: MapInfo) -> None:
    pick = info.pick
    assert pick is not None
    y = pick.row + 0.62
    if pick.edge_lr is not None and pick.margin_decades and pick.margin_decades > 0.03:
        axes.annotate(
            "", xy=(pick.edge_lr, y), xytext=(pick.lr, y), zorder=6.5,
            arrowprops={
                "arrowstyle": "->,head_width=0.3,head_length=0.5", "color": INK, "lw": 1.8,
                "shrinkA": 0, "shrinkB": 2, "path_effects": halo(5),
            },
        )  # fmt: skip
        decades = np.log10(info.lr_range[1] / info.lr_range[0])
        if len(info.rows) <= 8 and pick.margin_decades > 0.11 * decades:
            axes.annotate(
                f"{pick.margin_decades:.1f} decades", ((pick.lr * pick.edge_lr) ** 0.5, y), (0, 5),
                textcoords="offset points", ha="center", va="bottom", fontsize="small",
                path_effects=halo(3.5), zorder=7,
            )  # fmt: skip
    size = 21 if len(info.rows) <= 8 else 15
    axes.plot(pick.lr, y, marker="*", ms=size, mfc="#FFFFFF", mec=INK, mew=1.5, zorder=8)


def draw_colour_bar(figure: Figure | SubFigure, spec: SubplotSpec, info: MapInfo) -> None:
    """Draws the loss scale with both ends named in words, the good one first."""
    norm = _norm(info)
    if norm is None or info.losses is None:
        return
    best, worst = info.losses
    grid = spec.subgridspec(1, 3, width_ratios=[1.25, 1.2, 1.6], wspace=0.01)
    left, middle, right = (figure.add_subplot(grid[0, n]) for n in range(3))
    bar = figure.colorbar(ScalarMappable(norm, LOSS_MAP), cax=middle, orientation="horizontal")
    bar.set_ticks([])
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)  # type: ignore[operator]
    for axes, x, align, text in (
        (left, 1, "right", f"final loss: best {loss(best)}"),
        (right, 0, "left", f"{loss(worst)} {info.bad_end}"),
    ):
        axes.axis("off")
        axes.text(x, 0.5, text, ha=align, va="center", in_layout=False, parse_math=False)


def draw_legend(axes: Axes, info: MapInfo) -> None:
    """Draws what the colours, glyphs and lines of the map mean, only those that occur."""
    axes.axis("off")
    handles, labels = [], []
    for name, count in info.counts.items():
        style = STYLES[name]
        if name == "spiky":
            patch = Patch(fc=LOSS_MAP(0.4))
        elif name in ON_SCALE:
            continue
        else:
            patch = Patch(
                fc=style.colour, ec="#8A8A8A" if style.hatch else "none", hatch=style.hatch
            )
        colour = style.colour if name == "spiky" else style.ink
        mark = Line2D(
            [], [], ls="none", marker=style.marker, ms=5, mfc=colour, mec=style.ink, mew=0.9,
            alpha=0 if style.hatch else 1 if name == "spiky" else 0.6,
        )  # fmt: skip
        handles.append((patch, mark))
        labels.append(f"{style.label} ({count})")
    if info.is_scattered:
        handles.append(Line2D([], [], **TRIED))
        labels.append("rate tried")
    if info.has_gaps:
        handles.append(Patch(fc=PAPER, ec=FAINT, hatch="////", lw=0))
        labels.append("not run")
    found = [row.edge for row in info.rows if row.edge.status == "found"]
    if found:
        box = Patch(fc=PAPER, ec=INK, lw=1.1)
        line = Line2D([], [], color=INK, lw=2.6)
        dashed = Line2D([], [], color=INK, lw=1.6, ls=DASHES)
        handles += [line, box, dashed]
        labels += ["edge: half fail", "95% interval", "safe edge: 5% fail"]
    if any(row.edge.status == "above" for row in info.rows):
        handles.append(Line2D([], [], ls="none", marker=">", ms=8, color=INK))
        labels.append("edge not reached")
    if any(row.theory_lr is not None and _is_on(info, row.theory_lr) for row in info.rows):
        handles.append(Line2D([], [], color=INK, lw=1.4, ls=DOTS))
        labels.append("edge of linear theory")
    if info.pick is not None:
        handles.append(Line2D([], [], ls="none", marker="*", ms=13, mfc=PAPER, mec=INK, mew=1.2))
        labels.append("pick")
    legend = axes.legend(
        handles, labels, loc="center", ncols=-(-len(labels) // 2) if len(labels) > 6 else 6,
        frameon=False, borderaxespad=0, handlelength=1.5, handleheight=1.0, columnspacing=1.5,
        labelspacing=0.5, handler_map={tuple: HandlerTuple(ndivide=1, pad=0)},
    )  # fmt: skip
    legend.set_in_layout(False)


def _norm(info: MapInfo) -> Normalize | None:
    if info.losses is None:
        return None
    kind = LogNorm if info.log_loss else Normalize
    return kind(*info.losses, clip=True)
