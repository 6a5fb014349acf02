"""The share of each verdict by optimizer (or another axis) and by seed, as plain numbers.

The drawer is `draw_verdicts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stabsweep.records import Record
from stabsweep.region import Region
from stabsweep.report.conclusion import row_label, value_text
from stabsweep.report.style import clean, count_outcomes

MAX_BARS = 12
"""Bars of a group; of more rows neighbours are taken together."""


@dataclass(frozen=True)
class ShareBar:
    """One bar: its label, and how many trials had each outcome, in the order of `STYLES`."""

    label: str
    counts: dict[str, int]

    @property
    def num_trials(self) -> int:
        """How many trials it is made of."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class ShareGroup:
    """Bars that share what they are sorted by, e.g. `optimizer`.

    `is_merged` says that a bar stands for its value and those up to the next bar's.
    """

    title: str
    bars: tuple[ShareBar, ...]
    is_merged: bool = False


@dataclass(frozen=True)
class ShareInfo:
    """All that the picture shows: the groups from top to bottom, and the counts of all trials."""

    groups: tuple[ShareGroup, ...]
    counts: dict[str, int]


def share_info(region: Region) -> ShareInfo:
    """The numbers of the picture of verdicts.

    A sweep of several row axes is sorted by its optimizers, else by its first row axis. One seed
    is no group of its own.
    """
    groups = []
    axes = [axis.name for axis in region.space.row_axes]
    by = "optimizer" if "optimizer" in axes else next(iter(axes), "")
    found: dict[str, list[Record]] = {}
    for row in region.rows if by else ():
        label = row_label(row) if len(axes) == 1 else value_text(row.values[by])
        found.setdefault(label, []).extend(r for cell in row.cells for r in cell.records)
    if found:
        groups.append(_group(clean(by).replace("_", " "), list(found.items())))
    seeds = region.seeds
    if len(seeds) > 1:
        by_seed = [(str(seed), [r for r in region.records if r.seed == seed]) for seed in seeds]
        groups.append(_group("seed", by_seed))
    if not groups and region.records:
        groups.append(_group("", [("all trials", list(region.records))]))
    return ShareInfo(tuple(groups), count_outcomes(region.records))


def _group(title: str, found: Sequence[tuple[str, list[Record]]]) -> ShareGroup:
    size = -(-len(found) // MAX_BARS)
    bars = []
    for first in range(0, len(found), size):
        part = found[first : first + size]
        label = part[0][0] if len(part) == 1 else f"from {part[0][0]}"
        bars.append(ShareBar(label, count_outcomes(r for _, records in part for r in records)))
    return ShareGroup(title, tuple(bars), size > 1)
