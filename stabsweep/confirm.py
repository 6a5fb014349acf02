"""Putting a pick to the test: unseen seeds, a longer run, and conditions it was not found under."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stabsweep.advice import usual_constant
from stabsweep.aside import train
from stabsweep.model import MODELS
from stabsweep.numerals import plural, rate, round_rate
from stabsweep.pick import Pick
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM, CONSTANT, Proof, proven, with_constant
from stabsweep.records import Point, Record

NUM_SEEDS, LONGER = 3, 3
"""Unseen seeds that a pick must hold for, and how many times the horizon they train: by then a rate
that is only just too high has shown itself (measured on six setups against runs of that length)."""

STEP_DECADES, NUM_STEPS = 0.25, 4
"""How far a pick moves down after a failure, and how often: a decade in all, then there is none."""

UNSETTLED, NUM_CLIMBS = 2.0, 2
"""A longer run that learned so many times what the sweep's runs of that rate did shows that those
were too short to say which rate is best: then so many higher ones are tried. Ours: of ten setups it
was 4.5 to 11 times on the two whose sweeps had chosen badly, and at most 1.35 times elsewhere
(benchmarks/pick_quality.py)."""

STRESS_SEEDS = 2
"""Seeds of each condition of `stress`."""

OTHER_ORDER = 10_007
"""Added to a seed for another order of the batches with the same weights."""


def prove(
    plan: Plan, pick: Pick, records: Sequence[Record], note: Callable[[str], None]
) -> list[Proof]:
    """All tests that a plan asks for, each of what the one before it has left of the pick.

    Args:
        plan: of the sweep that gave the pick.
        pick: one that the trials alone give.
        records: of the sweep.
        note: told in one line how each test went.
    """
    if pick.lr is None:
        return []
    proofs = []
    if plan.confirm:
        proofs += contest(plan, pick, records, note)
        proofs += confirm(plan, with_constant(pick, proofs), note)
    pick = proven(pick, proofs)
    if plan.stress and pick.is_ok:
        proofs += stress(plan, pick, note)
    return proofs


def contest(
    plan: Plan, pick: Pick, records: Iterable[Record], note: Callable[[str], None]
) -> list[Proof]:
    """Runs of the sweep's own length and seeds at the usual constant, if the pick could be it.

    Args:
        plan: of the sweep that gave the pick.
        pick: a pick that is ok or open.
        records: of the sweep, which may have tried it.
        note: told in one line how it did.
    """
    constant = usual_constant(str(pick.hyperparameters["optimizer"]))
    if constant is None or constant > (pick.ceiling_lr or 0.0):
        return []
    if any(record.point == _point(plan, pick, constant) for record in records):
        return []
    proofs = _proofs(CONSTANT, plan, pick, constant, plan.seeds)
    held = sum(proof.held for proof in proofs)
    note(f"constant: {rate(constant)} held for {held} of {plural(len(proofs), 'seed')}")
    return proofs


def confirm(plan: Plan, pick: Pick, note: Callable[[str], None]) -> list[Proof]:
    """Trains the pick with unseen seeds for a longer time, and lower rates where it fails.

    Where the longer run learns much more than the sweep has seen, higher rates are tried before.

    Args:
        plan: of the sweep that gave the pick.
        pick: a pick that is ok or open.
        note: told in one line how each rate did.
    """
    assert pick.lr is not None
    longer = replace(plan, horizon=LONGER * plan.horizon, rung_steps=LONGER * plan.rung_steps)
    first, *others = range(max(plan.seeds) + 1, max(plan.seeds) + 1 + NUM_SEEDS)
    rungs = [_proofs(CONFIRM, longer, pick, pick.lr, [first])]
    proofs = [*rungs[0]]
    while rungs[-1][0].held and _is_unsettled(pick, rungs[-1][0]) and len(proofs) <= NUM_CLIMBS:
        lr = round_rate(rungs[-1][0].record.lr * 10**STEP_DECADES)
        if lr > (pick.ceiling_lr or 0.0):
            break
        higher = _proofs(CONFIRM, longer, pick, lr, [first])
        proofs += higher
        if not higher[0].held or _final(higher[0]) >= _final(rungs[-1][0]):
            break
        rungs.append(higher)
    lr, mine = rungs[-1][0].record.lr, rungs.pop()
    for _ in range(NUM_STEPS + 1):
        if all(proof.held for proof in mine):
            more = _proofs(CONFIRM, longer, pick, lr, others if mine else [first, *others])
            proofs, mine = proofs + more, mine + more
        held = sum(proof.held for proof in mine)
        note(
            f"confirm: {rate(lr)} held for {held} of {plural(len(mine), 'unseen seed')} over "
            f"{longer.horizon} steps"
        )
        slow = [p for p in mine if p.record.verdict.is_stable and not p.held]
        # A lower rate is no cure for what is too slow.
        if held == NUM_SEEDS or slow:
            break
        mine = rungs.pop() if rungs else []
        lr = mine[0].record.lr if mine else round_rate(lr / 10**STEP_DECADES, down=True)
    return proofs


def _proofs(test: str, plan: Plan, pick: Pick, lr: float, seeds: Sequence[int]) -> list[Proof]:
    return [Proof(test, record) for record in train(plan, [_point(plan, pick, lr)], seeds)]


def _final(proof: Proof) -> float:
    loss = proof.record.final_loss
    return math.inf if loss is None else loss


def _is_unsettled(pick: Pick, proof: Proof) -> bool:
    """Whether a longer run learned much more than the sweep's runs of the same rate."""
    blind = proof.record.blind
    if blind is None or pick.final_loss is None:
        return False
    return blind - _final(proof) > UNSETTLED * max(blind - pick.final_loss, 0.0)


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
        proofs += _proofs(test, other, pick, pick.lr, plan.seeds[:STRESS_SEEDS])
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
