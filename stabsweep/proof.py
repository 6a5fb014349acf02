"""What a pick was put through after it was found, and what that says of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stabsweep.numerals import rate
from stabsweep.pick import Pick
from stabsweep.records import Record

CONFIRM = "unseen seed, three times as long"
"""The test that a pick must pass; the others only say how far it carries."""


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

    Args:
        pick: as the sweep gave it.
        proofs: at its rate and, where that failed, at lower ones.
    """
    must = [proof for proof in proofs if proof.test == CONFIRM]
    if not pick.is_ok or not must:
        return pick
    assert pick.lr is not None
    rates = sorted({proof.record.lr for proof in must}, reverse=True)
    if pick.lr not in rates:  # Those of another pick, before it was judged again.
        return pick
    passed = [lr for lr in rates if all(p.held for p in must if p.record.lr == lr)]
    failed = [proof for proof in must if not proof.held]
    horizon = max(proof.record.horizon for proof in must)
    tested = {
        "held": sum(proof.held for proof in proofs if passed and proof.record.lr == passed[0]),
        "tests": sum(bool(passed) and proof.record.lr == passed[0] for proof in proofs),
        "failed": [
            f"{proof.test}: {proof.record.verdict.label}"
            for proof in proofs
            if passed and proof.record.lr == passed[0] and not proof.held
        ],
    }
    if not passed:
        reason = (
            f"No rate from {rate(rates[0])} down to {rate(rates[-1])} held for every unseen seed "
            f"over {horizon} steps: {failed[-1].record.reason} Sweep with a longer horizon."
        )
        return replace(pick, status="none", lr=None, reason=reason, proofs=tested)
    lr = passed[0]
    if lr == pick.lr:
        return replace(pick, proofs=tested)
    first = next(proof for proof in failed if proof.record.lr == pick.lr)
    moved = (
        f"Moved down from {rate(pick.lr)}, which failed with an unseen seed over {horizon} steps "
        f"({first.record.verdict.label})."
    )
    margin = pick.margin_decades
    return replace(
        pick,
        lr=lr,
        reason=f"{moved} {pick.reason}",
        margin_decades=None if margin is None else margin + math.log10(pick.lr / lr),
        final_loss=None,
        proofs=tested,
    )
