"""What a dashboard is given of a sweep: chosen trials, and the whole in words and one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep import report
from stabsweep.records import CURVES, Array, Record, Value
from stabsweep.region import Cell
from stabsweep.result import Result, name_of, whole_curves

MOST_TRIALS, MOST_SEEDS = 24, 3
"""Trials in a dashboard, and seeds of one rate among them. Ours: a list that is still read; where a
sweep has thousands, their curves would say less than the map and cost minutes."""

MOST_POINTS = 1000
"""Points of a curve; a longer one keeps the extremes of each of its parts."""

FIXED = ("horizon", "batch_size", "warmup_steps", "clip_norm", "schedule", "init", "precision")
"""Keys of a config that a trial was trained with where no axis sweeps them."""

NUMBERS = (
    "final_loss", "best_loss", "peak_loss", "initial_loss", "blind_loss", "steps", "bad_step",
    "clip_share", "spike_share", "displacement",
)  # fmt: skip
"""Fields of a record that are told as final metrics."""


@dataclass(frozen=True)
class Curve:
    """One curve, without the steps that were not finite: they are gaps.

    Some dashboards draw an infinite value at 1.8e308, and none says which step was the first. That
    is the metric `bad_step`.

    Attributes:
        steps, values: of the same length.
    """

    steps: Array
    values: Array


@dataclass(frozen=True)
class LoggedTrial:
    """One chosen trial.

    Attributes:
        name: its number and its outcome; also a fit name for a folder.
        hyperparameters: what it was trained with, its verdict, and why it was chosen.
        reason: the verdict's evidence in one sentence.
        metrics: final numbers, finite all.
        curves: name -> curve; empty where the trace was not kept.
    """

    name: str
    hyperparameters: Mapping[str, Value]
    reason: str
    metrics: Mapping[str, float]
    curves: Mapping[str, Curve]


@dataclass(frozen=True)
class Entry:
    """A sweep as a dashboard shows it.

    Attributes:
        name: of the sweep: that of its folder.
        subject: what was swept.
        answer: the summary, plain text.
        picture: the map, a PNG file.
        metrics: of the pick; empty where there is none.
        trials: the chosen ones, by number.
        num_trials: how many there are in all.
    """

    name: str
    subject: str
    answer: str
    picture: Path
    metrics: Mapping[str, float]
    trials: tuple[LoggedTrial, ...]
    num_trials: int

    @property
    def answer_markdown(self) -> str:
        """The answer as a block of code: nothing in it is read as markup."""
        return "\n".join(f"    {line}" for line in self.answer.splitlines())


def make_entry(result: Result) -> Entry:
    """What a dashboard is given of a sweep.

    Args:
        result: has a folder, with its report in it.
    """
    assert result.folder is not None
    pick = result.pick
    known = {
        "pick_lr": pick.lr if pick.is_ok else None,
        "pick_final_loss": pick.final_loss,
        "pick_margin_decades": pick.margin_decades,
        **(result.region.landmarks or {}),
    }
    trials = [_logged(result, record, why) for record, why in choose(result)]
    return Entry(
        result.folder.resolve().name,
        result.subject,
        result.summary(),
        result.folder / "map.png",
        _finite(known),
        tuple(trials),
        len(result.region.records),
    )


def choose(result: Result) -> list[tuple[Record, str]]:
    """The trials worth a look and why, by number: at most `MOST_TRIALS`.

    Those of the pick, of the lowest loss, on either side of the edge, and of each outcome one that
    is typical.
    """
    region, pick = result.region, result.pick
    number = report.picked_row(region, pick)
    row = region.best_row if number is None else region.rows[number]
    groups: list[tuple[str, list[Record]]] = []
    if row is not None:
        if number is not None and pick.lr is not None:
            # Rounded down, or moved down after a test, it need not be a rate that was tried.
            groups.append(("pick", _seeds(_nearest(row.cells, pick.lr))))
        edge = row.edge.lr or math.inf
        below = [cell for cell in row.cells if cell.lr <= edge and math.isfinite(edge)]
        above = [cell for cell in row.cells if cell.lr > edge]
        groups += [("below the edge", _seeds(cell)) for cell in below[-1:]]
        groups += [("above the edge", _seeds(cell)) for cell in above[:1]]
    best = region.best_row
    if best is not None and best.best is not None:
        groups.append(("best", _seeds(best.best)))
    groups += [("example", found[:1]) for found in report.choose_traces(region, pick, most=99)]
    chosen: dict[int, tuple[Record, list[str]]] = {}
    for why, records in groups:
        for record in records:
            if record.trial in chosen or len(chosen) < MOST_TRIALS:
                chosen.setdefault(record.trial, (record, []))[1].append(why)
    return [(record, ", ".join(why)) for _, (record, why) in sorted(chosen.items())]


def _nearest(cells: tuple[Cell, ...], lr: float) -> Cell:
    return min(cells, key=lambda cell: abs(math.log(cell.lr / lr)))


def _seeds(cell: Cell) -> list[Record]:
    return sorted(cell.records, key=lambda record: record.seed)[:MOST_SEEDS]


def _logged(result: Result, record: Record, why: str) -> LoggedTrial:
    """A trial as dashboards are given it."""
    config, outcome = result.config, report.outcome(record)
    names = {key: name_of(config[key]) for key in ("model", "task", "optimizer")}
    fixed = {key: config[key] for key in FIXED if key in config}
    about = {**names, **fixed, **record.point, "seed": record.seed}
    known = {name: getattr(record, name) for name in NUMBERS}
    assert result.folder is not None
    curves = whole_curves(result.folder, record) if record.trace else None
    return LoggedTrial(
        f"trial-{record.trial:05d}-{outcome}",
        {**about, "verdict": outcome, "chosen": why},
        record.reason,
        _finite({**known, "stable": float(record.verdict.is_stable)}),
        {} if curves is None else dict(zip(CURVES, map(_curve, curves), strict=True)),
    )


def _curve(values: Array) -> Curve:
    """The finite values of a curve with their steps, thinned."""
    steps, kept = report.thinned(np.asarray(values, dtype=np.float64), MOST_POINTS)
    is_finite = np.isfinite(kept)
    return Curve(steps[is_finite], kept[is_finite])


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values."""
    numbers = {k: float(v) for k, v in values.items() if v is not None}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}
