"""What a pick was put through after it was found, and what that says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabsweep.numerals import loss, plural, rate
from stabsweep.pick import ONLY, Pick, distance
from stabsweep.records import Record, Verdict

CONFIRM = "unseen seed, three times as long"
"""The test that a pick must pass; the others only say how far it carries."""

CONSTANT = "the usual constant"
"""No test of the pick but a rival: a run as long as those of the sweep, at the usual rate."""


@dataclass(frozen=True)
class Proof:
    """One run of the pick under a condition that the sweep did not have.

    Attributes:
        test: the condition, in words.
        record: what the run did.
    """

    test: str
    record: Record

    @property
    def held(self) -> bool:
        """Whether the run kept what it learned; under other conditions it may be too slow."""
        verdict = self.record.verdict
        return verdict.is_learned if self.test == CONFIRM else verdict.is_stable

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"test": self.test, **self.record.as_dict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Proof:
        """What `as_dict` wrote.

        Raises:
            KeyError, TypeError: it has another form.
        """
        return cls(str(plain["test"]), Record.from_dict(plain))


def proven(pick: Pick, proofs: Sequence[Proof]) -> Pick:
    """The pick as its proofs leave it: at the highest rate that passed with every seed, or none.

    An open pick that passed is one; without proofs it is none.

    Args:
        pick: as the sweep gave it.
        proofs: at its rate, at higher ones that did better, and at lower ones where it failed; and
            at the usual constant, which it becomes where that is better.
    """
    pick = with_constant(pick, proofs)
    must = [proof for proof in proofs if proof.test == CONFIRM]
    if pick.lr is None or pick.lr not in {proof.record.lr for proof in must}:
        # There are none, or they are those of another pick, before it was judged again.
        return _none(pick, pick.reason) if pick.status == "open" else pick
    seeds = {proof.record.seed for proof in must}
    held = [(proof.record.lr, proof.record.seed) for proof in must if proof.held]
    passed = [lr for lr, _ in held if all((lr, seed) in held for seed in seeds)]
    if not passed:
        return _none(pick, _failure(pick, must))
    lr = max(passed)
    mine = [proof for proof in proofs if proof.record.lr == lr and proof.test != CONSTANT]
    tested = {
        "held": sum(proof.held for proof in mine),
        "tests": len(mine),
        "failed": [f"{p.test}: {p.record.verdict.label}" for p in mine if not p.held],
    }
    if lr == pick.lr and pick.is_ok:
        return replace(pick, proofs=tested)
    margin = pick.margin_decades
    return replace(
        pick,
        status="ok",
        reason=_why(pick, lr, must),
        lr=lr,
        margin_decades=None if margin is None else margin + math.log10(pick.lr / lr),
        final_loss=pick.final_loss if lr == pick.lr else None,
        proofs=tested,
    )


def with_constant(pick: Pick, proofs: Sequence[Proof]) -> Pick:
    """The pick, or the usual constant where that was tried and did better.

    Args:
        pick: as the sweep gave it.
        proofs: what was run after it.
    """
    tried = [proof.record for proof in proofs if proof.test == CONSTANT]
    # Those of another row were run for another pick, before it was judged again.
    tried = [record for record in tried if _is_beside(pick, record)]
    losses = [_loss(record) for record in tried]
    mean = sum(losses) / len(losses) if losses else math.inf
    if pick.lr is None or not mean < (pick.final_loss if pick.is_ok else math.inf):  # type: ignore[operator]
        return pick
    lr, margin = tried[0].lr, pick.margin_decades
    better = f"The usual constant ends lower than the best that was swept, {rate(pick.lr)}"
    better += f" ({loss(mean)} against {loss(pick.final_loss)})."
    if not pick.is_ok:
        better = f"The usual constant learned with every seed, to {loss(mean)}."
    assert pick.edge is not None
    return replace(
        pick,
        status="ok",
        reason=f"{better} {distance(lr, pick.edge)}",
        lr=lr,
        margin_decades=None if margin is None else margin + math.log10(pick.lr / lr),
        final_loss=mean,
    )


def _is_beside(pick: Pick, record: Record) -> bool:
    others = ((name, value) for name, value in record.point.items() if name != "lr")
    return all(pick.hyperparameters.get(name) == value for name, value in others)


def _loss(record: Record) -> float:
    """The final loss of a run that may be recommended; infinite for another."""
    is_sound = record.verdict in (Verdict.CONVERGED, Verdict.RECOVERED)
    return record.final_loss if is_sound and record.final_loss is not None else math.inf


def _none(pick: Pick, reason: str) -> Pick:
    """No pick after all: what was said of its rate is void."""
    return Pick("none", reason, warnings=tuple(w for w in pick.warnings if w.startswith(ONLY)))


def _failure(pick: Pick, must: Sequence[Proof]) -> str:
    """Why no rate passed."""
    rates = sorted({proof.record.lr for proof in must})
    last = [proof for proof in must if not proof.held][-1].record
    if pick.status == "open":
        ran = f"{rate(last.lr)} with an unseen seed over {last.horizon} steps"
        return f"{pick.reason} Nor did {ran} pass: {last.verdict.label}."
    down = f" down to {rate(rates[0])}" if rates[1:] else ""
    return (
        f"No rate from {rate(pick.lr)}{down} held for every unseen seed over {last.horizon} steps: "
        f"{last.reason} Sweep with a longer horizon."
    )


def _why(pick: Pick, lr: float, must: Sequence[Proof]) -> str:
    """Why the pick is not what the sweep alone would give."""
    assert pick.lr is not None and pick.edge is not None
    steps = must[0].record.horizon
    ends = {(p.record.lr, p.record.seed): p.record.final_loss or 0.0 for p in must if p.held}
    if pick.status == "open":
        mine = [end for (other, _), end in ends.items() if other == lr]
        seeds = f"{plural(len(mine), 'unseen seed')} over {steps} steps"
        learned = f"Learned with {seeds} (final loss {loss(sum(mine) / len(mine))})."
        after = f"The sweep alone gives none: {pick.reason}"
        return f"{learned} {distance(lr, pick.edge)} {after}"
    if lr > pick.lr:
        seed = next(seed for other, seed in ends if other == pick.lr)
        lower = f"({loss(ends[lr, seed])} against {loss(ends[pick.lr, seed])})"
        ran = f"over {steps} steps {rate(lr)} ends lower {lower}"
        return f"Moved up from {rate(pick.lr)}: {ran}. {distance(lr, pick.edge)}"
    failed = next(p.record for p in must if p.record.lr == pick.lr and not p.held)
    return (
        f"Moved down from {rate(pick.lr)}, which failed with an unseen seed over {steps} steps "
        f"({failed.verdict.label}). {distance(lr, pick.edge)}"
    )
