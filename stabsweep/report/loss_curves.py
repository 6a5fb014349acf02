"""Final loss against learning rate: the numbers, and their drawer."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import blended_transform_factory

from stabsweep.pick import Pick
from stabsweep.records import Verdict
from stabsweep.region import Cell, Region, Row
from stabsweep.report._axes import dress, halo, loss_axis, lr_axis
from stabsweep.report.conclusion import axis_label, lr_range, picked_row, row_label
from stabsweep.report.stability_map import LOG_SPAN, cell_bounds
from stabsweep.report.style import INK, MUTED, PAPER

MAX_LINES = 6
"""With more rows than this only the picked one (or the best) has a colour."""

MAX_RATES, BIN_DECADES = 40, 0.125
"""Rates that one line can show; more of them are taken together in bins this wide."""

LANE = 0.13
"""Share of the panel's height that the "not finite" lane takes."""

OTHERS = "#C4C4C4"

ROW_COLOURS = LinearSegmentedColormap.from_list(
    "stabsweep_rows", ["#3B0F6F", "#8C2981", "#DE4968", "#FE9F6D"]
)
"""Rows from first to last: no hue of the map, and its lightness rises for all kinds of vision."""


@dataclass(frozen=True)
class LossLine:
    """One row: median final loss at each rate (or bin), with the lowest and highest over the seeds."""

    label: str
    lrs: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    not_finite: tuple[float, ...]
    is_main: bool


@dataclass(frozen=True)
class LossInfo:
    """All that the panel shows.

    Attributes:
        lines: one a row.
        title: what the lines differ in.
        lr_range, loss_range: ends of the axes; losses beyond are marked as off the scale.
        log_loss: whether the loss axis is logarithmic.
        blind, initial: the loss of an input-blind model, and of the untrained one.
        num_seeds: seeds that a band spans.
        edge_lr, pick_lr: of the picked row.
    """

    lines: tuple[LossLine, ...]
    title: str
    lr_range: tuple[float, float]
    loss_range: tuple[float, float]
    log_loss: bool
    blind: float | None
    initial: float | None
    num_seeds: int
    edge_lr: float | None
    pick_lr: float | None


def loss_info(region: Region, pick: Pick) -> LossInfo:
    """The numbers of the panel of final losses."""
    main = picked_row(region, pick)
    if main is None and region.best_row is not None:
        main = region.rows.index(region.best_row)
    lines = tuple(_line(row, number == main) for number, row in enumerate(region.rows))
    blind = _median([r.blind_loss for r in region.records])
    initial = _median([r.initial_loss for r in region.records])
    lowest = [v for line in lines for v in line.low]
    levels = [v for v in (blind, initial) if v is not None]
    low, high = 0.0, 1.0
    if lowest or levels:
        low = min(lowest + levels)
        # Without any level, what most trials reach; one insane loss must not flatten the rest.
        high = (
            max(levels) if levels else float(np.quantile([v for n in lines for v in n.high], 0.8))
        )
        high = max(high, low + 1e-12 + 1e-3 * abs(low))
    log = low > 0 and high > LOG_SPAN * low
    pad = 0.07
    if log:
        low, high = low / (high / low) ** pad, high * (high / low) ** (2 * pad)
    else:
        low, high = low - pad * (high - low), high + 2 * pad * (high - low)
    bounds = [b for row in region.rows for b in cell_bounds([c.lr for c in row.cells])]
    ends = lr_range(region)
    return LossInfo(
        lines,
        axis_label(region),
        (min([ends[0], *(b[0] for b in bounds)]), max([ends[1], *(b[1] for b in bounds)])),
        (low, high),
        log,
        blind,
        initial,
        len(region.seeds),
        region.rows[main].edge.lr if main is not None else None,
        pick.lr,
    )


def _line(row: Row, is_main: bool) -> LossLine:
    found = [(cell.lr, _finite(cell)) for cell in row.cells]
    kept = [(lr, losses) for lr, losses in found if losses]
    if len(kept) > MAX_RATES:
        kept = _binned(kept)
    broken = [
        cell.lr
        for cell in row.cells
        for r in cell.judged
        if r.final_loss is None or r.verdict is Verdict.DIVERGED
    ]
    return LossLine(
        row_label(row),
        tuple(lr for lr, _ in kept),
        tuple(float(np.median(losses)) for _, losses in kept),
        tuple(min(losses) for _, losses in kept),
        tuple(max(losses) for _, losses in kept),
        tuple(broken),
        is_main,
    )


def _binned(found: list[tuple[float, list[float]]]) -> list[tuple[float, list[float]]]:
    """Neighbouring rates taken together, at the middle of each bin of `BIN_DECADES`."""
    bins: dict[int, list[float]] = defaultdict(list)
    for lr, losses in found:
        bins[math.floor(math.log10(lr) / BIN_DECADES)] += losses
    return [(10 ** ((n + 0.5) * BIN_DECADES), losses) for n, losses in sorted(bins.items())]


def _finite(cell: Cell) -> list[float]:
    held = [r for r in cell.judged if r.verdict is not Verdict.DIVERGED]
    return [r.final_loss for r in held if r.final_loss is not None and math.isfinite(r.final_loss)]


def _median(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None and math.isfinite(v)]
    return float(np.median(known)) if known else None


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
    _draw_levels(axes, info)
    _draw_lane(axes)
    for lr, style in ((info.edge_lr, "-"), (info.pick_lr, ":")):
        if lr is not None:
            axes.axvline(lr, ymax=1 - LANE, color=INK, lw=1.3, ls=style, alpha=0.75, zorder=1)
            word, side = (" edge", "left") if style == "-" else ("pick ", "right")
            axes.text(
                lr, 0.68, word, ha=side, transform=axes.get_xaxis_transform(), fontsize="small",
                path_effects=halo(), zorder=6,
            )  # fmt: skip
    _draw_marks(axes, info)
    dress(axes)


def draw_row_names(axes: Axes, beside: Axes, info: LossInfo) -> None:
    """Names the lines: in one line below the panel if that is wide enough, else inside it.

    Args:
        axes: an empty one below the panel.
        beside: the panel itself.
        info: what was drawn.
    """
    axes.axis("off")
    named = [line for line in info.lines if line.lrs and line.label]
    if len(info.lines) > MAX_LINES:
        named = [line for line in named if line.is_main]
    elif len(info.lines) < 2:
        return
    colours = {line.label: _colour(info, number) for number, line in enumerate(info.lines)}
    handles = [
        Line2D(
            [], [], color=colours[line.label], lw=_width(line), marker="o", ms=_width(line) + 1.2
        )
        for line in named
    ]
    labels = [line.label for line in named]
    title = info.title
    if len(info.lines) > MAX_LINES:
        handles.append(Line2D([], [], color=OTHERS, lw=1.4))
        labels.append("other rows")
    if not named:
        return
    look = {"fontsize": "small", "handlelength": 1.3, "columnspacing": 1.1, "borderaxespad": 0}
    if len(title) + sum(len(label) + 5 for label in labels) <= 52:
        handles.insert(0, Line2D([], [], lw=0))
        labels.insert(0, title)
        legend = axes.legend(handles, labels, loc="center", ncols=9, frameon=False, **look)
    else:
        legend = beside.legend(
            handles[::-1], labels[::-1], loc="best", labelspacing=0.3, framealpha=0.85,
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
    return 2.6 if line.is_main else 1.4


def _draw_line(axes: Axes, info: LossInfo, number: int) -> None:
    line, colour = info.lines[number], _colour(info, number)
    low, high = info.loss_range
    clip = lambda values: np.clip(np.array(values, float), low, high)  # noqa: E731
    width = _width(line)
    if line.lrs:
        axes.plot(
            line.lrs, clip(line.middle), color=colour, lw=width, marker="o", ms=width + 1.2,
            zorder=4 if line.is_main else 3,
        )  # fmt: skip
        if line.is_main or len(info.lines) <= MAX_LINES:
            axes.fill_between(
                line.lrs, clip(line.low), clip(line.high), color=colour, alpha=0.13, lw=0, zorder=2
            )
    off = [lr for lr, value in zip(line.lrs, line.high, strict=True) if value > high]
    axes.plot(off, [high] * len(off), ls="none", marker="^", ms=6, color=colour, zorder=5)
    share = (number + 1) / (len(info.lines) + 1)
    lane = blended_transform_factory(axes.transData, axes.transAxes)
    axes.plot(
        line.not_finite, [1 - LANE * (1 - share)] * len(line.not_finite), ls="none", marker="x",
        ms=4.5, mew=1.1, color=colour, transform=lane, zorder=5,
    )  # fmt: skip


def _draw_lane(axes: Axes) -> None:
    lane = Rectangle((0, 1 - LANE), 1, LANE, transform=axes.transAxes, fc="#EFEFEF", lw=0, zorder=0)
    axes.add_patch(lane)
    axes.text(
        -0.015, 1 - LANE / 2, "ran\naway", transform=axes.transAxes, ha="right", va="center",
        fontsize="small", in_layout=False,
    )  # fmt: skip


def _draw_levels(axes: Axes, info: LossInfo) -> None:
    level = blended_transform_factory(axes.transAxes, axes.transData)
    for loss, text in ((info.blind, "knows nothing (blind)"), (info.initial, "untrained")):
        if loss is not None:
            axes.axhline(loss, color=MUTED, lw=1, ls=(0, (5, 3)), zorder=1)
            axes.text(
                0.36, loss, text, transform=level, ha="center", va="bottom", fontsize="small",
                color=MUTED, path_effects=halo(), zorder=6,
            )  # fmt: skip


def _draw_marks(axes: Axes, info: LossInfo) -> None:
    if info.pick_lr is None:
        return
    for line in info.lines:
        if line.is_main and line.lrs:
            x = np.log10(line.lrs)
            y = float(np.interp(np.log10(info.pick_lr), x, np.clip(line.middle, *info.loss_range)))
            axes.plot(info.pick_lr, y, "*", ms=17, mfc=PAPER, mec=INK, mew=1.3, zorder=7)
