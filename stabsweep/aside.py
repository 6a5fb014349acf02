"""Trials beside the sweep: trained and judged as its own are, kept by whoever asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stabsweep import executor, pruner
from stabsweep.plan import Plan
from stabsweep.progress import Silence
from stabsweep.records import Point, Record
from stabsweep.run import Run
from stabsweep.sampler import DesignSampler
from stabsweep.space import Axis, Space
from stabsweep.study import Study


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
    plan = replace(plan, space=Space(axes))
    run = Run(
        plan.space,
        Study(plan.space, DesignSampler(design), pruner.build("divergence"), seeds, len(design)),
        executor.Local(
            plan.setup,
            [axis.name for axis in plan.space.splitting],
            plan.engine,
            plan.cohort_size,
            lambda note: None,
        ),
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
