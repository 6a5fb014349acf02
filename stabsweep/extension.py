"""The range of rates made wider by itself, where a sweep's answer lies beyond one of its ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabsweep.errors import BadInput
from stabsweep.numerals import rate
from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.space import Space
from stabsweep.theory import answer_row

LOWEST, HIGHEST = 1e-7, 1e3
"""No extension and no bracket looks further. Ours: three decades below and two above the usual
range."""

FACTOR, MOST = 10.0, 2
"""An extension adds a decade, and there are so many at most. Ours: whoever is further off than a
hundred times has another mistake to find."""

LEAST = 1.25
"""Below this factor what is left to a limit is not worth a trial. Ours: a tenth of a decade."""

NEAR = math.sqrt(FACTOR)
"""A row says something of an end of the range when it was tried up to this factor from it, which
scattered rows may not have been. Ours: half an extension."""

WORD = "extended: "
"""Begin of the line that says so."""


@dataclass(frozen=True)
class Extension:
    """A part of the learning rates that was added above or below those asked for.

    Attributes:
        low, high: its ends, one of which is where the range had ended.
    """

    low: float
    high: float


def read_extensions(config: Mapping[str, Any]) -> list[Extension]:
    """What a sweep's config says that it was extended by; nothing for most.

    Raises:
        BadInput: it was edited, and has another form.
    """
    try:
        parts = [
            Extension(float(part["low"]), float(part["high"]))
            for part in config.get("extended") or ()
        ]
        if not all(0 < part.low < part.high < math.inf for part in parts):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise BadInput(
            f"extended={config['extended']!r} in config.yaml is not a list of {{low, high}}: "
            "it is written by the sweep, put it back"
        ) from None
    return parts


def widened(space: Space, extensions: Sequence[Extension]) -> Space:
    """The space with all of the learning rates that were swept."""
    axis = space.axes["lr"]
    if not extensions:
        return space
    ends = [end for part in extensions for end in (part.low, part.high)]
    low, high = min([axis.low, *ends]), max([axis.high, *ends])  # type: ignore[type-var]
    return Space({**space.axes, "lr": replace(axis, low=low, high=high)})


def find_extension(region: Region, pick: Pick) -> tuple[Extension, str] | None:
    """The part to add to the range of a region, and why, in words; None where none is to be added.

    The row of the pick decides, or the best one where there is no pick; no other row has a vote.
    Upwards where nothing of it failed up to the top; upwards too where nothing was learned
    anywhere and nothing failed, for then all rates are too slow. Downwards where nothing is stable;
    where the pick is the lowest rate tried; and where there is no pick though the lowest rate tried
    still learned: what is lower may be safe, or better. Rates that were listed are not added to.

    Args:
        region: of a sweep whose trials have ended.
        pick: its answer.
    """
    way, why = _way(region, pick)
    axis = region.space.axes["lr"]
    if not way or axis.low is None or axis.high is None:
        return None
    if way > 0:
        part = Extension(axis.high, min(tidy(axis.high * FACTOR), HIGHEST))
    else:
        part = Extension(max(tidy(axis.low / FACTOR), LOWEST), axis.low)
    return (part, why) if part.high >= LEAST * part.low else None


def _way(region: Region, pick: Pick) -> tuple[int, str]:
    """1 for upwards, -1 for downwards, 0 for neither; and why."""
    axis = region.space.axes["lr"]
    judged = [r for r in region.records if r.state != "failed" and r.verdict.is_judged]
    if not judged or axis.low is None or axis.high is None:
        return 0, ""
    held = [record.verdict.is_stable for record in judged]
    if not any(held):
        return -1, f"nothing is stable down to {rate(min(r.lr for r in judged))}"
    answer = answer_row(region, pick)
    if answer is None:
        # With failures above them the rates are too slow for the horizon, not for the range.
        return (
            (1, f"nothing was learned or failed up to {rate(axis.high)}") if all(held) else (0, "")
        )
    row, _ = answer
    where = " in the best row" if len(region.rows) > 1 else ""
    cells = [cell for cell in row.cells if cell.judged]
    top, bottom = cells[-1], cells[0]
    if row.edge.status == "above" and top.lr * NEAR >= axis.high:
        return 1, f"nothing failed up to {rate(top.lr)}{where}"
    if bottom.lr > axis.low * NEAR:
        return 0, ""
    if pick.is_ok and pick.lr is not None and pick.lr <= bottom.lr:
        return -1, f"the best safe rate, {rate(bottom.lr)}, is the lowest tried{where}"
    if not pick.is_ok and any(record.verdict.is_learned for record in bottom.judged):
        return -1, f"no rate is safe down to {rate(bottom.lr)}{where}"
    return 0, ""


def tidy(lr: float) -> float:
    """The rate without the last digits that arithmetic leaves."""
    return float(f"{lr:.6g}")
