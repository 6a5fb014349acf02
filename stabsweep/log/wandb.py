"""Weights & Biases: one run for the sweep, and one for each chosen trial, in one group.

Offline in `DIR/wandb` unless `WANDB_MODE` says otherwise; each time the runs are new ones.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

from stabsweep.log._entry import Entry, LoggedTrial

PROJECT = "stabsweep"


def write(entry: Entry, folder: Path) -> str:
    """Writes the runs; what sends them, or where they have gone.

    Args:
        entry: the sweep.
        folder: its results.
    """
    import wandb

    target, mode = folder / "wandb", os.environ.get("WANDB_MODE", "offline")
    shutil.rmtree(target, ignore_errors=True)
    run = _new_run(entry, folder, mode, entry.name, {"subject": entry.subject})
    run.log({"map": wandb.Image(str(entry.picture))})
    run.summary.update({**entry.metrics, "answer": entry.answer})
    run.finish()
    for trial in entry.trials:
        run = _new_run(entry, folder, mode, trial.name, dict(trial.hyperparameters))
        _write_trial(run, trial)
        run.finish()
    if mode != "offline":
        return f"WANDB_MODE={mode}, group {entry.name}"
    return f"wandb sync {shlex.quote(str(target))}/offline-run-*"


def _new_run(entry: Entry, folder: Path, mode: str, name: str, config: dict[str, Any]) -> Any:
    """A run beside any that a script has begun; of the machine it is told nothing."""
    import wandb

    return wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        group=entry.name,
        name=name,
        dir=str(folder),
        mode=mode,  # type: ignore[arg-type]
        config=config,
        reinit="create_new",
        settings=wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
        ),
    )


def _write_trial(run: Any, trial: LoggedTrial) -> None:
    by_step: dict[int, dict[str, float]] = {}
    for name, curve in trial.curves.items():
        for step, value in zip(curve.steps, curve.values, strict=True):
            by_step.setdefault(int(step), {})[name] = float(value)
    for step, values in sorted(by_step.items()):
        run.log(values, step=step)
    final = {f"final/{name}": value for name, value in trial.metrics.items()}
    about = ("verdict", "chosen")
    words = {name: trial.hyperparameters[name] for name in about}
    run.summary.update({**final, **words, "reason": trial.reason})
