"""One process beside this one, with one thread, that trains trials in a `Local` of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TextIO

import torch
from threadpoolctl import threadpool_limits

from stabsweep.engine import Chunk
from stabsweep.executor._base import Note, Split
from stabsweep.executor.local import Local
from stabsweep.records import Trial

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of mallopt(3): what is free at the top before it is given back, and how large a piece is
that is not taken from there."""


@dataclass(frozen=True)
class Order:
    """What a worker is to do next: see the arguments of `Worker.send`."""

    num_steps: int
    dropped: Sequence[int]
    admitted: Sequence[Trial]
    beside: Sequence[Trial]


@dataclass(frozen=True)
class Reply:
    """What a worker has done.

    Attributes:
        chunks: of the trials in training.
        waiting: trials that it has no room for: they are not its own any more.
        rooms: how many trials of each kind it can train at once.
        notes: what is to be told, a line each.
        speed: how it trains, see `Engine.speed`.
        error: what it has met instead, with the traceback; None normally.
    """

    chunks: Sequence[Chunk]
    waiting: Sequence[Trial]
    rooms: Mapping[Split, int]
    notes: Sequence[str]
    speed: str = ""
    error: tuple[Exception, str] | None = None


class Died(Exception):
    """A worker has ended without being asked to; the message says of what: `killed by SIGKILL`."""


class Worker:
    """A process that was forked off this one.

    Forked, so that whatever the user made, in a notebook or a closure, is there as it is. It lives
    as long as this process holds the other end of its pipe: also a kill -9 here ends it.

    Args:
        make_local: makes what trains, in the worker.
        others: workers that are running: it must not hold their pipes open.
        streams: what it prints to. Those of the start: a live display takes their place for a while
            and is guarded by locks, which a fork may find locked for ever.
    """

    def __init__(
        self,
        make_local: Callable[[Note], Local],
        others: Iterable[Worker],
        streams: tuple[TextIO, TextIO],
    ) -> None:
        self._pipe, theirs = Pipe()
        # What is still to be printed would be printed by both.
        _flush(streams)
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork of a process with threads, torch's own among them: the
            # child could wait for a lock that one of them held. Ours takes none that they take, and
            # runs torch with one thread, as the workers of a DataLoader do.
            warnings.filterwarnings("ignore", "(?s).*fork", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            # Whatever happens, it must not return into the program that it is a copy of.
            try:
                for pipe in (self._pipe, *(other._pipe for other in others)):
                    pipe.close()
                _serve(theirs, make_local, streams)
                status = 0
            except KeyboardInterrupt:
                pass  # Before it could be ignored; this process has met it too.
            except BaseException:
                with contextlib.suppress(BaseException):
                    traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(status)
        theirs.close()

    def send(
        self,
        num_steps: int,
        dropped: Sequence[int],
        admitted: Sequence[Trial],
        beside: Sequence[Trial],
    ) -> None:
        """Has trials trained on; the answer is to be received.

        Args:
            num_steps: as `Executor.advance` takes it.
            dropped: numbers of trials that end before.
            admitted: trials that join.
            beside: as `Local.admit` takes it.
        """
        # One that has died is met again where its answer is missing.
        with contextlib.suppress(OSError):
            self._pipe.send(Order(num_steps, dropped, admitted, beside))

    def receive(self) -> Reply:
        """What was asked for last.

        Raises:
            Died: the worker has.
        """
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            raise Died(self._end()) from None

    def close(self) -> None:
        """Ends the worker at once: what it has sent is here, and nothing else is kept of it."""
        if not self._pipe.closed:
            self._end()

    def _end(self) -> str:
        """Ends the worker, if it has not ended, and says of what it has."""
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return "why is not known"  # Somebody else has asked for its status.
        return f"exit code {code}" if code >= 0 else f"killed by {_signal(-code)}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _serve(
    pipe: Connection, make_local: Callable[[Note], Local], streams: tuple[TextIO, TextIO]
) -> None:
    """The life of a worker: it does as it is ordered until nobody is left to give orders."""
    # Ctrl-C reaches all processes of a terminal: the first of them decides what follows.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    sys.stdout, sys.stderr = streams
    # NumPy's BLAS keeps its threads, and then waits for them: a small SVD took a hundred times as
    # long (measured, OpenBLAS with two threads, after a fork).
    threadpool_limits(1)
    torch.set_num_threads(1)
    _keep_memory()
    notes: list[str] = []
    local = make_local(notes.append)
    while True:
        try:
            order: Order = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            for number in order.dropped:
                local.drop(number)
            local.admit(order.admitted, order.beside)
            chunks = local.advance(order.num_steps)
            reply = Reply(chunks, local.withdraw(), local.rooms, tuple(notes), local.speed)
        except Exception as error:  # noqa: BLE001  It is raised where the sweep runs.
            met = (_portable(error), traceback.format_exc())
            reply = Reply((), (), {}, tuple(notes), error=met)
        notes.clear()
        _flush(streams)
        try:
            pipe.send(reply)
        except OSError:
            return


def _keep_memory() -> None:
    """Has the C library keep what is freed, for the next step: 5 % of small steps were page faults.

    Only here: the process belongs to the sweep, and ends with it.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            library.mallopt(option, 1 << 30)


def _flush(streams: Iterable[TextIO]) -> None:
    for stream in streams:
        # A stream may be closed, or none at all.
        with contextlib.suppress(Exception):
            stream.flush()


def _portable(error: Exception) -> Exception:
    """An error as it can be sent: itself, or its words where it cannot be made again from them."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  An exception's own code may fail in any way.
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
