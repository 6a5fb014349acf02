"""A sweep that runs elsewhere, followed from its files: real sweeps in processes of their own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import stabsweep
from stabsweep import following
from stabsweep.cli import main
from stabsweep.following import Followed, follow
from stabsweep.store import read_config

TINY = [
    "model=mlp", "model.width=8", "model.depth=2", "horizon=20", "space=lr", "seeds=1",
    "engine.cohort_size=4", "executor=local", "device=cpu", "sampler=grid", "extend=false",
    "curvature=false", "stress=false",
]  # fmt: skip
LONG = [*TINY, "horizon=200", "num_trials=400", "progress=off"]


class Recorder:
    """A watcher that keeps what it is told."""

    def __init__(self):
        self.title, self.notes, self.told, self.num_stops = "", [], [], 0

    def start(self, title, progress):
        self.title = title

    def note(self, message):
        self.notes.append(message)

    def update(self, progress):
        self.told.append(progress)

    def stop(self):
        self.num_stops += 1


@contextlib.contextmanager
def started(words, **settings):
    """A command as a process of its own, which does not outlive the test."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
    with subprocess.Popen([sys.executable, "-m", "stabsweep", *words], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)


def num_lines(folder):
    path = folder / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def state_of(folder):
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()
    } | {"": folder.stat().st_mtime_ns}


def followed(folder):
    return Followed(folder, *following._read_config(folder))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main([*TINY, "num_trials=12", "progress=off", f"hydra.run.dir={folder}"]) in (0, 1)
    return folder


@pytest.fixture
def hasty(monkeypatch):
    """A second lasts a fiftieth of one."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.3)


@pytest.mark.slow
def test_a_sweep_is_watched_from_before_its_folder_is_there_to_its_answer(tmp_path):
    folder = tmp_path / "run"
    words = ["watch", str(folder), "wait=100", "progress=plain"]
    with started(words) as watching:
        asked = [*TINY, "horizon=150", "num_trials=120", "progress=off"]
        with started([*asked, f"hydra.run.dir={folder}"]) as sweep:
            answer, _ = sweep.communicate(timeout=120)
        out, said = watching.communicate(timeout=60)
    assert watching.returncode == sweep.returncode in (0, 1)
    lines = said.splitlines()
    assert lines[0] == "stabsweep: sgd on mlp, 120 trials"
    assert any(line.startswith("stabsweep: engine cohort: ") for line in lines)
    assert lines[-1].startswith("stabsweep 120/120 100% | ") and "edge " in lines[-1]
    # What the sweep itself has said, but for its time, which nobody wrote down.
    kept = [line for line in answer.splitlines() if not line.startswith("Took ")]
    assert out.splitlines() == kept


def test_a_finished_folder_is_answered_at_once_and_left_as_it_is(finished, capsys):
    before = state_of(finished)
    code = main(["watch", str(finished), "progress=plain"])
    said = capsys.readouterr()
    assert code in (0, 1) and not said.err
    assert said.out.startswith("sgd on mlp: ") and "\nTrials   12: " in said.out
    assert main(["watch", str(finished), "format=json"]) == code
    assert json.loads(capsys.readouterr().out)["trials"] == 12
    assert state_of(finished) == before


@pytest.mark.slow
def test_of_a_killed_sweep_it_says_how_long_it_is_silent_and_what_was_last(
    tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "run"
    with started([*LONG, f"hydra.run.dir={folder}"]) as sweep:
        wait_for(lambda: num_lines(folder) >= 6)
        sweep.send_signal(signal.SIGKILL)
        sweep.wait()
    before = state_of(folder)
    monkeypatch.setattr(following, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    recorder = Recorder()
    said = follow(folder, recorder, patience_seconds=5)
    whole = (folder / "records.jsonl").read_bytes().split(b"\n")[:-1]
    last = json.loads(whole[-1])
    seen = f"(last: trial {last['trial']}, {last['verdict']})"
    assert recorder.notes and recorder.num_stops == 1
    silent = [note for note in recorder.notes if note.startswith("nothing has been written for ")]
    # The second is as long after the first as that was after the last sign of life.
    assert 1 <= len(silent) <= 3 and all(seen in note for note in silent)
    assert all(note.endswith(f"go on with: stabsweep resume {folder}") for note in silent)
    assert recorder.told[-1].num_done == len(whole) and recorder.told[-1].eta_seconds is None
    assert isinstance(said, str) and seen in said
    assert main(["watch", str(folder), "progress=off", "patience=1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("stabsweep: watched no longer: nothing has been written for ")
    assert seen in err and err.count("\n") == 1
    assert state_of(folder) == before


@pytest.mark.slow
def test_ctrl_c_ends_the_watching_and_an_interrupted_sweep_says_so(tmp_path):
    folder = tmp_path / "run"
    with started([*LONG, f"hydra.run.dir={folder}"]) as sweep:
        with started(["watch", str(folder), "wait=100", "progress=plain"]) as watching:
            assert watching.stderr.readline() == "stabsweep: sgd on mlp, 400 trials\n"
            watching.send_signal(signal.SIGINT)
            out, err = watching.communicate(timeout=60)
            assert watching.returncode == 130 and not out
            assert err.splitlines()[-1] == "stabsweep: watched no longer; the sweep itself goes on"
        assert sweep.poll() is None
        wait_for(lambda: num_lines(folder) >= 6)
        with started(["watch", str(folder), "progress=plain"]) as watching:
            watching.stderr.readline()
            sweep.send_signal(signal.SIGINT)
            out, _ = watching.communicate(timeout=60)
        assert sweep.wait() == watching.returncode == 130
    done = num_lines(folder)
    assert out == f"interrupted after {done} of 400; resume with: stabsweep resume {folder}\n"


def test_a_sweep_that_is_gone_on_with_has_not_ended(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    records = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "records.jsonl").write_bytes(b"".join(records[:8]))
    seen = []

    class Watching(Recorder):
        def start(self, title, progress):
            one = followed(folder)
            one.look()
            seen.append((one.has_ended, one.progress().num_done))

    stabsweep.resume(folder, Watching())
    assert seen == [(False, 8)]
    one = followed(folder)
    one.look()
    assert one.has_ended and one.progress().num_done == 12


def test_lines_that_are_not_whole_are_read_when_they_are(finished, tmp_path):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    path = folder / "records.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"")
    one = followed(folder)
    one.look()
    assert one.progress().num_done == 0 and not one.has_ended

    def grown(content):
        path.write_bytes(content)
        one.look()
        return one.progress().num_done, one.take_notes()

    first = b"".join(lines[:4])
    one.take_notes()
    assert grown(first + lines[4][:-30]) == (4, [])
    assert grown(b"".join(lines[:5])) == (5, [])
    # As a shared disk shows what has not arrived: zeros, later the bytes themselves.
    assert grown(b"".join(lines[:6]) + b"\0" * (len(lines[6]) - 1) + b"\n" + lines[7]) == (6, [])
    one.look()
    (note,) = one.take_notes()
    assert note.startswith("records.jsonl has a broken line after 6 trials")
    one.look()
    assert one.take_notes() == []
    assert grown(b"".join(lines[:8])) == (8, [])
    # Another file in its place, shorter and with other lines.
    assert grown(b"".join(lines[2:5])) == (3, [])
    assert grown(whole) == (12, [])
    assert one.has_ended


def test_what_cannot_be_read_for_a_moment_waits(finished, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    one = followed(folder)
    one.look()
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config[:40])
    one.look()
    assert one.progress().num_done == 12
    (folder / "config.yaml").write_text(config.replace("num_planned: 12", "num_planned: 20"))
    one.look()
    assert one.progress().num_trials == 20
    away = folder.with_name("away")
    folder.rename(away)
    monkeypatch.setattr(following, "QUIET_SECONDS", 0.0)
    one.look()
    assert one.progress().num_done == 12 and f"{folder} is gone" in one.silence


def test_all_trials_done_and_no_answer_is_said_to_be_the_tests_of_the_pick(
    finished, tmp_path, hasty
):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "pick.yaml").unlink()
    recorder = Recorder()
    said = follow(folder, recorder, patience_seconds=0.6)
    assert "all trials have ended, so the pick may be in its tests" in said
    assert recorder.told[-1].num_done == recorder.told[-1].num_trials == 12


def test_what_is_no_folder_of_a_sweep_is_one_line(tmp_path, capsys, hasty):
    run = tmp_path / "guarded"
    run.mkdir()
    (run / "steps.jsonl").touch()
    cases = {
        ("missing",): "is no folder: give the result folder of a sweep; wait=SECONDS waits",
        (".",): "it has no config.yaml; wait=SECONDS waits until it is one",
        ("missing", "wait=1"): "is no folder",
        ("guarded",): "is that of a guarded run, whose state is printed by: stabsweep report",
        (".", "wait=soon"): "wait=soon is not a whole number",
        (".", "wait=-1"): "wait=-1 is not allowed: give seconds, 0 or more",
        (".", "progress=loud"): "",
    }
    for (name, *more), part in cases.items():
        assert main(["watch", str(tmp_path / name), *more]) == 2
        err = capsys.readouterr().err
        assert err.startswith("stabsweep: ") and err.count("\n") == 1 and part in err
    assert [path.name for path in tmp_path.iterdir()] == ["guarded"]


def test_a_config_without_what_is_needed_is_one_line(finished, tmp_path, capsys):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    config = read_config(folder)
    for key in ("num_planned", "space", "margin_decades"):
        rest = {name: value for name, value in config.items() if name != key}
        (folder / "config.yaml").write_text(json.dumps(rest))
        assert main(["watch", str(folder)]) == 2
        assert f"config.yaml lacks the key '{key}'\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "is_live", "has_colour"),
    [({}, True, True), ({"NO_COLOR": "1"}, True, False), ({"CI": "true"}, False, False)],
)
def test_on_a_real_terminal(finished, tmp_path, variables, is_live, has_colour):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "pick.yaml").unlink()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 80, 0, 0))
    hidden = ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    names = {key: value for key, value in os.environ.items() if key not in hidden}
    settings = {"env": {**names, "TERM": "xterm-256color", **variables}, "start_new_session": True}
    screen = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with started(["watch", str(folder), "patience=3"], **screen, **settings) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed.
            while chunk := os.read(ours, 65536):
                shown += chunk
        process.wait(timeout=60)
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 1 and "sgd on mlp" in text and "watched no longer" in text
    assert ("\x1b[?25l" in text) == is_live and ("48;5;" in text) == has_colour
    assert ("━" in text) == is_live and ("stabsweep 12/12 100% | " in text) != is_live
    if is_live:
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
