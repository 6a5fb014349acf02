import builtins
import errno
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from stabsweep.errors import BadInput
from stabsweep.plain import cut_torn_line
from stabsweep.records import Record, Verdict
from stabsweep.store import (
    Store,
    as_table,
    read_config,
    read_environment,
    read_notes,
    read_records,
    read_trace,
    save_outcome,
)
from tests.traces import make_trace

ROOT = Path(__file__).resolve().parents[1]

CONFIG = {
    "model": {"name": "mlp", "width": 64},
    "space": {"lr": {"low": 1e-05, "high": 1.0, "scale": "log"}, "clip_norm": [0.1, None]},
    "init": "normal(0.02)",
    "clip_norm": None,
    "margin_decades": 0.2,
    "seeds": (0, 1),
    "schedule": "off",
    "tiny": 5e-324,
    "whole": 1e22,
    "text": "1e-3",
    "yes": True,
    "more": "a: b # c\n– é",
}


def record(number, **known) -> Record:
    return Record(number, {"lr": 0.1 * number, "clip_norm": None}, 0, Verdict.SPIKY, **known)


def new(folder, config=CONFIG, environment=None) -> Store:
    return Store(folder, config, environment or {"python": "3"})


def refusal(function, *args) -> str:
    with pytest.raises(BadInput) as caught:
        function(*args)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ------------------------------------------------------------------------------ round trips


def test_records_are_read_back_as_they_were_written_in_the_order_of_their_trials(tmp_path):
    store = new(tmp_path)
    records = [record(n, final_loss=0.1 + 0.2, reason="a – b\n\u2028c") for n in (2, 0, 1)]
    for one in records:
        store.append(one)
    # Without closing: every record is in the file at once.
    assert read_records(tmp_path) == sorted(records, key=lambda r: r.trial)
    store.close()


def test_what_is_not_finite_is_null_in_the_file(tmp_path):
    store = new(tmp_path)
    store.append(record(0, final_loss=math.nan, peak_loss=math.inf))
    store.close()
    text = (tmp_path / "records.jsonl").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads(text)["final_loss"] is None


def test_the_config_is_read_back_as_it_was_written(tmp_path):
    new(tmp_path).close()
    assert read_config(tmp_path) == {**CONFIG, "seeds": [0, 1]}
    assert list(read_config(tmp_path)) == list(CONFIG)
    assert read_environment(tmp_path) == {"python": "3"}


def test_numbers_with_an_exponent_are_numbers_however_they_are_written(tmp_path):
    new(tmp_path).close()
    words = {"1e-3": 1e-3, "1E-3": 1e-3, "1e3": 1e3, "1.0e3": 1e3, "1e+3": 1e3, ".5e-1": 0.05}
    words |= {"-2.e5": -2e5, "10": 10, "0.1": 0.1}
    lines = [f"- {word}" for word in words]
    (tmp_path / "config.yaml").write_text("\n".join(["a: 1e-3", "b:", *lines, "c: '1e-3'"]))
    found = read_config(tmp_path)
    assert found == {"a": 1e-3, "b": list(words.values()), "c": "1e-3"}
    (tmp_path / "config.yaml").write_text("a: e3\nb: 1e\nc: 1e3x\nd: 0x1e3\ne: 1.2.3\n")
    assert list(read_config(tmp_path).values()) == ["e3", "1e", "1e3x", 0x1E3, "1.2.3"]


def test_text_that_looks_like_a_number_stays_text(tmp_path):
    config = {word: [word] for word in ("1e-3", "1E3", "1.5e2", "-1e5", "1e3x", "07", "on")}
    new(tmp_path, config).close()
    assert read_config(tmp_path) == config


def test_a_machine_whose_numbers_are_not_finite_can_be_written_down(tmp_path):
    new(tmp_path, CONFIG, {"load": [math.nan, math.inf, 0.5], "speed": np.float32(2)}).close()
    assert read_environment(tmp_path) == {"load": [None, None, 0.5], "speed": 2.0}


def test_notes_are_kept_a_line_each_and_said_once(tmp_path):
    assert read_notes(tmp_path) == []
    for _ in range(2):
        store = new(tmp_path)
        store.note("engine loop: it draws\nrandom numbers – é")
        store.note("out of memory")
        store.close()
    assert read_notes(tmp_path) == ["engine loop: it draws random numbers – é", "out of memory"]


def test_numpy_numbers_in_a_config_become_plain_ones(tmp_path):
    rates = list(np.geomspace(1e-3, 1, 3))
    new(tmp_path, {"space": {"lr": rates}, "seeds": np.int64(3)}).close()
    assert read_config(tmp_path) == {"space": {"lr": [float(r) for r in rates]}, "seeds": 3}


def test_an_opened_folder_keeps_its_config_and_its_records(tmp_path):
    first = new(tmp_path)
    first.append(record(0))
    first.close()
    second = new(tmp_path, {"other": 1}, {"other": 2})
    second.append(record(1))
    second.close()
    assert read_config(tmp_path) == {**CONFIG, "seeds": [0, 1]}
    assert read_environment(tmp_path) == {"python": "3"}
    assert [r.trial for r in read_records(tmp_path)] == [0, 1]


def test_a_trace_is_read_back_with_its_infinities(tmp_path):
    trace = make_trace([1.0, math.inf, math.nan], grad_norm=[1.0, 2.0, math.nan])
    store = new(tmp_path)
    places = [store.save_trace(make_trace([1.0, 0.5])), store.save_trace(trace)]
    store.close()
    assert places[0] == "traces.npy@0"
    curves = read_trace(tmp_path, record(12, trace=places[1]))
    assert np.array_equal(curves, trace.stacked(), equal_nan=True)
    with open(tmp_path / "traces.npy", "rb") as file:
        assert np.load(file).shape == (5, 2)
        assert np.array_equal(np.load(file), trace.stacked(), equal_nan=True)
    assert read_trace(tmp_path, record(13)) is None


def test_a_trace_in_a_file_of_its_own_is_read_as_older_folders_have_it(tmp_path):
    trace = make_trace([1.0, 0.5])
    (tmp_path / "traces").mkdir()
    np.save(tmp_path / "traces" / "000012.npy", trace.stacked())
    curves = read_trace(tmp_path, record(12, trace="traces/000012.npy"))
    assert np.array_equal(curves, trace.stacked(), equal_nan=True)
    assert read_trace(tmp_path, record(13, trace="traces/000013.npy")) is None


@pytest.mark.parametrize("num_torn", [1, 100, 140])
def test_curves_that_were_torn_harm_no_others(tmp_path, num_torn):
    store = new(tmp_path)
    first = store.save_trace(make_trace([1.0, 0.5]))
    store.save_trace(make_trace([2.0, 0.5]))
    store.close()
    path = tmp_path / "traces.npy"
    path.write_bytes(path.read_bytes()[:-num_torn])
    store = new(tmp_path)
    last = store.save_trace(make_trace([3.0, 0.5]))
    store.close()
    losses = [read_trace(tmp_path, record(0, trace=place))[0, 0] for place in (first, last)]
    assert losses == [1.0, 3.0]


def test_the_table_has_a_column_for_every_axis_and_every_number(tmp_path):
    table = as_table([record(0, final_loss=0.5), record(1, final_loss=math.nan)])
    assert list(table.columns[:4]) == ["trial", "lr", "clip_norm", "seed"]
    assert list(table["verdict"]) == ["spiky", "spiky"] and math.isnan(table["final_loss"][1])
    save_outcome(tmp_path, [record(0), record(1)], {"lr": 1e-05, "edge": {"low": None}})
    assert len(pd.read_csv(tmp_path / "trials.csv")) == 2
    assert yaml.safe_load((tmp_path / "pick.yaml").read_text())["lr"] == 1e-05
    assert not list(tmp_path.glob("*.part"))


# ------------------------------------------------------------------------------ broken files


def test_a_torn_last_line_is_left_out_and_cut_off_when_the_folder_is_opened_again(tmp_path):
    store = new(tmp_path)
    store.append(record(0))
    store.append(record(1))
    store.close()
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) - 30, whole.index(b"\n") + 1, 5, 0):
        path.write_bytes(whole[:length])
        known = whole[:length].count(b"\n")
        assert [r.trial for r in read_records(tmp_path)] == list(range(known))
        store = new(tmp_path)
        store.append(record(7))
        store.close()
        assert [r.trial for r in read_records(tmp_path)] == [*range(known), 7]


def test_cutting_leaves_whole_lines_and_missing_files_alone(tmp_path):
    path = tmp_path / "records.jsonl"
    cut_torn_line(path)
    assert not path.exists()
    path.write_bytes(b"a\nb\n")
    cut_torn_line(path)
    assert path.read_bytes() == b"a\nb\n"


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b"[]", b"3", b"null", b'"text"', b"\xff\xfe", b"{}", b'{"trial": 1}']
    + [b'{"trial": 1, "point": {"lr": 1}, "seed": 0, "verdict": "exploded"}']
    + [b'{"trial": [1], "point": {"lr": 1}, "seed": 0, "verdict": "spiky"}']
    + [b'{"trial": 1, "point": null, "seed": 0, "verdict": "spiky"}'],
)
def test_a_broken_line_that_is_not_the_last_is_named(tmp_path, broken):
    store = new(tmp_path)
    store.append(record(0))
    store.close()
    path = tmp_path / "records.jsonl"
    line = path.read_bytes()
    path.write_bytes(line + broken + b"\n" + line)
    message = refusal(read_records, tmp_path)
    assert f"{path}, line 2 is broken" in message and "remove that line" in message


def test_a_folder_that_is_no_sweeps_is_refused(tmp_path):
    assert "no result folder: it has no records.jsonl" in refusal(read_records, tmp_path)
    assert "no result folder: it has no config.yaml" in refusal(read_config, tmp_path)
    assert "is no folder" in refusal(read_config, tmp_path / "nowhere")
    assert read_environment(tmp_path) == {}
    for text in (b"a: [", b"- 1\n", b"", b"\xff\xfe\x00a"):
        (tmp_path / "config.yaml").write_bytes(text)
        assert "config.yaml is not" in refusal(read_config, tmp_path)


# ------------------------------------------------------------------------------ disks


@pytest.mark.parametrize("below", ["file", "file/deep/er"])
def test_a_folder_that_cannot_be_made_is_answered_with_what_to_do(tmp_path, below):
    (tmp_path / "file").write_text("")
    message = refusal(new, tmp_path / below)
    assert message.startswith(f"cannot write results to {tmp_path / below}: ")
    assert "hydra.run.dir" in message


def test_a_disk_that_is_full_at_the_start_is_answered_with_what_to_do(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(builtins, "open", refuse)
    assert "No space left on device" in refusal(new, tmp_path / "new")


def test_a_config_that_could_not_be_written_whole_is_not_there(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", refuse)
    refusal(new, tmp_path)
    assert not (tmp_path / "config.yaml").exists()


FILL = """
import resource, sys
from pathlib import Path
from stabsweep.records import Record, Verdict
from stabsweep.store import Store

store = Store(Path(sys.argv[1]), {}, {})
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
for number in range(100):
    try:
        store.append(Record(number, {"lr": 0.1}, 0, Verdict.SPIKY))
    except OSError:
        store.close()
        print(number)
        break
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on file sizes")
def test_a_disk_that_fills_up_loses_nothing_that_was_recorded(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    num_kept = int(done.stdout)
    assert num_kept > 1
    assert [r.trial for r in read_records(tmp_path)] == list(range(num_kept))
    store = new(tmp_path)
    store.append(record(num_kept))
    store.close()
    assert [r.trial for r in read_records(tmp_path)] == list(range(num_kept + 1))


WRITE = """
import sys
from pathlib import Path
import numpy as np
from stabsweep.records import Record, Trace, Verdict
from stabsweep.store import Store, read_records

folder = Path(sys.argv[1])
store = Store(folder, {"a": 1}, {})
number = len(read_records(folder))
while True:
    curves = [np.full(number % 5000 + 1, number, float)] * 5
    trace = Trace(*curves, initial_loss=1.0, blind_loss=None, horizon=5000)
    place = store.save_trace(trace)
    store.append(Record(number, {"lr": 0.1}, 0, Verdict.SPIKY, reason="x" * 999, trace=place))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_process_that_is_killed_loses_nothing_that_was_recorded(tmp_path):
    draw = random.Random(0)
    num_known = 0
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", WRITE, str(tmp_path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.1))
            child.send_signal(signal.SIGKILL)
            told = child.stdout.read().splitlines()
        records = read_records(tmp_path)
        assert [r.trial for r in records] == list(range(len(records)))
        assert len(records) > num_known
        for known in records:
            curves = read_trace(tmp_path, known)
            assert curves.shape == (5, known.trial % 5000 + 1) and (curves == known.trial).all()
        assert not told or len(records) > int(told[-1])
        num_known = len(records)
        cut_torn_line(tmp_path / "records.jsonl")
        assert len(read_records(tmp_path)) == num_known
