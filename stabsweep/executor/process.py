"""Trials on the cores of this machine: one process a core, with one thread each."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from stabsweep.engine import Chunk
from stabsweep.executor._base import Executor, MakeSetup, Note, Split
from stabsweep.executor._worker import Died, Reply, Worker
from stabsweep.executor.local import Local
from stabsweep.numerals import plural
from stabsweep.records import Trial


class Process(Executor):
    """Shares trials out among processes, which go on in lockstep.

    Small trials scale badly over the threads of one process, whose every operation waits for all
    of them; over processes they scale with the cores. What a sweep sees is what `Local` shows it:
    as many trials at the same moments, whichever process is faster. Only of trials that are trained
    one by one (`engine=loop`) as many are in training as there are processes.

    A process that dies, of a segmentation fault in the model's own code or by the hand of the
    system when the memory is used up, takes its trials with it: they begin again in a new one. A
    trial that goes down a second time trains alone from then on, and fails if that ends its process
    too.

    Args:
        make_setup, splitting, engine, note: see `Local`.
        cohort_size: trials that may be in training at once, in all processes together.
        num_workers: processes.
        profile: see `Local`.

    Raises:
        OSError: the system has no room for another process.
    """

    def __init__(
        self,
        make_setup: MakeSetup,
        splitting: Sequence[str],
        engine: str,
        cohort_size: int,
        note: Note,
        num_workers: int,
        profile: Path | None = None,
    ) -> None:
        given = (make_setup, splitting, engine, cohort_size)
        self._make_local = lambda note: Local(*given, note, profile)
        self._speed = ""
        self._splitting = tuple(splitting)
        self._cohort_size = cohort_size
        self._note = note
        self._said: set[str] = set()
        self._waiting: dict[Split, deque[Trial]] = {}
        self._deaths: Counter[int] = Counter()
        self._streams = (sys.stdout, sys.stderr)
        self._places: list[_Place] = []
        # What torch loads as late as it is first used, a second's work, is not loaded by each.
        torch.func.grad(torch.sum)(torch.ones(1))
        try:
            # Now, before any display has threads and locks of its own.
            for _ in range(num_workers):
                self._places.append(_Place(self._new_worker()))
        except OSError:
            self.close()
            raise

    @property
    def workers(self) -> Sequence[Worker]:
        """The processes."""
        return [place.worker for place in self._places]

    @property
    def speed(self) -> str:
        """See `Executor.speed`; of the process that knew it first."""
        return self._speed

    @property
    def num_running(self) -> int:
        """See `Executor.num_running`."""
        training = sum(len(place.training) for place in self._places)
        return training + sum(len(queue) for queue in self._waiting.values())

    @property
    def num_free(self) -> int:
        """See `Executor.num_free`."""
        room = sum(self._room(key) for key in self._waiting)
        return max((room or self._cohort_size) - self.num_running, 0)

    def admit(self, trials: Sequence[Trial]) -> None:
        """See `Executor.admit`."""
        for trial in trials:
            self._waiting.setdefault(self._key(trial), deque()).append(trial)

    def drop(self, number: int) -> None:
        """See `Executor.drop`."""
        for place in self._places:
            if number in place.training:
                place.remove(number)
                place.dropped.append(number)
        for queue in self._waiting.values():
            for trial in [trial for trial in queue if trial.number == number]:
                queue.remove(trial)

    def advance(self, num_steps: int) -> list[Chunk]:
        """See `Executor.advance`. Every process is waited for.

        Raises:
            Exception: whatever a process has met, as it was.
        """
        entering = list(self._enter())
        for place in self._busy():
            own = [trial for trial in entering if trial.number in place.training]
            # One that may end its process is tried out in no other, nor is it with others.
            beside = [trial for trial in entering if not self._is_lonely(trial)]
            beside = [] if any(map(self._is_lonely, own)) else beside
            place.worker.send(num_steps, place.dropped, own, beside)
            place.dropped = []
        chunks: list[Chunk] = []
        for place in self._busy():
            try:
                reply = place.worker.receive()
            except Died as death:
                chunks += self._bury(place, str(death))
            else:
                chunks += self._take(place, reply)
        return sorted(chunks, key=lambda chunk: chunk.trial)

    def close(self) -> None:
        """See `Executor.close`."""
        for place in self._places:
            place.worker.close()

    def _new_worker(self) -> Worker:
        return Worker(self._make_local, self.workers, self._streams)

    def _busy(self) -> list[_Place]:
        return [place for place in self._places if place.training]

    def _key(self, trial: Trial) -> Split:
        return tuple(trial.point[name] for name in self._splitting)

    def _room(self, key: Split, place: _Place | None = None) -> int:
        """How many trials of a kind can be in training at once, in one place or in all of them."""
        known = [one.rooms[key] for one in self._places if key in one.rooms]
        likely = min(known, default=self._cohort_size)
        places = self._places if place is None else [place]
        return min(sum(one.rooms.get(key, likely) for one in places), self._cohort_size)

    def _enter(self) -> Iterator[Trial]:
        """Gives waiting trials places: as many each, and trials of a kind together.

        One program of many trials is faster than two of some.
        """
        waiting = [trial for queue in self._waiting.values() for trial in queue]
        for trial in filter(self._is_lonely, waiting):
            empty = next((place for place in self._places if not place.training), None)
            if empty is None:
                # Nobody enters before it, or it would never find a place that is empty.
                return
            self._waiting[self._key(trial)].remove(trial)
            yield empty.add(trial, self._key(trial))
        places = [p for p in self._places if not any(map(self._is_lonely, p.training.values()))]
        counts = {}
        for key, queue in self._waiting.items():
            room = self._room(key) - sum(place.kinds[key] for place in self._places)
            counts[key] = min(len(queue), max(room, 0))
        total = sum(counts.values()) + sum(len(place.training) for place in places)
        for key in [key for key, count in counts.items() for _ in range(count)]:
            fit = [place for place in places if place.kinds[key] < self._room(key, place)]
            # Those that have not got their share yet, before those that have.
            fit = [p for p in fit if len(p.training) * len(places) < total] or fit
            if fit:
                best = min(fit, key=lambda place, key=key: (-place.kinds[key], len(place.training)))
                yield best.add(self._waiting[key].popleft(), key)

    def _is_lonely(self, trial: Trial) -> bool:
        return self._deaths[trial.number] >= 2

    def _take(self, place: _Place, reply: Reply) -> Sequence[Chunk]:
        for note in reply.notes:
            self._say(note)
        if reply.error is not None:
            error, text = reply.error
            raise error from RuntimeError(f"in a process of executor=process:\n{text}")
        place.rooms = dict(reply.rooms)
        self._speed = self._speed or reply.speed
        self._put_back(place, reply.waiting)
        for chunk in reply.chunks:
            if chunk.is_done:
                place.remove(chunk.trial)
        return reply.chunks

    def _bury(self, place: _Place, death: str) -> list[Chunk]:
        """Puts a new worker in the place of one that has died; its trials begin again."""
        trials = list(place.training.values())
        self._deaths.update(trial.number for trial in trials)
        place.worker = self._new_worker()
        place.dropped = []
        if len(trials) == 1 and self._is_lonely(trials[0]):
            (trial,) = trials
            place.remove(trial.number)
            error = f"its process died twice, the last time with this trial alone ({death})"
            return [Chunk.failed(trial, RuntimeError(error))]
        lost = plural(len(trials), "trial")
        self._note(f"executor: a process died ({death}); what it trained ({lost}) begins again")
        self._put_back(place, trials)
        return []

    def _put_back(self, place: _Place, trials: Sequence[Trial]) -> None:
        """Has trials of a place wait, before all others, in their order."""
        for trial in sorted(trials, key=lambda trial: trial.number, reverse=True):
            place.remove(trial.number)
            self._waiting[self._key(trial)].appendleft(trial)

    def _say(self, note: str) -> None:
        if note not in self._said:
            self._said.add(note)
            self._note(note)


class _Place:
    """Where a worker is, or its successor.

    Attributes:
        worker: the process.
        training: the trials that it has, by number.
        kinds: how many it has of each kind.
        dropped: numbers of those that it has still to be told to drop.
        rooms: how many trials of each kind it can train at once, as far as it has said.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.training: dict[int, Trial] = {}
        self.kinds: Counter[Split] = Counter()
        self.dropped: list[int] = []
        self.rooms: dict[Split, int] = {}
        self._keys: dict[int, Split] = {}

    def add(self, trial: Trial, key: Split) -> Trial:
        """Takes a trial of a kind in, and gives it back."""
        self.training[trial.number] = trial
        self._keys[trial.number] = key
        self.kinds[key] += 1
        return trial

    def remove(self, number: int) -> None:
        """Lets a trial go."""
        del self.training[number]
        self.kinds[self._keys.pop(number)] -= 1
