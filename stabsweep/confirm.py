"""Putting a pick to the test: unseen seeds, a longer run, and conditions it was not found under."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stabsweep.aside import train
from stabsweep.model import MODELS
from stabsweep.numerals import rate, round_rate
from stabsweep.pick import Pick
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM, Proof
from stabsweep.records import Point

NUM_SEEDS, LONGER = 3, 3
"""Unseen seeds that a pick must hold for, and how many times the horizon they train: by then a rate
that is only just too high has shown itself (measured on six setups against runs of that length)."""

STEP_DECADES, NUM_STEPS = 0.25, 4
"""How far a pick moves down after a failure, and how often: a decade in all, then there is none."""

STRESS_SEEDS = 2
"""Seeds of each condition of `stress`."""

OTHER_ORDER = 10_007
"""Added to a seed for another order of the batches with the same weights."""


def confirm(plan: Plan, pick: Pick, note: Callable[[str], None]) -> list[Proof]:
    """Trains the pick with unseen seeds for a longer time, and lower rates where it fails.

    Args:
        plan: of the sweep that gave the pick.
        pick: a pick that is ok.
        note: told in one line how each rate did.
    """
    assert pick.lr is not None
    longer = replace(plan, horizon=LONGER * plan.horizon, rung_steps=LONGER * plan.rung_steps)
    first = max(plan.seeds) + 1
    seeds = range(first, first + NUM_SEEDS)
    lr, proofs = pick.lr, []
    for _ in range(NUM_STEPS + 1):
        records = train(longer, [_point(plan, pick, lr)], seeds)
        proofs += [Proof(CONFIRM, record) for record in records]
        held = sum(proof.held for proof in proofs[-NUM_SEEDS:])
        note(
            f"confirm: {rate(lr)} held for {held} of {NUM_SEEDS} unseen seeds over "
            f"{longer.horizon} steps"
        )
        if held == NUM_SEEDS:
            break
        lr = round_rate(lr / 10**STEP_DECADES, down=True)
    return proofs


def stress(plan: Plan, pick: Pick, note: Callable[[str], None]) -> list[Proof]:
    """Trains the pick under conditions near those of the sweep: does it carry over?

    Args:
        plan: of the sweep that gave the pick.
        pick: a pick that is ok.
        note: told in one line how it did.
    """
    assert pick.lr is not None
    proofs = []
    for test, other in _conditions(plan):
        point = _point(plan, pick, pick.lr)
        proofs += [Proof(test, r) for r in train(other, [point], plan.seeds[:STRESS_SEEDS])]
    if proofs:
        held = sum(proof.held for proof in proofs)
        note(f"stress: {rate(pick.lr)} held in {held} of {len(proofs)} runs under other conditions")
    return proofs


def _point(plan: Plan, pick: Pick, lr: float) -> Point:
    others = {axis.name: pick.hyperparameters[axis.name] for axis in plan.space.row_axes}
    return {name: lr if name == "lr" else others[name] for name in plan.space.axes}


def _conditions(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Conditions near those of a plan, in words and as plans."""
    task = plan.task_of(next(iter(plan.splits())))
    size = min(plan.batch_size, task.num_examples)
    if not task.is_batched and "batch_size" not in plan.space.axes:
        if size >= 2:
            yield "half the batch size", replace(plan, batch_size=size // 2)
        if 2 * size <= task.num_examples:
            yield "double the batch size", replace(plan, batch_size=2 * size)
    for word in ("width", "hidden", "depth"):
        value = _argument(plan.model, word)
        if value is not None and word not in plan.space.axes:
            doubled = {**_choice(plan.model), word: 2 * value}
            yield f"double the {word}", replace(plan, model=doubled)
    if task.num_examples > 1:
        yield "another order of the batches", replace(plan, order_shift=OTHER_ORDER)


def _choice(model: Any) -> dict[str, Any]:
    return {"name": model} if isinstance(model, str) else dict(model)


def _argument(model: Any, name: str) -> int | None:
    """The value of a whole-number argument of a reference model, given or default."""
    if not isinstance(model, str | Mapping):
        return None
    choice = _choice(model)
    known = inspect.signature(MODELS[choice["name"]]).parameters
    value = choice.get(name, known[name].default if name in known else None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
