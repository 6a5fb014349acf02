"""The recommended learning rate with its margin and its evidence, or an honest "none"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from stabsweep.numerals import plural, rate, round_rate, share, span
from stabsweep.records import Point, Value
from stabsweep.region import LOSS_OF_GOOD, Cell, Region, Row

MARGIN_DECADES = 0.2
"""Distance that a pick keeps below the safe edge of its row (chosen by us: real edges have a rough
zone of up to 0.16 decades, and move by about that much with the seed)."""

SHORT_HORIZON = 50
"""Steps below which a horizon is said to be short. Ours: an instability that grows by a tenth a
step needs some fifty to show from the level that a run learns down to."""

ONLY = "Only "
"""Begin of the one warning that is about the sweep, not about the rate that is picked."""

CLIP_SHARE = 0.5
"""Above this share of clipped steps the learning rate axis is a clip axis (tuning playbook)."""

_Choice = tuple[Row, Cell]
"""A cell that could be picked, and its row."""


@dataclass(frozen=True)
class Pick:
    """A learning rate to use, or the reason why there is none.

    Attributes:
        status: `ok`, `none`, or `open`: the sweep alone gives none, but a longer run of this rate
            could (see `proof.proven`; a `Result` has no such pick).
        reason: one sentence: why this rate, or why none and what to do.
        lr: the learning rate, rounded down to two digits; None without a pick.
        hyperparameters: the other axes' values that go with it, and what was fixed.
        margin_decades: log10 of (edge / lr), or of (highest rate tried / lr) when no edge was met.
        edge: the row's edge with its interval: `status`, `lr`, `low`, `high`, `safe_lr`.
        usable_lr: the row's usable edge.
        final_loss, blind_loss: mean final loss at the pick, and the loss of an input-blind model.
        evidence: `trials` at or below the pick in its row and how many are `stable`; `seeds`,
            `horizon`, `trials_total`.
        ceiling_lr: the highest rate of its row that the margin allows.
        warnings: what the reader should know before trusting it, a sentence each.
        proofs: runs of the pick under other conditions: how many `tests` it `held`, which `failed`.
    """

    status: str
    reason: str
    lr: float | None = None
    hyperparameters: Point = field(default_factory=dict)
    margin_decades: float | None = None
    edge: Mapping[str, Any] | None = None
    usable_lr: float | None = None
    final_loss: float | None = None
    blind_loss: float | None = None
    evidence: Mapping[str, int] = field(default_factory=dict)
    ceiling_lr: float | None = None
    warnings: tuple[str, ...] = ()
    proofs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """Whether there is a recommendation."""
        return self.status == "ok"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return {**asdict(self), "warnings": list(self.warnings)}

    def overrides(self) -> list[str]:
        """`lr=0.0018 warmup_steps=50`: arguments for a Hydra script; `null` for "off"."""
        values = {"lr": self.lr, **self.hyperparameters}
        return [f"{name}={_hydra(value)}" for name, value in values.items()]

    def flags(self) -> list[str]:
        """`--lr=0.0018 --warmup-steps=50`: arguments for an argparse script; none for "off"."""
        values = {"lr": self.lr, **self.hyperparameters}
        return [f"--{name.replace('_', '-')}={v}" for name, v in values.items() if v is not None]


def find_pick(
    region: Region,
    fixed: Mapping[str, Value] | None = None,
    margin_decades: float = MARGIN_DECADES,
    num_planned: int | None = None,
) -> Pick:
    """The lowest-loss rate that every seed learned at, a margin below its row's safe edge.

    Of rates that are about as good (the good band) it is one of those with the most seeds.

    Args:
        region: what the trials say.
        fixed: hyperparameters that no axis swept, to be repeated in the pick.
        margin_decades: distance to keep below the safe edge, at least 0.
        num_planned: trials that the sweep was to run; fewer are a warning.
    """
    judged = [r for r in region.records if r.state != "failed" and r.verdict.is_judged]
    warnings = []
    if num_planned is not None and len(region.records) < num_planned:
        warnings.append(f"{ONLY}{len(region.records)} of {num_planned} trials were run.")
    if not judged:
        return Pick("none", _nothing_judged(region), warnings=tuple(warnings))
    if not any(record.verdict.is_stable for record in judged):
        lowest = min(record.lr for record in judged)
        return Pick("none", _nothing_stable(lowest), warnings=tuple(warnings))
    row, cell, doubt = _choice(region, margin_decades)
    if row is None or cell is None:
        return Pick("none", doubt, warnings=tuple(warnings))
    found = _explained(region, row, cell, dict(fixed or {}), warnings)
    found = replace(found, ceiling_lr=_ceiling(row, margin_decades))
    return replace(found, status="open", reason=doubt) if doubt else found


def _choice(region: Region, margin_decades: float) -> tuple[Row | None, Cell | None, str]:
    """The row and the cell to pick, and why they are in doubt; without them, why there are none."""
    tops = [(row, _ceiling(row, margin_decades)) for row in region.rows]
    allowed = [(row, cell) for row, top in tops for cell in row.cells if cell.lr <= top]
    sound = [both for both in allowed if both[1].is_sound and math.isfinite(both[1].mean_loss)]
    sound = [both for both in sound if both[1].lr <= (both[0].usable_lr or math.inf)]
    if sound:
        return *min(_most_tried(sound), key=_rank), ""
    row = region.best_row
    if row is None:
        held = [both for both in allowed if both[1].held and both[0].edge.status == "found"]
        # What is too slow for the horizon is so least of all at high rates.
        row, cell = max(held, key=lambda both: both[1].lr, default=(None, None))
        return row, cell, _nothing_learned(region)
    if not any(cell.is_sound for row in region.rows for cell in row.cells):
        return None, None, _NOTHING_SOUND
    assert row.best is not None
    is_below = row.edge.lr is not None and row.best.lr <= row.edge.lr
    cell = row.best if row.best.is_sound and is_below else None
    return row, cell, _nothing_clear(row.best.lr, margin_decades)


def _most_tried(choices: list[_Choice]) -> list[_Choice]:
    """Of the choices in the good band of the best those with the most seeds: one may be luck."""
    _, best = min(choices, key=_rank)
    lowest, blind = best.mean_loss, best.judged[0].blind
    limit = lowest + LOSS_OF_GOOD * max((lowest if blind is None else blind) - lowest, 0.0)
    good = [choice for choice in choices if choice[1].mean_loss <= limit]
    most = max(len(cell.judged) for _, cell in good)
    return [choice for choice in good if len(choice[1].judged) == most]


def _rank(choice: _Choice) -> tuple[float, float]:
    return choice[1].mean_loss, choice[1].lr


def _hydra(value: Value) -> str:
    """A value in Hydra's grammar, where an open `normal(0.02)` would be a function call."""
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) and not value.isidentifier() else str(value)


def _ceiling(row: Row, margin_decades: float) -> float:
    """The highest rate of a row that is a margin below its safe edge; zero where none is."""
    if row.edge.safe_lr is None:
        return 0.0
    # An edge that was not reached lies above all that was tried: nothing to keep away from.
    margin = margin_decades if row.edge.status == "found" else 0.0
    return row.edge.safe_lr / 10**margin


def distance(lr: float, edge: Mapping[str, Any]) -> str:
    """How far below the edge of its row a rate lies, a sentence.

    Args:
        lr: the rate.
        edge: as a pick has it.
    """
    if edge["status"] != "found":
        return f"The edge was not reached: nothing failed up to {rate(edge['low'])}."
    interval = f"95% interval {span(edge['low'], edge['high'])}"
    return f"{rate(edge['lr'] / lr)}x below the edge ({rate(edge['lr'])}, {interval})."


def _explained(
    region: Region, row: Row, cell: Cell, fixed: dict[str, Value], warnings: list[str]
) -> Pick:
    lr = round_rate(cell.lr, down=True)
    edge = row.edge
    # What could not be judged above the last that held says nothing.
    top = edge.lr if edge.lr is not None else edge.low
    assert top is not None
    below = [r for c in row.cells if c.lr <= cell.lr for r in c.judged]
    stable = sum(record.verdict.is_stable for record in below)
    held = f"{stable} of {plural(len(below), 'trial')} at or below it in its row held."
    return Pick(
        "ok",
        f"{distance(lr, asdict(edge))} {held}",
        lr,
        {**fixed, **{name: v for name, v in cell.judged[0].point.items() if name != "lr"}},
        math.log10(top / lr),
        asdict(edge),
        row.usable_lr,
        cell.mean_loss,
        cell.judged[0].blind,
        {
            "trials": len(below),
            "stable": stable,
            "seeds": len({record.seed for record in cell.judged}),
            "horizon": max(record.horizon for record in cell.judged),
            "trials_total": len(region.records),
        },
        warnings=(*warnings, *_warnings(row, cell)),
    )


def _warnings(row: Row, cell: Cell) -> list[str]:
    found = []
    if row.edge.status == "above":
        found.append(f"The edge may lie anywhere above {rate(row.edge.low)}: raise space.lr.high.")
    tried = [c.lr for c in row.cells if c.judged]
    if cell.lr == tried[0]:
        found.append("The pick is the lowest rate that was tried: lower space.lr.low.")
    elif cell.lr == tried[-1]:
        found.append("The pick is the highest rate that was tried: raise space.lr.high.")
    for name, value in row.values.items():
        if cell.judged[0].point[name] != value:
            found.append(
                f"{name} was scattered: the edge is that at {value:g}, read from all rows together."
            )
    horizon = max(record.horizon for record in cell.judged)
    if 0 < horizon < SHORT_HORIZON:
        found.append(
            f"The horizon of {plural(horizon, 'step')} is too short to see slow divergence or what "
            f"warmup and decay do: raise horizon to {SHORT_HORIZON} or more."
        )
    if len(cell.judged) == 1:
        found.append("One seed only: how much the edge moves from seed to seed is not known.")
    clipped = sum(record.clip_share for record in cell.judged) / len(cell.judged)
    if clipped > CLIP_SHARE:
        found.append(
            f"Clipping engaged in {share(clipped)} of the pick's steps: here the learning rate "
            "axis is really a clip axis."
        )
    failed = [c for c in row.cells if c.lr < cell.lr and c.num_stable < len(c.judged)]
    if failed:
        found.append(f"A trial failed at {rate(failed[0].lr)}, below the pick.")
    neighbours = [c for c in row.cells if cell.lr < c.lr <= cell.lr * 4 and c.judged]
    split = [c for c in neighbours if 0 < c.num_stable < len(c.judged)]
    if split:
        found.append(f"Seeds disagree at {rate(split[0].lr)}, less than 4x above the pick.")
    return found


def _nothing_judged(region: Region) -> str:
    if region.records and all(record.state == "failed" for record in region.records):
        return f"No trial ran to a verdict: {region.records[0].error}"
    ran = [record for record in region.records if record.state != "failed"]
    if ran:
        first = f" The first: {ran[0].reason}" if ran[0].reason else ""
        return f"No trial could be judged. {ran[0].verdict.value}{first}"
    return "No trial was finished."


def _nothing_stable(lowest: float) -> str:
    return (
        f"Nothing is stable: even the lowest rate, {rate(lowest)}, failed. Go lower: "
        f"space.lr.low={rate(lowest / 1000)}."
    )


def _nothing_learned(region: Region) -> str:
    blind = next((r.blind for r in region.records if r.blind is not None), None)
    horizon = max(record.horizon for record in region.records)
    return (
        f"Nothing was learned: no trial ended clearly below {rate(blind)}, where a model ends "
        f"that ignores its input. Train longer (horizon={2 * horizon}), or look at data and model."
    )


_NOTHING_SOUND = (
    "Nothing is sound: at no rate did every seed learn without spikes. Sweep more rates "
    "(num_trials) or lower ones (space.lr.low), or clip the gradients (clip_norm)."
)


def _nothing_clear(best: float, margin_decades: float) -> str:
    return (
        f"What learns is too close to the edge: the best rate, {rate(best)}, is not "
        f"{rate(10**margin_decades)}x below a rate that holds for every seed. Sweep more rates "
        "(num_trials) or lower ones (space.lr.low)."
    )
