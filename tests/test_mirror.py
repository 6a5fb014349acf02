from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import warnings

import optuna
import pytest
import yaml
from optuna.trial import TrialState

import stabsweep
from stabsweep import mirror
from stabsweep.cli import main
from stabsweep.errors import BadInput
from stabsweep.mirror import Mirror
from stabsweep.records import Record
from stabsweep.store import read_records

MLP = {"name": "mlp", "width": 8, "depth": 2}
TINY = {
    "horizon": 30,
    "num_trials": 12,
    "seeds": 2,
    "batch_size": 16,
    "device": "cpu",
    "watcher": "off",
}
SPACE = {"lr": {"low": 1e-3, "high": 1e6}}


def make_trial(number, value=0.5):
    return optuna.trial.create_trial(
        value=value,
        params={"lr": 0.1},
        distributions={"lr": optuna.distributions.FloatDistribution(1e-3, 1)},
        user_attrs={"trial": number},
        intermediate_values={3: 1.0, 6: float("nan")},
    )


def check_copy(url, result) -> optuna.Study:
    """Whether the only study of a storage is the sweep."""
    (name,) = optuna.get_all_study_names(url)
    study = optuna.load_study(study_name=name, storage=url)
    # As they were told: a stall is settled by its row only at the end.
    records = {record.trial: record for record in read_records(result.folder)}
    trials = study.trials
    assert sorted(trial.user_attrs["trial"] for trial in trials) == sorted(records)
    for trial in trials:
        record = records[trial.user_attrs["trial"]]
        params = {**trial.params, "seed": trial.user_attrs.get("seed", trial.params.get("seed"))}
        assert params == {**record.point, "seed": record.seed}
        held = record.verdict.is_stable
        assert trial.state is (TrialState.COMPLETE if held else TrialState.PRUNED)
        assert trial.value == (pytest.approx(record.final_loss) if held else None)
        assert trial.user_attrs["steps"] == record.steps
        assert trial.user_attrs["verdict"] == record.verdict.label
        assert 1 <= len(trial.intermediate_values) <= 5
        assert max(trial.intermediate_values) == record.steps
    stable = [r.final_loss for r in records.values() if r.verdict.is_stable]
    assert study.best_value == pytest.approx(min(stable))
    return study


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_every_trial_arrives_in_sqlite_and_can_be_pictured(tmp_path, sampler):
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    result = stabsweep.sweep(
        MLP, "digits", SPACE, "sgd", sampler=sampler, folder=tmp_path / "run", storage=url, **TINY
    )
    study = check_copy(url, result)
    assert study.study_name == f"{tmp_path.name}/run"
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    importance = optuna.importance.get_param_importances(study, params=["lr"])
    assert importance == {"lr": pytest.approx(1.0)}
    assert len(study.trials_dataframe()) == 12
    assert study.best_trial.params["lr"] < 1e3
    text = (tmp_path / "run" / "config.yaml").read_text()
    assert "storage" not in yaml.safe_load(text) and "sqlite" not in text


@pytest.mark.slow
def test_a_sweep_can_be_sent_later_and_nothing_twice(tmp_path):
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    folder = tmp_path / "run"
    stabsweep.sweep(MLP, "digits", SPACE, "sgd", folder=folder, **TINY)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:7]))
    resumed = stabsweep.resume(folder, "off", storage=url)
    assert len(resumed.region.records) == 12
    check_copy(url, resumed)
    assert main(["resume", str(folder), "progress=off", f"storage={url}"]) in (0, 1)
    check_copy(url, resumed)


@pytest.mark.slow
def test_a_copy_has_the_region_of_the_sweep(tmp_path):
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    space = {"lr": {"low": 1e-3, "high": 1e3}, "warmup_steps": [0, 5]}
    given = {**TINY, "num_trials": 28, "storage": url, "confirm": False, "stress": False}
    result = stabsweep.sweep(MLP, "digits", space, "sgd", folder=tmp_path / "run", **given)
    (name,) = optuna.get_all_study_names(url)
    trials = optuna.load_study(study_name=name, storage=url).trials
    records = [Record.from_trial(trial) for trial in trials]
    region = stabsweep.find_region(result.region.space, records)
    assert [row.as_dict() for row in region.rows] == [
        {**row.as_dict(), "lr_sensitivity": None} for row in result.region.rows
    ]
    assert stabsweep.find_pick(region).lr == result.pick.lr


def test_a_study_of_somebody_else_has_a_region_too():
    def objective(trial):
        lr = trial.suggest_float("lr", 1e-4, 10, log=True)
        warmup = trial.suggest_categorical("warmup_steps", [0, 5])
        if lr > 3:
            raise optuna.TrialPruned
        return float("nan") if lr > (0.3 if warmup else 0.1) else 1 - lr

    space = stabsweep.Space.parse({"lr": {"low": 1e-4, "high": 10}, "warmup_steps": [0, 5]})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=120)
    records = [Record.from_trial(trial) for trial in study.trials]
    rows = stabsweep.find_region(space, records).rows
    for row, edge in zip(rows, (0.1, 0.3), strict=True):
        assert row.edge.low < edge < row.edge.high
    pick = stabsweep.find_pick(stabsweep.find_region(space, records))
    assert pick.is_ok and 0.05 < pick.lr < 0.3
    with pytest.raises(ValueError, match="trial 120 is not finished"):
        Record.from_trial(
            optuna.trial.FrozenTrial(
                120, TrialState.RUNNING, None, None, None, {}, {}, {}, {}, {}, 120
            )
        )


def test_a_storage_that_fails_is_one_note_and_no_end(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'nowhere' / 'copy.db'}"
    result = stabsweep.sweep(MLP, "digits", SPACE, storage=url, **{**TINY, "watcher": "plain"})
    assert len(result.region.records) == 12
    said = " ".join("".join(capsys.readouterr()).split())
    assert said.count("fails, the sweep goes on") == 1 and "12 trials are not in" in said


def test_a_storage_that_comes_back_gets_what_it_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "BATCH_SECONDS", 0.05)
    notes: list[str] = []
    (tmp_path / "late").touch()
    url = f"sqlite:///{tmp_path / 'late' / 'copy.db'}"
    copy = Mirror(url, "sweep", notes.append)
    copy.add(make_trial(0))
    end = time.monotonic() + 20
    while not notes and time.monotonic() < end:
        copy.add(make_trial(len(copy._pending)))
        time.sleep(0.05)
    num_sent = len(copy._pending)
    (tmp_path / "late").unlink()
    (tmp_path / "late").mkdir()
    copy.close()
    assert len(notes) == 1 and "fails" in notes[0]
    trials = optuna.load_study(study_name="sweep", storage=url).trials
    assert [trial.user_attrs["trial"] for trial in trials] == list(range(num_sent))


def test_a_batch_is_sent_while_the_sweep_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "BATCH_SECONDS", 0.05)
    copy = Mirror(f"sqlite:///{tmp_path / 'copy.db'}", "sweep", print)
    for number in range(5):
        copy.add(make_trial(number))
    end = time.monotonic() + 20
    while copy._pending and time.monotonic() < end:
        time.sleep(0.02)
    assert not copy._pending and len(copy._sent) == 5
    copy.close()


def test_the_end_does_not_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "CLOSE_SECONDS", 0.0)
    notes: list[str] = []
    copy = Mirror(f"sqlite:///{tmp_path / 'copy.db'}", "sweep", notes.append)
    for number in range(3):
        copy.add(make_trial(number))
    copy.close()
    assert len(notes) == 1 and "trials are not in sqlite:///" in notes[0]


def test_another_sweep_of_the_same_name_is_left_alone(tmp_path):
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    notes: list[str] = []
    for folder in ("a", "b"):
        copy = Mirror(url, "sweep", notes.append, {"folder": folder})
        copy.add(make_trial(0))
        copy.close()
    assert "another sweep is there as sweep" in notes[0]
    assert len(optuna.load_study(study_name="sweep", storage=url).trials) == 1


@pytest.mark.parametrize("bad", ["copy.db", "sqlit:///x", "", 3, "://"])
def test_what_is_no_storage_is_bad_input_before_anything_runs(tmp_path, bad):
    with pytest.raises(BadInput, match="is not the URL of a database"):
        stabsweep.sweep(MLP, "digits", SPACE, folder=tmp_path / "run", storage=bad, **TINY)
    assert not (tmp_path / "run").exists()


def test_no_note_shows_a_password():
    assert mirror._shown("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"


# ------------------------------------------------------------------------------ other tools

MIXED = {
    "lr": {"low": 1e-3, "high": 1e6},
    "clip_norm": [1.0, None, 0.5],
    "optimizer": ["sgd", "adam"],
    "warmup_steps": {"low": 0, "high": 10},
}

PLOTS = [
    "plot_optimization_history",
    "plot_slice",
    "plot_contour",
    "plot_parallel_coordinate",
    "plot_param_importances",
    "plot_intermediate_values",
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """The URL and the study of a copy that has what other tools may stumble over.

    Numbers, words and none on one axis, losses that are not finite, trials without a value, and one
    that ended in an error.
    """
    url = f"sqlite:///{tmp_path_factory.mktemp('mixed') / 'copy.db'}"
    common = {**TINY, "num_trials": 24, "sampler": "random"}
    stabsweep.sweep(MLP, "digits", MIXED, storage=url, **common)
    (name,) = optuna.get_all_study_names(url)
    study = optuna.load_study(study_name=name, storage=url)
    broken = optuna.trial.create_trial(
        state=TrialState.FAIL,
        params=study.trials[0].params,
        distributions=study.trials[0].distributions,
        user_attrs={"trial": 24},
    )
    copy = Mirror(url, name, print)
    copy.add(broken)
    copy.close()
    assert {t.state for t in study.trials} == {
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.FAIL,
    }
    assert {t.params["clip_norm"] for t in study.trials} == {1.0, None, 0.5}
    return url, study


@pytest.mark.parametrize("plot", PLOTS)
def test_optunas_own_plots_of_a_copy(mixed, plot):
    _, study = mixed
    pytest.importorskip(
        "plotly", reason="plotly, which optuna.visualization draws with, is missing"
    )
    figure = getattr(optuna.visualization, plot)(study)
    assert figure.data and json.loads(figure.to_json())


@pytest.mark.parametrize("plot", PLOTS)
def test_optunas_own_plots_of_a_copy_in_matplotlib(mixed, plot):
    from matplotlib import pyplot

    _, study = mixed
    pyplot.switch_backend("agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        axes = getattr(optuna.visualization.matplotlib, plot)(study)
    try:
        assert any(ax.has_data() for ax in getattr(axes, "flat", [axes]))
    finally:
        pyplot.close("all")


@pytest.mark.slow
def test_optuna_dashboard_shows_a_copy(mixed):
    url, study = mixed
    pytest.importorskip("optuna_dashboard", reason="optuna-dashboard is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys, optuna_dashboard as d; d.run_server(sys.argv[1], '127.0.0.1', sys.argv[2])"
    command = [sys.executable, "-c", code, url, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def get(path):
        # Without the proxy that an environment may name.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/{path}", timeout=20) as answer:
            return answer.read().decode()

    try:
        end = time.monotonic() + 60
        while True:
            try:
                assert "<html" in get("dashboard")
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    server.kill()
                    pytest.fail(f"the dashboard does not answer: {server.communicate()[1]}")
                time.sleep(0.2)
        (listed,) = json.loads(get("api/studies"))["study_summaries"]
        assert listed["study_name"] == study.study_name and listed["directions"] == ["minimize"]
        detail = json.loads(get(f"api/studies/{listed['study_id']}?after=0"))
        losses = {t["number"]: t.get("values") for t in detail["trials"]}
        assert losses == {t.number: t.values for t in study.trials}
        verdicts = {
            t["number"]: [a["value"] for a in t["user_attrs"] if a["key"] == "verdict"]
            for t in detail["trials"]
        }
        known = {t.number: [t.user_attrs.get("verdict")] for t in study.trials[:24]}
        assert verdicts == {**known, 24: []}
        found = json.loads(get(f"api/studies/{listed['study_id']}/param_importances"))
        assert {p["name"] for p in found["param_importances"][0]} == {*MIXED, "seed"}
    finally:
        server.kill()
        server.communicate()


# ------------------------------------------------------------------------------ a real server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The URL of a PostgreSQL server that was started for this test, on a socket of its own."""
    driver = next((d for d in ("psycopg2", "psycopg") if importlib.util.find_spec(d)), None)
    if driver is None:
        pytest.skip("neither psycopg2 nor psycopg is installed")
    initdb, pg_ctl = shutil.which("initdb"), shutil.which("pg_ctl")
    if not (initdb and pg_ctl):
        pytest.skip("initdb and pg_ctl are not installed")
    prefix, folder = [], tmp_path_factory.mktemp("pg")
    if os.geteuid() == 0:
        # The server refuses to run as root.
        try:
            shutil.chown(folder, "postgres")
        except LookupError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        for parent in (folder, *folder.parents):
            if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 1:
                parent.chmod(parent.stat().st_mode | 1)
        prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        if not shutil.which("setpriv"):
            pytest.skip("PostgreSQL does not run as root, and there is no setpriv")
    data, quiet = str(folder / "data"), {"stdout": subprocess.DEVNULL, "check": True, "cwd": "/"}
    subprocess.run([*prefix, initdb, "-D", data, "-U", "me", "-A", "trust", "-N"], **quiet)
    options = f"-c listen_addresses='' -k {folder} -F"
    start = [*prefix, pg_ctl, "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(start, **quiet)
    yield f"postgresql+{driver}://me@/postgres?host={folder}", folder, prefix, pg_ctl
    subprocess.run([*prefix, pg_ctl, "-D", data, "-m", "immediate", "stop"], **quiet)


@pytest.mark.slow
def test_every_trial_arrives_in_postgresql_and_a_lost_server_ends_nothing(server, tmp_path):
    url, folder, prefix, pg_ctl = server
    result = stabsweep.sweep(
        MLP, "digits", SPACE, "sgd", folder=tmp_path / "run", storage=url, **TINY
    )
    check_copy(url, result)
    notes: list[str] = []
    copy = Mirror(url, "other", notes.append)
    data = str(folder / "data")
    pg = [*prefix, pg_ctl, "-D", data, "-w", "-l", str(folder / "log")]
    subprocess.run([*pg, "-m", "immediate", "stop"], check=True, cwd="/")
    copy.add(make_trial(0))
    copy.close()
    options = f"-c listen_addresses='' -k {folder} -F"
    subprocess.run([*pg, "-o", options, "start"], check=True, cwd="/", stdout=subprocess.DEVNULL)
    assert len(notes) == 2 and "fails" in notes[0] and "1 trials are not in" in notes[1]
