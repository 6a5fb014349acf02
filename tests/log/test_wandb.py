"""Read back from the files that wandb itself syncs, by its own definition of a record."""

from __future__ import annotations

import json
import struct

import pytest

import stabsweep
from stabsweep import log

wandb = pytest.importorskip(
    "wandb", reason="Weights & Biases (70 MB) is not installed: pip install wandb"
)

pytestmark = [
    pytest.mark.slow,
    # Of wandb's own modules.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Its service is a process that outlives the test, and is told to end when Python does.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BLOCK, HEADER = 32768, 7


def records_of(path):
    """The records of a .wandb file, which is a log of LevelDB with seven bytes before it."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), HEADER, b""
    assert data.startswith(b":W&B")
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def read(path):
    """Name, group, config, history and summary of a run."""
    found = {"history": [], "summary": {}, "config": {}}
    for record in records_of(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {"name": record.run.display_name, "group": record.run.run_group}
            items = record.run.config.update
            found["config"] |= {item.key: json.loads(item.value_json) for item in items}
        elif kind == "history":
            items = record.history.item
            row = {(i.key or ".".join(i.nested_key)): json.loads(i.value_json) for i in items}
            found["history"].append(row)
        elif kind == "summary":
            for item in record.summary.update:
                key = item.key or ".".join(item.nested_key)
                found["summary"][key] = json.loads(item.value_json)
    return found


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_everything_is_read_back(folder):
    result = stabsweep.load(folder)
    entry = log.make_entry(result)
    lines = [list(log.write(["wandb"], result)) for _ in range(2)]
    assert lines[0] == lines[1]
    assert lines[0][1].endswith(f"trials: wandb sync '{folder}/wandb'/offline-run-*")
    paths = list((folder / "wandb").glob("offline-run-*/*.wandb"))
    runs = {run["name"]: run for run in map(read, paths)}
    assert len(paths) == len(runs) == 1 + len(entry.trials)
    assert {run["group"] for run in runs.values()} == {"a sweep"}
    sweep = runs["a sweep"]
    assert sweep["summary"]["answer"] == entry.answer
    (picture,) = (folder / "wandb").glob("offline-run-*/files/media/images/*.png")
    assert picture.read_bytes() == (folder / "map.png").read_bytes()
    for trial in entry.trials:
        run = runs[trial.name]
        assert run["config"]["lr"] == trial.hyperparameters["lr"]
        assert run["summary"]["verdict"] == trial.hyperparameters["verdict"]
        assert run["summary"]["final/stable"] == trial.metrics["stable"]
        for name, curve in trial.curves.items():
            found = [(row["_step"], row[name]) for row in run["history"] if name in row]
            assert found == list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
    assert any("diverged" in name for name in runs)


def test_what_the_user_has_said_of_the_mode_holds(folder, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    lines = list(log.write(["wandb"], stabsweep.load(folder)))
    assert lines[1].endswith("trials: WANDB_MODE=disabled, group a sweep")
    assert not list(folder.glob("wandb/offline-run-*"))
