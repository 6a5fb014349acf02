"""The answer of a sweep at a glance: rate, edge, margin and evidence, and words to copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stabsweep.numerals import plural, rate, span
from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.report._document import escaped
from stabsweep.report.conclusion import setting


def answer(region: Region, pick: Pick) -> list[str]:
    """The tiles at the top of a page, and the pick as other programs take it; empty without one."""
    if not pick.is_ok or pick.lr is None:
        return []
    tiles = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd>{escaped(more)}</dd></div>"
        for name, value, more in _tiles(region, pick, pick.lr)
    )
    copies = {
        "Value": repr(pick.lr),
        "Hydra": " ".join(pick.overrides()),
        "argparse": " ".join(pick.flags()),
        "Python": repr({"lr": pick.lr, **pick.hyperparameters}),
    }
    lines = "".join(
        f"<dt>{name}</dt><dd><pre data-copy>{escaped(text)}</pre></dd>"
        for name, text in copies.items()
    )
    return [f'<dl class="tiles">{tiles}</dl>', f'<dl class="copies">{lines}</dl>']


def _tiles(region: Region, pick: Pick, lr: float) -> Iterable[tuple[str, str, str]]:
    """A name, a value, and what else belongs to it."""
    edge = pick.edge or {}
    decades = pick.margin_decades or 0.0
    yield "Learning rate to use", rate(lr, down=True), setting(pick.hyperparameters)
    if edge.get("status") == "found":
        yield "Edge of stability", rate(edge.get("lr")), _interval(edge, len(region.seeds))
        below = "Below it by"
    else:
        yield "Edge of stability", "not reached", f"nothing failed up to {rate(edge.get('low'))}"
        below = "Below the highest rate tried by"
    yield below, f"{10**decades:.2g}x", f"{decades:.1f} decades"
    seeds = plural(pick.evidence.get("seeds", 0), "seed")
    held, tried = pick.evidence.get("stable", 0), pick.evidence.get("trials", 0)
    yield "Held at or below it", f"{held} of {tried}", f"trials of its row, {seeds}"
    if pick.proofs:
        survived = f"{pick.proofs['held']} of {pick.proofs['tests']}"
        yield "Survived", survived, "runs that it was not chosen by"


def _interval(edge: Mapping[str, Any], num_seeds: int) -> str:
    """The edge's interval; with one seed it is no more than the distance of two rates."""
    ends = span(edge.get("low"), edge.get("high"))
    if num_seeds == 1:
        return f"{ends}; one seed, so this is the distance of two rates"
    return f"95% interval {ends}"
