"""Where to look: a line search, short trials around it, and a ladder of rates below their edge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stabsweep.aside import train
from stabsweep.edge import find_edge
from stabsweep.extension import HIGHEST, LOWEST
from stabsweep.numerals import plural, rate, round_rate
from stabsweep.plan import Plan
from stabsweep.records import Record
from stabsweep.region import Row, find_region
from stabsweep.space import Axis, Space

NUM_RATES = 25
"""Rates of a line search over the range that was given. Ours: over five decades one every 0.2."""

LINE_STEPS, LINE_LOSS = 10, 0.01
"""Steps of a line search, and the share by which a loss must rise to be too high. Ours: after five
steps the second moments of Adam are still those of its first gradient."""

BELOW_DECADES, ABOVE_DECADES = 0.5, 1.0
"""How far short trials go below and above what a line search says, before they go on to the edge.
Ours: the edge after an eighth of the horizon was 0.15 to 11 times what it said on nine of ten
setups and up to 46 times on the tenth, where it cost a few trials (benchmarks/pick_quality.py)."""

SHORTER, LEAST_STEPS = 8, 32
"""A trial has this part of the horizon, but so many steps at least. Ours: most of what diverges has
done so by then (the edge of a whole run lies up to a decade lower)."""

GRID = (1.0, 1.8, 3.2, 5.6)
"""The rates of a ladder in each decade: quarters, the same for every sweep; of two digits, so that
a pick is a rate that was trained."""

NUM_RUNGS = 8
"""Rates of a ladder: from a quarter of a decade above the edge to one and a half or more below it.
Ours: on six setups the best rate of the whole run lay up to 1.3 decades below this edge."""


def bracket(plan: Plan) -> list[Record]:
    """A line search over the range of the plan, then short trials around the rate that it says.

    They go on beyond, also out of the range, until an edge is met. All have one seed.

    Args:
        plan: of a sweep whose only axis is the learning rate.
    """
    steps = min(max(plan.horizon // SHORTER, LEAST_STEPS) + _warmup(plan), plan.horizon)
    short = replace(plan, horizon=steps, rung_steps=max(math.ceil(steps / 10), 1))
    rates = starting_rates(plan.space)
    gap = math.log10(rates[-1] / rates[0]) / (NUM_RATES - 1)
    first: list[Record] = []
    if steps > LINE_STEPS:
        first = line_search(plan)
        low, high = _line_lr(first) / 10**BELOW_DECADES, _line_lr(first) * 10**ABOVE_DECADES
        rates = [lr for lr in rates if low <= lr <= high]
    records: list[Record] = []
    while rates:
        records += train(short, [{"lr": lr} for lr in rates], plan.seeds[:1])
        rates = _beyond(plan.space, records, gap)
    return [replace(record, trial=number) for number, record in enumerate([*first, *records])]


def line_search(plan: Plan) -> list[Record]:
    """A few steps at every rate of the range, at a constant rate and without a warmup.

    All see the same batches, so that the losses differ by the rate alone. What it says is a place
    to start from and never called safe: what grows slowly has not grown by then.

    Args:
        plan: of a sweep whose only axis is the learning rate.
    """
    fixed = {**plan.fixed, "warmup_steps": 0, "schedule": "constant"}
    few = replace(plan, horizon=LINE_STEPS, rung_steps=LINE_STEPS, fixed=fixed)
    return train(few, [{"lr": lr} for lr in starting_rates(plan.space)], plan.seeds[:1])


def _line_lr(records: Sequence[Record]) -> float:
    """The rate from which on a line search ends higher than with its lowest rate."""
    rates = [record.lr for record in records]
    losses = [math.inf if r.final_loss is None else r.final_loss for r in records]
    most = losses[0] + LINE_LOSS * abs(losses[0])
    edge = find_edge(rates, [loss <= most for loss in losses])
    return edge.lr or (rates[-1] if edge.status == "above" else rates[0])


def starting_rates(space: Space) -> list[float]:
    """The rates of a line search: over the range, or between the ends of the values."""
    axis = space.axes["lr"]
    low, high = (axis.values[0], axis.values[-1]) if axis.values else (axis.low, axis.high)
    return [round_rate(float(lr), digits=4) for lr in np.geomspace(low, high, NUM_RATES)]  # type: ignore[arg-type]


def narrowed(plan: Plan, records: Sequence[Record]) -> tuple[Plan, str]:
    """The plan with a ladder of rates below the edge of a bracket, and a line that says so.

    Args:
        plan: that was bracketed.
        records: of the bracket.
    """
    all_tried = sorted(record.lr for record in records)
    horizon = max(record.horizon for record in records)
    few = [record for record in records if record.horizon < horizon]
    records = [record for record in records if record.horizon == horizon]
    row = _row(plan.space, records)
    tried = sorted(record.lr for record in records)
    if row.edge.lr is not None:
        top, seen = row.edge.lr, f"edge near {rate(row.edge.lr)}"
    elif row.edge.status == "below":
        top, seen = tried[0], f"nothing held down to {rate(tried[0])}"
    else:
        # Without an edge the loss alone says where to look.
        top = min(row.best.lr * 10, tried[-1]) if row.best else tried[-1]
        seen = f"nothing failed up to {rate(tried[-1])}"
    ladder = ladder_below(top)
    given = starting_rates(plan.space)
    is_wider = all_tried[0] < given[0] or all_tried[-1] > given[-1]
    beyond = f" from {rate(tried[0])} to {rate(tried[-1])}, wider than asked" if is_wider else ""
    line = f" (line search: {rate(_line_lr(few))})" if few else ""
    message = (
        f"bracket: {seen} after {horizon} steps at {plural(len(tried), 'rate')}{beyond}{line}; "
        f"sweeping {rate(ladder[0])} to {rate(ladder[-1])}"
    )
    space = Space({"lr": Axis("lr", scale="log", values=tuple(ladder))})
    return replace(plan, space=space, bracket=False), message


def ladder_below(edge: float) -> list[float]:
    """The rates of `GRID` from the first that is not below an edge downwards, ascending.

    >>> ladder_below(0.25)
    [0.0056, 0.01, 0.018, 0.032, 0.056, 0.1, 0.18, 0.32]
    """
    first = math.floor(math.log10(edge)) + 1
    rates = [
        float(f"{digits}e{power}")
        for power in range(first - NUM_RUNGS, first + 1)
        for digits in GRID
    ]
    above = next(n for n, lr in enumerate(rates) if lr >= edge)
    return rates[above - NUM_RUNGS + 1 : above + 1]


def _warmup(plan: Plan) -> int:
    """Steps until the peak rate: a bracket is about what follows them."""
    return int(plan.fixed["warmup_steps"] or 0)


def _row(space: Space, records: Sequence[Record]) -> Row:
    (row,) = find_region(space, records).rows
    return row


def _beyond(space: Space, records: Sequence[Record], gap: float) -> list[float]:
    """A decade of further rates where no edge was met yet; none where it was, or at a limit."""
    status = _row(space, records).edge.status
    tried = sorted(record.lr for record in records)
    if status == "found":
        return []
    steps = range(1, max(round(1 / gap), 1) + 1)
    if status == "below":
        further = [tried[0] / 10 ** (n * gap) for n in steps]
    else:
        further = [tried[-1] * 10 ** (n * gap) for n in steps]
    inside = (round_rate(lr, digits=4) for lr in further)
    return sorted(lr for lr in inside if LOWEST <= lr <= HIGHEST * 1.001)
