"""The Python API: sweep a model, or go on with a sweep that was interrupted."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from stabsweep import bracket as brackets
from stabsweep import confirm as tests
from stabsweep import environment, mirror, pruner, report
from stabsweep import log as logs
from stabsweep.curvature import small_curvature
from stabsweep.errors import BadInput
from stabsweep.extension import Extension, read_extensions
from stabsweep.leg import Legs
from stabsweep.pick import MARGIN_DECADES
from stabsweep.plan import Plan
from stabsweep.progress import Progress, Watcher
from stabsweep.proof import with_constant
from stabsweep.records import Record, Trial
from stabsweep.result import Result, known_proofs, known_theory, python_objects
from stabsweep.run import Run
from stabsweep.space import Space
from stabsweep.store import (
    DERIVED,
    Store,
    read_bracket,
    read_config,
    read_notes,
    read_records,
    save_bracket,
)
from stabsweep.study import rehearse
from stabsweep.task import Task
from stabsweep.theory import Theory, answer_row

_APART = ("executor", "workers", "profile", "folder", "storage", "log", "watcher")
"""Arguments that are no part of what is swept."""


def sweep(
    model: str | Mapping[str, Any] | Callable[[], nn.Module],
    task: str | Mapping[str, Any] | Task,
    space: Space | Mapping[str, Any],
    optimizer: str | Mapping[str, Any] = "adamw",
    *,
    horizon: int = 200,
    num_trials: int = 96,
    seeds: int | Sequence[int] = 2,
    batch_size: int = 64,
    warmup_steps: int = 0,
    clip_norm: float | None = None,
    clipper: str | Mapping[str, Any] = "norm",
    lr_scales: Mapping[str, float] | None = None,
    schedule: str = "constant",
    init: str = "default",
    init_gain: float = 1.0,
    sampler: str | Mapping[str, Any] = "boundary",
    sampler_seed: int = 0,
    pruner: str | Mapping[str, Any] = "divergence",
    engine: str = "auto",
    cohort_size: int | None = None,
    rung_steps: int | None = None,
    executor: str = "auto",
    workers: int | None = None,
    profile: bool = False,
    device: str = "auto",
    precision: str = "fp32",
    margin_decades: float = MARGIN_DECADES,
    bracket: bool = False,
    extend: bool = True,
    confirm: bool | str = "auto",
    stress: bool | str = "auto",
    curvature: bool | str = "auto",
    folder: str | Path | None = None,
    storage: str | None = None,
    log: str | Sequence[str] | None = None,
    watcher: Watcher | str = "auto",
) -> Result:
    """Finds where training is stable, and a learning rate that is safe.

    Args:
        model: name of a reference model, or `{"name": ..., **arguments}`, or a callable that
            returns a new `nn.Module` (it is called under a fixed seed, on the CPU, with the
            values of the axes that go `to: model`).
        task: name of a task, or `{"name": ..., **arguments}`, or a `Task`, such as
            `Batches(loader, loss)`, your own batches and loss.
        space: axes to sweep: name -> `{low, high, scale}` or list of values; `lr` among them. With
            `to: model` (or `task`, `optimizer`) an axis is an argument of it; with `to: lr:PATTERN`
            (or `lr_scale:PATTERN`) the learning rate (or a factor of it) of some parameters.
        optimizer: name, or `{"name": ..., **hyperparameters}`.
        horizon: optimizer steps of each trial, at least 2.
        num_trials: trials, seeds included: the most for `boundary`; a grid has full rows.
        seeds: how many seeds, or which. A seed fixes weights and batches.
        batch_size: examples a step; without effect where batches are your own.
        warmup_steps: steps of linear warmup, unless swept; below the horizon.
        clip_norm: global gradient norm to clip at, unless swept; None for no clipping.
        clipper: `norm`, `value`, `agc`, `autoclip`, `zclip`, or `{"name": ..., **hyperparameters}`.
        lr_scales: pattern of parameter names -> factor of their learning rate, `{"head.*": 10.0}`.
        schedule: after the warmup: `constant`, `cosine`, `cosine_tenth`, `linear` or `step`.
        init: `default` (torch's), `xavier`, `kaiming`, `orthogonal`, `zeros`, `normal(std)` or
            `spectral(radius)`, unless swept.
        init_gain: factor of all weight matrices, unless swept.
        sampler: `boundary` (few trials, near the edge and at the best rates; it stops when the edge
            is known; where `lr` lists its values all of them are run, as by `grid`), `grid`,
            `random`, `sobol`, `tpe`, or `{"name": ..., **arguments}`: any Optuna sampler is
            `{"name": "optuna", "target": "module:attribute", "args": {...}}`.
        sampler_seed: seed of the points themselves.
        pruner: `divergence`, `none`, or `{"name": "optuna", "target": ..., "args": {...}}`.
        engine: `auto`, `cohort` (stacked) or `loop` (one by one).
        cohort_size: trials in training at once, stacked; None chooses by the device.
        rung_steps: steps between two looks at the losses; None is a tenth of the horizon.
        executor: `local` (in this process), `process` (one a core) or `auto`; changes no trial.
        workers: processes; None: as many as torch has threads, or a container has cores.
        profile: write a profile of one rung into the folder, for ui.perfetto.dev.
        device: `auto` (a GPU when there is one), `cpu`, `cuda`, `cuda:1` ...
        precision: `fp32`, `fp64`, `bf16` (autocast), `bf16_pure` (weights too) or `fp16` (autocast,
            with a loss scale, one trial at a time), unless swept.
        margin_decades: distance of the pick from the safe edge, in powers of ten.
        bracket: find the range of rates first, by short trials over the one that is given and
            beyond, and sweep a narrow ladder below their edge; only where `lr` is the one axis.
        extend: add up to two decades to a range of `lr` beyond which the edge or the best rate
            lies, from 1e-7 to 1e3 at most, as densely swept; listed rates are not added to.
        confirm: train the pick with three unseen seeds and three times the horizon before it is
            given; where it fails it moves down.
        stress: train it with other batch sizes, widths, depths and orders too; `auto` for the
            reference models.
        curvature: compute the edge that linear theory draws where the pick starts, to be compared
            with the measured one; `auto` for the reference models only.
        folder: result folder. One that holds the same sweep is gone on with; None keeps nothing.
        storage: URL of an Optuna storage that gets a copy of every finished trial, for dashboards
            and other tools: `sqlite:///sweep.db`. It is not part of the sweep: `resume` is given it
            anew, and no password gets into the folder.
        log: dashboards that get the answer, the map and some trials at the end: `tensorboard`,
            `mlflow`, `wandb`, or several. No part of the sweep either.
        watcher: `auto`, `live`, `plain`, `off`, or a `Watcher`.

    Returns:
        The result; after Ctrl-C that of the trials that had ended.

    Raises:
        BadInput: an argument cannot be used; the message says which, why and what to do.
    """
    given = {key: value for key, value in locals().items() if key not in _APART}
    plan = Plan.make(given, executor, workers, profile)
    folder = Path(folder) if folder is not None else None
    dashboards = logs.check(log, folder)
    tried = read_bracket(folder) if folder else []
    notes = []
    if plan.bracket:
        # What a folder holds is the answer to the same question, or it is another sweep's.
        if not {record.lr for record in tried}.issuperset(brackets.starting_rates(plan.space)):
            tried = brackets.bracket(plan)
        plan, note = brackets.narrowed(plan, tried)
        notes.append(note)
    # With what its axes feed, which only the plan knows; a range that was found is not found again.
    given |= {"space": plan.space, "bracket": False}
    config = {key: _described(value) for key, value in given.items()}
    watcher = report.watcher(watcher, plan.space) if isinstance(watcher, str) else watcher
    result = _run(plan, config, folder, watcher, storage, tried, notes)
    for line in logs.write(dashboards, result):
        watcher.note(line)
    return result


def resume(
    folder: str | Path,
    watcher: Watcher | str = "auto",
    storage: str | None = None,
    executor: str = "auto",
    workers: int | None = None,
    log: str | Sequence[str] | None = None,
) -> Result:
    """Goes on with the sweep of a folder: what is recorded is not run again.

    Where it trains (`executor`, `workers`) and what it tells (`log`, `storage`, `watcher`) may be
    other than before.

    Raises:
        BadInput: it is no such folder, or its model or task was a Python object.
    """
    cure = f"call stabsweep.sweep with the same arguments and folder={str(folder)!r}"
    config = asked(read_config(Path(folder)), cure)
    try:
        apart = {"executor": executor, "workers": workers, "storage": storage, "log": log}
        return sweep(**config, folder=folder, watcher=watcher, **apart)
    except TypeError as error:
        raise BadInput(f"{folder}/config.yaml does not describe a sweep: {error}") from None


def asked(config: Mapping[str, Any], cure: str, **objects: Any) -> dict[str, Any]:
    """The arguments of `sweep` that a config tells of.

    Args:
        config: of a result.
        cure: what to do where it tells of a Python object.
        objects: argument -> Python object that takes its place; None leaves it.

    Raises:
        BadInput: it tells of no sweep, or of a Python object that is not given.
    """
    known = {key: value for key, value in config.items() if key not in DERIVED}
    known |= {key: thing for key, thing in objects.items() if thing is not None}
    for key in ("model", "task"):
        if key not in known:
            raise BadInput(f"the config of the sweep lacks the key {key!r}")
    for key, name in python_objects(known).items():
        raise BadInput(f"{key} was the Python object {name}: {cure}")
    return known


def _run(
    plan: Plan,
    config: dict[str, Any],
    folder: Path | None,
    watcher: Watcher,
    storage: str | None,
    bracketed: Sequence[Record],
    remarks: Sequence[str],
) -> Result:
    done, extensions = _done(folder, config) if folder else ([], [])
    legs = Legs(
        plan.space,
        plan.rule,
        plan.num_trials,
        plan.seeds,
        plan.sampler_seed,
        plan.margin_decades,
        plan.extend,
        extensions,
    )
    if plan.rule["name"] == "optuna":
        rehearse(plan.space, legs.rule())
    stopper = pruner.build(**plan.pruner)
    if storage is not None:
        mirror.check_storage(storage)
    config = {**config, **legs.config}
    store = Store(folder, config, environment.take()) if folder else None
    if folder and bracketed:
        save_bracket(folder, bracketed)
    known = Result.find(legs.space, [], config)
    notes = read_notes(folder) if folder else []

    def note(message: str) -> None:
        watcher.note(message)
        notes.append(message)
        if store:
            store.note(message)

    # First, since it may fork: the copy has a thread.
    trainer, where = plan.make_executor(plan.num_trials, note, folder)
    copy = mirror.open_copy(storage, folder, known.subject, watcher.note) if storage else None
    told = copy.add if copy else None
    run = Run(
        legs.space,
        legs.study(stopper, done, told),
        trainer,
        store,
        watcher,
        plan.horizon,
        plan.rung_steps,
        plan.fixed,
        lambda point: plan.task_of(point).blind_loss,
        list(done),
    )
    began = time.perf_counter()
    interrupted, proofs = False, known_proofs(folder) if folder else []
    theory = known_theory(folder) if folder else None
    begun = Progress(legs.num_planned, len(done), len(done), may_stop=run.study.may_stop)
    watcher.start(known.subject, begun)
    try:
        for message in filter(None, [*remarks, *plan.notes, where]):
            note(message)
        run.run()
        while legs.go_on(run.region, note):
            config |= legs.config
            if store:
                store.amend(config)
            run.space, run.study = legs.space, legs.study(stopper, run.records, told)
            run.run()
        if trainer.speed:
            note(f"engine {trainer.speed}")
        if run.study.ending:
            config |= {"num_planned": run.study.num_trials, "ending": run.study.ending}
            watcher.note(run.study.ending)
            if store:
                store.amend(config)
        found = Result.find(legs.space, run.records, config, region=run.region)
        assert found.candidate is not None
        if with_constant(found.candidate, proofs).lr not in {p.record.lr for p in proofs}:
            proofs = tests.prove(plan, found.candidate, run.records, watcher.note)
        if plan.curvature:
            theory = _theory(plan, found, theory)
    except KeyboardInterrupt:
        interrupted = True
    except OSError as error:
        raise BadInput(
            f"cannot write to {folder}: {error.strerror}; what was recorded is kept, make room "
            f"and go on with: stabsweep resume {folder}"
        ) from None
    finally:
        trainer.close()
        if copy:
            copy.close()
        watcher.stop()
        if store:
            store.close()
    result = Result.find(
        legs.space,
        run.records,
        config,
        proofs,
        run.region,
        folder=folder,
        seconds=time.perf_counter() - began,
        interrupted=interrupted,
        theory=theory,
        notes=tuple(dict.fromkeys(notes)),
        bracketed=tuple(bracketed),
    )
    if folder:
        result.save_report()
    return result


def _theory(plan: Plan, found: Result, known: Theory | None) -> Theory | None:
    """The edge of linear theory for the row that the answer speaks of; None where there is none.

    Args:
        plan: of the sweep.
        found: its answer.
        known: what an earlier run has computed.
    """
    answer = answer_row(found.region, found.pick)
    if answer is None:
        return None
    row, point = answer
    if known is not None and known.values == row.values:
        return known
    trial = Trial(0, point, plan.seeds[0])
    split = {axis.name: trial.point[axis.name] for axis in plan.space.splitting}
    curvature = small_curvature(plan.setup(split), trial)
    if curvature is None or curvature.edge_lr is None:
        return None
    return Theory(row.values, curvature.eigenvalue, curvature.edge_lr, curvature.formula)


def _done(folder: Path, config: Mapping[str, Any]) -> tuple[list[Record], list[Extension]]:
    """The records that a folder already holds of this very sweep, and what it was extended by.

    Raises:
        BadInput: it holds another sweep, or files that are no sweep's.
    """
    if not (folder / "config.yaml").exists():
        return [], []
    # What an older version could not be told was what is now the default.
    earlier = {**DEFAULTS, **read_config(folder)}
    keys = {*config, *earlier}.difference(DERIVED)
    changed = sorted(key for key in keys if config.get(key) != earlier.get(key))
    if changed:
        raise BadInput(
            f"{folder} holds another sweep (it differs in {', '.join(changed)}): choose another "
            "folder with hydra.run.dir=DIR"
        )
    records = read_records(folder) if (folder / "records.jsonl").exists() else []
    return records, read_extensions(earlier)


DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(sweep).parameters.items()
    if parameter.default is not parameter.empty and name not in _APART
}
"""What `sweep` does when it is not told: argument -> value, of those that it may leave out."""


def _described(value: Any) -> Any:
    """A value as YAML can hold it; a Python object by its name."""
    if isinstance(value, Space):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): _described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    kind = value if hasattr(value, "__qualname__") else type(value)
    return {"python": f"{kind.__module__}:{kind.__qualname__}"}
