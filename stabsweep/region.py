"""What the records say of the space: along each row the edge, the usable part, the good part.

A *row* is all that is fixed but the learning rate. Everything here is computed from records
alone, so any set of them can be read: a grid, random points, a sweep that was interrupted.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy import special

from stabsweep.records import Array, Point, Record, Value, Verdict
from stabsweep.space import Axis, Space

LOSS_OF_USE = 0.5
"""The usable edge: where the final loss has lost this share of (blind - best) (design)."""

LOSS_OF_GOOD = 0.1
"""The good band: within this share of (blind - best) of the best (design)."""

SAFE = 0.95
"""P(stable) at the safe edge (design)."""

LAPSE_BELOW, LAPSE_ABOVE = 0.001, 0.03
"""Chance that a trial fails far below the edge, and that one holds far above it. Unequal, since a
failure below is evidence while a hold above is a pocket; measured on eight test functions."""

NUM_EDGES = 1201
"""Edges that are weighed along a row: over six decades one every 0.006."""

NUM_TURNS = 2500
"""Length of the transforms: at least 2 * NUM_EDGES - 1, even, with small factors."""

WIDTHS = np.geomspace(0.005, 0.5, 12)
"""Widths of the edge that are weighed, in decades."""

WIDTH_PRIOR = -0.5 * (np.log(WIDTHS / 0.08) / 2.5) ** 2
"""Edges of small models were 0.04 to 0.16 decades wide: a weak prior around that."""

MAX_ROW_VALUES = 12
"""A row axis with more distinct values than this is scattered, and is cut into `ROW_BINS`."""

ROW_BINS = 6


@dataclass(frozen=True)
class Edge:
    """Where along a row training stops being stable.

    Attributes:
        status: `found`; `above`: nothing judged in the row failed, the edge lies above `low`;
            `below`: nothing in the row held, the edge lies below `high`; `unknown`: no trials.
        lr: the learning rate with P(stable) = 0.5; None unless found.
        low, high: its 95 % interval; with one trial a cell mostly the distance of two cells.
        safe_lr: the largest rate with P(stable) = 0.95, of the worst seed; when the edge was not
            reached the largest rate tried; None when nothing held.
    """

    status: str
    lr: float | None = None
    low: float | None = None
    high: float | None = None
    safe_lr: float | None = None


@dataclass(frozen=True)
class Cell:
    """All trials of one row at one learning rate: one a seed."""

    lr: float
    records: tuple[Record, ...]

    @property
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

    @property
    def loss(self) -> float:
        """Median final loss over the seeds, where an unstable trial counts as infinite."""
        losses = [_loss(record) for record in self.judged]
        return float(np.median(losses)) if losses else math.inf

    @property
    def mean_loss(self) -> float:
        """Mean final loss over the seeds; infinite when one is unstable."""
        losses = [_loss(record) for record in self.judged]
        return float(np.mean(losses)) if losses else math.inf

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
    settled = {key: _settled(group) for key, group in by_row.items()}
    rows = [_read_row(space, key, settled[key]) for key in sorted(settled, key=_ordered(space))]
    everything = sorted((r for group in settled.values() for r in group), key=lambda r: r.trial)
    return Region(space, tuple(everything), tuple(rows))


def find_edge(lrs: Sequence[float], stable: Sequence[bool], seeds: Sequence[int] = ()) -> Edge:
    """The edge that a row of verdicts points to: a Bayesian probit fit over log10 of the rate.

    P(stable | lr) = Phi((log10 edge - log10 lr) / width) with lapses; edge and width are summed
    over a grid, so there is nothing to converge. "The first failure" would be biased low under
    noise, the more so the denser the grid.

    Args:
        lrs: learning rates, in any order, repeats allowed.
        stable: whether the trial at that rate was stable.
        seeds: seed of each trial; the safe edge is the worst seed's.
    """
    x = np.log10(np.asarray(lrs, float))
    held = np.asarray(stable, bool)
    if not len(x):
        return Edge("unknown")
    top, bottom = float(max(lrs)), float(min(lrs))
    if held.all():
        return Edge("above", low=top, safe_lr=top)
    if not held.any():
        return Edge("below", high=bottom)
    edges = _grid(x)
    weight, p_stable = _probit(edges, x, held)
    # Mass lies around its grid point, half of it below.
    reached = np.cumsum(weight) - weight / 2
    low, middle, high = (float(q) for q in np.interp([0.025, 0.5, 0.975], reached, edges))
    last_held, first_failed = float(x[held].max()), float(x[~held].min())
    if last_held < first_failed:
        # Nothing contradicts an edge between the two; the grid may be coarser than their distance.
        middle = min(max(middle, last_held), first_failed)
        low, high = min(low, middle), max(high, middle)
    # Beyond the last rate that held there is hope, not evidence.
    safe = [_safe(edges, p_stable), last_held, middle]
    for seed in set(seeds):
        mine = np.asarray(seeds) == seed
        if not held[mine].any():
            below = x[held & (x < x[mine].min())]
            safe.append(float(below.max()) if len(below) else -math.inf)
        elif not held[mine].all():
            safe.append(_safe(edges, _probit(edges, x[mine], held[mine])[1]))
    worst = min(safe)
    return Edge(
        "found",
        lr=10.0**middle,
        low=10.0**low,
        high=10.0**high,
        safe_lr=10.0**worst if worst > -math.inf else None,
    )


def _grid(x: Array) -> Array:
    """The edges to be weighed: from a little below the row to a little above it."""
    rates = np.unique(x)
    gap = float(np.diff(rates).min()) if len(rates) > 1 else 0.1
    pad = max(0.1 * float(np.ptp(rates)), gap)
    return np.linspace(rates[0] - pad, rates[-1] + pad, NUM_EDGES)


def _probit(edges: Array, x: Array, held: Array) -> tuple[Array, Array]:
    """Posterior weight of each edge, and posterior mean of P(stable) at each.

    On an even grid both are convolutions, so that a long row costs no more than a short one.
    """
    step = float(edges[1] - edges[0])
    place = (x - edges[0]) / step
    left = np.minimum(place.astype(int), NUM_EDGES - 2)
    counts = np.zeros((2, NUM_EDGES))
    # A trial between two grid points counts for both, by its nearness.
    np.add.at(counts, (held.astype(int), left), 1 - (place - left))
    np.add.at(counts, (held.astype(int), left + 1), place - left)
    kernels = _kernels(round(step, 12))
    failed, stood = np.fft.rfft(counts, NUM_TURNS)
    log_posterior = np.fft.irfft(failed * kernels[0] + stood * kernels[1], NUM_TURNS)
    log_posterior = log_posterior[:, NUM_EDGES - 1 : 2 * NUM_EDGES - 1] + WIDTH_PRIOR[:, None]
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    p_stable = np.fft.irfft((np.fft.rfft(posterior, NUM_TURNS) * kernels[2]).sum(0), NUM_TURNS)
    return posterior.sum(0), p_stable[NUM_EDGES - 1 : 2 * NUM_EDGES - 1]


@lru_cache(maxsize=8)
def _kernels(step: float) -> Array:
    """Transforms, by width, of log P(failed), log P(held) and P(stable) over edge minus rate.

    The third is over rate minus edge: it is summed over edges.
    """
    distance = step * np.arange(1 - NUM_EDGES, NUM_EDGES)
    chance = special.ndtr(distance / WIDTHS[:, None])
    lapsing = LAPSE_ABOVE + (1 - LAPSE_BELOW - LAPSE_ABOVE) * chance
    return np.fft.rfft([np.log1p(-lapsing), np.log(lapsing), chance[:, ::-1]], NUM_TURNS)


def _safe(edges: Array, p_stable: Array) -> float:
    """log10 of the largest rate with P(stable) >= SAFE."""
    good = np.flatnonzero(p_stable >= SAFE)
    return float(edges[good[-1]]) if len(good) else -math.inf


def _loss(record: Record) -> float:
    stable = record.verdict.is_stable and record.final_loss is not None
    return float(record.final_loss) if stable else math.inf  # type: ignore[arg-type]


def _settled(row: Sequence[Record]) -> list[Record]:
    """The row's records with each stall named: `collapsed` above what learned, else too slow.

    A stall looks the same on both sides of the window; which side it is on is known from the
    other trials of the row: if a lower rate learned (with the same seed, when that was tried),
    the stall lies above.
    """
    settled = []
    for record in row:
        if record.provisional:
            lower = [r for r in row if r.lr < record.lr and not r.provisional]
            same_seed = [r for r in lower if r.seed == record.seed]
            learned = [r for r in same_seed or lower if r.verdict.is_learned]
            if learned:
                top = max(r.lr for r in learned)
                reason = f"{record.reason} A lower rate of its row learned ({top:.2g})."
                record = replace(record, verdict=Verdict.COLLAPSED, reason=reason)
            known = any(r.verdict.is_learned for r in row)
            record = replace(record, provisional=not known)
        settled.append(record)
    return settled


def _row_keys(space: Space, records: Sequence[Record]) -> list[tuple[Value, ...]]:
    """The row of each record; a scattered numeric axis is cut into bins."""
    columns: list[list[Value]] = []
    for axis in space.row_axes:
        column = [record.point[axis.name] for record in records]
        if not axis.values and len(set(column)) > MAX_ROW_VALUES:
            column = [_bin(axis, float(value)) for value in column]  # type: ignore[arg-type]
        columns.append(column)
    return list(zip(*columns, strict=True)) if columns else [()] * len(records)


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
    scale = max(float(np.median(blinds)) - cells[top].loss, 0.0) if blinds else 0.0
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
