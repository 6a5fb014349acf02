"""Read back by MLflow's own client."""

from __future__ import annotations

import pytest

import stabsweep
from stabsweep import log
from stabsweep.log import mlflow as ours

mlflow = pytest.importorskip(
    "mlflow", reason="MLflow (300 MB) is not installed: pip install mlflow"
)

pytestmark = [
    pytest.mark.slow,
    # Of MLflow's own modules: how it names things of SQLAlchemy, pydantic and Python.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
    # Its pool of connections to a database is closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def private(monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def runs_of(uri):
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("stabsweep")
    return client, client.search_runs([experiment.experiment_id])


def test_everything_is_read_back(folder, tmp_path):
    before = mlflow.get_tracking_uri()
    result = stabsweep.load(folder)
    entry = log.make_entry(result)
    lines = [list(log.write(["mlflow"], result)) for _ in range(2)]
    uri = f"sqlite:///{folder.resolve()}/mlflow/mlflow.db"
    assert lines[0] == lines[1] and lines[0][1].endswith(f"--backend-store-uri '{uri}'")
    client, runs = runs_of(uri)
    by_name = {run.info.run_name: run for run in runs}
    assert len(runs) == len(by_name) == 1 + len(entry.trials)
    sweep = by_name["a sweep"]
    assert sweep.data.metrics == pytest.approx(entry.metrics)
    assert sweep.data.tags["subject"] == "sgd on mlp"
    kept = client.download_artifacts(sweep.info.run_id, "", str(tmp_path))
    assert {item.path for item in client.list_artifacts(sweep.info.run_id)} == {
        "answer.txt", "map.png"
    }  # fmt: skip
    with open(f"{kept}/map.png", "rb") as picture, open(f"{kept}/answer.txt") as answer:
        assert picture.read() == (folder / "map.png").read_bytes()
        assert answer.read() == result.summary()
    for trial in entry.trials:
        run = by_name[trial.name]
        assert run.info.status == "FINISHED"
        assert run.data.tags["mlflow.parentRunId"] == sweep.info.run_id
        assert run.data.params == {k: str(v) for k, v in trial.hyperparameters.items()}
        final = {name: run.data.metrics[f"final/{name}"] for name in trial.metrics}
        assert final == pytest.approx(trial.metrics)
    worst = next(trial for trial in entry.trials if "diverged" in trial.name)
    for name, curve in worst.curves.items():
        history = client.get_metric_history(by_name[worst.name].info.run_id, name)
        found = sorted((metric.step, metric.value) for metric in history)
        assert found == list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
    # What a script has set up with MLflow itself is as it was.
    assert mlflow.get_tracking_uri() == before and mlflow.active_run() is None


def test_a_server_that_the_user_has_named_is_used_and_keeps_what_it_has(
    folder, tmp_path, monkeypatch
):
    uri = f"sqlite:///{tmp_path}/own.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    entry = log.make_entry(stabsweep.load(folder))
    for _ in range(2):
        assert ours.write(entry, folder) == f"see {uri}"
    assert not (folder / "mlflow").exists()
    assert len(runs_of(uri)[1]) == 2 * (1 + len(entry.trials))


def test_an_axis_of_any_name_is_a_parameter():
    assert ours._key("lr:head.*") == "lr:head._"
    assert ours._key("width") == "width"
