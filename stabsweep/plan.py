"""What a sweep is asked to do: every argument checked and turned into the thing it names."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from stabsweep import model as models
from stabsweep import optimizer as optimizers
from stabsweep import task as tasks
from stabsweep.engine import ENGINES, Setup
from stabsweep.errors import BadInput, unknown
from stabsweep.model import check_init
from stabsweep.optimizer import OPTIMIZERS, check_schedule
from stabsweep.pruner import PRUNERS
from stabsweep.records import Value
from stabsweep.sampler import SAMPLERS
from stabsweep.space import LIMITS, Space, check_count, check_value
from stabsweep.task import Task

DTYPES = {"float32": torch.float32, "float64": torch.float64}

COHORT_SIZE = {"cpu": 24, "cuda": 512}
"""Trials stacked at once by default. On a CPU more of them gain nothing and fall out of the cache
(`benchmarks/throughput.py --trials`); the number for a GPU is not measured yet."""

MAX_SEED = 2**63 - 1
"""The largest seed that every generator takes."""

NUM_RUNGS = 10
"""Looks at the losses of a trial, by default: each costs a host synchronisation."""

FIXED = ("warmup_steps", "clip_norm", "init", "init_gain")
"""Hyperparameters that hold for every trial unless an axis sweeps them."""


@dataclass(frozen=True)
class Plan:
    """A sweep that can be run: see `stabsweep.api.sweep` for the arguments.

    Attributes:
        space: what is swept.
        task: the data, on the device.
        build_model: makes the model for the task.
        optimizer: name -> hyperparameters, for the one that was configured.
        fixed: hyperparameters that no axis sweeps.
        seeds: what every point is run with.
        sampler, pruner: name -> arguments.
        horizon, num_trials, batch_size, schedule, sampler_seed, engine: as given.
        cohort_size, rung_steps: as given, or chosen.
        device, dtype: where and in which type to train.
        margin_decades: distance of the pick from the safe edge.
    """

    space: Space
    task: Task
    build_model: Callable[[], nn.Module]
    optimizer: Mapping[str, Any]
    sampler: Mapping[str, Any]
    pruner: Mapping[str, Any]
    fixed: Mapping[str, Value]
    seeds: tuple[int, ...]
    horizon: int
    num_trials: int
    batch_size: int
    schedule: str
    sampler_seed: int
    engine: str
    cohort_size: int
    rung_steps: int
    device: torch.device
    dtype: torch.dtype
    margin_decades: float

    @classmethod
    def make(cls, given: Mapping[str, Any]) -> Plan:
        """The plan for the arguments of `stabsweep.api.sweep`, all present.

        Raises:
            BadInput: an argument cannot be used.
        """
        for key in ("horizon", "num_trials", "batch_size"):
            check_count(key, given[key], low=2 if key == "horizon" else 1)
        check_count("sampler_seed", given["sampler_seed"], low=0)
        check_schedule(given["schedule"])
        for key, allowed in (("engine", ENGINES), ("dtype", DTYPES)):
            if not isinstance(given[key], str) or given[key] not in allowed:
                raise unknown(key, given[key], allowed)
        margin = given["margin_decades"]
        is_number = isinstance(margin, int | float) and not isinstance(margin, bool)
        if not is_number or not 0 <= margin < math.inf:
            raise BadInput(f"margin_decades={margin!r} is not allowed: use a number >= 0")
        space = given["space"]
        space = space if isinstance(space, Space) else Space.parse(space)
        fixed = {name: check_value(name, given[name]) for name in FIXED}
        optimizer = _named("optimizer", given["optimizer"])
        _check_space(space, fixed, optimizer, given["horizon"])
        device = find_device(given["device"])
        dtype = DTYPES[given["dtype"]]
        task = _task(given["task"]).to(device, dtype)
        plan = cls(
            space=space,
            task=task,
            build_model=_builder(given["model"], task),
            optimizer=optimizer,
            sampler=_known("sampler", given["sampler"], SAMPLERS),
            pruner=_known("pruner", given["pruner"], PRUNERS),
            fixed=fixed,
            seeds=find_seeds(given["seeds"]),
            cohort_size=_optional_count(given, "cohort_size", COHORT_SIZE[device.type]),
            rung_steps=_optional_count(
                given, "rung_steps", max(math.ceil(given["horizon"] / NUM_RUNGS), 1)
            ),
            device=device,
            dtype=dtype,
            **{key: given[key] for key in _AS_GIVEN},
        )
        _check_model(plan, given["model"])
        return plan

    def setup(self, split: Mapping[str, Value]) -> Setup:
        """What the trials with given values of the splitting axes share."""
        chosen = dict(self.optimizer)
        name = split.get("optimizer", chosen.pop("name"))
        given = chosen if name == self.optimizer["name"] else {}
        rule, hyper = optimizers.build(str(name), **given)
        return Setup(
            build_model=self.build_model,
            task=self.task,
            optimizer=rule,
            horizon=self.horizon,
            batch_size=self.batch_size,
            schedule=self.schedule,
            fixed={**hyper, **self.fixed},
            device=self.device,
            dtype=self.dtype,
        )


_AS_GIVEN = (
    "horizon",
    "num_trials",
    "batch_size",
    "schedule",
    "sampler_seed",
    "engine",
    "margin_decades",
)


def find_device(name: str) -> torch.device:
    """The device of a name; `auto` is a GPU when there is one.

    Raises:
        BadInput: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise BadInput(f"device={name!r} is not known: use auto, cpu, cuda or cuda:N") from None
    count = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(device.type, 0)
    if (device.index or 0) >= count:
        here = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise BadInput(f"device={name!r} is not on this machine: use one of auto, {here}")
    return device


def find_seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds 0, 1, ... for a count, or the seeds that were listed.

    Raises:
        BadInput: no seed, or one that is not a whole number >= 0.
    """
    if isinstance(given, Sequence) and not isinstance(given, str):
        for seed in given:
            check_count("seeds", seed, low=0)
            if seed > MAX_SEED:
                raise BadInput(f"seeds={seed} is not allowed: use whole numbers up to {MAX_SEED}")
        if not given:
            raise BadInput("seeds=[] is empty: give a count or a list of seeds")
        return tuple(dict.fromkeys(given))
    check_count("seeds", given)
    return tuple(range(given))  # type: ignore[arg-type]


def _inits(space: Space, fixed: Mapping[str, Value]) -> list[str]:
    """Every init that a trial may start from."""
    swept = space.axes["init"].values if "init" in space.axes else (fixed["init"],)
    return [str(init) for init in swept]


def _check_space(
    space: Space, fixed: Mapping[str, Value], optimizer: Mapping[str, Any], horizon: int
) -> None:
    """Whether every value of the space can be run, and every axis means something."""
    names = list(space.axes["optimizer"].values) if "optimizer" in space.axes else []
    for name in names:
        if name not in OPTIMIZERS:
            raise unknown("space.optimizer", name, OPTIMIZERS)
    rule, hyper = optimizers.build(**optimizer)
    used = {key for name in names or [optimizer["name"]] for key in OPTIMIZERS[str(name)].defaults}
    for axis in space:
        if axis.name in LIMITS and axis.name not in {"lr", *FIXED, *used}:
            chosen = ", ".join(map(str, names)) or optimizer["name"]
            raise BadInput(
                f"space.{axis.name} has no effect on {chosen}: take the axis away or choose "
                "another optimizer"
            )
        if axis.name in hyper and optimizer["name"] in (names or [optimizer["name"]]):
            for value in axis.values or (axis.low, axis.high):
                rule.check({**hyper, axis.name: float(value)})  # type: ignore[arg-type]
    for init in _inits(space, fixed):
        check_init(init)
    if "warmup_steps" in space.axes:
        axis = space.axes["warmup_steps"]
        longest, key = (axis.values[-1] if axis.values else axis.high), "space.warmup_steps"
    else:
        longest, key = fixed["warmup_steps"], "warmup_steps"
    if longest is not None and float(longest) >= horizon:
        raise BadInput(
            f"{key}={longest:g} is not below horizon={horizon}: the peak rate would never be "
            "tested; raise horizon or lower the warmup"
        )


def _named(key: str, given: Any) -> dict[str, Any]:
    """A choice as `{"name": ..., **arguments}`, whether given so or as the name alone."""
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return dict(given)
    raise BadInput(f"{key}={given!r} is not a choice: give a name, or {{name: ..., arguments}}")


def _known(key: str, given: Any, names: Collection[str]) -> dict[str, Any]:
    chosen = _named(key, given)
    if chosen["name"] not in names:
        raise unknown(key, chosen["name"], names)
    return chosen


def _task(given: Any) -> Task:
    return given if isinstance(given, Task) else tasks.build(**_named("task", given))


def _builder(given: Any, task: Task) -> Callable[[], nn.Module]:
    if isinstance(given, nn.Module):
        raise BadInput(
            f"model={type(given).__name__}(...) is one module, but every trial needs a new one: "
            f"give a function that makes it, lambda: {type(given).__name__}(...)"
        )
    if callable(given):
        return given  # type: ignore[return-value]
    chosen = _named("model", given)
    name = chosen.pop("name")
    return lambda: models.build(name, task.signature, **chosen)


def _check_model(plan: Plan, given: Any) -> None:
    """Whether the model can be built and drawn, and one of the user's own answers the task."""
    devices = [plan.device] if plan.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        module = plan.build_model()
        if isinstance(module, nn.Module):
            for init in _inits(plan.space, plan.fixed):
                check_init(init, module)
        if not callable(given):
            return
        key = f"model={getattr(given, '__name__', type(given).__name__)}"
        if not isinstance(module, nn.Module):
            raise BadInput(f"{key} returns {module!r}: give a function that returns an nn.Module")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise BadInput(f"{key} has no parameter to train: set requires_grad on some")
        index_B = torch.arange(min(plan.batch_size, plan.task.num_examples), device=plan.device)
        module.to(device=plan.device, dtype=plan.dtype)
        inputs, targets = plan.task.batch(index_B)
        try:
            plan.task.loss(module(inputs), targets)
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BadInput(
                f"{key} fails on inputs {tuple(inputs.shape)} and targets {tuple(targets.shape)} "
                f"of the task ({line[:200]}): make it read and answer them"
            ) from error


def _optional_count(given: Mapping[str, Any], key: str, default: int) -> int:
    if given[key] is None:
        return default
    check_count(key, given[key])
    return given[key]
