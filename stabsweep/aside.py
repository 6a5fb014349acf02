"""Trials beside the sweep: trained and judged as its own are, kept by whoever asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from stabsweep import pruner
from stabsweep.plan import Plan
from stabsweep.progress import Silence
from stabsweep.records import Point, Record
from stabsweep.roster import Roster
from stabsweep.run import Run
from stabsweep.sampler import DesignSampler
from stabsweep.space import Axis, Space


def train(plan: Plan, points: Sequence[Point], seeds: Sequence[int]) -> list[Record]:
    """The records of some points, each with every seed, in their order.

    Args:
        plan: says what is trained, how long and where.
        points: one value for every axis each.
        seeds: of weights and batches.
    """
    trials = [(point, seed) for point in points for seed in seeds]
    design = [(number, *trial) for number, trial in enumerate(trials)]
    # A rate may lie beside the values, or outside of the range, that the sweep has.
    axes = {axis.name: _listed(axis, points) for axis in plan.space}
    plan = replace(plan, space=Space(axes), profile=False)
    roster = Roster(plan.space, DesignSampler(design), pruner.DivergencePruner(), len(design))
    trainer, _ = plan.make_executor(len(trials), lambda note: None)
    with closing(trainer):
        run = Run(
            plan.space,
            roster,
            trainer,
            None,
            Silence(),
            plan.horizon,
            plan.rung_steps,
            plan.fixed,
            lambda point: plan.task_of(point).blind_loss,
        )
        run.run()
    return sorted(run.records, key=lambda record: record.trial)


def _listed(axis: Axis, points: Sequence[Point]) -> Axis:
    """The axis with the values of some points."""
    values = tuple(dict.fromkeys(point[axis.name] for point in points))
    return replace(axis, low=None, high=None, values=values)
