"""Stalls: what a loss that never left its start means, read from the rest of its row."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from stabsweep.numerals import rate
from stabsweep.records import Record, Verdict

BROKEN_RATES, BROKEN_RANGE = 3, 10.0
"""So many rates of a seed, over such a range, that fail at one and the same step fail whatever the
rate is. Ours: weights that move ten times less do not overflow at the same step three times."""

CALM_STEP = 0.1
"""Update over weights, at the lowest of these rates, of a step that breaks nothing. Ours: Adam on
recurrent nets overflowed after 0.2; a first step of Adam at a healthy rate is up to 0.05."""


def stable_loss(record: Record) -> float:
    """The final loss of a stable trial; infinite for any other."""
    stable = record.verdict.is_stable and record.final_loss is not None
    return float(record.final_loss) if stable else math.inf  # type: ignore[arg-type]


def settled_row(row: Sequence[Record]) -> list[Record]:
    """The row's records with each stall named: `collapsed` above what learned or failed.

    A stall looks the same on both sides of the window. Which side it is on is known from the lower
    rates of its row, with the same seed where those were tried: if one of them learned or failed,
    this one is not too slow; unless the rates above it learn better than those, for then it is a
    slow one that missed what its neighbours just reached. Where nothing of the row learned, a stall
    stays provisional.

    Args:
        row: all records of one row, in any order.
    """
    row = _without_broken(row)
    known = [r for r in row if not r.provisional and r.verdict.is_judged and r.state != "failed"]
    any_learned = any(record.verdict.is_learned for record in known)
    by_seed: dict[int, list[Record]] = defaultdict(list)
    for record in known:
        by_seed[record.seed].append(record)
    everything = _Rates(known)
    of_seed = {seed: _Rates(group) for seed, group in by_seed.items()}
    nothing = _Rates([])
    settled = []
    for record in row:
        if record.provisional:
            mine = of_seed.get(record.seed, nothing)
            lower = mine if mine.num_below(record.lr) else everything
            is_lowest = not lower.num_below(record.lr)
            if not is_lowest and not (
                mine.loss_above(record.lr) < lower.loss_below(record.lr) < math.inf
            ):
                lr, learned = lower.best_below(record.lr)
                did = "learned" if learned else "failed already"
                reason = f"{record.reason} A lower rate of its row {did} ({rate(lr)})."
                record = replace(record, verdict=Verdict.COLLAPSED, reason=reason)
            record = replace(record, provisional=is_lowest and not any_learned)
        settled.append(record)
    return settled


class _Rates:
    """What the rates below any one did, and those above it: summed up once, looked up by bisection.

    A look at all of them for every stall would cost the square of their number.
    """

    def __init__(self, known: Sequence[Record]) -> None:
        by_lr: dict[float, list[Record]] = defaultdict(list)
        for record in known:
            by_lr[record.lr].append(record)
        self._lrs = lrs = sorted(by_lr)
        groups = [by_lr[lr] for lr in lrs]
        losses = [min(map(stable_loss, group)) for group in groups]
        self._lowest = list(itertools.accumulate(losses, min))
        learned = [any(record.verdict.is_learned for record in group) for group in groups]
        ends = [lr if is_learned else None for lr, is_learned in zip(lrs, learned, strict=True)]
        self._learned = list(itertools.accumulate(ends, lambda old, new: new or old))
        # Going up from a rate the first failure ends what counts, that rate itself included.
        above, reached = [], math.inf
        for group, lowest in zip(reversed(groups), reversed(losses), strict=True):
            holds = all(record.verdict.is_learned for record in group)
            reached = min(reached, lowest) if holds else math.inf
            above.append(reached)
        self._above = above[::-1]

    def num_below(self, lr: float) -> int:
        """How many rates lie below one."""
        return bisect.bisect_left(self._lrs, lr)

    def best_below(self, lr: float) -> tuple[float, bool]:
        """The highest rate below one that learned, else the highest; and whether it learned."""
        last = self.num_below(lr) - 1
        learned = self._learned[last]
        return (self._lrs[last], False) if learned is None else (learned, True)

    def loss_below(self, lr: float) -> float:
        """The lowest loss of the rates below one."""
        return self._lowest[self.num_below(lr) - 1]

    def loss_above(self, lr: float) -> float:
        """The lowest loss of the rates above one, up to the first that failed."""
        first = bisect.bisect_right(self._lrs, lr)
        return self._above[first] if first < len(self._lrs) else math.inf


def _without_broken(row: Sequence[Record]) -> list[Record]:
    """The row's records, `invalid` where every rate of a seed failed at the same step.

    That is how a batch with a NaN in it looks, or a model that breaks whatever its weights are.
    Rates that are so high that they failed earlier stay as they are.
    """
    by_seed: dict[int, list[Record]] = defaultdict(list)
    for record in row:
        if record.verdict.is_judged and record.state != "failed":
            by_seed[record.seed].append(record)
    broken = {seed: step for seed, group in by_seed.items() if (step := _broken_step(group))}
    said = "Every rate of this seed failed at this step: the batch or the model, not the rate."
    return [
        replace(record, verdict=Verdict.INVALID, reason=f"{record.reason} {said}")
        if record.verdict.is_judged and record.bad_step == broken.get(record.seed, -1)
        else record
        for record in row
    ]


def _broken_step(records: Sequence[Record]) -> int | None:
    """The step at which every rate of a seed fails that comes so far; None where there is none."""
    calmest = min(records, key=lambda record: record.lr)
    step, moved = calmest.bad_step, calmest.last_update_ratio
    if step is None or moved is None or moved > CALM_STEP:
        return None
    rates = [record.lr for record in records if record.bad_step == step]
    no_one_went_on = all(record.steps <= step or record.bad_step is not None for record in records)
    is_last = all((record.bad_step or 0) <= step for record in records)
    is_wide = len(set(rates)) >= BROKEN_RATES and max(rates) >= BROKEN_RANGE * min(rates)
    return step if no_one_went_on and is_last and is_wide else None
