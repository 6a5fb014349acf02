"""Final loss against learning rate as plain numbers; the drawer is `draw_losses`."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from stabsweep.pick import Pick
from stabsweep.records import Verdict
from stabsweep.region import Cell, Region, Row
from stabsweep.report.conclusion import axis_label, lr_range, picked_row, row_label
from stabsweep.report.stability_map import LOG_SPAN, cell_bounds

MAX_RATES, BIN_DECADES = 40, 0.125
"""Rates that one line can show; more of them are taken together in bins this wide."""


@dataclass(frozen=True)
class LossLine:
    """One row: median final loss at each rate or bin, with its lowest and highest."""

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
