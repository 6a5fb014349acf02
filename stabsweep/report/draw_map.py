"""Draws the stability map that `stability_map` describes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm, Normalize, to_rgba_array
from matplotlib.patches import Rectangle

from stabsweep.report._axes import LOSS_MAP, dress, halo, lr_axis, points, size_points
from stabsweep.report.stability_map import MapInfo, MapRow
from stabsweep.report.style import FAINT, HATCH, INK, ON_SCALE, PAPER, STYLES

MAX_VECTOR_PARTS = 800
"""Above this many rectangles an SVG would grow too large: they are drawn as an image in it."""

DASHES, DOTS = (0, (3.2, 2)), (0, (1, 1.6))

TRIED_HEIGHT = 0.3
"""Where rates that were tried are marked: below the glyphs of failures, which lie in the middle."""

GLYPH, LABEL_POINTS, ROOMY = 7, 17, 34
"""Points of the picture that a glyph, a row's label, and a row with words in it need."""


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
    row_points = size_points(axes)[1] / max(len(info.rows), 1)
    _draw_cells(axes, info)
    if info.is_scattered:
        _draw_tried(axes, info)
    _label_rows(axes, info, row_points)
    _draw_edges(axes, info, row_points)
    for number, row in enumerate(info.rows):
        _draw_theory(axes, number, row, info, row_points)
    if info.pick is not None:
        _draw_pick(axes, info, row_points)
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
    width, height = size_points(axes)
    decades = np.log10(info.lr_range[1] / info.lr_range[0])
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
                wide = width * np.log10(cell.high / cell.low) / decades
                tall = height * (part.top - part.bottom) / len(info.rows)
                has_room = min(wide, tall) >= points(GLYPH)
                if part.name == "spiky" or (part.name not in ON_SCALE and has_room):
                    marks.append((part.name, cell.lr, number + (part.bottom + part.top) / 2))
    raster = len(boxes) > MAX_VECTOR_PARTS
    left, right, bottom, top = np.array(boxes).reshape(-1, 4).T
    corners = np.stack([left, bottom, right, bottom, right, top, left, top], 1).reshape(-1, 4, 2)
    colours = to_rgba_array(colours)
    if losses and norm is not None:
        colours[list(losses)] = LOSS_MAP(norm(list(losses.values())))
    # An edge in the cell's own colour closes the hairlines that viewers leave between rectangles.
    look: dict[str, Any] = {"lw": points(0.3), "rasterized": raster}
    axes.add_collection(PolyCollection(list(corners), fc=colours, ec=colours, zorder=1, **look))
    for name, places in hatched.items():
        look |= {"fc": "none", "ec": HATCH, "hatch": STYLES[name].hatch, "zorder": 1.1}
        axes.add_collection(PolyCollection(list(corners[places]), **look))
    for name, style in STYLES.items():
        spots = [(x, y) for found, x, y in marks if found == name]
        if spots and not style.hatch:
            scale = (width / decades, height / len(info.rows))
            x, y = np.array(spots if name == "spiky" and not raster else _apart(spots, scale)).T
            look = {"mfc": style.ink, "mec": style.ink, "ms": points(4.5), "alpha": 0.6}
            if name == "spiky":
                look |= {"mfc": style.colour, "mec": INK, "ms": points(6), "alpha": 1}
            axes.plot(
                x, y, ls="none", marker=style.marker, mew=points(0.9), zorder=2, rasterized=raster,
                **look,
            )  # fmt: skip


def _apart(
    spots: Sequence[tuple[float, float]], scale: tuple[float, float]
) -> list[tuple[float, float]]:
    """Some of the places of a glyph, none near another: a carpet of glyphs hides the colours.

    Args:
        spots: learning rate and height of each.
        scale: points that a decade and a row take.
    """
    found: list[tuple[float, float]] = []
    kept: dict[tuple[int, int], tuple[float, float]] = {}
    near, steps = points(15), (-1, 0, 1)
    for lr, y in spots:
        at = np.log10(lr) * scale[0], y * scale[1]
        bin_ = int(at[0] // near), int(at[1] // near)
        around = [kept.get((bin_[0] + i, bin_[1] + j)) for i in steps for j in steps]
        if not any(o and max(abs(o[0] - at[0]), abs(o[1] - at[1])) < near for o in around):
            kept[bin_] = at
            found.append((lr, y))
    return found


def _draw_tried(axes: Axes, info: MapInfo) -> None:
    """A dot at each rate that was tried: between scattered ones the colour is that of the next."""
    spots = [(cell.lr, n + TRIED_HEIGHT) for n, row in enumerate(info.rows) for cell in row.cells]
    x, y = np.array(spots).T
    axes.plot(x, y, zorder=2.2, rasterized=len(spots) > MAX_VECTOR_PARTS, **tried_look())


def tried_look() -> dict[str, Any]:
    """How rates that were tried are marked."""
    look: dict[str, Any] = {"ls": "none", "marker": "o", "mfc": PAPER, "mec": INK}
    return {**look, "ms": points(3), "mew": points(0.6)}


def _label_rows(axes: Axes, info: MapInfo, row_points: float) -> None:
    every = max(int(np.ceil(LABEL_POINTS * points(1) / row_points)), 1)
    shown = range(0, len(info.rows), every)
    labels = [info.rows[n].label for n in shown] if info.axis else [""] * len(shown)
    axes.set_yticks([n + 0.5 for n in shown], labels, parse_math=False)
    if info.axis:
        axes.set_ylabel(info.axis, parse_math=False)
    lines = range(1, len(info.rows))
    parted = [info.rows[n].group != info.rows[n - 1].group for n in lines]
    thin = points(min(1.2, 14 / max(len(info.rows), 1)))
    axes.hlines(
        lines, 0, 1, colors=PAPER, lw=[points(4) if wide else thin for wide in parted],
        transform=axes.get_yaxis_transform(), zorder=2.5,
    )  # fmt: skip


def _draw_edges(axes: Axes, info: MapInfo, row_points: float) -> None:
    """The edge of each row with its interval, the safe edge, and an arrow where none was met."""
    rows = list(enumerate(info.rows))
    # In flat rows thick lines would be all that is seen.
    fine = points(float(np.clip(row_points / points(26), 0.5, 1)))
    found = [(n, row.edge) for n, row in rows if row.edge.status == "found" and row.edge.lr]
    safe = [(edge.safe_lr, n + 0.02, n + 0.98) for n, edge in found if edge.safe_lr]
    met = [(edge.lr, n, n + 1) for n, edge in found]
    for places, colour, width, look, zorder in (
        (met, PAPER, 5.8, "-", 4.8),
        (safe, PAPER, 4.2, "-", 4.9),
        (safe, INK, 1.6, DASHES, 5),
        (met, INK, 2.6, "-", 6),
    ):
        if places:
            x, bottom, top = zip(*places, strict=True)
            style: dict[str, Any] = {
                "lw": width * fine,
                "ls": look,
                "capstyle": "butt",
                "zorder": zorder,
            }
            axes.vlines(x, bottom, top, colors=colour, **style)
    # A box of a seventh of the row, but never so flat that it is but a line.
    tall = min(max(0.14 * min(len(rows) / 4, 1), points(3.6) / row_points), 0.5)
    boxes = [
        [(edge.low, n + y), (edge.high, n + y), (edge.high, n + y + tall), (edge.low, n + y + tall)]
        for n, edge in found
        if edge.low and edge.high
        for y in (tall / 2 if tall < 0.3 else (1 - tall) / 2,)
    ]
    axes.add_collection(PolyCollection(boxes, fc=PAPER, ec=INK, lw=1.2 * fine, zorder=5.5))
    # Below the star, where there is room.
    height = 0.25 if row_points >= points(ROOMY) else 0.5
    above = [(n, row) for n, row in rows if row.edge.status == "above" and row.cells]
    open_ends = [(row.cells[-1].high, n + height) for n, row in above]
    if open_ends:
        x, y = zip(*open_ends, strict=True)
        axes.plot(
            x, y, ls="none", marker=">", ms=9 * fine, color=INK, path_effects=halo(4), zorder=6,
            clip_on=False,
        )  # fmt: skip


def is_on(info: MapInfo, lr: float | None) -> bool:
    """Whether there is a learning rate and it is on the map."""
    return lr is not None and info.lr_range[0] < lr < info.lr_range[1]


def _draw_theory(axes: Axes, number: int, row: MapRow, info: MapInfo, row_points: float) -> None:
    """A thin line where linear theory has the edge: for comparison, nothing to stay left of."""
    lr = row.theory_lr
    if lr is None or not is_on(info, lr):
        return
    ends = [number + 0.02, number + 0.98]
    axes.plot([lr] * 2, ends, color=PAPER, lw=points(3.2), zorder=4.7)
    axes.plot([lr] * 2, ends, color=INK, lw=points(1.4), ls=DOTS, zorder=4.8)
    if row_points >= points(ROOMY):
        # Away from the border that is near.
        is_left = np.log(lr / info.lr_range[0]) > 0.85 * np.log(info.lr_range[1] / info.lr_range[0])
        axes.annotate(
            "theory", (lr, number + 0.06), (points(-3 if is_left else 3), 0), va="bottom",
            textcoords="offset points", ha="right" if is_left else "left", fontsize="small",
            path_effects=halo(3), zorder=7,
        )  # fmt: skip


def _draw_pick(axes: Axes, info: MapInfo, row_points: float) -> None:
    pick = info.pick
    assert pick is not None
    is_roomy = row_points >= points(ROOMY)
    y = pick.row + (0.62 if is_roomy else 0.5)
    if pick.edge_lr is not None and pick.margin_decades and pick.margin_decades > 0.03:
        axes.annotate(
            "", xy=(pick.edge_lr, y), xytext=(pick.lr, y), zorder=6.5,
            arrowprops={
                "arrowstyle": "->,head_width=0.3,head_length=0.5", "color": INK,
                "lw": points(1.8), "shrinkA": 0, "shrinkB": points(2), "path_effects": halo(5),
            },
        )  # fmt: skip
        decades = np.log10(info.lr_range[1] / info.lr_range[0])
        wide = size_points(axes)[0] * pick.margin_decades / decades
        if is_roomy and wide > points(58):
            axes.annotate(
                f"{pick.margin_decades:.1f} decades", ((pick.lr * pick.edge_lr) ** 0.5, y),
                (0, points(5)), textcoords="offset points", ha="center", va="bottom",
                fontsize="small", path_effects=halo(3.5), zorder=7,
            )  # fmt: skip
    size = points(21 if is_roomy else 15)
    axes.plot(pick.lr, y, marker="*", ms=size, mfc=PAPER, mec=INK, mew=points(1.5), zorder=8)


def _norm(info: MapInfo) -> Normalize | None:
    if info.losses is None:
        return None
    kind = LogNorm if info.log_loss else Normalize
    return kind(*info.losses, clip=True)
