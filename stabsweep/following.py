"""A sweep that runs elsewhere, followed from its files alone.

In another shell, on a shared disk, or in a folder that is copied from time to time. Nothing is
written, and no line has to be whole: what is torn is read again a second later.
"""

from __future__ import annotations

import csv
import json
import math
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.errors import BadInput
from stabsweep.extension import read_extensions, widened
from stabsweep.limits import check_count
from stabsweep.numerals import duration, plural
from stabsweep.progress import Progress, Watcher
from stabsweep.records import Record
from stabsweep.region import Region, find_region
from stabsweep.result import Result, load
from stabsweep.runlog import is_run
from stabsweep.space import Space
from stabsweep.store import CONFIG, PICK, RECORDS, TABLE, read_config, read_notes

POLL_SECONDS = 1.0
"""Time between two looks at the folder: a look costs a listing of a dozen files."""

QUIET_SECONDS, QUIET_GAPS = 60.0, 3
"""Silence that is worth a word: so long, and so many times the longest that has been seen to end.
Ours: nothing is written while trials train, and who watches cannot see them do it."""


def follow(
    folder: Path,
    watcher: Watcher | str = "auto",
    wait_seconds: float = 0.0,
    patience_seconds: float = math.inf,
) -> Result | str:
    """The result of a sweep, once it has ended; until then a watcher is told how far it has come.

    Args:
        folder: of the sweep, which is left as it is.
        watcher: `auto`, `live`, `plain`, `off`, or a `Watcher`.
        wait_seconds: how long the folder may take to become that of a sweep.
        patience_seconds: how long nothing may be written before the watching ends.

    Returns:
        What is known of the silence, where the patience came to its end first.

    Raises:
        BadInput: it is no folder of a sweep.
    """
    followed = Followed(folder, *_wait_for_config(folder, wait_seconds))
    if isinstance(watcher, str):
        watcher = report.watcher(watcher, followed.space)
    followed.look()
    if followed.has_ended:
        return _loaded(folder)
    watcher.start(followed.subject, followed.progress())
    try:
        while True:
            for note in followed.take_notes():
                watcher.note(note)
            watcher.update(followed.progress())
            if followed.has_ended:
                break
            if followed.quiet_seconds > patience_seconds:
                return followed.silence
            time.sleep(POLL_SECONDS)
            followed.look()
    finally:
        watcher.stop()
    return _loaded(folder)


def _loaded(folder: Path) -> Result:
    """The result of a sweep that has ended: before its last trial, where it was interrupted."""
    result = load(folder)
    is_cut = len(result.region.records) < result.config["num_planned"]
    return replace(result, interrupted=is_cut)


class Followed:
    """What the files of a sweep say of it, as far as they can be read.

    The rate at which trials end is that of the time since the following began.

    Args:
        folder: of the sweep.
        config, space: as first read from it.

    Attributes:
        space: what is swept; a later extension widens it.
        region: of the trials read so far.
        has_ended: whether the answer to just these trials has been written.
    """

    def __init__(self, folder: Path, config: dict[str, Any], space: Space) -> None:
        self.folder, self.space, self._config = folder, space, config
        self._lines = _Lines(folder / RECORDS)
        self._files: dict[str, tuple[int, ...]] = {}
        self._said: list[str] = []
        self._longest_gap = 0.0
        self._began = self._changed = time.monotonic()
        self._due = QUIET_SECONDS
        self._has_said_stuck = False
        self._num_before: int | None = None
        self.region: Region = find_region(self.space, [])
        self.has_ended = False

    @property
    def subject(self) -> str:
        """What is swept, for a headline."""
        return Result.find(self.space, [], self._config).subject

    @property
    def num_planned(self) -> int:
        """Trials that the sweep will run in all, as far as it knows by now."""
        return int(self._config["num_planned"])

    @property
    def quiet_seconds(self) -> float:
        """How long nothing has been written."""
        return time.monotonic() - self._changed

    def look(self) -> None:
        """Reads what is new; what cannot be read, on a disk that is away for a moment, waits."""
        try:
            files = _signatures(self.folder)
            if files == self._files and not self._lines.num_stops:
                return
            if files.get(CONFIG) != self._files.get(CONFIG):
                self._config, self.space = _read_config(self.folder)
            self._lines.read()
            is_reported = len(self._lines.records) == _num_reported(self.folder)
        except (OSError, BadInput):
            return
        if files != self._files:
            self._note_change(files)
        self._files = files
        records = list(self._lines.records.values())
        self.region = find_region(self.space, records)
        if self._num_before is None:
            self._num_before = len(records)
        self.has_ended = is_reported and PICK in files

    def _note_change(self, files: dict[str, tuple[int, ...]]) -> None:
        """Keeps when something was last written, and how long a silence lasted that has ended."""
        now = time.monotonic()
        if self._files:
            self._longest_gap = max(self._longest_gap, now - self._changed)
            self._changed = now
        else:
            # By the clocks of two machines, which may differ: nothing is written in the future.
            age = time.time() - max((time_ns for _, time_ns, _ in files.values()), default=0) / 1e9
            self._changed = now - max(age, 0.0)
        self._due = max(QUIET_SECONDS, QUIET_GAPS * self._longest_gap)

    def take_notes(self) -> list[str]:
        """What the sweep has had to say of itself since the last time, and whether it is silent."""
        try:
            known = read_notes(self.folder)
        except (OSError, ValueError):
            known = self._said
        notes = known[len(self._said) :]
        self._said = known
        is_stuck = self._lines.num_stops > 1
        if is_stuck and not self._has_said_stuck:
            notes.append(
                f"{RECORDS} has a broken line after {plural(len(self._lines.records), 'trial')}: "
                "what follows is not read until it is whole"
            )
        self._has_said_stuck = is_stuck
        quiet = self.quiet_seconds
        if quiet > self._due and not self.has_ended:
            self._due = 2 * quiet
            notes.append(self.silence)
        return notes

    @property
    def silence(self) -> str:
        """How long nothing was written, what was last, and what that may mean."""
        said = f"nothing has been written for {duration(self.quiet_seconds)}"
        if not self.folder.is_dir():
            return f"{said}, and {self.folder} is gone"
        last = self._lines.last
        said += f" (last: trial {last.trial}, {last.verdict.label})" if last else " (no trial yet)"
        if self._is_complete:
            said += "; all trials have ended, so the pick may be in its tests"
        return f"{said}; if the sweep was killed, go on with: stabsweep resume {self.folder}"

    @property
    def _is_complete(self) -> bool:
        return len(self.region.records) >= self.num_planned or "ending" in self._config

    def progress(self) -> Progress:
        """How far the sweep has come."""
        done, before = len(self.region.records), self._num_before or 0
        seconds = time.monotonic() - self._began
        rate = (done - before) / seconds if seconds > 0 else 0.0
        is_quiet = self.quiet_seconds > max(QUIET_SECONDS, QUIET_GAPS * self._longest_gap)
        todo = max(self.num_planned - done, 0)
        # Who lists rates wants them all, see `Plan.rule`.
        may_stop = (
            _name(self._config.get("sampler")) == "boundary"
            and not self.space.axes["lr"].values
            and not self._is_complete
        )
        return Progress(
            num_trials=max(self.num_planned, done),
            num_done=done,
            num_before=before,
            seconds=seconds,
            eta_seconds=todo / rate if rate > 0 and not is_quiet else None,
            counts=dict(Counter(record.verdict for record in self.region.records)),
            records=self.region.records,
            may_stop=may_stop,
            **self.region.landmarks,
        )


class _Lines:
    """The records of a file that grows; each line is read once.

    Attributes:
        records: by the number of their trials.
        last: the record of the last line.
        num_stops: how often in a row the reading stopped at a line that is whole and no record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self.records: dict[int, Record] = {}
        self.last: Record | None = None
        self._offset, self._tail = 0, b""
        self.num_stops = 0

    def read(self) -> None:
        """Reads the lines that are new, up to one that is not whole or not readable yet.

        Raises:
            OSError: the file is there and cannot be read.
        """
        try:
            file = open(self._path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            return
        with file:
            file.seek(self._offset - len(self._tail))
            if file.read(len(self._tail)) != self._tail:
                # Another file is there, shorter or judged again.
                self._begin()
                file.seek(0)
            lines = file.read().split(b"\n")[:-1]
        for line in lines:
            try:
                record = Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                # A shared disk may show zeros where the writer's bytes have not arrived yet.
                self.num_stops += 1
                return
            self.num_stops = 0
            self.records[record.trial] = self.last = record
            self._offset += len(line) + 1
            self._tail = line + b"\n"


def _wait_for_config(folder: Path, seconds: float) -> tuple[dict[str, Any], Space]:
    """The config of a folder, which may take some seconds to appear, and the space in it."""
    end = time.monotonic() + seconds
    while True:
        if is_run(folder):
            raise BadInput(
                f"{folder} is that of a guarded run, whose state is printed by: "
                f"stabsweep report {folder}"
            )
        try:
            return _read_config(folder)
        except (BadInput, OSError) as error:
            left = end - time.monotonic()
            if left <= 0:
                hint = "" if (folder / CONFIG).exists() else "; wait=SECONDS waits until it is one"
                raise BadInput(f"{error}{hint}") from None
        time.sleep(min(left, POLL_SECONDS))


def _read_config(folder: Path) -> tuple[dict[str, Any], Space]:
    """The config of a folder and the space in it, with all that following needs.

    Raises:
        BadInput: there is none, or it is not whole.
    """
    config = read_config(folder)
    try:
        check_count("num_planned", config["num_planned"], low=0)
        space = widened(Space.parse(config["space"]), read_extensions(config))
        Result.find(space, [], config)
    except KeyError as error:
        raise BadInput(f"{folder}/{CONFIG} lacks the key {error}") from None
    return config, space


def _name(choice: Any) -> Any:
    return choice.get("name") if isinstance(choice, dict) else choice


def _signatures(folder: Path) -> dict[str, tuple[int, ...]]:
    """What changes when a file of a folder does: its size, its time, or which file it is."""
    with os.scandir(folder) as entries:
        stats = {entry.name: entry.stat() for entry in entries if entry.is_file()}
    return {name: (s.st_size, s.st_mtime_ns, s.st_ino) for name, s in stats.items()}


def _num_reported(folder: Path) -> int:
    """Trials in the table that a sweep writes at its end; -1 where there is none."""
    try:
        with open(folder / TABLE, encoding="utf-8", newline="") as file:
            return max(sum(bool(row) for row in csv.reader(file)) - 1, 0)
    except FileNotFoundError:
        return -1
