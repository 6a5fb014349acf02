"""Two sweeps side by side in words and plain numbers; the drawer is `draw_shifts`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stabsweep.edge import Edge
from stabsweep.limits import CHOICES
from stabsweep.numerals import loss, rate
from stabsweep.region import Row
from stabsweep.report.conclusion import setting, value_text
from stabsweep.report.style import clean
from stabsweep.shift import MOVED, SAME, Shift

MAX_NAMED = 3
"""Rows that a sentence names; of more it gives the count."""

MAX_DRAWN = 30
"""Rows that the picture can show and be read at half width."""


@dataclass(frozen=True)
class Span:
    """One edge of one side: where it is and how far it may reach.

    Attributes:
        lr: the edge; None when it was not met.
        low, high: its 95 % interval; None is an open end.
    """

    lr: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ShiftRow:
    """One row of the picture: its label, the edge on both sides, and what to conclude."""

    label: str
    a: Span | None
    b: Span | None
    text: str
    is_moved: bool


@dataclass(frozen=True)
class ShiftInfo:
    """All that the picture shows.

    Attributes:
        title: the conclusion.
        names: what A and B are.
        axis: what the rows' labels list; empty for a single row without axes.
        rows: from the first, at the bottom, to the last.
        num_hidden: rows that found no place.
        lr_range: ends of the learning rate axis.
    """

    title: str
    names: tuple[str, str]
    axis: str
    rows: tuple[ShiftRow, ...]
    num_hidden: int
    lr_range: tuple[float, float]


def shift_info(shifts: Sequence[Shift], names: tuple[str, str]) -> ShiftInfo:
    """The numbers of the picture of two sweeps.

    Args:
        shifts: the rows.
        names: what A and B are.
    """
    shown = shifts[:MAX_DRAWN]
    rows = tuple(
        ShiftRow(
            " · ".join(value_text(value) for value in shift.values.values()),
            _span(shift.a),
            _span(shift.b),
            f"{moved_text(shift)}  {shift.says}" if _distance(shift) is not None else shift.says,
            shift.says == MOVED,
        )
        for shift in shown
    )
    rates = [v for row in rows for s in (row.a, row.b) if s for v in (s.lr, s.low, s.high) if v]
    low, high = (min(rates), max(rates)) if rates else (1e-3, 1.0)
    # An open end needs room for its arrow.
    pad = 10 ** max(0.08 * math.log10(high / low), 0.15)
    axis = " · ".join(clean(name).replace("_", " ") for name in (shown[0].values if shown else ()))
    title = shift_sentence(shifts)
    hidden = len(shifts) - len(shown)
    return ShiftInfo(title, names, axis, rows, hidden, (low / pad, high * pad))


def shift_sentence(shifts: Sequence[Shift], a: str = "A", b: str = "B") -> str:
    """The conclusion in one sentence: in which rows the edge of B lies elsewhere, and how far.

    Args:
        shifts: the rows.
        a: short name of the first.
        b: short name of the second.
    """
    both = [s for s in shifts if s.a is not None and s.b is not None]
    if not both:
        return f"{a} and {b} have no row in common"
    lower = [s for s in both if s.says == MOVED and (_distance(s) or 0) < 0]
    higher = [s for s in both if s.says == MOVED and (_distance(s) or 0) > 0]
    parts = []
    for word, group in (("lower", lower), ("higher", higher)):
        if group:
            lead = "" if parts else f"{b}'s edge is "
            parts.append(f"{lead}{_span_text(group)} decades {word}{_where(group, both)}")
    same = [s for s in both if s.says == SAME]
    if same:
        lead = "" if parts else f"the edges of {a} and {b} are "
        none = f" in any of the {len(same)} rows" if len(same) == len(both) > 1 else ""
        parts.append(f"{lead}not distinguishable{none or _where(same, both)}")
    for word in dict.fromkeys(s.says for s in both if s.says not in (MOVED, SAME)):
        group = [s for s in both if s.says == word]
        named = word.replace("in A", f"in {a}").replace("in B", f"in {b}")
        # With no decided row "not met" needs its noun.
        parts.append(f"{'' if parts else 'the edge was '}{named}{_where(group, both)}")
    text = "; ".join(parts)
    return text[0].upper() + text[1:]


def _where(group: Sequence[Shift], everything: Sequence[Shift]) -> str:
    """`at 0 warmup steps`, `in 5 of 8 rows`, `in all 4 rows`, or nothing for a single row."""
    names = list(group[0].values)
    if not names:
        return ""
    at = "with" if names[0] in CHOICES else "at"
    if len(group) == len(everything) > 1:
        return f" in all {len(group)} rows"
    if len(group) > MAX_NAMED:
        return f" in {len(group)} of {len(everything)} rows"
    if len(names) > 1:
        return f" {at} " + f" and {at} ".join(setting(shift.values) for shift in group)
    firsts = [value_text(v) for shift in group[:-1] for v in shift.values.values()]
    last = setting(group[-1].values)
    ((name, value),) = group[-1].values.items()
    if firsts and last.endswith(value_text(value)):
        # `clip norm 0.1, 0.3 and 1`: the value comes after its name.
        lead = last[: -len(value_text(value))]
        return f" {at} {lead}{', '.join(firsts)} and {value_text(value)}"
    return f" {at} {', '.join(firsts)} and {last}" if firsts else f" {at} {last}"


def _span_text(group: Sequence[Shift]) -> str:
    sizes = sorted(abs(_distance(shift) or 0.0) for shift in group)
    low, high = f"{sizes[0]:.1f}", f"{sizes[-1]:.1f}"
    if sizes[0] < 0.095:
        low, high = f"{sizes[0]:.2f}", f"{sizes[-1]:.2f}"
    if any(shift.decades is None for shift in group):
        return f"at least {low}"
    return low if low == high else f"{low} to {high}"


def _distance(shift: Shift) -> float | None:
    return shift.decades if shift.decades is not None else shift.least_decades


def moved_text(shift: Shift) -> str:
    """By how many decades the edge moved: `-0.61`, `> +0.30` at least, or a dash."""
    if shift.decades is None and shift.least_decades is None:
        return "-"
    if shift.decades is None:
        return f"{'>' if shift.least_decades > 0 else '<'} {shift.least_decades:+.2f}"  # type: ignore[operator]
    return f"{shift.decades:+.2f}"


def shift_table(shifts: Sequence[Shift], a: str = "A", b: str = "B") -> list[str]:
    """One line a row: the edges and how they moved; below it the usable edges, rates, losses.

    Args:
        shifts: the rows.
        a: short name of the first.
        b: short name of the second.
    """
    if not shifts:
        return []
    axis = " / ".join(clean(name).replace("_", " ") for name in shifts[0].values)
    axis = textwrap.shorten(axis, 24, placeholder="...")
    edges = [[axis, f"edge {a}", f"edge {b}", "decades", ""]]
    uses = [[axis, f"usable {a}", b, "decades", f"best {a}", b, f"loss {a}", b]]
    for shift in shifts:
        label = " / ".join(value_text(value) for value in shift.values.values())
        label = textwrap.shorten(label, 24, placeholder="...") or label[:24]
        rows = (shift.a, shift.b)
        says = shift.says.replace("in A", f"in {a}").replace("in B", f"in {b}")
        edges.append([label, *(edge_text(r and r.edge) for r in rows), moved_text(shift), says])
        usable = "-" if shift.usable_decades is None else f"{shift.usable_decades:+.2f}"
        uses.append(
            [
                label,
                *(rate(r.usable_lr) if r and r.usable_lr else "-" for r in rows),
                usable,
                *(rate(r.best.lr) if r and r.best else "-" for r in rows),
                *(loss(r.best.loss) if r and r.best else "-" for r in rows),
            ]
        )
    return [*_aligned(edges, left=4), "", *_aligned(uses)]


def edge_text(edge: Edge | None) -> str:
    """An edge in a table: a rate, `> 1` where nothing failed, `< 1e-3` where nothing held."""
    if edge is None or edge.status == "unknown":
        return "-"
    if edge.status == "found":
        return rate(edge.lr)
    return f"> {rate(edge.low)}" if edge.status == "above" else f"< {rate(edge.high)}"


def _aligned(table: Iterable[Sequence[str]], left: int | None = None) -> list[str]:
    table = list(table)
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    lines = []
    for line in table:
        cells = [
            text.ljust(width) if n == left else text.rjust(width)
            for n, (text, width) in enumerate(zip(line, widths, strict=True))
            if width
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def _span(row: Row | None) -> Span | None:
    if row is None or row.edge.status == "unknown":
        return None
    return Span(row.edge.lr, row.edge.low, row.edge.high)
