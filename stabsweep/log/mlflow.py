"""MLflow: one run for the sweep, and in it one for each chosen trial.

In `DIR/mlflow`, where the runs of an earlier time are marked as deleted; or where
`MLFLOW_TRACKING_URI` points to, where each time is a new run.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from pathlib import Path
from typing import Any

from stabsweep.log._entry import Entry, LoggedTrial

EXPERIMENT = "stabsweep"

MOST_AT_ONCE = 1000
"""Metrics that MLflow takes at once."""


def write(entry: Entry, folder: Path) -> str:
    """Writes the runs; the command that shows them.

    Args:
        entry: the sweep.
        folder: its results.
    """
    from mlflow.tracking import MlflowClient

    target, artifacts = folder.resolve() / "mlflow", None
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    show = f"see {uri}"
    if not uri:
        target.mkdir(exist_ok=True)
        uri, artifacts = f"sqlite:///{target / 'mlflow.db'}", (target / "artifacts").as_uri()
        show = (
            f"mlflow ui --backend-store-uri {shlex.quote(f'sqlite:///{folder}/mlflow/mlflow.db')}"
        )
    # The client alone: what a script has set up with `mlflow.` itself stays as it is.
    client = MlflowClient(tracking_uri=uri)
    # Of the tables that it makes in a new file it would tell in lines of its own.
    talk = logging.getLogger("mlflow.store.db.utils")
    level = talk.level
    talk.setLevel(logging.WARNING)
    try:
        known = client.get_experiment_by_name(EXPERIMENT)
    finally:
        talk.setLevel(level)
    if artifacts and known:
        # The file itself may be open here, or in a dashboard.
        for old in client.search_runs([known.experiment_id], max_results=50_000):
            client.delete_run(old.info.run_id)
    experiment = known.experiment_id if known else client.create_experiment(EXPERIMENT, artifacts)
    tags = {"mlflow.note.content": entry.answer_markdown, "subject": entry.subject}
    run = client.create_run(experiment, run_name=entry.name, tags=tags).info.run_id
    for name, value in entry.metrics.items():
        client.log_metric(run, name, value)
    client.log_artifact(run, str(entry.picture))
    client.log_text(run, entry.answer, "answer.txt")
    for trial in entry.trials:
        _write_trial(client, experiment, run, trial)
    client.set_terminated(run)
    return show


def _write_trial(client: Any, experiment: str, parent: str, trial: LoggedTrial) -> None:
    from mlflow.entities import Metric, Param

    tags = {"mlflow.parentRunId": parent, "mlflow.note.content": f"    {trial.reason}"}
    run = client.create_run(experiment, run_name=trial.name, tags=tags).info.run_id
    now = int(time.time() * 1000)
    metrics = [
        Metric(name, float(value), now, int(step))
        for name, curve in trial.curves.items()
        for step, value in zip(curve.steps, curve.values, strict=True)
    ]
    metrics += [Metric(f"final/{name}", value, now, 0) for name, value in trial.metrics.items()]
    params = [Param(_key(name), str(value)) for name, value in trial.hyperparameters.items()]
    client.log_batch(run, params=params)
    for first in range(0, len(metrics), MOST_AT_ONCE):
        client.log_batch(run, metrics=metrics[first : first + MOST_AT_ONCE])
    client.set_terminated(run)


def _key(name: str) -> str:
    """A name that MLflow takes for a parameter."""
    return re.sub(r"[^\w\-. :/]", "_", name)
