from __future__ import annotations

import gc
import gzip
import json
import weakref
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
import torch

from stabsweep.engine import Cohort
from stabsweep.errors import BadInput
from stabsweep.executor import Local, local
from stabsweep.records import Trial
from tests.laws import Run, make_setup

POINTS = [{"lr": 0.01 * (n + 1)} for n in range(11)]
TRIALS = [Trial(number, point, number % 2) for number, point in enumerate(POINTS)]


def make_local(notes=None, cohort_size=4, engine="cohort", case="vector", splitting=(), **how):
    """An executor of a tiny setup; what it says goes into `notes`."""
    notes = [] if notes is None else notes
    how = {"dtype": torch.float32, **how}

    def make_setup_of(split):
        return make_setup(case, split.get("optimizer", "sgd"), **how)

    return Local(make_setup_of, splitting, engine, cohort_size, notes.append)


def sweep(executor, trials, rung_steps=5, check=lambda: None):
    """What a sweep does with an executor: trial -> its curves; a trial may begin again."""
    waiting, pieces, done = deque(trials), {}, []
    while True:
        room = executor.num_free
        executor.admit([waiting.popleft() for _ in range(min(room, len(waiting)))])
        assert executor.num_running == len(trials) - len(done) - len(waiting)
        if not executor.num_running:
            break
        check()
        for chunk in executor.advance(rung_steps):
            if chunk.start_step == 0:
                pieces[chunk.trial] = []
            assert chunk.start_step == sum(p.curves.shape[1] for p in pieces[chunk.trial])
            pieces[chunk.trial].append(chunk)
            if chunk.is_done:
                done.append(chunk.trial)
    assert not waiting
    assert sorted(done) == sorted(trial.number for trial in trials), "lost, or run twice"
    return {
        number: Run(
            np.concatenate([chunk.curves for chunk in chunks], axis=1),
            chunks[-1].initial_loss,
            chunks[-1].displacement,
        )
        for number, chunks in pieces.items()
    }


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for number in expected:
        assert np.array_equal(found[number].curves, expected[number].curves), number
        assert found[number].initial_loss == expected[number].initial_loss
        assert found[number].displacement == expected[number].displacement


@pytest.fixture(scope="module")
def expected():
    return sweep(make_local(cohort_size=64), TRIALS)


# ------------------------------------------------------------------------------ room


@pytest.mark.parametrize("cohort_size", [1, 2, 4, 11, 100])
def test_the_cohort_size_changes_nothing(cohort_size, expected):
    assert_equal(sweep(make_local(cohort_size=cohort_size), TRIALS), expected)


def test_a_fresh_executor_is_free_for_one_cohort():
    executor = make_local()
    assert (executor.num_free, executor.num_running) == (4, 0)
    assert executor.advance(5) == []


def test_room_is_counted_as_it_is_taken_and_given_back():
    executor = make_local()
    executor.admit(TRIALS[:3])
    assert (executor.num_free, executor.num_running) == (1, 3)
    executor.admit(TRIALS[3:6])
    assert (executor.num_free, executor.num_running) == (0, 6)
    executor.drop(0)
    assert (executor.num_free, executor.num_running) == (0, 5)
    assert {chunk.trial for chunk in executor.advance(5)} == {1, 2, 3}
    assert {chunk.trial for chunk in executor.advance(5)} == {1, 2, 3, 4}


def test_a_trial_is_dropped_whether_it_trains_or_waits():
    executor = make_local(cohort_size=2)
    executor.admit(TRIALS[:4])
    executor.drop(3)
    executor.drop(0)
    executor.drop(77)
    assert executor.num_running == 2
    seen = set()
    while executor.num_running:
        seen |= {chunk.trial for chunk in executor.advance(5)}
    assert seen == {1, 2}


def test_more_trials_than_fit_wait_and_none_is_lost(expected):
    executor, done = make_local(cohort_size=2), []
    executor.admit(TRIALS)
    while executor.num_running:
        done += [chunk.trial for chunk in executor.advance(100) if chunk.is_done]
    assert done == [trial.number for trial in TRIALS]


def test_a_loop_takes_one_trial_at_a_time():
    notes = []
    executor = make_local(notes, engine="loop")
    executor.admit(TRIALS[:3])
    assert (executor.num_free, executor.num_running) == (0, 3)
    assert len(executor.advance(5)) == 1
    assert notes == ["engine loop: one trial at a time, as asked"]
    assert len(sweep(make_local(engine="loop"), TRIALS[:3])) == 3


# ------------------------------------------------------------------------------ optimizers

RULES = ["sgd", "adam", "adamw"]
MIXED = [
    replace(trial, point={**trial.point, "optimizer": RULES[n % 3]})
    for n, trial in enumerate(TRIALS)
]


@pytest.mark.parametrize("cohort_size", [2, 4, 100])
def test_every_optimizer_has_an_engine_of_its_own(cohort_size):
    found = sweep(make_local(cohort_size=cohort_size, splitting=["optimizer"]), MIXED)
    for n, rule in enumerate(RULES):
        alone = Local(
            lambda split, rule=rule: make_setup("vector", rule, dtype=torch.float32),
            [],
            "cohort",
            100,
            print,
        )
        expected = sweep(alone, [replace(TRIALS[k], point=POINTS[k]) for k in range(n, 11, 3)])
        assert_equal({number: found[number] for number in expected}, expected)


def test_the_setup_is_made_for_the_values_that_split():
    asked = []

    def make(split):
        asked.append(split)
        return make_setup("vector", split["optimizer"])

    executor = Local(make, ["optimizer"], "cohort", 4, lambda note: None)
    executor.admit(MIXED[:6])
    executor.advance(100)
    executor.admit(MIXED[6:])
    assert asked == [{"optimizer": rule} for rule in RULES]


def test_a_note_is_not_said_again_for_the_next_optimizer():
    notes = []
    sweep(make_local(notes, splitting=["optimizer"]), MIXED)
    assert notes == ["engine cohort: up to 4 trials as one program, as asked"]


# ------------------------------------------------------------------------------ memory


def out_of_gpu_memory():
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def out_of_cpu_memory():
    return RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")


@pytest.fixture
def memory(monkeypatch):
    """Makes cohorts that hold `limit` trials fail in `advance`, half-way, or in `admit`."""

    def make(limit, where="advance", error=out_of_gpu_memory, only=None):
        log = []

        class Small(Cohort):
            def admit(self, trials):
                super().admit(trials)
                self.check("admit")

            def advance(self, num_steps):
                if self.is_over():
                    super().advance(1)  # What is left behind is half-written.
                self.check("advance")
                return super().advance(num_steps)

            def is_over(self):
                return len(self.trials) > limit and only in (None, self.setup.optimizer.name)

            def check(self, now):
                if now == where and self.is_over():
                    log.append(len(self.trials))
                    raise error()

        def build(name, setup, trials, capacity):
            return Small(setup, capacity), "cohort: small"

        monkeypatch.setattr(local, "build", build)
        return log

    return make


@pytest.mark.parametrize("where", ["advance", "admit"])
@pytest.mark.parametrize("error", [out_of_gpu_memory, out_of_cpu_memory])
def test_out_of_memory_halves_the_cohort_and_changes_nothing(where, error, memory, expected):
    log, notes = memory(4, where, error), []
    executor = make_local(notes, cohort_size=8)
    assert_equal(sweep(executor, TRIALS), expected)
    assert log == [8]
    assert notes == ["engine cohort: small", "out of memory: going on with cohorts of 4 trials"]


@pytest.mark.parametrize("where", ["advance", "admit"])
def test_the_cohort_is_halved_until_it_fits(where, memory, expected):
    log, notes = memory(1, where), []
    executor = make_local(notes, cohort_size=11)
    assert_equal(sweep(executor, TRIALS), expected)
    assert log == [11, 5, 2]
    assert [note.split()[-2] for note in notes[1:]] == ["5", "2", "1"]
    assert executor.num_free == 1


@pytest.mark.parametrize("where", ["advance", "admit"])
def test_a_trial_that_does_not_fit_alone_ends_the_sweep_with_what_to_do(where, memory):
    log, notes = memory(0, where), []
    executor = make_local(notes, cohort_size=4)
    with pytest.raises(BadInput, match="out of memory with a single trial: lower .* batch_size"):
        executor.admit(TRIALS[:4])
        while True:
            executor.advance(5)
    assert log == [4, 2, 1]
    assert len(notes) == 3


def test_another_error_is_not_taken_for_a_lack_of_memory(memory):
    memory(2, error=lambda: RuntimeError("mat1 and mat2 shapes differ"))
    executor = make_local()
    executor.admit(TRIALS[:4])
    with pytest.raises(RuntimeError, match="mat1"):
        executor.advance(5)


def test_trials_that_were_in_training_begin_again_before_those_that_wait(memory):
    memory(2)
    executor = make_local(cohort_size=4)
    executor.admit(TRIALS[:6])
    assert executor.advance(5) == []
    assert (executor.num_free, executor.num_running) == (0, 6)
    chunks = executor.advance(5)
    assert [(chunk.trial, chunk.start_step) for chunk in chunks] == [(0, 0), (1, 0)]


def test_memory_that_runs_out_as_trials_join_loses_none_of_those_in_training(memory, expected):
    memory(3, "admit")
    executor = make_local(cohort_size=4)
    executor.admit(TRIALS[:2])
    assert len(executor.advance(5)) == 2
    executor.admit(TRIALS[2:4])
    assert executor.num_running == 4
    first = executor.advance(5)
    assert [(chunk.trial, chunk.start_step) for chunk in first] == [(0, 0), (1, 0)]
    assert np.array_equal(first[0].curves, expected[0].curves[:, :5])
    done = {chunk.trial for _ in range(20) for chunk in executor.advance(5) if chunk.is_done}
    assert done == {0, 1, 2, 3}


def test_the_next_optimizer_starts_with_what_fitted(memory):
    memory(2)
    executor = make_local(cohort_size=4, splitting=["optimizer"])
    executor.admit([trial for trial in MIXED if trial.point["optimizer"] == "sgd"])
    executor.advance(5)
    executor.admit([trial for trial in MIXED if trial.point["optimizer"] == "adam"])
    assert len(executor.advance(5)) == 2 + 2


def test_memory_that_runs_out_late_starts_its_trials_over(monkeypatch, expected):
    """As when another program takes the memory while ours trains."""
    calls = []

    class Sudden(Cohort):
        def advance(self, num_steps):
            calls.append(len(self.trials))
            if len(calls) == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().advance(num_steps)

    monkeypatch.setattr(local, "build", lambda *given: (Sudden(given[1], given[3]), "cohort"))
    assert_equal(sweep(make_local(cohort_size=6), TRIALS), expected)
    assert calls[:3] == [6, 6, 3]


def test_the_other_optimizers_go_on_undisturbed(memory):
    calm = sweep(make_local(cohort_size=4, splitting=["optimizer"]), MIXED)
    memory(1, only="adam")
    executor = make_local(cohort_size=4, splitting=["optimizer"])
    assert_equal(sweep(executor, MIXED), calm)
    assert executor.num_free == 4 + 1 + 4


def test_an_engine_that_was_halved_holds_nothing_of_the_full_one(memory):
    memory(2)
    executor = make_local(cohort_size=4)
    executor.admit(TRIALS[:4])
    (full,) = (weakref.ref(engine) for engine in executor._engines.values())
    gc.disable()
    try:
        executor.advance(5)
        assert full() is None, "its memory would still be taken"
    finally:
        gc.enable()


def test_auto_says_which_engine_runs():
    notes = []
    sweep(make_local(notes, engine="auto", case="mlp"), TRIALS[:2])
    assert notes == ["engine cohort: up to 4 trials as one program"]


def test_a_profile_of_one_rung_can_be_opened(tmp_path):
    notes = []
    executor = make_local(notes, case="mlp", horizon=40)
    executor._profile = tmp_path
    sweep(executor, TRIALS[:2])
    (path,) = tmp_path.iterdir()
    assert notes[-1] == f"profile of one rung in {path.name}: open it at ui.perfetto.dev"
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    assert any(event["name"] == "aten::bmm" for event in events)
