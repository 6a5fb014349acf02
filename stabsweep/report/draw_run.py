"""Draws a guarded run: what happened, its curves, its layers, over one axis of attempts."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, PowerNorm
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory

from stabsweep.numerals import plural
from stabsweep.report._axes import dress, halo, log_ticks, loss_axis, tick_text
from stabsweep.report.figure import SETTINGS
from stabsweep.report.run_curves import ClipInfo, Line, Panel, RunInfo
from stabsweep.report.run_events import event_style
from stabsweep.report.run_layers import HeatInfo
from stabsweep.report.style import FAINT, INK, LOSS_COLOURS, MUTED, PAPER, STYLES

WIDTH_INCHES = 10.5
LEFT, RIGHT = 2.15, 0.75
"""Inches beside the panels: names at the left, the scale of a heat map at the right."""

GAP, LANE, BOTTOM = 0.13, 0.23, 0.68
"""Inches between panels, of a lane of events, and below the last panel."""

HEIGHTS = {"loss": 1.9, "grad_norm": 1.25, "update_ratio": 1.0, "lr": 0.85, "logits": 1.0,
           "scale": 0.75}  # fmt: skip
"""Inches of each panel."""

MAX_MARKS = 400
"""Marks of a kind that are drawn as lines in the SVG; more are drawn as one picture."""

MAX_RULES = 12
"""Marks of a kind that get a line through all panels."""

LINE, BAD = LOSS_COLOURS[0], STYLES["diverged"].colour
RULED = ("not_finite", "outlier", "rollback", "stopped")
"""What may have moved the curves, and so is marked in every panel."""


@dataclass
class _Sheet:
    """A figure that is filled from top to bottom."""

    info: RunInfo
    figure: Figure
    height: float
    top: float
    panels: list[Axes] = field(default_factory=list)

    def add(self, height: float) -> Axes:
        """The next panel."""
        width = WIDTH_INCHES - LEFT - RIGHT
        self.top -= height
        axes = self.figure.add_axes(self._box(LEFT, self.top, width, height))
        first, last = self.info.range
        pad = max(0.01 * (last - first), 0.5)
        axes.set_xlim(first - pad, last + max(pad, 1))
        axes.tick_params(labelbottom=False)
        self.panels.append(axes)
        self.top -= GAP
        return axes

    def beside(self, axes: Axes) -> Axes:
        """A narrow panel at the right of another, for its scale."""
        box = axes.get_position()
        x = WIDTH_INCHES - RIGHT + 0.12
        return self.figure.add_axes((x / WIDTH_INCHES, box.y0, 0.13 / WIDTH_INCHES, box.height))

    def name(self, axes: Axes, text: str, note: str = "") -> None:
        """Writes a panel's name into the left margin, and a note below it."""
        lines = [(line, "medium", "bold", INK) for line in text.split("\n")]
        lines += [(line, "small", "normal", MUTED) for line in textwrap.wrap(note, 20)]
        height = axes.get_position().height * self.height
        place = blended_transform_factory(self.figure.transFigure, axes.transAxes)
        for number, (line, size, weight, colour) in enumerate(lines):
            y = 0.5 + (0.5 * (len(lines) - 1) - number) * 0.185 / height
            axes.text(
                0.14 / WIDTH_INCHES, y, line, transform=place, va="center", fontsize=size,
                fontweight=weight, color=colour, parse_math=False,
            )  # fmt: skip

    def _box(self, x: float, y: float, w: float, h: float) -> tuple[float, float, float, float]:
        return x / WIDTH_INCHES, y / self.height, w / WIDTH_INCHES, h / self.height


def draw_run(info: RunInfo) -> Figure:
    """The picture of a run.

    What to conclude: read the headline, then the lanes: what happened, and when. A cross is an
    attempt whose loss or gradient was not finite, and stands at the top of every curve that has
    none there. Where an early warning comes before the loss turns up, the update over weights and
    the rows of the layers show where it began; a row that is darker than its neighbours learns
    less. Grey dots were skipped or undone, and so was all on a grey ground: no weight holds it.
    Where the strip at the foot of the gradient norm is full, clipping sets the step, not the rate.

    Args:
        info: what to show.
    """
    # Lines of one length: a last word by itself reads badly.
    width = len(info.title) // -(-len(info.title) // 84) + 8 if info.title else 84
    head = [(t, 14.5, 0.29, "bold", INK) for t in textwrap.wrap(info.title, min(width, 86))]
    for remark in info.remarks[:3]:
        text = textwrap.shorten(remark, 230, placeholder=" ...")
        head += [(line, 10.5, 0.22, "normal", MUTED) for line in textwrap.wrap(text, 118)]
    lanes = {kind: where for kind, where in info.lanes.items() if where}
    heights = [LANE * len(lanes) + GAP] if lanes else []
    heights += [HEIGHTS[panel.key] + GAP for panel in info.panels]
    heights += [_heat_height(heat) + 0.3 + GAP for heat in info.heats]
    top = sum(line[2] for line in head) + 0.3
    height = top + sum(heights) + BOTTOM
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}):
        figure = Figure(figsize=(WIDTH_INCHES, height))
        at = height - 0.14
        for text, size, line_height, weight, colour in head:
            figure.text(
                0.14 / WIDTH_INCHES, (at - line_height / 2) / height, text, fontsize=size,
                fontweight=weight, color=colour, va="center", parse_math=False,
            )  # fmt: skip
            at -= line_height
        sheet = _Sheet(info, figure, height, height - top)
        if lanes:
            _draw_lanes(sheet, lanes)
        for panel in info.panels:
            _draw_panel(sheet, panel)
        for heat in info.heats:
            _draw_heat(sheet, heat)
        last = sheet.panels[-1]
        last.tick_params(labelbottom=True)
        last.set_xlabel(info.noun)
        figure.text(
            0.14 / WIDTH_INCHES, 0.16 / height, _key(info), fontsize="small", color=MUTED,
            va="center", parse_math=False,
        )  # fmt: skip
        for axes in sheet.panels:
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)  # type: ignore[attr-defined]
    return figure


def _key(info: RunInfo) -> str:
    """What the marks mean, of those that are there."""
    parts = ["\u00d7 not finite"] if info.bad else []
    parts += ["grey ground: undone"] if info.undone else []
    if any(panel.aside.values for panel in info.panels):
        parts += ["grey dots: skipped or undone"] if info.undone else ["grey dots: skipped"]
    parts += ["\u25b2 off the scale"] if any(panel.above for panel in info.panels) else []
    parts += ["strip: clipped steps"] if info.clip else []
    parts += ["wide grey: in the sweep"] if any(p.before for p in info.panels) else []
    return "   ".join(parts)


def _draw_lanes(sheet: _Sheet, lanes: dict[str, tuple[int, ...]]) -> None:
    """One lane a kind of event, named and counted: nothing that happened lies below anything."""
    axes = sheet.add(LANE * len(lanes))
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    names = []
    for number, (kind, where) in enumerate(lanes.items()):
        style = event_style(kind)
        names.append(f"{style.label} ({len(where):,})")
        axes.plot(
            where, [number] * len(where), ls="none", marker=style.marker, color=style.colour,
            ms=6.5 if style.marker != "." else 5, mew=1.6, clip_on=False, zorder=4,
            rasterized=len(where) > MAX_MARKS,
        )  # fmt: skip
        if kind == "rollback":
            # Where it went back to.
            for first, last in sheet.info.undone:
                axes.plot([first, last], [number] * 2, color=style.colour, lw=2, zorder=3)
        if number % 2 == 0:
            axes.axhspan(number - 0.5, number + 0.5, color="#F3F3F3", lw=0, zorder=0)
    axes.set_yticks(range(len(names)), names, fontsize="small", parse_math=False)
    dress(axes)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_ground(sheet: _Sheet, axes: Axes) -> None:
    """What concerns every panel: undone attempts as a grey ground, what happened as thin lines."""
    for first, last in sheet.info.undone:
        axes.axvspan(first - 0.5, last, color="#E9E9E9", lw=0, zorder=0)
    for kind in RULED:
        where = sheet.info.lanes.get(kind, ())
        for attempt in where if len(where) <= MAX_RULES else ():
            colour = event_style(kind).colour
            axes.axvline(attempt, color=colour, lw=0.8, ls=(0, (2, 2)), alpha=0.7, zorder=1)
    if sheet.info.stopped is not None:
        axes.axvline(sheet.info.stopped, color=INK, lw=1.6, zorder=1)


def _draw_panel(sheet: _Sheet, panel: Panel) -> None:
    axes = sheet.add(HEIGHTS[panel.key])
    low, high, log = panel.range
    loss_axis(axes, low, high, log)
    if log or panel.key != "loss":
        _few_ticks(axes, low, high, log, HEIGHTS[panel.key])
    _draw_ground(sheet, axes)
    aside = panel.aside
    axes.plot(
        aside.attempts, np.clip(aside.values, low, high), ls="none", marker=".", ms=4,
        color="#9A9A9A", zorder=2, rasterized=len(aside.attempts) > MAX_MARKS,
    )  # fmt: skip
    if panel.before is not None:
        values = np.clip(np.array(panel.before.values, float), low, high)
        axes.plot(panel.before.attempts, values, color=FAINT, lw=4.5, zorder=1.5)
    for number, line in enumerate(panel.lines):
        colour = LINE
        if len(panel.lines) > 1:
            colour = colormaps["cividis"](0.9 * number / (len(panel.lines) - 1))
        _draw_line(axes, line, panel, colour)
    axes.plot(
        panel.above, [high] * len(panel.above), ls="none", marker="^", ms=5, color=MUTED, zorder=3,
        clip_on=False, rasterized=len(panel.above) > MAX_MARKS,
    )  # fmt: skip
    level = blended_transform_factory(axes.transAxes, axes.transData)
    for value, text in panel.levels:
        axes.axhline(value, color=INK, lw=1, ls=(0, (5, 3)), zorder=5)
        place = axes.transAxes.inverted().transform(axes.transData.transform((0, value)))[1]
        is_high = place > 0.8
        axes.annotate(
            text, (0.995, value), (0, -2.5 if is_high else 1.5), xycoords=level,
            textcoords="offset points", ha="right", va="top" if is_high else "bottom",
            fontsize="small", path_effects=halo(), zorder=6, parse_math=False,
        )  # fmt: skip
    if panel.key == "grad_norm" and sheet.info.clip is not None:
        _draw_clip(axes, sheet.info.clip)
    if panel.key in ("loss", "grad_norm"):
        _draw_bad(sheet, axes)
    if not any(np.isfinite(line.values).any() for line in panel.lines) and not aside.values:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "nothing finite", transform=axes.transAxes, ha="center", va="center")
    sheet.name(axes, panel.title, panel.note)
    dress(axes)


def _few_ticks(axes: Axes, low: float, high: float, log: bool, height: float) -> None:
    """Ticks for a low panel: two or three."""
    if log:
        ticks = log_ticks(low, high, max(2, round(height / 0.33)))
    else:
        known = [t for t in axes.get_yticks() if low <= t <= high]
        ticks = known[:: max(1, round(len(known) * 0.26 / height))]
    axes.set_yticks(ticks, [tick_text(t) if t else "0" for t in ticks], parse_math=False)


def _draw_line(axes: Axes, line: Line, panel: Panel, colour: object) -> None:
    values = np.array(line.values, float)
    low, high, _ = panel.range
    style = "steps-post" if panel.is_stepped else "default"
    alone = np.isfinite(values)
    alone[1:] &= ~np.isfinite(values[:-1])
    alone[:-1] &= ~np.isfinite(values[1:])
    with np.errstate(invalid="ignore"):
        values = np.clip(values, low, high)
    axes.plot(line.attempts, values, color=colour, lw=1.2, drawstyle=style, zorder=3)  # type: ignore[arg-type]
    at = np.array(line.attempts, float)
    # A line through one point is no line.
    axes.plot(at[alone], values[alone], ls="none", marker="o", ms=4, color=colour, zorder=3)  # type: ignore[arg-type]


def _draw_bad(sheet: _Sheet, axes: Axes) -> None:
    """Crosses on the top edge; a row of attempts is a bar between two of them."""
    place = blended_transform_factory(axes.transData, axes.transAxes)
    bad = sheet.info.bad
    ends = sorted({end for span in bad for end in span})
    is_many = len(bad) > MAX_MARKS
    axes.plot(
        ends, [1.0] * len(ends), "x", transform=place, color=BAD, ms=8, mew=2, clip_on=False,
        zorder=8, rasterized=is_many,
    )  # fmt: skip
    rows = [span for span in bad if span[1] > span[0]]
    x = [v for first, last in rows for v in (first, last, np.nan)]
    axes.plot(
        x, [1.0] * len(x), transform=place, color=BAD, lw=3, clip_on=False, zorder=7,
        solid_capstyle="butt", rasterized=is_many,
    )  # fmt: skip


def _draw_clip(axes: Axes, clip: ClipInfo) -> None:
    """A strip at the foot of the panel: the fuller, the more of the steps were clipped."""
    strip = axes.inset_axes((0, 0, 1, 0.09))
    fill = LinearSegmentedColormap.from_list("clip", [PAPER, STYLES["degraded"].colour, "#8A4A10"])
    # The root shows a share of a tenth as well.
    strip.pcolormesh(
        clip.edges, [0, 1], [clip.shares], cmap=fill, norm=PowerNorm(0.5, 0, 1), rasterized=True
    )
    strip.set_xlim(axes.get_xlim())
    strip.set_xticks([])
    strip.set_yticks([])
    for spine in strip.spines.values():
        spine.set_color(FAINT)


def _heat_height(heat: HeatInfo) -> float:
    return min(max(0.19 * len(heat.names), 0.45), 4.4)


def _draw_heat(sheet: _Sheet, heat: HeatInfo) -> None:
    sheet.top -= 0.3
    axes = sheet.add(_heat_height(heat))
    low, high = heat.range
    norm = LogNorm(low, high)
    values = np.ma.masked_invalid(np.where(heat.values <= 0, low, heat.values))
    rows = np.arange(len(heat.names) + 1) - 0.5
    axes.set_facecolor("#FFFFFF")
    mesh = axes.pcolormesh(
        heat.edges, rows, np.ma.clip(values, low, high), norm=norm, cmap="cividis", rasterized=True,
    )  # fmt: skip
    at_row, at_column = np.nonzero(heat.bad)
    centres = (np.array(heat.edges[:-1]) + np.array(heat.edges[1:])) / 2
    axes.plot(
        centres[at_column], at_row, "x", color=BAD, ms=5, mew=1.5, zorder=4,
        rasterized=len(at_row) > MAX_MARKS,
    )  # fmt: skip
    axes.set_ylim(len(heat.names) - 0.5, -0.5)
    names, ticks = _row_ticks(heat)
    axes.set_yticks(ticks, names, fontsize=9.5, parse_math=False)
    dress(axes)
    axes.tick_params(axis="y", length=0)
    more = ""
    if heat.num_layers > len(heat.names):
        more = f" ({heat.num_layers} in {plural(len(heat.names), 'row')})"
    place = blended_transform_factory(sheet.figure.transFigure, axes.transAxes)
    height = _heat_height(heat)
    axes.text(
        0.14 / WIDTH_INCHES, 1 + 0.17 / height, heat.title + more, transform=place, va="center",
        fontweight="bold", parse_math=False,
    )  # fmt: skip
    scale = sheet.beside(axes)
    bar = sheet.figure.colorbar(mesh, cax=scale)
    bar.outline.set_edgecolor(FAINT)  # type: ignore[operator]
    shown = log_ticks(low, high, max(3, round(height / 0.4)))
    scale.set_yticks(shown, [tick_text(t) for t in shown], fontsize="small", parse_math=False)
    scale.set_yticks([], minor=True)
    scale.tick_params(width=0.8, colors=MUTED, labelcolor=INK)


def _row_ticks(heat: HeatInfo, most: int = 30) -> tuple[list[str], list[float]]:
    """Names of the rows that fit: the ends of long names, which is where they differ."""
    count = len(heat.names)
    fit = max(1, int(_heat_height(heat) / 0.165))
    step = -(-count // fit)
    rows = list(range(0, count, step))
    names = [heat.names[row] for row in rows]
    return [n if len(n) <= most else "..." + n[3 - most :] for n in names], [float(r) for r in rows]
