"""Trials on this machine: one engine for each setup, halved when the memory runs out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch

from stabsweep.engine import Chunk, Engine, Setup, build, is_out_of_memory, no_memory
from stabsweep.errors import BadInput
from stabsweep.records import Trial, Value

Note = Callable[[str], None]


class Local:
    """Runs trials in this process.

    Trials that differ in a splitting axis (another optimizer is another program) get engines of
    their own. A trial that finds no room waits here.

    Args:
        make_setup: the setup for values of the splitting axes, by name.
        splitting: names of the axes whose values are programs of their own.
        engine: one of `stabsweep.engine.ENGINES`.
        cohort_size: trials that an engine may hold at once.
        note: told, in one line each, which engine runs and when a cohort is halved.
    """

    def __init__(
        self,
        make_setup: Callable[[dict[str, Value]], Setup],
        splitting: Sequence[str],
        engine: str,
        cohort_size: int,
        note: Note,
    ) -> None:
        self._make_setup = make_setup
        self._splitting = tuple(splitting)
        self._engine = engine
        self._note = note
        self._cohort_size = cohort_size
        self._engines: dict[tuple[Value, ...], Engine] = {}
        self._waiting: dict[tuple[Value, ...], deque[Trial]] = {}
        self._said: set[str] = set()

    @property
    def num_running(self) -> int:
        """Trials in training or waiting for room."""
        training = sum(len(engine.trials) for engine in self._engines.values())
        return training + sum(len(queue) for queue in self._waiting.values())

    @property
    def num_free(self) -> int:
        """Trials that can be admitted without waiting, were they all of the emptiest kind."""
        room = sum(engine.capacity for engine in self._engines.values())
        return max((room or self._cohort_size) - self.num_running, 0)

    def admit(self, trials: Sequence[Trial]) -> None:
        """Takes trials into training, as soon as there is room for each."""
        for trial in trials:
            key = tuple(trial.point[name] for name in self._splitting)
            self._waiting.setdefault(key, deque()).append(trial)
        for key, queue in self._waiting.items():
            if queue and key not in self._engines:
                self._engines[key] = self._build(queue)
            if queue:
                self._fill(key, queue)

    def _fill(self, key: tuple[Value, ...], queue: deque[Trial]) -> None:
        """Lets in as many waiting trials as an engine has room for."""
        before = list(self._engines[key].trials)
        room = max(self._engines[key].capacity - len(before), 0)
        entering = [queue.popleft() for _ in range(min(room, len(queue)))]
        if not self._fits(key, lambda engine: engine.admit(entering)):
            queue.extendleft(reversed([*before, *entering]))
            self._halve(key)
            self._fill(key, queue)

    def _build(self, queue: deque[Trial]) -> Engine:
        point = queue[0].point
        setup = self._make_setup({name: point[name] for name in self._splitting})
        try:
            engine, why = build(self._engine, setup, list(queue), self._cohort_size)
        except (RuntimeError, MemoryError) as error:
            raise no_memory() if is_out_of_memory(error) else error from error
        if why not in self._said:
            self._note(f"engine {why}")
            self._said.add(why)
        return engine

    def advance(self, num_steps: int) -> list[Chunk]:
        """Trains every running trial on; see `Engine.advance`.

        An error of the model's own ends the trial, when it trains alone; a whole cohort does not
        fail for one, since what can be stacked cannot look at values.
        """
        chunks: list[Chunk] = []
        for key, engine in list(self._engines.items()):
            try:
                if not self._fits(key, lambda engine: chunks.extend(engine.advance(num_steps))):
                    self._waiting[key].extendleft(reversed(self._engines[key].trials))
                    self._halve(key)
            except Exception as error:
                if len(engine.trials) != 1 or isinstance(error, BadInput):
                    raise
                (trial,) = engine.trials
                engine.drop(trial.number)
                chunks.append(Chunk.failed(trial, error))
        self.admit([])
        return chunks

    def _fits(self, key: tuple[Value, ...], work: Callable[[Engine], None]) -> bool:
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

    def _halve(self, key: tuple[Value, ...]) -> None:
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
        """Ends a trial before its horizon."""
        for engine in self._engines.values():
            engine.drop(number)
        for queue in self._waiting.values():
            for trial in [trial for trial in queue if trial.number == number]:
                queue.remove(trial)
