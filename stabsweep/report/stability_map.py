"""The stability map as plain numbers: its cells, their shares, the edge and the pick.

The drawer is `draw_map`; whatever it shows stands in `MapInfo`, which tests read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stabsweep.edge import Edge
from stabsweep.pick import Pick
from stabsweep.records import Record
from stabsweep.region import SHARED, Cell, Region
from stabsweep.report.conclusion import axis_label, lr_range, picked_row, row_label
from stabsweep.report.style import ON_SCALE, STYLES, outcome
from stabsweep.theory import Theory

LOG_SPAN = 50.0
"""Positive losses that differ by more than this factor are drawn on a log scale."""


@dataclass(frozen=True)
class Part:
    """The share of a cell's trials that had one outcome.

    Attributes:
        name: a key of `STYLES`.
        bottom, top: where in the cell it lies, from 0 to 1.
        loss: mean final loss of its trials, for what learned; None otherwise.
    """

    name: str
    bottom: float
    top: float
    loss: float | None = None


@dataclass(frozen=True)
class MapCell:
    """One rectangle of the map: a learning rate, the edges around it, and what it is made of.

    `trials` are the numbers of its trials.
    """

    lr: float
    low: float
    high: float
    parts: tuple[Part, ...]
    trials: tuple[int, ...] = ()


@dataclass(frozen=True)
class MapRow:
    """One row of the map; `group` changes where a thin line should part it from the next.

    `theory_lr` is the edge that linear theory draws, None for most rows.
    """

    label: str
    group: str
    cells: tuple[MapCell, ...]
    edge: Edge
    theory_lr: float | None = None


@dataclass(frozen=True)
class MapPick:
    """The pick on the map: its row, its rate, and the edge that its margin is measured to."""

    row: int
    lr: float
    edge_lr: float | None
    margin_decades: float | None


@dataclass(frozen=True)
class MapInfo:
    """All that the map shows.

    Attributes:
        rows: from the bottom of the map to its top.
        axis: what the row labels list; empty for a single strip.
        lr_range: ends of the map.
        losses: the loss at the good and at the bad end of the colour scale; None when nothing
            learned.
        log_loss: whether the colour scale is logarithmic.
        bad_end: what the bad end of the colour scale is, in words.
        counts: outcome -> number of trials.
        has_gaps: whether parts of the map hold no trial.
        is_scattered: whether the rates are no grid: then the rates that were tried are marked.
        pick: None without a recommendation.
    """

    rows: tuple[MapRow, ...]
    axis: str
    lr_range: tuple[float, float]
    losses: tuple[float, float] | None
    log_loss: bool
    bad_end: str
    counts: dict[str, int]
    has_gaps: bool
    is_scattered: bool
    pick: MapPick | None


def map_info(region: Region, pick: Pick, theory: Theory | None = None) -> MapInfo:
    """The numbers of the stability map."""
    bounds = _all_bounds(region)
    rows = [
        MapRow(
            row_label(row),
            str(next(iter(row.values.values()), "")) if len(row.values) > 1 else "",
            tuple(
                MapCell(cell.lr, low, high, cell_parts(cell), tuple(r.trial for r in cell.records))
                for cell, (low, high) in zip(row.cells, bounds[number], strict=True)
            ),
            row.edge,
            theory.lr if theory is not None and theory.values == row.values else None,
        )
        for number, row in enumerate(region.rows)
    ]
    number = picked_row(region, pick)
    # Numbers grow upwards like any axis; names are read from the top.
    axes = region.space.row_axes
    downwards = len(axes) > 1 or any(not axis.is_numeric for axis in axes)
    if downwards:
        rows.reverse()
        number = None if number is None else len(rows) - 1 - number
    spot = None
    if number is not None and pick.lr is not None:
        spot = MapPick(number, pick.lr, rows[number].edge.lr, pick.margin_decades)
    low, high = lr_range(region)
    cells = [cell for row in rows for cell in row.cells]
    if not low < high:
        low, high = low / 2, high * 2
    low, high = min([low, *(c.low for c in cells)]), max([high, *(c.high for c in cells)])
    covered = sum(math.log(c.high / c.low) for c in cells)
    losses, bad_end = loss_scale(region.records)
    counts = dict.fromkeys(STYLES, 0)
    for record in region.records:
        counts[outcome(record)] += 1
    return MapInfo(
        tuple(rows),
        axis_label(region),
        (low, high),
        losses,
        losses is not None and losses[0] > 0 and losses[1] > LOG_SPAN * losses[0],
        bad_end,
        {name: count for name, count in counts.items() if count},
        covered < 0.98 * max(len(rows), 1) * math.log(high / low),
        not _share_grid(region),
        spot,
    )


def cell_parts(cell: Cell) -> tuple[Part, ...]:
    """The cell's outcomes, stacked from what learned to what failed, each by its share.

    A cell whose seeds disagree must not look like its majority.
    """
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in cell.records:
        groups[outcome(record)].append(record)
    parts, bottom = [], 0.0
    for name in STYLES:
        if name in groups:
            top = bottom + len(groups[name]) / len(cell.records)
            losses = [r.final_loss for r in groups[name] if r.final_loss is not None]
            on_scale = name in ON_SCALE and losses
            parts.append(Part(name, bottom, top, float(np.mean(losses)) if on_scale else None))
            bottom = top
    return tuple(parts)


def loss_scale(records: Sequence[Record]) -> tuple[tuple[float, float] | None, str]:
    """Best and worst loss of the colour scale, and what the worst is, in words.

    It is the blind loss, or the initial loss for a task that has none. Only what learned counts,
    so that one insane loss cannot flatten the map; 1 trial is enough.
    """
    learned = [r for r in records if outcome(r) in ON_SCALE and r.final_loss is not None]
    losses = np.array([r.final_loss for r in learned], float)
    losses = losses[np.isfinite(losses)]
    if not len(losses):
        return None, ""
    best = float(losses.min())
    blinds = [r.blind for r in learned if r.blind is not None and math.isfinite(r.blind)]
    blind = float(np.median(blinds)) if blinds else -math.inf
    if blind > best:
        has_blind = any(r.blind_loss is not None for r in learned)
        return (best, blind), "blind, knows nothing" if has_blind else "untrained"
    worst = float(np.quantile(losses, 0.9))
    return (best, worst if worst > best else best + max(abs(best) * 0.1, 1e-12)), "worst"


def cell_bounds(lrs: Sequence[float], width: float | None = None) -> list[tuple[float, float]]:
    """Lower and upper end of each rate's cell, half way to its neighbours on a log scale.

    On a regular grid it reaches no further than half the usual step, so that a gap stays a gap.
    (Half-way points of the rates themselves would put the first end of a log grid below zero.)

    Args:
        lrs: ascending, without repeats.
        width: the usual step in decades; read from the rates when not given.

    >>> [(round(low, 3), round(high, 3)) for low, high in cell_bounds([0.01, 0.1, 1.0])]
    [(0.003, 0.032), (0.032, 0.316), (0.316, 3.162)]
    """
    x = np.log10(np.asarray(lrs, float))
    if not len(x):
        return []
    gaps = np.diff(x)
    if width is None:
        width = float(np.median(gaps)) if len(gaps) else 0.2
    reach = min(float(gaps.min()), width) / 2 if len(gaps) and _is_regular(gaps) else math.inf
    outer = min(reach, width / 2)
    below = np.minimum(np.append(outer, gaps / 2), reach)
    above = np.minimum(np.append(gaps / 2, outer), reach)
    return list(zip((10 ** (x - below)).tolist(), (10 ** (x + above)).tolist(), strict=True))


def _is_regular(gaps: np.ndarray) -> bool:
    """Whether distances are those of a grid: the least of them, or multiples of it."""
    steps = gaps / gaps.min()
    return bool(np.all(np.abs(steps - np.round(steps)) < 0.05))


def _share_grid(region: Region) -> bool:
    """Whether all rates that were tried lie on one grid, as far as there are enough to tell."""
    rates = [{cell.lr for cell in row.cells} for row in region.rows]
    union = sorted(set().union(*rates))
    if len(rates) > 1:
        return len(union) <= SHARED * max(len(row) for row in rates)
    return len(union) < 3 or _is_regular(np.diff(np.log10(union)))


def _all_bounds(region: Region) -> list[list[tuple[float, float]]]:
    """Cell ends of every row: of one common grid where rows share their rates, else their own."""
    rates = [[cell.lr for cell in row.cells] for row in region.rows]
    if rates and _share_grid(region):
        union = sorted({lr for row in rates for lr in row})
        ends = dict(zip(union, cell_bounds(union), strict=True))
        return [[ends[lr] for lr in row] for row in rates]
    gaps = [float(np.median(np.diff(np.log10(row)))) for row in rates if len(row) > 1]
    usual = float(np.median(gaps)) if gaps else 0.2
    return [cell_bounds(row, None if len(row) > 2 else usual) for row in rates]
