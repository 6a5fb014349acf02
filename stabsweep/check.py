"""A test before a real run: does training hold at this learning rate, and somewhat above it?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.api import sweep
from stabsweep.edge import Edge
from stabsweep.limits import check_value
from stabsweep.numerals import duration, loss, plural, rate, round_rate, span
from stabsweep.plan import find_seeds
from stabsweep.progress import Watcher
from stabsweep.region import Cell, Region
from stabsweep.result import Result

FACTORS = (1.0, 1.5, 2.0, 4.0)
"""What the learning rate is multiplied with. Ours: the edge moves by 0.16 decades (1.45x) with the
seed; 4x is how far a pick looks for seeds that disagree."""

MUST_HOLD = 2
"""How many of `FACTORS`, from below, must hold for a rate to be safe: the rate itself and 1.5x it,
about the distance that a pick keeps (`MARGIN_DECADES`)."""

NUM_SEEDS = 3
"""Seeds by default: the fewest that can be of three minds."""

DOWN = (2.0, 4.0)
"""What a rate that holds itself, and one that does not, is divided by for the next try."""

EXIT_CODES = {"safe": 0, "not safe": 1, "undecided": 3}
"""Status -> exit code; 2 is bad input."""


@dataclass(frozen=True)
class Step:
    """What the trials did at one multiple of the rate.

    Attributes:
        factor, lr: the multiple, and the rate itself.
        trials: how many were run, `judged` of them could be judged, `held` of those were stable,
            and `learned`.
        p_low, p_high: 95 % interval of P(stable).
        loss: mean final loss; None when a trial failed.
    """

    factor: float
    lr: float
    trials: int
    judged: int
    held: int
    learned: int
    p_low: float
    p_high: float
    loss: float | None

    @property
    def all_held(self) -> bool:
        """Whether every trial was judged, and stable."""
        return self.held == self.judged == self.trials > 0

    @property
    def all_failed(self) -> bool:
        """Whether what was judged failed, every trial of it."""
        return self.judged > 0 and not self.held


@dataclass(frozen=True)
class Check:
    """The answer of a check.

    `safe` says that every seed held at the rate and at 1.5x it, over this horizon; a longer run
    may still fail. `undecided`: seeds disagree there, a trial could not be judged, or nothing was
    learned at any of the rates: then a failure had no chance to show itself.

    Attributes:
        status: `safe`, `not safe` or `undecided`.
        reason: why, in a sentence.
        move: which way to go, in a sentence.
        lr: the rate that was checked.
        steps: what was found, one a factor that was run.
        edge: the edge of stability, see `Edge`.
        subject: what was checked, `adamw on mlp`.
        result: the sweep behind it.
    """

    status: str
    reason: str
    move: str
    lr: float
    steps: tuple[Step, ...]
    edge: Edge
    subject: str = ""
    result: Result | None = None

    @property
    def exit_code(self) -> int:
        """For a script: 0 safe, 1 not safe, 3 undecided."""
        return EXIT_CODES[self.status]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return {
            "subject": self.subject,
            "status": self.status,
            "lr": self.lr,
            "reason": self.reason,
            "move": self.move,
            "steps": [asdict(step) for step in self.steps],
            "edge": asdict(self.edge),
            "seconds": self.result.seconds if self.result else None,
            "folder": str(self.result.folder) if self.result and self.result.folder else None,
        }

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        head = f"{self.subject}: lr={rate(self.lr, digits=4)} is {self.status}"
        table = [["", "lr", "held", "learned", "P(stable), 95%", "loss"]]
        table += [
            [
                f"{step.factor:g}x",
                rate(step.lr, digits=3),
                f"{step.held} of {step.judged}",
                f"{step.learned} of {step.judged}",
                span(step.p_low, step.p_high) if step.judged else "not judged",
                loss(step.loss) if step.loss is not None else "-",
            ]
            for step in self.steps
        ]
        widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
        rows = [
            "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
            for line in table
        ]
        words = [("Why", self.reason), ("Edge", self._edge()), ("Next", self.move)]
        if self.result is not None:
            words += [("Trials", report.counted(self.result.region.records))]
            if self.result.seconds is not None:
                words += [("Took", duration(self.result.seconds))]
            if self.result.folder is not None:
                words += [("Files", f"{self.result.folder}/ report.html map.png trials.csv")]
        lines = [report.entry(*pair) for pair in words]
        return "\n".join([report.entry("", head).strip(), "", *rows, "", *lines])

    def _edge(self) -> str:
        edge = self.edge
        if edge.status == "found" and edge.lr and edge.low and edge.high:
            within = span(edge.low / self.lr, edge.high / self.lr).replace(" to ", "x to ")
            return f"at {rate(edge.lr / self.lr)}x this rate (95% interval {within}x)"
        return {
            "above": f"not met up to {rate(edge.low)}",
            "below": f"below {rate(edge.high)}: nothing held",
        }.get(edge.status, "not known")


def check(
    lr: float,
    given: Mapping[str, Any],
    folder: str | Path | None = None,
    watcher: Watcher | str = "auto",
) -> Check:
    """Trains at 1, 1.5, 2 and 4 times a learning rate, as one sweep, and says whether it is safe.

    Args:
        lr: the learning rate to be used.
        given: the other arguments of `stabsweep.sweep`; those that say how rates are searched for
            (`space` with all its axes, `sampler`, `pruner`, `num_trials`) and what is done with a
            pick are left out. `seeds` are three unless they are given.
        folder: result folder; None keeps nothing.
        watcher: as `stabsweep.sweep` takes it.

    Raises:
        BadInput: an argument cannot be used; there is no rate 0.
    """
    lr = float(check_value("lr", lr))  # type: ignore[arg-type]
    rates = [float(check_value("lr", lr * x, f"{x:g} times lr")) for x in FACTORS]  # type: ignore[arg-type]
    left_out = {"space", "num_trials", "sampler", "pruner"}
    given = {"seeds": NUM_SEEDS, **{k: v for k, v in given.items() if k not in left_out}}
    own = {
        "sampler": "grid",
        "extend": False,
        "confirm": False,
        "stress": False,
        "curvature": False,
    }
    result = sweep(
        **{**given, **own},
        space={"lr": rates},
        num_trials=len(rates) * len(find_seeds(given["seeds"])),
        folder=folder,
        watcher=watcher,
    )
    return judged(lr, result.region, result.subject, result)


def judged(lr: float, region: Region, subject: str = "", result: Result | None = None) -> Check:
    """What the trials at multiples of a rate say of it.

    Args:
        lr: the rate.
        region: of a space whose only axis is `lr`.
        subject: what was swept, for the headline.
        result: the sweep, to be handed on.
    """
    cells = region.rows[0].cells if region.rows else ()
    steps = tuple(_step(lr, cell) for cell in cells)
    must, edge = steps[:MUST_HOLD], region.rows[0].edge if region.rows else Edge("unknown")
    if not steps:
        status, reason = "undecided", "No trial was finished."
    elif failed := next((step for step in must if step.all_failed), None):
        status = "not safe"
        why = next(r.reason for r in cells[steps.index(failed)].judged if not r.verdict.is_stable)
        reason = f"{_reach(steps)}. {why}"
    elif len(must) < MUST_HOLD or any(step.judged < step.trials for step in must):
        status, reason = "undecided", f"Not every trial could be judged. {_first_reason(region)}"
    elif split := next((step for step in must if not step.all_held), None):
        status = "undecided"
        reason = f"Seeds disagree at {split.factor:g}x: {split.held} of {split.judged} held there."
    elif not any(step.learned for step in steps):
        status = "undecided"
        reason = (
            "Stable, but too slow: nothing was learned at any of the rates, so that a failure had "
            "no chance to show itself."
        )
    else:
        status, reason = "safe", f"{_reach(steps)}."
        if slow := steps[0].trials - steps[0].learned:
            reason += f" At 1x {slow} of {steps[0].trials} learned nothing in this horizon."
    return Check(status, reason, _move(status, lr, steps), lr, steps, edge, subject, result)


def _step(lr: float, cell: Cell) -> Step:
    mean = cell.mean_loss
    return Step(
        # The space keeps fewer digits than a product has.
        min(FACTORS, key=lambda factor: abs(math.log(cell.lr / (factor * lr)))),
        cell.lr,
        len(cell.records),
        len(cell.judged),
        cell.num_stable,
        sum(record.verdict.is_learned for record in cell.judged),
        *cell.p_interval,
        mean if math.isfinite(mean) else None,
    )


def _reach(steps: tuple[Step, ...]) -> str:
    """`It holds up to 2x and fails at 4x`: how far the rate is from the edge, in its multiples."""
    held = 0.0
    for step in steps:
        if not step.all_held:
            break
        held = step.factor
    own = steps[0]
    if own.all_failed:
        return f"{'The one seed' if own.judged == 1 else f'All {own.judged} seeds'} failed at 1x"
    first = f"It holds up to {held:g}x" if held else f"{own.held} of {own.judged} held at 1x"
    first = first.replace("up to 1x", "at 1x")
    beyond = [step for step in steps if step.factor > max(held, 1)]
    if not beyond:
        return f"{first}, the most that was tried" if held else first
    failed = next((step for step in beyond if step.all_failed), None)
    if failed is not None:
        return f"{first} and {'fails' if held else 'none'} at {failed.factor:g}x"
    return f"{first}; at {beyond[0].factor:g}x {beyond[0].held} of {beyond[0].judged} held"


def _first_reason(region: Region) -> str:
    for record in region.records:
        if record.state == "failed" or not record.verdict.is_judged:
            return f"The first: {record.error or record.reason}"
    return ""


def _move(status: str, lr: float, steps: tuple[Step, ...]) -> str:
    """Which way to go."""
    if not steps:
        return "Run it again."
    if any(step.held < step.judged for step in steps[:MUST_HOLD]):
        # One that holds itself lacks the distance alone.
        below = round_rate(lr / DOWN[0 if steps[0].all_held else 1], down=True)
        more = "" if status == "not safe" else ", or ask more seeds (seeds=8)"
        return f"Go down: check lr={rate(below)}{more}."
    if status == "undecided":
        longer = "Train longer (horizon=...)"
        if any(step.judged < step.trials for step in steps):
            return f"{longer}, or look at input, init and model."
        return f"{longer} or go up: check lr={rate(4 * lr)}."
    sure = [step for step in steps[1:] if step.all_held and step.loss is not None]
    best = min(sure, key=lambda step: step.loss or 0.0, default=None)
    here = steps[0].loss
    if best is not None and here is not None and (best.loss or 0.0) < here:
        return (
            f"Stay, or go up: {best.factor:g}x ends lower ({loss(best.loss)} against "
            f"{loss(here)}); check lr={rate(best.lr)} before it is used."
        )
    seeds = plural(steps[0].judged, "seed")
    return f"Stay: no rate up to {steps[-1].factor:g}x ends lower with all of {seeds}."
