"""Trials on this machine: one engine for each setup, halved when the memory runs out."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from stabsweep.engine import Chunk, Engine, build, is_out_of_memory, no_memory
from stabsweep.errors import BadInput
from stabsweep.executor._base import Executor, MakeSetup, Note, Split
from stabsweep.records import Trial


class Local(Executor):
    """Runs trials in this process.

    Trials that differ in a splitting axis (another optimizer is another program) get engines of
    their own. A trial that finds no room waits here.

    Args:
        make_setup: the setup for values of the splitting axes, by name.
        splitting: names of the axes whose values are programs of their own.
        engine: one of `stabsweep.engine.ENGINES`.
        cohort_size: trials that an engine may hold at once.
        note: told, in one line each, which engine runs and when a cohort is halved.
        profile: where to leave a profile of one rung, `profile_PID.json.gz`; None for none.
    """

    PROFILED = 4
    """Which rung is profiled: the first ones trace, and try out sizes of tiles."""

    def __init__(
        self,
        make_setup: MakeSetup,
        splitting: Sequence[str],
        engine: str,
        cohort_size: int,
        note: Note,
        profile: Path | None = None,
    ) -> None:
        self._profile = profile
        self._num_rungs = 0
        self._make_setup = make_setup
        self._splitting = tuple(splitting)
        self._engine = engine
        self._note = note
        self._cohort_size = cohort_size
        self._engines: dict[Split, Engine] = {}
        self._waiting: dict[Split, deque[Trial]] = {}
        self._said: set[str] = set()

    @property
    def num_running(self) -> int:
        """See `Executor.num_running`."""
        training = sum(len(engine.trials) for engine in self._engines.values())
        return training + sum(len(queue) for queue in self._waiting.values())

    @property
    def num_free(self) -> int:
        """See `Executor.num_free`."""
        room = sum(self.rooms.values())
        return max((room or self._cohort_size) - self.num_running, 0)

    @property
    def speed(self) -> str:
        """See `Engine.speed`; of the first engine that knows."""
        return next((engine.speed for engine in self._engines.values() if engine.speed), "")

    @property
    def rooms(self) -> dict[Split, int]:
        """How many trials each kind of them can have in training at once."""
        return {key: engine.capacity for key, engine in self._engines.items()}

    def admit(self, trials: Sequence[Trial], beside: Sequence[Trial] = ()) -> None:
        """See `Executor.admit`.

        Args:
            trials: to be trained here.
            beside: trials of the sweep, these among them or not, by which an engine is chosen too:
                whoever trains a part of them is to choose what one who trains them all would.
        """
        for trial in trials:
            self._waiting.setdefault(self._key(trial), deque()).append(trial)
        for key, queue in self._waiting.items():
            if queue and key not in self._engines:
                known = {trial.number: trial for trial in [*queue, *beside]}
                alike = [trial for trial in known.values() if self._key(trial) == key]
                self._engines[key] = self._build(sorted(alike, key=lambda trial: trial.number))
            if queue:
                self._fill(key, queue)

    def withdraw(self) -> list[Trial]:
        """Takes back the trials that wait for room."""
        found = [trial for queue in self._waiting.values() for trial in queue]
        for queue in self._waiting.values():
            queue.clear()
        return found

    def _key(self, trial: Trial) -> Split:
        return tuple(trial.point[name] for name in self._splitting)

    def _fill(self, key: Split, queue: deque[Trial]) -> None:
        """Lets in as many waiting trials as an engine has room for."""
        before = list(self._engines[key].trials)
        room = max(self._engines[key].capacity - len(before), 0)
        entering = [queue.popleft() for _ in range(min(room, len(queue)))]
        if not self._fits(key, lambda engine: engine.admit(entering)):
            queue.extendleft(reversed([*before, *entering]))
            self._halve(key)
            self._fill(key, queue)

    def _build(self, trials: list[Trial]) -> Engine:
        point = trials[0].point
        setup = self._make_setup({name: point[name] for name in self._splitting})
        try:
            engine, why = build(self._engine, setup, trials, self._cohort_size)
        except (RuntimeError, MemoryError) as error:
            raise no_memory() if is_out_of_memory(error) else error from error
        if why not in self._said:
            self._note(f"engine {why}")
            self._said.add(why)
        return engine

    def advance(self, num_steps: int) -> list[Chunk]:
        """See `Executor.advance`.

        An error of the model's own ends the trial, when it trains alone; a whole cohort does not
        fail for one, since what can be stacked cannot look at values.
        """
        with self._profiled():
            pieces = [self._advance(key, num_steps) for key in list(self._engines)]
        found = [chunk for some in pieces for chunk in some]
        self.admit([])
        return sorted(found, key=lambda chunk: chunk.trial)

    @contextmanager
    def _profiled(self) -> Iterator[None]:
        """Writes a profile of what is done, when it is its turn."""
        self._num_rungs += 1
        if self._profile is None or self._num_rungs != self.PROFILED:
            yield
            return
        with torch.profiler.profile() as profile:
            yield
        path = self._profile / f"profile_{os.getpid()}.json.gz"
        profile.export_chrome_trace(str(path))
        self._note(f"profile of one rung in {path.name}: open it at ui.perfetto.dev")

    def _advance(self, key: Split, num_steps: int) -> list[Chunk]:
        """Trains the trials of an engine on, by as many steps each, whatever its neighbours do.

        An engine stops where the first of its trials ends: then the others have steps left.
        """
        pieces: dict[int, list[Chunk]] = {}

        def train(engine: Engine) -> None:
            left = num_steps
            while left and engine.trials:
                chunks = engine.advance(left)
                for chunk in chunks:
                    pieces.setdefault(chunk.trial, []).append(chunk)
                left -= chunks[0].curves.shape[1]

        try:
            if not self._fits(key, train):
                self._waiting[key].extendleft(reversed(self._engines[key].trials))
                self._halve(key)
                pieces = {number: some for number, some in pieces.items() if some[-1].is_done}
        except Exception as error:
            engine = self._engines[key]
            if len(engine.trials) != 1 or isinstance(error, BadInput):
                raise
            (trial,) = engine.trials
            engine.drop(trial.number)
            pieces[trial.number] = [Chunk.failed(trial, error)]
        return [Chunk.joined(some) for some in pieces.values()]

    def _fits(self, key: Split, work: Callable[[Engine], None]) -> bool:
        """Whether an engine had the memory for its work, and so has done it.

        The caller makes room, not the `except` here: until it is left, the error keeps the frames
        alive, and these the memory.

        Raises:
            BadInput: it has not, with a single trial.
        """
        try:
            work(self._engines[key])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self._engines[key].capacity == 1:
                raise no_memory() from error
            return False
        return True

    def _halve(self, key: Split) -> None:
        """Puts an empty engine with half the room in the place of one whose memory ran out.

        Its trials begin again, since their state is half-written.
        """
        full = self._engines.pop(key)
        kind, setup, capacity = type(full), full.setup, full.capacity // 2
        del full
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self._engines[key] = kind(setup, capacity)
        self._cohort_size = min(self._cohort_size, capacity)
        self._note(f"out of memory: going on with cohorts of {capacity} trials")

    def drop(self, number: int) -> None:
        """See `Executor.drop`."""
        for engine in self._engines.values():
            engine.drop(number)
        for queue in self._waiting.values():
            for trial in [trial for trial in queue if trial.number == number]:
                queue.remove(trial)
