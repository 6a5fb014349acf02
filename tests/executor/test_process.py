from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import stabsweep
from stabsweep.engine import Cohort
from stabsweep.errors import BadInput
from stabsweep.executor import Local, Process, local
from stabsweep.store import read_trace
from tests.executor.test_local import MIXED, TRIALS, assert_equal, sweep
from tests.laws import make_setup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it forks")

ROOT = Path(__file__).resolve().parents[2]


def plain_setup(split):
    return make_setup("vector", split.get("optimizer", "sgd"), dtype=torch.float32)


def made(kind, notes=None, cohort_size=4, engine="cohort", splitting=(), setup=plain_setup, **more):
    notes = [] if notes is None else notes
    return kind(setup, splitting, engine, cohort_size, notes.append, **more)


@pytest.fixture
def make():
    """Makes executors of two processes, and ends them."""
    with contextlib.ExitStack() as stack:

        def of(notes=None, num_workers=2, **how):
            found = made(Process, notes, num_workers=num_workers, **how)
            stack.callback(found.close)
            return found

        yield of


@pytest.fixture(scope="module")
def expected():
    return sweep(made(Local, cohort_size=64), TRIALS)


def pids(executor):
    return [worker.pid for worker in executor.workers]


def is_alive(pid):
    """Whether a process runs; one that has ended and was not asked for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def wait_until(is_so, seconds=60):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, "it has not come to pass"
        time.sleep(0.02)


# ------------------------------------------------------------------------------ as Local does


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize("cohort_size", [1, 4, 100])
def test_processes_change_nothing(make, num_workers, cohort_size, expected):
    assert_equal(sweep(make(num_workers=num_workers, cohort_size=cohort_size), TRIALS), expected)


def story(executor, trials, rung_steps, is_dropped):
    """All that a sweep could see of an executor."""
    waiting, told = deque(trials), []
    while True:
        room = executor.num_free
        executor.admit([waiting.popleft() for _ in range(min(room, len(waiting)))])
        told.append((room, executor.num_running))
        if not executor.num_running:
            return told
        for chunk in executor.advance(rung_steps):
            told.append((chunk.trial, chunk.start_step, chunk.curves.tolist(), chunk.is_done))
            if is_dropped(chunk):
                executor.drop(chunk.trial)


def some(chunk):
    return not chunk.is_done and chunk.trial % 3 == 0 and chunk.start_step >= chunk.trial


@pytest.mark.parametrize("rung_steps", [1, 5, 12, 100])
@pytest.mark.parametrize("trials, splitting", [(TRIALS, ()), (MIXED, ("optimizer",))])
def test_a_sweep_sees_what_it_would_see_of_one_process(make, trials, splitting, rung_steps):
    """The same trials at the same moments: else a sampler would ask for other points."""
    here = story(made(Local, splitting=splitting), trials, rung_steps, some)
    there = story(make(num_workers=3, splitting=splitting), trials, rung_steps, some)
    assert there == here
    assert any(len(entry) == 4 and entry[3] for entry in here)


def test_the_trials_of_a_rung_are_told_by_number_and_by_as_many_steps(make):
    for executor in (made(Local), make()):
        executor.admit(TRIALS[:2])
        executor.advance(7)
        executor.admit([TRIALS[3], TRIALS[2]])
        # The first two end after five steps, and leave the others the rest of the rung.
        chunks = executor.advance(7)
        assert [chunk.trial for chunk in chunks] == [0, 1, 2, 3]
        assert [chunk.curves.shape[1] for chunk in chunks] == [5, 5, 7, 7]
        assert [chunk.start_step for chunk in chunks] == [7, 7, 0, 0]


def test_trials_are_shared_out_evenly_and_a_kind_stays_together(make):
    executor = make(cohort_size=6, splitting=("optimizer",))
    executor.admit([trial for trial in MIXED if trial.point["optimizer"] != "adamw"][:6])
    executor.advance(5)
    kinds = [
        sorted({trial.point["optimizer"] for trial in place.training.values()})
        for place in executor._places
    ]
    assert kinds == [["sgd"], ["adam"]]
    assert [len(place.training) for place in executor._places] == [3, 3]
    executor.drop(0)
    executor.drop(3)
    executor.admit([replace(TRIALS[k], point=MIXED[0].point) for k in (8, 10)])
    executor.advance(5)
    assert [len(place.training) for place in executor._places] == [3, 3]


def test_a_trial_is_dropped_whether_it_trains_or_waits(make):
    executor = make(cohort_size=2)
    executor.admit(TRIALS[:4])
    executor.advance(1)
    for number in (3, 0, 77):
        executor.drop(number)
    assert executor.num_running == 2
    seen = set()
    while executor.num_running:
        seen |= {chunk.trial for chunk in executor.advance(5)}
    assert seen == {1, 2}


def test_trials_that_are_trained_one_by_one_are_so_in_every_process(make, expected):
    notes = []
    executor = make(notes, engine="loop")
    executor.admit(TRIALS[:4])
    assert [len(executor.advance(5)) for _ in range(3)] == [2, 2, 2]
    assert (executor.num_free, executor.num_running) == (0, 2)
    assert [chunk.trial for chunk in executor.advance(5)] == [1, 3]
    assert notes == ["engine loop: one trial at a time, as asked"]
    looped = sweep(make(engine="loop"), TRIALS)
    for number, run in expected.items():
        np.testing.assert_allclose(looped[number].curves, run.curves, rtol=1e-4)


def test_a_process_chooses_its_engine_by_the_trials_of_all(make, monkeypatch):
    """The second process has none of those that the first would choose by."""

    def build(name, setup, trials, capacity):
        numbers = sorted(trial.number for trial in trials)
        return Cohort(setup, capacity), f"cohort: chosen by {numbers}"

    monkeypatch.setattr(local, "build", build)
    notes = []
    executor = make(notes)
    executor.admit(TRIALS[:4])
    executor.advance(5)
    assert notes == ["engine cohort: chosen by [0, 1, 2, 3]"]


def test_memory_that_runs_out_in_a_process_halves_its_cohort(make, monkeypatch, expected):
    class Small(Cohort):
        def advance(self, num_steps):
            if len(self.trials) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().advance(num_steps)

    monkeypatch.setattr(local, "build", lambda *given: (Small(given[1], given[3]), "cohort"))
    notes = []
    assert_equal(sweep(make(notes, cohort_size=8), TRIALS), expected)
    assert notes == [
        "engine cohort",
        "out of memory: going on with cohorts of 4 trials",
        "out of memory: going on with cohorts of 2 trials",
    ]


def test_a_trial_that_does_not_fit_alone_ends_the_sweep_with_what_to_do(make, monkeypatch):
    class Full(Cohort):
        def advance(self, num_steps):
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(local, "build", lambda *given: (Full(given[1], given[3]), "cohort"))
    notes = []
    executor = make(notes, cohort_size=2)
    executor.admit(TRIALS)
    with pytest.raises(BadInput, match="out of memory with a single trial: lower .* batch_size"):
        while True:
            executor.advance(5)
    assert notes == ["engine cohort", "out of memory: going on with cohorts of 1 trials"]


# ------------------------------------------------------------------------------ errors


class OwnError(Exception):
    """Of the kind that cannot be made again from what it keeps."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


@pytest.mark.parametrize(
    "error, kind, message",
    [
        (BadInput("batch_size=0 is not allowed: raise it"), BadInput, "batch_size=0 is not"),
        (KeyError("weight"), KeyError, "weight"),
        (OwnError(1, 2), RuntimeError, "OwnError: 1 and 2"),
    ],
)
def test_an_error_is_raised_as_it_was_and_says_where(make, error, kind, message):
    def fail(split):
        raise error

    executor = make(setup=fail)
    executor.admit(TRIALS)
    with pytest.raises(kind, match=message) as caught:
        executor.advance(5)
    assert "in fail" in str(caught.value.__cause__)


def test_an_error_of_the_model_ends_the_trial_that_met_it(make):
    setup = make_setup("vector", dtype=torch.float32)

    def build():
        if torch.initial_seed() == 5:
            raise ValueError("no such weight")
        return setup.build_model()

    executor = make(engine="loop", setup=lambda split: replace(setup, build_model=build))
    executor.admit([replace(TRIALS[0], seed=0)])
    executor.advance(1)
    executor.admit([replace(TRIALS[1], seed=5)])
    with pytest.raises(ValueError, match="no such weight"):
        executor.advance(1)


def test_what_a_model_prints_is_printed_once(capfd, make):
    def speak(split):
        print("made in a process")
        return plain_setup(split)

    print("said before", end=" ")
    executor = make(setup=speak, num_workers=2)
    executor.admit(TRIALS[:1])
    executor.advance(5)
    executor.close()
    sys.stdout.flush()
    out = capfd.readouterr().out
    assert out.count("said before") == out.count("made in a process") == 1


# ------------------------------------------------------------------------------ deaths


def test_a_process_that_is_killed_is_replaced_and_its_trials_begin_again(make, expected):
    notes, kills = [], []
    executor = make(notes, cohort_size=6)

    def kill():
        if len(kills) < 3:
            kills.append(pids(executor)[len(kills) % 2])
            os.kill(kills[-1], signal.SIGKILL)

    assert_equal(sweep(executor, TRIALS, check=kill), expected)
    assert len(set(kills)) == 3 and not any(map(is_alive, kills))
    died = [note for note in notes if "died" in note]
    assert died == 3 * [
        "executor: a process died (killed by SIGKILL); what it trained (3 trials) begins again"
    ]


def test_a_process_that_dies_in_its_work_is_replaced(make, expected):
    """It is stopped, so that it dies for certain after it was given trials."""
    executor = make(cohort_size=11)
    executor.admit(TRIALS)
    victim = pids(executor)[0]
    os.kill(victim, signal.SIGSTOP)
    killer = subprocess.Popen([sys.executable, "-c", f"""
import os, time
time.sleep(0.5)
os.kill({victim}, 9)
"""])  # fmt: skip
    first = executor.advance(5)
    killer.wait()
    assert sorted(chunk.trial for chunk in first) == list(range(6, 11))
    second = executor.advance(5)
    assert [chunk.start_step for chunk in second] == [0] * 6 + [5] * 5
    assert np.array_equal(second[0].curves, expected[0].curves[:, :5])


def segfault():
    faulthandler.disable()  # pytest's would print a page.
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize("engine", ["cohort", "loop"])
@pytest.mark.parametrize(
    "end, why",
    [
        (segfault, "killed by SIGSEGV"),
        (lambda: os._exit(3), "exit code 3"),
    ],
)
def test_a_trial_that_ends_its_process_fails_and_takes_no_other_along(make, engine, end, why):
    setup = make_setup("vector", dtype=torch.float32)

    def build():
        if torch.initial_seed() == 5:
            end()
        return setup.build_model()

    notes = []
    trials = [replace(trial, seed=5 if trial.number == 2 else 0) for trial in TRIALS[:8]]
    executor = make(notes, engine=engine, setup=lambda _: replace(setup, build_model=build))
    executor.admit(trials)
    done, errors = {}, {}
    while executor.num_running:
        for chunk in executor.advance(100):
            done[chunk.trial] = done.get(chunk.trial, 0) + chunk.is_done
            errors |= {chunk.trial: chunk.error} if chunk.error else {}
    assert done == dict.fromkeys(range(8), 1)
    ((number, error),) = errors.items()
    assert number == 2 and why in error and "with this trial alone" in error
    assert 1 <= sum(why in note for note in notes) <= 4


def test_a_process_that_always_dies_ends_every_trial_and_nothing_loops(make):
    def end(split):
        os._exit(1)

    executor = make(setup=end)
    executor.admit(TRIALS[:3])
    failed = []
    while executor.num_running:
        failed += [chunk.trial for chunk in executor.advance(5) if chunk.error]
    assert sorted(failed) == [0, 1, 2]


def test_closing_ends_the_processes_and_leaves_no_zombie():
    executor = made(Process, num_workers=2)
    executor.admit(TRIALS)
    executor.advance(5)
    known = pids(executor)
    assert all(map(is_alive, known))
    executor.close()
    executor.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in known)


# ------------------------------------------------------------------------------ whole sweeps

SEARCH = {
    "model": {"name": "mlp", "width": 8, "depth": 2},
    "task": "digits",
    "space": {"lr": {"low": 1e-3, "high": 1e3}, "momentum": [0.0, 0.9]},
    "optimizer": "sgd",
    "horizon": 25,  # Not a multiple of a rung, so that trials get out of step.
    "rung_steps": 4,
    "num_trials": 40,
    "batch_size": 16,
    "cohort_size": 9,
    "device": "cpu",
    "curvature": False,
    "watcher": "off",
}


def remembered(result):
    return [
        {key: value for key, value in record.as_dict().items() if key != "seconds"}
        for record in result.region.records
    ]


@pytest.mark.slow
def test_a_sweep_finds_the_same_wherever_it_trains(tmp_path):
    """Points, verdicts, curves and the pick; here every executor has one thread to a trial."""
    optimizers = {"lr": SEARCH["space"]["lr"], "optimizer": ["sgd", "lion"]}
    falls = {**SEARCH, "model": "vector", "task": "quadratic"}
    for name, given in {"falls": falls, "kinds": {**SEARCH, "space": optimizers}}.items():
        folders = [tmp_path / f"{name}-{where}" for where in ("here", "there")]
        here = stabsweep.sweep(**given, executor="local", folder=folders[0])
        there = stabsweep.sweep(**given, executor="process", workers=3, folder=folders[1])
        assert remembered(here) == remembered(there) and here.pick == there.pick
        states = {record.state for record in here.region.records}
        assert "complete" in states and ("pruned" in states or name == "kinds")
        assert [proof.record.lr for proof in here.proofs] == [p.record.lr for p in there.proofs]
        assert here.config == there.config
        assert "executor: 3 processes, one thread each" in there.notes
        for ours, theirs in zip(here.region.records, there.region.records, strict=True):
            curves = read_trace(folders[0], ours), read_trace(folders[1], theirs)
            assert np.array_equal(*curves, equal_nan=True)


def test_a_sweep_is_gone_on_with_by_another_executor(tmp_path):
    given = {**SEARCH, "sampler": "grid", "num_trials": 16, "confirm": False, "stress": False}
    whole = stabsweep.sweep(**given, executor="local")
    given["folder"] = tmp_path / "run"
    stabsweep.sweep(**given, executor="process", workers=2)
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run" / "records.jsonl").write_text("".join(lines[:7]))
    stabsweep.sweep(**given, executor="local")
    (tmp_path / "run" / "records.jsonl").write_text("".join(lines[:3]))
    again = stabsweep.resume(tmp_path / "run", "off", executor="process", workers=3)
    losses = [(r.trial, r.verdict, r.final_loss) for r in whole.region.records]
    assert [(r.trial, r.verdict, r.final_loss) for r in again.region.records] == losses
    assert "executor: 3 processes, one thread each" in again.notes


SWEEP = """
import torch, stabsweep
{before}
stabsweep.sweep(
    {{"name": "mlp", "width": 16}}, "digits", {{"lr": {{"low": 1e-3, "high": 1e2}}}}, "sgd",
    horizon={horizon}, num_trials=200, device="cpu", watcher="off", folder={folder!r},
    executor="process", workers=2,
)
"""


def start(folder, horizon=400, before="", **more):
    code = SWEEP.format(folder=str(folder), horizon=horizon, before=before)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **more)


def num_records(folder):
    path = folder / "records.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_process_behind(tmp_path):
    process = start(tmp_path / "run")
    wait_until(lambda: num_records(tmp_path / "run") > 2)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.slow
def test_ctrl_c_reaches_all_and_the_sweep_decides(tmp_path):
    """A terminal sends it to every process of the group."""
    folder = tmp_path / "run"
    ask = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = start(folder, before=ask, start_new_session=True, stderr=subprocess.PIPE)
    wait_until(lambda: num_records(folder) > 2)
    workers = children(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (0, "")
    assert not any(map(is_alive, workers))
    assert (folder / "pick.yaml").exists() and num_records(folder) < 200


THREADS = """
import numpy as np, torch
from torch.func import grad, vmap
torch.set_num_threads(2)
x = torch.randn(600, 600, requires_grad=True)
torch.utils.checkpoint.checkpoint(lambda x: (x @ x).tanh(), x, use_reentrant=False).sum().backward()
vmap(grad(lambda w, x: (x @ w).tanh().sum()), (0, None))(torch.randn(8, 600, 600), x.detach())
np.linalg.svd(np.random.default_rng(0).normal(size=(300, 300)))
def net():
    # All of it again, in the processes: matmul, convolution, SVD and attention.
    x = torch.randn(64, 64, requires_grad=True)
    with torch.enable_grad():
        (torch.linalg.svdvals(x).sum() + (x @ x).sum()).backward()
    torch.nn.functional.conv2d(torch.randn(4, 3, 32, 32), torch.randn(8, 3, 5, 5))
    np.linalg.svd(np.random.default_rng(0).normal(size=(100, 100)))
    return torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Tanh(), torch.nn.Linear(300, 10))
from stabsweep import sweep
common = dict(space={"lr": {"low": 1e-3, "high": 1e2}}, optimizer="sgd", horizon=10, num_trials=8,
              device="cpu", confirm=False, watcher="off", sampler="random")
found = [sweep(net, "digits", executor="process", workers=2, engine=e, **common)
         for e in ("cohort", "loop")]
torch.set_num_threads(1)
found += [sweep(net, "digits", executor="local", engine=e, **common) for e in ("cohort", "loop")]
def seen(result):
    return [(r.trial, r.point, r.verdict, r.steps, r.final_loss) for r in result.region.records]
assert seen(found[0]) == seen(found[2]) and seen(found[1]) == seen(found[3])
assert len(seen(found[0])) == 8
print("equal")
"""


@pytest.mark.slow
def test_processes_work_where_torch_has_used_threads_before():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "error", "-c", THREADS]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.returncode) == ("equal\n", 0), done.stderr
