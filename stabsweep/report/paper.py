"""The single figures that a paper needs, at the width of a column, each with its caption."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.report._axes import points
from stabsweep.report.draw_key import SMALL, Key, draw_colour_bar, draw_legend, map_key, num_columns
from stabsweep.report.draw_losses import draw_losses, row_key
from stabsweep.report.draw_map import draw_map
from stabsweep.report.draw_verdicts import draw_verdicts, verdict_key
from stabsweep.report.figure import SETTINGS, save_figure
from stabsweep.report.loss_curves import LossInfo, loss_info
from stabsweep.report.paper_captions import (
    loss_caption,
    map_caption,
    trace_caption,
    verdict_caption,
)
from stabsweep.report.sample_traces import LoadTrace, TraceInfo, draw_traces, trace_infos
from stabsweep.report.stability_map import MapInfo, map_info
from stabsweep.report.style import clean
from stabsweep.report.verdict_shares import ShareInfo, share_info
from stabsweep.theory import Theory

WIDTHS: Mapping[str, float] = {"single": 3.25, "double": 6.75}
"""Inches of one and of two columns, of ICML's and most journals' pages."""

PAPER, CAPTIONS, FORMS, PIXELS_PER_INCH = "paper", "captions.txt", ("pdf", "svg", "png"), 300

PAPER_SETTINGS = {
    **SETTINGS,
    "font.size": 8.4,  # its `small` is 7: what journals ask for is 7 to 9
    "hatch.linewidth": 0.4,
    **{f"{axis}tick.major.{key}": v for axis in "xy" for key, v in (("size", 2.5), ("pad", 2.2))},
    "axes.labelpad": 2.5,
}
"""matplotlib's settings for a figure that is printed as large as it is."""

MAX_LABEL = 0.22
"""Share of a figure's width that the labels of its rows may take."""


LEGEND = 0.96
"""Share of a figure's width that a legend may take."""


@dataclass(frozen=True)
class PaperFigure:
    """One figure and the words that stand under it."""

    figure: Figure
    caption: str


def draw_paper(
    region: Region,
    pick: Pick,
    subject: str = "",
    load_trace: LoadTrace | None = None,
    num_planned: int | None = None,
    theory: Theory | None = None,
    width: str = "single",
) -> dict[str, PaperFigure]:
    """The figures by name: `map`, `loss_by_lr`, `traces` and `verdicts`.

    They are drawn by what draws the sweep's own picture, in smaller type and without a title:
    what it would say stands in the caption. Traces are left out where none was kept.

    Args:
        region: what the trials say.
        pick: the recommendation.
        subject: what was swept, e.g. `AdamW on transformer`.
        load_trace: reads a record's curves.
        num_planned: trials that the sweep was to run.
        theory: the edge of linear theory.
        width: a key of `WIDTHS`.
    """
    inches = WIDTHS[width]
    rows, ends = map_info(region, pick, theory), loss_info(region, pick)
    traces, shares = trace_infos(region, pick, load_trace), share_info(region)
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **PAPER_SETTINGS}):
        found = {
            "map": PaperFigure(
                _map(rows, inches), map_caption(region, pick, rows, subject, num_planned)
            ),
            "loss_by_lr": PaperFigure(_losses(ends, inches), loss_caption(region, ends)),
        }
        if traces:
            found["traces"] = PaperFigure(_traces(traces, inches), trace_caption(traces))
        caption = verdict_caption(shares, num_planned)
        found["verdicts"] = PaperFigure(_verdicts(shares, inches), caption)
    return found


def save_paper(figures: Mapping[str, PaperFigure], folder: str | Path) -> list[Path]:
    """Writes each figure as PDF, SVG and PNG, and their captions; returns the paths.

    The same result gives the same bytes.
    """
    paths = []
    for name, one in figures.items():
        paths += save_figure(one.figure, folder, name, FORMS, PIXELS_PER_INCH)
    captions = Path(folder) / CAPTIONS
    texts = [f"{name}\n{textwrap.fill(one.caption, 100)}\n" for name, one in figures.items()]
    captions.write_text("\n".join(texts), encoding="utf-8", errors="replace", newline="\n")
    return [*paths, captions]


def _figure(inches: float, height: float) -> Figure:
    figure = Figure(figsize=(inches, height), layout="constrained", dpi=PIXELS_PER_INCH)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, hspace=0.02, wspace=0.02)  # type: ignore[union-attr]
    return figure


def _draw_legend(figure: Figure, key: Key, inches: float) -> None:
    draw_legend(figure, key, LEGEND * 72 * inches, "outside lower center", points(SMALL))


def _short(label: str, inches: float) -> str:
    """A label that leaves the picture its room: it ends in dots where it is long."""
    return clean(label, max(int(MAX_LABEL * inches * 72 / points(6.6)), 12))


def _map(info: MapInfo, inches: float) -> Figure:
    rows = tuple(replace(row, label=_short(row.label, inches)) for row in info.rows)
    info = replace(info, rows=rows)
    tall = 0.8 if len(rows) < 2 else min(max(0.42 * len(rows), 1.5), 3.4)
    figure = _figure(inches, tall + 1.25)
    grid = figure.add_gridspec(2, 1, height_ratios=[tall, 0.2])
    axes = figure.add_subplot(grid[0])
    draw_map(axes, info)
    if info.losses is None:
        figure.set_size_inches(inches, tall + 0.9)
        grid.set_height_ratios([tall, 1e-3])
    draw_colour_bar(figure.add_subplot(grid[1]), info, 0.85 * 72 * inches)
    _draw_legend(figure, map_key(info), inches)
    return figure


def _losses(info: LossInfo, inches: float) -> Figure:
    figure = _figure(inches, 2.5 if inches < 5 else 3.0)
    draw_losses(figure.add_subplot(), info)
    key = row_key(info)
    _draw_legend(figure, key, inches)
    # Many rows need many lines, which the panel is not to pay for.
    lines = -(-len(key[1]) // num_columns(key[1], LEGEND * 72 * inches, points(SMALL)))
    figure.set_figheight(figure.get_figheight() + max(lines - 1, 0) * 1.5 * points(SMALL) / 72)
    return figure


def _traces(infos: list[TraceInfo], inches: float) -> Figure:
    across = min(len(infos), 2 if inches < 5 else 3)
    down = -(-len(infos) // across)
    figure = _figure(inches, 1.35 * down)
    panels = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in panels[len(infos) :]:
        unused.remove()
    draw_traces(panels[: len(infos)], infos)
    for first in range(0, len(infos), across):
        panels[first].set_ylabel("loss")
    # The coloured box around a name is wider than the name that the layout knows of.
    figure.get_layout_engine().set(h_pad=0.05, hspace=0.0, wspace=0.04)  # type: ignore[union-attr]
    return figure


def _verdicts(info: ShareInfo, inches: float) -> Figure:
    groups = tuple(
        replace(g, bars=tuple(replace(b, label=_short(b.label, inches)) for b in g.bars))
        for g in info.groups
    )
    info = replace(info, groups=groups)
    sizes = [len(group.bars) + 0.1 for group in groups]
    figure = _figure(inches, 0.24 * sum(sizes) + 1.15 if sizes else 0.6)
    if not sizes:
        axes = figure.add_subplot()
        axes.axis("off")
        axes.text(0.5, 0.5, "no trial finished", ha="center", va="center")
        return figure
    panels = list(figure.subplots(len(sizes), 1, squeeze=False, height_ratios=sizes)[:, 0])
    draw_verdicts(panels, info)
    figure.align_ylabels(panels)
    _draw_legend(figure, verdict_key(info), inches)
    return figure
