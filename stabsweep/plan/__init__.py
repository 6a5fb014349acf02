"""What a sweep is asked to do: every argument checked and turned into the thing it names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from stabsweep import clipper as clippers
from stabsweep import executor as executors
from stabsweep import optimizer as optimizers
from stabsweep.engine import PRECISIONS, LRScales, Setup, is_out_of_memory, no_memory
from stabsweep.errors import BadInput
from stabsweep.limits import MAX_COUNT, check_count, check_margin, check_value
from stabsweep.plan._arguments import find_device, find_seeds, known, named, optional_count
from stabsweep.plan._axes import FIXED, NAMED, check_name, check_space, choices_of, chosen, inits_of
from stabsweep.plan._made import (
    check_made,
    check_optimizer,
    is_reference,
    make_task,
    model_builder,
    with_arguments,
    with_receivers,
)
from stabsweep.plan._spectra import spectrum_note
from stabsweep.pruner import PRUNERS
from stabsweep.records import Point, Value
from stabsweep.sampler import SAMPLERS
from stabsweep.space import ARGUMENTS, Space
from stabsweep.task import Task

COHORT_SIZE = {"cpu": 24, "cuda": 512}
"""Trials stacked at once by default. On a CPU more of them gain nothing and fall out of the cache
(`benchmarks/throughput.py --trials`); the number for a GPU is not measured yet."""

NUM_RUNGS = 10
"""Looks at the losses of a trial, by default: each costs a host synchronisation."""

COUNTS = {"horizon": (2, 10**8), "num_trials": (1, 10**6), "batch_size": (1, MAX_COUNT)}
"""The least and the most of what is counted. Ours: a trial of more steps and a sweep of more
trials are slips of the finger."""


@dataclass(frozen=True)
class Plan:
    """A sweep that can be run: see `stabsweep.api.sweep` for the arguments.

    Attributes:
        space: what is swept.
        model, task: as given.
        optimizer, clipper: name -> hyperparameters, for the one that was configured.
        fixed: hyperparameters that no axis sweeps.
        lr_scales: pattern of parameter names -> factor of their learning rate.
        seeds: what every point is run with.
        sampler, pruner: name -> arguments, as given; `rule` is the sampler that is used.
        horizon, num_trials, batch_size, schedule, precision, sampler_seed, engine: as given.
        cohort_size, rung_steps: as given, or chosen.
        device: where to train.
        margin_decades: distance of the pick from the safe edge.
        bracket: whether a short sweep is to find the range of rates first.
        extend: whether the range may be extended afterwards.
        confirm, stress: whether the pick is put to the test.
        curvature: whether the measured edge is set beside that of linear theory.
        order_shift: added to every seed for the order of the batches, see `Setup`.
        executor, workers: where trials run, and in how many processes at most: no part of what is
            swept.
    """

    space: Space
    model: Any
    task: Any
    optimizer: Mapping[str, Any]
    clipper: Mapping[str, Any]
    sampler: Mapping[str, Any]
    pruner: Mapping[str, Any]
    fixed: Mapping[str, Value]
    lr_scales: Mapping[str, float]
    seeds: tuple[int, ...]
    horizon: int
    num_trials: int
    batch_size: int
    schedule: str
    precision: str
    sampler_seed: int
    engine: str
    cohort_size: int
    rung_steps: int
    device: torch.device
    margin_decades: float
    bracket: bool
    extend: bool
    confirm: bool
    stress: bool
    curvature: bool
    order_shift: int = 0
    executor: str = "auto"
    workers: int = 1
    profile: bool = False
    _tasks: dict[tuple[Any, ...], Task] = field(default_factory=dict, repr=False)

    @classmethod
    def make(
        cls,
        given: Mapping[str, Any],
        executor: str = "auto",
        workers: int | None = None,
        profile: bool = False,
    ) -> Plan:
        """The plan for the arguments of `stabsweep.api.sweep`, all present.

        Args:
            given: those that say what is swept.
            executor: where, one of `stabsweep.executor.EXECUTORS`.
            workers: processes there; None for one a core.
            profile: whether one rung is profiled.

        Raises:
            BadInput: an argument cannot be used.
        """
        for key, (low, high) in COUNTS.items():
            check_count(key, given[key], low, high)
        check_count("sampler_seed", given["sampler_seed"], low=0)
        for key, allowed in NAMED.items():
            check_name(key, given[key], allowed)
        check_margin(given["margin_decades"])
        space = given["space"]
        if not isinstance(space, Space):
            space = Space.parse(with_receivers(space, given))
        fixed = {name: check_value(name, given[name]) for name in FIXED}
        optimizer, clipper = (named(key, given[key]) for key in ("optimizer", "clipper"))
        check_space(space, fixed, optimizer, clipper, given["horizon"])
        device = find_device(given["device"])
        executors.check(executor, device)
        plan = cls(
            space=space,
            optimizer=optimizer,
            clipper=clipper,
            sampler=known("sampler", given["sampler"], SAMPLERS),
            pruner=known("pruner", given["pruner"], PRUNERS),
            fixed=fixed,
            lr_scales=_lr_scales(given["lr_scales"]),
            seeds=find_seeds(given["seeds"]),
            cohort_size=optional_count(given, "cohort_size", COHORT_SIZE[device.type]),
            rung_steps=optional_count(
                given, "rung_steps", max(math.ceil(given["horizon"] / NUM_RUNGS), 1)
            ),
            device=device,
            bracket=_bracket(given["bracket"], space),
            extend=_plain_switch("extend", given["extend"]),
            confirm=_switch("confirm", given["confirm"], True),
            stress=_switch("stress", given["stress"], is_reference(given["model"])),
            curvature=_switch("curvature", given["curvature"], is_reference(given["model"])),
            executor=executor,
            profile=_plain_switch("profile", profile),
            workers=optional_count({"workers": workers}, "workers", executors.num_cores()),
            **{key: given[key] for key in _AS_GIVEN},
        )
        try:
            plan._check()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise no_memory() from error
        return plan

    def setup(self, split: Mapping[str, Value]) -> Setup:
        """What the trials with given values of the splitting axes share."""
        given = chosen("optimizer", self.optimizer, split)
        given = with_arguments(given, self._arguments("optimizer", split))
        rule, hyper = optimizers.build(**given)
        clipper, limits = clippers.build(**chosen("clipper", self.clipper, split))
        task = self.task_of(split)
        return Setup(
            build_model=model_builder(self.model, task, self._arguments("model", split)),
            task=task,
            optimizer=rule,
            horizon=self.horizon,
            # A task whose examples are batches hands them out one by one.
            batch_size=1 if task.is_batched else int(split.get("batch_size", self.batch_size)),  # type: ignore[arg-type]
            schedule=str(split.get("schedule", self.schedule)),
            fixed={**hyper, **limits, **self.fixed},
            device=self.device,
            precision=PRECISIONS[str(split.get("precision", self.precision))],
            lr_scales=LRScales(self.lr_scales, self._rates("lr_scale"), self._rates("lr")),
            clipper=clipper,
            order_shift=self.order_shift,
        )

    def make_executor(
        self, num_trials: int, note: executors.Note, folder: Path | None = None
    ) -> tuple[executors.Executor, str]:
        """What trains the trials, and one line that says what it is, see `executor.build`.

        Args:
            num_trials: to be trained; there are never more processes.
            note: see `executor.Local`.
            folder: where a profile goes, if one is wanted.

        Raises:
            BadInput: one is wanted, and there is no folder.
        """
        if self.profile and folder is None:
            raise BadInput("profile=true is written beside the results: give a folder for them")
        return executors.build(
            self.executor,
            min(self.workers, num_trials, self.cohort_size),
            self.device,
            self.setup,
            [axis.name for axis in self.space.splitting],
            self.engine,
            self.cohort_size,
            note,
            folder if self.profile else None,
        )

    def task_of(self, point: Point) -> Task:
        """The task of a trial, on the device and in its precision; made once for its arguments."""
        more = self._arguments("task", point)
        dtype = PRECISIONS[str(point.get("precision", self.precision))].dtype
        raw, moved = tuple(more.values()), (*more.values(), dtype)
        if raw not in self._tasks:
            self._tasks[raw] = make_task(self.task, more)
            self._tasks[raw].read(self.horizon)
        if moved not in self._tasks:
            self._tasks[moved] = self._tasks[raw].to(self.device, dtype)
        return self._tasks[moved]

    @property
    def rule(self) -> Mapping[str, Any]:
        """The sampler that is used: as given, but the grid where `boundary` has a list of rates.

        Who lists rates wants them all; an edge is sought between the ends of a range.
        """
        if self.sampler["name"] == "boundary" and self.space.axes["lr"].values:
            return {"name": "grid"}
        return self.sampler

    @property
    def notes(self) -> list[str]:
        """What a reader should know before the first trial, a line each: of data and inits."""
        notes = [task.note for task in self._tasks.values() if task.note]
        if self.rule != self.sampler:
            notes.append("sampler: space.lr lists its rates, so all of them are run (sampler=grid)")
        limit, names = self.fixed["clip_norm"], choices_of("clipper", self.clipper, self.space)
        if limit is not None and "norm" not in names:
            notes.append(f"clipper: {', '.join(names)} clips; clip_norm={limit:g} is not used")
        spectral = [i for i in inits_of(self.space, self.fixed) if i.startswith("spectral")]
        for split in self.splits() if spectral else ():
            made = {axis.name: split[axis.name] for axis in self.space if axis.to in ARGUMENTS[:2]}
            setup = self.setup(split)
            notes += filter(None, (spectrum_note(setup, init, made) for init in spectral))
        return list(dict.fromkeys(notes))

    def _arguments(self, of: str, point: Point) -> dict[str, Value]:
        """What axes give to the model, the task or the optimizer."""
        return {axis.name: point[axis.name] for axis in self.space if axis.to == of}

    def _rates(self, of: str) -> dict[str, str]:
        """The axes that are rates for some parameters: name -> pattern."""
        patterns = {axis.name: axis.pattern(of) for axis in self.space}
        return {name: pattern for name, pattern in patterns.items() if pattern}

    def splits(self) -> Iterator[dict[str, Value]]:
        """All values of the splitting axes, combined."""
        axes = self.space.splitting
        for values in itertools.product(*(axis.values for axis in axes)):
            yield dict(zip((axis.name for axis in axes), values, strict=True))

    def _check(self) -> None:
        """Whether every program can be built, and every model answers its task."""
        seen = set()
        for split in self.splits():
            setup = self.setup(split)
            if setup.task.is_batched and "batch_size" in split:
                raise BadInput(
                    f"space.batch_size has no effect on task={setup.task.name}, which gives whole "
                    "batches: take the axis away"
                )
            made = tuple(split[axis.name] for axis in self.space if axis.to in ARGUMENTS)
            if made not in seen:
                seen.add(made)
                check_made(setup, self.model, inits_of(self.space, self.fixed))
            check_optimizer(setup)


_AS_GIVEN = (
    "model",
    "task",
    "horizon",
    "num_trials",
    "batch_size",
    "schedule",
    "precision",
    "sampler_seed",
    "engine",
    "margin_decades",
)


def _switch(key: str, given: Any, auto: bool) -> bool:
    """True or false; `auto` is what is right without being asked."""
    if given != "auto" and not isinstance(given, bool):
        raise BadInput(f"{key}={given!r} is no switch: use auto, true or false")
    return auto if given == "auto" else given


def _plain_switch(key: str, given: Any) -> bool:
    if not isinstance(given, bool):
        raise BadInput(f"{key}={given!r} is no switch: use true or false")
    return given


def _bracket(given: Any, space: Space) -> bool:
    """Whether to bracket, which needs a range of rates and no other axis."""
    _plain_switch("bracket", given)
    if given and space.row_axes:
        others = ", ".join(axis.name for axis in space.row_axes)
        raise BadInput(
            f"bracket=true finds a range for lr alone, but space has {others} too: take that away "
            "(space=lr), or leave bracket=false"
        )
    if given and len(space.axes["lr"].values) == 1:
        raise BadInput("bracket=true needs two ends to start from: give space.lr low and high")
    return given


def _lr_scales(given: Any) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadInput(f"lr_scales={given!r} is no mapping: give {{pattern: factor}}")
    return {
        str(pattern): float(check_value("lr", factor, f"lr_scales.{pattern}"))  # type: ignore[arg-type]
        for pattern, factor in given.items()
    }


__all__ = ["COHORT_SIZE", "Plan", "find_device", "find_seeds"]
