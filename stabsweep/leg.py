"""The legs of a sweep: a study of the range that was asked for, then one for each extension."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from stabsweep import sampler as samplers
from stabsweep.extension import MOST, WORD, Extension, find_extension, tidy, widened
from stabsweep.numerals import plural, span
from stabsweep.pick import find_pick
from stabsweep.records import Record
from stabsweep.region import Region
from stabsweep.roster import Roster, make_study
from stabsweep.space import Axis, Space
from stabsweep.study import Study


@dataclass
class Legs:
    """The legs of a sweep: the range that was asked for, then each extension of it.

    A leg is a sweep of the new part, as dense as the first, whose trials are numbered on from those
    before; so what a trial is does not depend on when the sweep was interrupted. `boundary` alone
    is given the wider range and all that is known, since it knows by itself where to look.

    Attributes:
        asked: what is swept at first.
        sampler: name -> arguments.
        num_trials: trials wanted at first, seeds included.
        seeds, seed: of the trials, and of the sampler.
        margin_decades: of the pick.
        may_extend: whether any extension is wanted.
        extensions: those that there are; of an earlier run, and new ones.
    """

    asked: Space
    sampler: Mapping[str, Any]
    num_trials: int
    seeds: Sequence[int]
    seed: int
    margin_decades: float
    may_extend: bool
    extensions: list[Extension] = field(default_factory=list)
    _is_last: bool = False
    _planned: dict[int, int] = field(default_factory=dict)

    @property
    def space(self) -> Space:
        """All that is swept so far."""
        return widened(self.asked, self.extensions)

    @property
    def num_planned(self) -> int:
        """Trials of all legs; `boundary` may be satisfied with fewer."""
        return sum(self._num_planned(leg) for leg in self._legs)

    @property
    def config(self) -> dict[str, Any]:
        """What follows from them, for the config of the sweep."""
        extended = {"extended": [asdict(part) for part in self.extensions]}
        return {"num_planned": self.num_planned, **(extended if self.extensions else {})}

    def study(
        self,
        pruner: Any,
        records: Sequence[Record],
        told: Callable[[Any], None] | None = None,
    ) -> Study | Roster:
        """The study of the first leg that is not complete, or of the last.

        Args:
            pruner: see `Study`.
            records: of all trials that have ended.
            told: see `Study`.
        """
        known = {record.trial for record in records}
        *earlier, leg = self._legs
        first, end = 0, math.inf
        for number in earlier:
            after = first + self._num_planned(number)
            if not known.issuperset(range(first, after)):
                leg, end = number, after
                break
            first = after
        self._is_last = leg == self._legs[-1]
        mine = [record for record in records if first <= record.trial < end]
        rule = self.rule(leg, {record.trial - first for record in mine})
        # A guide looks wherever it may; the others have been told where.
        space = self.space if hasattr(rule, "index") else self._part(leg)
        planned = self._num_planned(leg)
        return make_study(space, rule, pruner, self.seeds, planned, mine, told, first)

    def go_on(self, region: Region, note: Callable[[str], None]) -> bool:
        """Whether there is another leg, after one whose trials have ended; a new one is noted.

        Args:
            region: of all trials that have ended.
            note: told what is added and why.
        """
        if not self._is_last:
            return True
        if not self.may_extend or len(self.extensions) >= MOST:
            return False
        found = find_extension(region, find_pick(region, margin_decades=self.margin_decades))
        if found is None:
            return False
        part, why = found
        self.extensions.append(part)
        more = self.num_planned - len(region.records)
        most = "at most " if self._knows_where else ""
        note(f"{WORD}{why}; {span(part.low, part.high)} added, {most}{plural(more, 'more trial')}")
        return True

    def rule(self, leg: int = 0, done: Collection[int] = ()) -> Any:
        """The sampler of a leg.

        Args:
            leg: which, from 0.
            done: its trials that have ended, numbered from 0.
        """
        number = self._num_wanted(leg)
        rule = samplers.build(
            space=self.space if self._knows_where else self._part(leg),
            num_trials=number,
            seeds=self.seeds,
            # Not the same points again, a decade higher.
            seed=self.seed if self._knows_where else self.seed + leg,
            done=done,
            **self.sampler,
        )
        self._planned[leg] = samplers.num_planned(rule, number)
        return rule

    @property
    def _knows_where(self) -> bool:
        return self.sampler["name"] == "boundary"

    @property
    def _legs(self) -> list[int]:
        last = len(self.extensions)
        return [last] if self._knows_where else list(range(last + 1))

    def _num_planned(self, leg: int) -> int:
        if leg not in self._planned:
            self.rule(leg)
        return self._planned[leg]

    def _num_wanted(self, leg: int) -> int:
        """Trials of a leg; for `boundary` of all of them together."""
        more = [math.ceil(self.num_trials * self._share(part)) for part in self.extensions[:leg]]
        if self._knows_where:
            return self.num_trials + sum(more)
        return more[-1] if leg else self.num_trials

    def _share(self, part: Extension) -> float:
        """Decades of a part in those of the range that was asked for.

        A range of less than a decade was a close look, which no extension has to repeat.
        """
        axis = self.asked.axes["lr"]
        assert axis.low is not None and axis.high is not None
        return min(math.log(part.high / part.low) / math.log(axis.high / axis.low), 1.0)

    def _part(self, leg: int) -> Space:
        """What is new in a leg; for a grid the next rates of it."""
        if not leg:
            return self.asked
        part = self.extensions[leg - 1]
        axis = Axis("lr", part.low, part.high, "log")
        if self.sampler["name"] == "grid":
            points = self.asked.grid(math.ceil(self.num_trials / len(self.seeds)))
            steps = len({point["lr"] for point in points}) - 1
            number = max(round(steps * self._share(part)), 1)
            rates = [tidy(lr) for lr in np.geomspace(part.low, part.high, number + 1)]
            is_above = part.high > self.asked.axes["lr"].high  # type: ignore[operator]
            axis = Axis("lr", scale="log", values=tuple(rates[1:] if is_above else rates[:-1]))
        return Space({**self.asked.axes, "lr": axis})
