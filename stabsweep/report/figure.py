"""The picture of a sweep: the map, the losses, the traces, under one sentence."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure, SubFigure

from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.report._axes import FONT_SIZE, dress, without_glyph_warnings
from stabsweep.report.conclusion import conclusion, proof_text, remarks
from stabsweep.report.draw_key import draw_colour_bar, draw_legend, map_key
from stabsweep.report.draw_losses import draw_losses, draw_row_names
from stabsweep.report.draw_map import draw_map
from stabsweep.report.loss_curves import loss_info
from stabsweep.report.sample_traces import LoadTrace, draw_traces, trace_infos
from stabsweep.report.stability_map import map_info
from stabsweep.report.style import INK, MUTED, clean
from stabsweep.theory import Theory

SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "text.parse_math": False,
    "text.usetex": False,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "stabsweep",
    "pdf.fonttype": 42,
    "axes.unicode_minus": False,
}
"""matplotlib's settings for our figures, whatever the user's own are."""

_NO_DATE: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""What of a file's own words would differ with the day and matplotlib's version."""

PIXELS_PER_INCH = 160

WIDTH_INCHES = 13


def draw_report(
    region: Region,
    pick: Pick,
    subject: str = "",
    load_trace: LoadTrace | None = None,
    num_planned: int | None = None,
    theory: Theory | None = None,
) -> Figure:
    """The picture of a sweep.

    What to conclude: read the headline; see on the map how the edge moves with the other axis,
    beside it what a lower rate would cost in loss, below it how training fails beyond the edge.

    Args:
        region: what the trials say.
        pick: the recommendation.
        subject: what was swept, e.g. `AdamW on transformer`.
        load_trace: reads a record's curves; without it the strip of traces is left out.
        num_planned: trials that the sweep was to run; fewer are said in a banner.
        theory: the edge of linear theory, a thin line in its row.
    """
    traces = trace_infos(region, pick, load_trace)
    rows = map_info(region, pick, theory)
    head = _headline(region, pick, subject, num_planned)
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **SETTINGS}):
        heights = [sum(line.height for line in head) + 0.15]
        heights += [min(max(0.62 * len(rows.rows) + 1.2, 3.9), 6.0) + 1.5]
        heights += [2.25] if traces else []
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        _write_headline(parts[0], head, heights[0])
        grid = parts[1].add_gridspec(
            3, 2, width_ratios=[1.7, 1], height_ratios=[heights[1] - 1.1, 0.24, 0.55]
        )
        on_map, losses = parts[1].add_subplot(grid[0, 0]), parts[1].add_subplot(grid[0, 1])
        draw_map(on_map, rows)
        dress(on_map, "Where training is stable")
        ends = loss_info(region, pick)
        draw_losses(losses, ends)
        draw_row_names(parts[1].add_subplot(grid[1, 1]), losses, ends)
        dress(losses, "Final loss by learning rate")
        draw_colour_bar(parts[1].add_subplot(grid[1, 0]), rows, 0.55 * 72 * WIDTH_INCHES)
        draw_legend(parts[1].add_subplot(grid[2, :]), map_key(rows), 0.97 * 72 * WIDTH_INCHES)
        if traces:
            panels = parts[2].subplots(1, max(len(traces), 4), squeeze=False)[0]
            for unused in panels[len(traces) :]:
                unused.axis("off")
            draw_traces(list(panels), traces)
            panels[0].set_ylabel("loss")
        figure.get_layout_engine().set(w_pad=0.09, h_pad=0.06, hspace=0.02, wspace=0.02)  # type: ignore[union-attr]
    return figure


class _Line(NamedTuple):
    text: str
    size: float
    height: float
    weight: str = "normal"
    colour: str = MUTED
    box: str | None = None


def _headline(region: Region, pick: Pick, subject: str, num_planned: int | None) -> list[_Line]:
    """What stands above the panels: the answer, its evidence, at most three remarks."""
    text = conclusion(region, pick, subject)
    # A headline that is too long breaks where it takes breath.
    parts = [text] if len(text) <= 92 else text.replace("; ", ";\n").split("\n")
    lines = [
        _Line(piece, 16, 0.33, "bold", INK) for part in parts for piece in textwrap.wrap(part, 92)
    ]
    lines += [
        _Line(part, 11.5, 0.24)
        for part in textwrap.wrap(clean(f"{pick.reason} {proof_text(pick)}"), 150)
    ]
    for remark in remarks(region, pick, num_planned)[:3]:
        text = textwrap.shorten(remark, 150, placeholder=" ...")
        lines.append(_Line(text, 11.5, 0.31, "normal", "#5C4400", "#FFF3CD"))
    return lines


def _write_headline(part: SubFigure, lines: list[_Line], height: float) -> None:
    top = height - 0.1
    for line in lines:
        box = {"fc": line.box, "ec": "none", "pad": 3} if line.box else None
        part.text(
            0.17 / WIDTH_INCHES, (top - line.height / 2) / height, line.text, fontsize=line.size,
            fontweight=line.weight, color=line.colour, va="center", bbox=box, parse_math=False,
        )  # fmt: skip
        top -= line.height


def save_figure(
    figure: Figure,
    folder: str | Path,
    name: str = "map",
    forms: Sequence[str] = ("png", "svg"),
    dpi: int = PIXELS_PER_INCH,
) -> list[Path]:
    """Writes `map.png` for the eye and `map.svg` for papers; returns their paths.

    The same figure gives the same bytes: no date, no random names.

    Args:
        figure: what to write.
        folder: where.
        name: of the files.
        forms: which of png, svg and pdf.
        dpi: pixels an inch of a PNG, and of what is an image inside the others.
    """
    paths = [Path(folder) / f"{name}.{form}" for form in forms]
    with _laid_out(figure, dpi):
        for path, form in zip(paths, forms, strict=True):
            path.write_bytes(_written(figure, form, dpi))
    return paths


def png_bytes(figure: Figure, pixels_per_inch: int = PIXELS_PER_INCH) -> bytes:
    """The figure as PNG; the same figure gives the same bytes."""
    with _laid_out(figure, pixels_per_inch):
        return _written(figure, "png", pixels_per_inch)


@contextmanager
def _laid_out(figure: Figure, dpi: int) -> Iterator[None]:
    """Everything in its place, for as many formats as are written then.

    With an engine each `savefig` works the places out anew and draws twice. They are rounded, since
    the engine does not repeat their last digits.
    """
    layout, own_dpi = figure.get_layout_engine(), figure.dpi
    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, **SETTINGS}
    with matplotlib.rc_context(settings), without_glyph_warnings():
        figure.dpi = dpi
        if layout is not None:
            layout.execute(figure)
            for axes in figure.axes:
                bounds = axes.get_position(original=True).bounds
                axes.set_position(tuple(round(v, 6) for v in bounds))  # type: ignore[arg-type]
                axes.set_in_layout(True)
        figure.set_layout_engine(None)
        try:
            yield
        finally:
            figure.dpi = own_dpi
            figure.set_layout_engine(layout)


def _written(figure: Figure, form: str, dpi: int) -> bytes:
    file = io.BytesIO()
    # At zlib's level 3 a PNG takes half the time and 8 % more bytes than at matplotlib's 6.
    packed: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if form == "png" else {}
    figure.savefig(file, format=form, dpi=dpi, metadata=_NO_DATE[form], **packed)
    data = file.getvalue()
    return _with_stable_ids(data.decode("utf-8")).encode("utf-8") if form == "svg" else data


def _with_stable_ids(svg: str) -> str:
    """The SVG with its clip paths numbered.

    matplotlib hashes their unrounded coordinates, whose last digits the layout does not repeat.
    """
    names = dict.fromkeys(re.findall(r'<clipPath id="(p[0-9a-f]+)"', svg))
    numbers = {name: f"clip{number}" for number, name in enumerate(sorted(names, key=svg.index))}
    return re.sub(r"\bp[0-9a-f]{10}\b", lambda found: numbers.get(found[0], found[0]), svg)
