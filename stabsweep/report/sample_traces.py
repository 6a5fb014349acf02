"""A strip of real loss curves, one for each thing that happened: the choice, and the drawer."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stabsweep.numerals import rate
from stabsweep.pick import Pick
from stabsweep.records import Array, Record
from stabsweep.region import Region
from stabsweep.report._axes import dress, loss_axis, points
from stabsweep.report.conclusion import picked_row, setting
from stabsweep.report.stability_map import LOG_SPAN
from stabsweep.report.style import MUTED, STYLES, outcome

LoadTrace = Callable[[Record], "Array | None"]
"""A record's curves as a (5, T) array in the order of `CURVES`, or None when they are not kept."""

MAX_TRACES = 6
"""Panels that fit in the strip."""

MAX_POINTS = 240
"""Points of a drawn curve; longer ones are cut into buckets that keep their extremes."""

MAX_SPAN = 1e9
"""Factor by which a curve is followed up or down from where it started."""

IMPORTANCE = (
    "converged", "diverged", "collapsed", "too_slow", "degraded", "spiky", "oscillating",
    "recovered", "invalid", "cut_short", "peak_not_reached",
)  # fmt: skip
"""Which outcomes to show when there are more than panels."""


@dataclass(frozen=True)
class TraceInfo:
    """One panel: what happened, where, and the curve.

    Attributes:
        name: outcome, a key of `STYLES`.
        where: learning rate and row, in words.
        steps, losses: the curve, thinned; NaN where it was not finite.
        bad_step: first step that was not finite; None if there was none.
        loss_range: ends of the axis.
        log_loss: whether the axis is logarithmic.
        blind: the blind loss, when it lies within the axis.
        horizon: steps that the trial was to run.
    """

    name: str
    where: str
    steps: tuple[float, ...]
    losses: tuple[float, ...]
    bad_step: int | None
    loss_range: tuple[float, float]
    log_loss: bool
    blind: float | None
    horizon: int


def choose_traces(region: Region, pick: Pick, most: int = MAX_TRACES) -> list[list[Record]]:
    """For each outcome worth a panel its records, the best example first; by learning rate.

    From the picked row where possible, since one row shows what the learning rate alone does;
    in the middle of the outcome's range there, since that is what is typical.
    """
    home = picked_row(region, pick)
    if home is None:
        home = len(region.rows) // 2
    rows = {id(r): n for n, row in enumerate(region.rows) for c in row.cells for r in c.records}
    groups: dict[str, list[Record]] = {}
    for record in region.records:
        if record.state != "failed":
            groups.setdefault(outcome(record), []).append(record)
    chosen = []
    for name in [name for name in IMPORTANCE if name in groups][:most]:
        distance = {id(r): abs(rows.get(id(r), 0) - home) for r in groups[name]}
        near = min(distance.values())
        rates = [r.lr for r in groups[name] if distance[id(r)] == near]
        middle = math.log10(float(np.median(rates)))
        if name == "converged" and pick.lr is not None:
            middle = math.log10(pick.lr)
        chosen.append(
            sorted(
                groups[name],
                key=lambda r, d=distance, m=middle: (
                    d[id(r)], round(abs(math.log10(r.lr) - m), 6), r.seed, r.trial
                ),
            )
        )  # fmt: skip
    order = list(STYLES)
    return sorted(chosen, key=lambda found: (found[0].lr, order.index(outcome(found[0]))))


def trace_infos(region: Region, pick: Pick, load: LoadTrace | None) -> list[TraceInfo]:
    """The panels of the strip, from the lowest learning rate to the highest.

    Args:
        region: what the trials say.
        pick: the recommendation, whose row is shown where possible.
        load: reads a record's trace; an outcome without any readable one is left out.
    """
    infos = []
    for records in choose_traces(region, pick) if load is not None else []:
        for record in records[:3]:
            curves = load(record)  # type: ignore[misc]
            if curves is not None and len(curves[0]):
                infos.append(trace_info(region, record, np.asarray(curves[0], float)))
                break
    return infos


def trace_info(region: Region, record: Record, loss: Array) -> TraceInfo:
    """One panel of the strip.

    Args:
        region: gives the row's words.
        record: the trial.
        loss: (T,) its loss.
    """
    values = {axis.name: record.point.get(axis.name) for axis in region.space.row_axes}
    bad = np.flatnonzero(~np.isfinite(loss))
    steps, losses = thinned(loss)
    finite = losses[np.isfinite(losses)]
    low, high, log = _limits(finite, record)
    blind = record.blind_loss
    return TraceInfo(
        outcome(record),
        "\n".join([f"lr {rate(record.lr)}", *textwrap.wrap(setting(values), 25)[:2]]),
        tuple(float(s) for s in steps),
        tuple(float(v) for v in losses),
        int(bad[0]) if len(bad) else None,
        (low, high),
        log,
        blind if blind is not None and low <= blind <= high else None,
        max(record.horizon, len(loss)),
    )


def _limits(finite: Array, record: Record) -> tuple[float, float, bool]:
    """Ends of the axis and whether it is logarithmic: the curve, and the levels around it."""
    levels = [v for v in (record.blind_loss, record.initial_loss, *finite[:1]) if v is not None]
    values = np.array([*finite, *levels] or [0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    start = max(levels, default=0.0)
    if low >= 0 and start > 0:
        # Both ways from the start, which must stay in sight: what falls to nothing, what runs away.
        low, high = max(low, start / MAX_SPAN), min(high, start * MAX_SPAN)
    log = low > 0 and high > LOG_SPAN * low
    if log:
        return low / (high / low) ** 0.06, high * (high / low) ** 0.06, True
    if low <= 0 and levels:
        # A loss that may be negative cannot be logarithmic: cut a runaway off instead.
        reach = 4 * (max(levels) - low)
        high = min(high, max(levels) + reach) if reach > 0 else high
    pad = 0.06 * (high - low) or max(abs(high) * 0.1, 1e-9)
    return low - pad, high + pad, False


def thinned(values: Array, most: int = MAX_POINTS) -> tuple[Array, Array]:
    """Steps and values of a curve, at most `most`; each bucket keeps its extremes.

    >>> steps, values = thinned(np.r_[np.zeros(5000), 9.0, np.zeros(5000)], 100)
    >>> len(values) <= 100, float(values.max())
    (True, 9.0)
    """
    steps = np.arange(len(values))
    if len(values) <= most:
        return steps, values
    kept: list[int] = []
    for bucket in np.array_split(steps, most // 2):
        part = values[bucket]
        finite = np.flatnonzero(np.isfinite(part))
        if len(finite):
            ends = {finite[part[finite].argmin()], finite[part[finite].argmax()]}
            kept += [int(bucket[i]) for i in sorted(ends)]
        else:
            kept.append(int(bucket[0]))
    return np.array(kept), values[kept]


def draw_traces(panels: Sequence[Axes], infos: Sequence[TraceInfo]) -> None:
    """Draws what training looked like, from a rate that is too low to one that is too high.

    What to conclude: which kind of failure you would meet beyond the edge. A curve that sits on
    the dashed level has learned nothing although it looks calm; a cross is where the loss was no
    longer finite. If "converged" is still falling at the end, a longer horizon may move the best
    rate down.
    """
    for axes, info in zip(panels, infos, strict=False):
        style = STYLES[info.name]
        colour = MUTED if style.hatch or info.name in ("spiky", "too_slow") else style.colour
        loss_axis(axes, *info.loss_range, info.log_loss)
        top = info.loss_range[1]
        axes.set_xlim(-0.02 * info.horizon, info.horizon * 1.02)
        if info.blind is not None:
            axes.axhline(info.blind, color=MUTED, lw=points(0.9), ls=(0, (5, 3)), zorder=1)
        axes.plot(info.steps, info.losses, color=colour, lw=points(1.5), zorder=2)
        if info.bad_step is not None:
            before = [v for v in info.losses if math.isfinite(v)]
            y = min(before[-1], top) if before else top
            cross: dict[str, Any] = {"ms": points(8), "mew": points(2), "clip_on": False}
            axes.plot(info.bad_step, y, "x", color=colour, zorder=3, **cross)
        elif info.steps and info.steps[-1] < info.horizon - 1:
            axes.plot(info.steps[-1], info.losses[-1], "o", ms=points(5), color=colour, zorder=3)
        axes.set_xticks([0, info.horizon], ["0", str(info.horizon)])
        axes.set_xlabel(info.where, fontsize="small", parse_math=False)
        dress(axes)
        axes.tick_params(labelsize="small")
        frame = MUTED if style.hatch else "none"
        axes.set_title(
            style.label, fontsize="medium", fontweight="bold", color=style.ink, loc="left", y=1.0,
            bbox={"fc": style.colour, "ec": frame, "pad": points(2.5)},
        )  # fmt: skip
