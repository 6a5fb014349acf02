"""What the records say of the space: along each row the edge, the usable part, the good part.

A *row* is all that is fixed but the learning rate. Everything here is computed from records
alone, so any set of them can be read: a grid, random points, a sweep that was interrupted.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from scipy import special

from stabsweep.edge import Edge, find_edge
from stabsweep.records import Point, Record, Value, Verdict
from stabsweep.scattered import scattered_edges
from stabsweep.space import Axis, Space
from stabsweep.stall import settled_row, stable_loss

LOSS_OF_USE = 0.5
"""The usable edge: where the final loss has lost this share of (blind - best) (design)."""

LOSS_OF_GOOD = 0.1
"""The good band: within this share of (blind - best) of the best (design)."""

MAX_ROW_VALUES = 12
"""A row axis with more distinct values than this is scattered, and is cut into `ROW_BINS`."""

ROW_BINS = 6

SHARED = 1.5
"""Rows with fewer than so many rates for each of the longest row lie on a common grid."""


@dataclass(frozen=True)
class Cell:
    """All trials of one row at one learning rate: one a seed."""

    lr: float
    records: tuple[Record, ...]

    @cached_property
    def judged(self) -> tuple[Record, ...]:
        """The trials that say something about their learning rate."""
        return tuple(r for r in self.records if r.state != "failed" and r.verdict.is_judged)

    @property
    def num_stable(self) -> int:
        """How many of the judged trials are stable."""
        return sum(record.verdict.is_stable for record in self.judged)

    @property
    def p_stable(self) -> float:
        """Share of the judged trials that are stable; NaN without trials."""
        return self.num_stable / len(self.judged) if self.judged else math.nan

    @property
    def p_interval(self) -> tuple[float, float]:
        """95 % interval of P(stable): equal-tailed, Jeffreys prior (Brown et al. 2001)."""
        held, failed = self.num_stable, len(self.judged) - self.num_stable
        low = special.betaincinv(held + 0.5, failed + 0.5, 0.025) if held else 0.0
        high = special.betaincinv(held + 0.5, failed + 0.5, 0.975) if failed else 1.0
        return float(low), float(high)

    @cached_property
    def loss(self) -> float:
        """Median final loss over the seeds, where an unstable trial counts as infinite."""
        losses = [stable_loss(record) for record in self.judged]
        return statistics.median(losses) if losses else math.inf

    @property
    def mean_loss(self) -> float:
        """Mean final loss over the seeds; infinite when one is unstable."""
        losses = [stable_loss(record) for record in self.judged]
        return statistics.fmean(losses) if losses else math.inf

    @property
    def held(self) -> bool:
        """Whether every judged trial is stable."""
        return bool(self.judged) and self.num_stable == len(self.judged)

    @property
    def is_sound(self) -> bool:
        """Whether every seed learned, without spikes: what may be recommended."""
        sound = (Verdict.CONVERGED, Verdict.RECOVERED)
        return bool(self.judged) and all(record.verdict in sound for record in self.judged)


@dataclass(frozen=True)
class Row:
    """What is known along one row.

    Attributes:
        values: row axis -> value.
        cells: one a learning rate, ascending.
        edge: see `Edge`.
        best: the cell with the lowest loss; None when nothing in the row learned.
        usable_lr: the usable edge: the largest rate, going up from the best without a gap, whose
            final loss keeps at least half of (blind - best).
        good_band: lowest and highest rate around the best within a tenth of (blind - best) of it.
        window: from the lowest usable rate ("too slow" below it) to the usable edge.
    """

    values: Point
    cells: tuple[Cell, ...]
    edge: Edge
    best: Cell | None = None
    usable_lr: float | None = None
    good_band: tuple[float, float] | None = None
    window: tuple[float, float] | None = None

    @property
    def window_decades(self) -> float | None:
        """Width of the window in powers of ten; None when nothing in the row learned."""
        return math.log10(self.window[1] / self.window[0]) if self.window else None

    @cached_property
    def lr_sensitivity(self) -> float | None:
        """Mean over the rates of min(loss, initial loss) - lowest loss; None without losses.

        Wortsman et al. 2023, arXiv 2309.14322. Each rate counts by its share of the log range, so
        that rates crowded at an edge count no more than those of a grid. It depends on the range:
        more of it beyond the edge, or far below it, and it grows. So it compares rows of one range
        only, and says nothing of stability by itself: a row that never leaves its start is as
        insensitive as a row whose window is wide.
        """
        known = [(c.lr, loss) for c in self.cells if (loss := _capped_loss(c)) is not None]
        if not known:
            return None
        losses = [loss for _, loss in known]
        return statistics.fmean(losses, _log_widths([lr for lr, _ in known])) - min(losses)

    def as_dict(self) -> dict[str, Any]:
        """Plain values: the edges, bands and the best rate, without the cells."""
        return {
            "values": dict(self.values),
            "edge": asdict(self.edge),
            "usable_lr": self.usable_lr,
            "good_band": list(self.good_band) if self.good_band else None,
            "window": list(self.window) if self.window else None,
            "window_decades": self.window_decades,
            "lr_sensitivity": self.lr_sensitivity,
            "best_lr": self.best.lr if self.best else None,
            "best_loss": self.best.loss if self.best else None,
        }


@dataclass(frozen=True)
class Region:
    """What the records say of the space.

    Attributes:
        space: the space that was swept.
        records: all records, with every provisional stall settled by its row.
        rows: one `Row` for each value of the row axes, in the order of the axes' values.
    """

    space: Space
    records: tuple[Record, ...]
    rows: tuple[Row, ...]

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that were run, ascending."""
        return tuple(sorted({record.seed for record in self.records}))

    @property
    def best_row(self) -> Row | None:
        """The row with the lowest loss; None when nothing learned."""
        rows = [row for row in self.rows if row.best is not None]
        return min(rows, key=lambda row: row.best.loss) if rows else None  # type: ignore[union-attr]

    @property
    def landmarks(self) -> dict[str, Any]:
        """The best rate and the edge of the best row, as a `Progress` names them."""
        row = self.best_row
        if row is None or row.best is None:
            return {}
        known: dict[str, Any] = {"best_lr": row.best.lr, "best_loss": row.best.loss}
        return known | {f"edge_{key}": getattr(row.edge, key) for key in ("lr", "low", "high")}


def find_region(space: Space, records: Iterable[Record]) -> Region:
    """The region that a set of records describes.

    Args:
        space: the space that the points belong to.
        records: any records of it, in any order.
    """
    records = sorted(records, key=lambda record: record.trial)
    keys = _row_keys(space, records)
    by_row: dict[tuple[Value, ...], list[Record]] = defaultdict(list)
    for record, key in zip(records, keys, strict=True):
        by_row[key].append(record)
    settled = {key: settled_row(group) for key, group in by_row.items()}
    rows = [_read_row(space, key, settled[key]) for key in sorted(settled, key=_ordered(space))]
    if len(rows) > 1 and (_binned(space, records) or not _share_rates(by_row.values())):
        rows = _with_scattered_edges(space, records, rows)
    everything = sorted((r for group in settled.values() for r in group), key=lambda r: r.trial)
    return Region(space, tuple(everything), tuple(rows))


def _capped_loss(cell: Cell) -> float | None:
    """Mean over the seeds of the final loss, or of the initial one where that is lower."""
    known = [(r.final_loss, r.initial_loss) for r in cell.judged if r.initial_loss is not None]
    ends = [first if end is None else min(end, first) for end, first in known]
    return statistics.fmean(ends) if ends else None


def _log_widths(lrs: Sequence[float]) -> list[float]:
    """How much of the log range each of some ascending rates stands for; all equal on a grid."""
    if len(lrs) == 1:
        return [1.0]
    gaps = [math.log10(high / low) for low, high in itertools.pairwise(lrs)]
    return [(a + b) / 2 for a, b in zip([gaps[0], *gaps], [*gaps, gaps[-1]], strict=True)]


def _row_keys(space: Space, records: Sequence[Record]) -> list[tuple[Value, ...]]:
    """The row of each record; a scattered numeric axis is cut into bins."""
    columns: list[list[Value]] = []
    binned = _binned(space, records)
    for axis in space.row_axes:
        column = [record.point[axis.name] for record in records]
        if axis in binned:
            column = [_bin(axis, float(value)) for value in column]  # type: ignore[arg-type]
        columns.append(column)
    return list(zip(*columns, strict=True)) if columns else [()] * len(records)


def _binned(space: Space, records: Sequence[Record]) -> list[Axis]:
    """The axes that are scattered."""
    ranges = [axis for axis in space.row_axes if not axis.values]
    return [a for a in ranges if len({r.point[a.name] for r in records}) > MAX_ROW_VALUES]


def are_scattered(space: Space, records: Sequence[Record]) -> bool:
    """Whether rows have rates of their own, or are bins: then they lend each other strength."""
    by_row: dict[tuple[Value, ...], list[Record]] = defaultdict(list)
    for record, key in zip(records, _row_keys(space, records), strict=True):
        by_row[key].append(record)
    return bool(_binned(space, records)) or not _share_rates(by_row.values())


def _share_rates(rows: Collection[Sequence[Record]]) -> bool:
    """Whether the rows were tried at the same learning rates, as on a grid."""
    rates = [{record.lr for record in row} for row in rows]
    return len(set().union(*rates)) <= SHARED * max(map(len, rates), default=0)


def _with_scattered_edges(
    space: Space, records: Sequence[Record], rows: Sequence[Row]
) -> list[Row]:
    """The rows with their edges read from one surface, where they have any."""
    judged = [r for row in rows for cell in row.cells for r in cell.judged]
    bins = dict.fromkeys((axis.name for axis in _binned(space, records)), 1 / ROW_BINS)
    found = scattered_edges(space, judged, [row.values for row in rows], bins)
    return [
        row if edge is None or row.edge.status == "unknown" else replace(row, edge=edge)
        for row, edge in zip(rows, found, strict=True)
    ]


def _bin(axis: Axis, value: float) -> Value:
    number = min(int(axis.share(value) * ROW_BINS), ROW_BINS - 1)
    return axis.at((number + 0.5) / ROW_BINS)


def _ordered(space: Space):
    """A sort key for rows: as the axis lists its values, numbers ascending, `None` last."""

    def key(row: tuple[Value, ...]) -> tuple[float, ...]:
        places = []
        for axis, value in zip(space.row_axes, row, strict=True):
            if axis.values and value in axis.values:
                places.append(float(axis.values.index(value)))
            else:
                places.append(math.inf if value is None else float(value))
        return tuple(places)

    return key


def _read_row(space: Space, key: tuple[Value, ...], records: Sequence[Record]) -> Row:
    by_lr: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        by_lr[record.lr].append(record)
    cells = [Cell(lr, tuple(by_lr[lr])) for lr in sorted(by_lr)]
    judged = [record for cell in cells for record in cell.judged]
    edge = Edge("unknown")
    if not all(record.provisional for record in judged):
        edge = find_edge(
            [r.lr for r in judged], [r.verdict.is_stable for r in judged], [r.seed for r in judged]
        )
    values = {axis.name: value for axis, value in zip(space.row_axes, key, strict=True)}
    row = Row(values, tuple(cells), edge)
    # A cell without a judged trial says nothing: it is no gap in what is usable.
    cells = [cell for cell in cells if cell.judged]
    learned = [i for i, c in enumerate(cells) if any(r.verdict.is_learned for r in c.judged)]
    learned = [i for i in learned if math.isfinite(cells[i].loss)]
    if not learned:
        return row
    top = min(learned, key=lambda i: cells[i].loss)
    blinds = [record.blind for record in judged if record.blind is not None]
    scale = max(statistics.median(blinds) - cells[top].loss, 0.0) if blinds else 0.0
    usable = _around(cells, top, cells[top].loss + LOSS_OF_USE * scale)
    good = _around(cells, top, cells[top].loss + LOSS_OF_GOOD * scale)
    return replace(row, best=cells[top], usable_lr=usable[1], good_band=good, window=usable)


def _around(cells: Sequence[Cell], top: int, limit: float) -> tuple[float, float]:
    """Lowest and highest rate around a cell that are reached without passing a worse cell."""
    low = high = top
    while low > 0 and cells[low - 1].loss <= limit:
        low -= 1
    while high < len(cells) - 1 and cells[high + 1].loss <= limit:
        high += 1
    return cells[low].lr, cells[high].lr
