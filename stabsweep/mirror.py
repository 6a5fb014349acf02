"""A copy of the sweep for other tools: finished trials, sent in batches to an Optuna storage.

Our own records are what lasts. The copy is written by a thread of its own, so that a slow disk or
database never slows the sweep, and one that fails never ends it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from stabsweep.errors import BadInput
from stabsweep.records import NUMBER, SEED

BATCH_SECONDS = 3.0
"""Time between two batches: what a dashboard may lag behind (chosen by us)."""

CLOSE_SECONDS = 60.0
"""How long the end of a sweep waits for a storage that takes nothing (chosen by us)."""

MAX_REPORTS = 5
"""Losses of a trial that are sent: each costs as much as a param, some 2 ms (measured, SQLite)."""

ATTRIBUTES = (NUMBER, SEED, "verdict", "reason", "steps", "horizon", "blind_loss")
"""User attributes that are sent, for the same reason."""


class Mirror:
    """Sends finished trials to an Optuna storage, each once, with all that Optuna knows of it.

    A trial of a storage carries params, value (none for what was not stable to the end), state,
    some of its rungs' losses as intermediate values, and the user attributes `ATTRIBUTES`, of which
    `trial` is its number; `seed` is one where it is no param. A trial that is in the storage
    already is not sent again, so a resumed sweep goes on with its copy.

    A trial costs some 20 ms of CPU time (SQLite), and more in all where the disk is slow: a sweep
    that is faster ends with a queue, which `close` waits for.

    Args:
        storage: URL of an Optuna storage: `sqlite:///sweep.db`, `postgresql://user@host/name`.
        name: of the study in the storage; made when it is missing.
        note: told, in one line and once, that the storage fails, and at the end what is missing.
        about: user attributes of the study.

    Raises:
        BadInput: the storage is no such URL.
    """

    def __init__(
        self,
        storage: str,
        name: str,
        note: Callable[[str], None],
        about: dict[str, Any] | None = None,
    ) -> None:
        check_storage(storage)
        self.storage, self.name, self.about = storage, name, about or {}
        self._note = note
        self._pending: list[FrozenTrial] = []
        self._error = ""
        self._has_noted = False
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._deadline = math.inf
        self._study: optuna.Study | None = None
        self._sent: set[int] = set()
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def add(self, trial: FrozenTrial) -> None:
        """Takes a finished trial; returns at once."""
        with self._lock:
            self._pending.append(_lean(trial))
        self._tell_error()

    def close(self) -> None:
        """Sends what is left, and says what could not be sent; Ctrl-C ends the waiting."""
        self._deadline = time.monotonic() + CLOSE_SECONDS
        self._is_closing.set()
        try:
            while self._thread.is_alive() and time.monotonic() < self._deadline:
                self._thread.join(0.2)
        except KeyboardInterrupt:
            self._deadline = 0.0
        self._tell_error()
        if self._pending:
            why = f" ({self._error})" if self._error else ""
            self._note(
                f"storage: {len(self._pending)} trials are not in {_shown(self.storage)}{why}; "
                "the records are complete, send them with: stabsweep resume DIR storage=URL"
            )

    def _tell_error(self) -> None:
        # From the sweep's own thread: a watcher need not be safe for others.
        if self._error and not self._has_noted:
            self._has_noted = True
            self._note(f"storage: {_shown(self.storage)} fails, the sweep goes on ({self._error})")

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_closing.wait(BATCH_SECONDS)
            try:
                self._send()
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                self._error = f"{type(error).__name__}: {lines[0][:200]}"
                # What has arrived is read again: a trial may have, though its sending failed.
                self._forget()
        self._forget()

    def _send(self) -> None:
        with self._lock:
            batch = list(self._pending)
        if not batch:
            return
        study = self._study or self._open()
        for trial in batch:
            if time.monotonic() > self._deadline:
                return
            number = trial.user_attrs[NUMBER]
            if number not in self._sent:
                study.add_trial(trial)
                self._sent.add(number)
            with self._lock:
                self._pending = self._pending[1:]
            if 0 < self._deadline < math.inf:
                self._deadline = time.monotonic() + CLOSE_SECONDS

    def _open(self) -> optuna.Study:
        self._study = study = optuna.create_study(
            storage=self.storage, study_name=self.name, direction="minimize", load_if_exists=True
        )
        for key, value in self.about.items():
            if study.user_attrs.get(key, value) != value:
                raise ValueError(
                    f"another sweep is there as {self.name}, with another {key}; use another file"
                )
            study.set_user_attr(key, value)
        self._sent = {t.user_attrs.get(NUMBER, -1) for t in study.get_trials(deepcopy=False)}
        return study

    def _forget(self) -> None:
        """Closes the connection."""
        study, self._study = self._study, None
        engine = getattr(getattr(study, "_storage", None), "_backend", None)
        if engine is not None:
            engine.remove_session()
            engine.engine.dispose()


def _lean(trial: FrozenTrial) -> FrozenTrial:
    """What is sent of a trial."""
    lean = copy(trial)
    if trial.state is TrialState.PRUNED:
        # Optuna puts the last reported loss there; it is no outcome.
        lean.values = None  # type: ignore[assignment]
    reports = sorted(trial.intermediate_values.items())
    every = math.ceil(len(reports) / MAX_REPORTS) or 1
    lean.intermediate_values = dict(reports[::-1][::every][::-1])
    lean.user_attrs = {k: v for k, v in trial.user_attrs.items() if k in ATTRIBUTES}
    lean.system_attrs = {}
    return lean


def open_copy(
    storage: str, folder: Path | None, subject: str, note: Callable[[str], None]
) -> Mirror:
    """The copy of a sweep, in a study named after its folder, or by what was swept and when.

    Args:
        storage: URL of an Optuna storage.
        folder: of the sweep's results, if it has one.
        subject: what is swept.
        note: see `Mirror`.
    """
    if folder is None:
        return Mirror(storage, f"{subject} {time.strftime('%Y-%m-%d %H:%M:%S')}", note)
    whole = folder.resolve()
    return Mirror(storage, f"{whole.parent.name}/{whole.name}", note, {"folder": str(whole)})


def check_storage(storage: Any) -> None:
    """Whether a storage is a URL that Optuna can be given.

    Raises:
        BadInput: it is not.
    """
    from sqlalchemy.engine import make_url  # A tenth of a second, and few sweeps have a copy.
    from sqlalchemy.exc import ArgumentError

    try:
        if not isinstance(storage, str):
            raise ArgumentError
        make_url(storage).get_dialect().import_dbapi()
    except ImportError as error:
        raise BadInput(
            f"storage={_shown(storage)!r} needs the module {error.name}: install it, or use "
            "sqlite:///FILE"
        ) from None
    except ArgumentError:
        raise BadInput(
            f"storage={storage!r} is not the URL of a database: use sqlite:///FILE, "
            "postgresql://USER@HOST/NAME or null"
        ) from None


def _shown(storage: str) -> str:
    """The URL without its password."""
    from sqlalchemy.engine import make_url

    return make_url(storage).render_as_string(hide_password=True)
