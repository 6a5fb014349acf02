"""The result folder: an append-only truth and what is derived from it.

    config.yaml         what was asked for, complete: `resume` reads it
    environment.json    the machine and the libraries
    notes.txt           which engine ran and why, cohorts that were halved; a line each
    records.jsonl       one line a finished trial, flushed as it ends: the truth
    traces.npy          (5, T) curves of the trials, in the order of `stabsweep.records.CURVES`, one
                        array after the other as `numpy.save` writes them; a record names its place:
                        traces.npy@OFFSET (in older folders a file of its own, traces/000000.npy)
    bracket.jsonl       the short trials that found the range, where there were some
    trials.csv          the records as a table
    pick.yaml           the recommendation; it is there when the sweep has ended
    theory.yaml         the edge of linear theory in the pick's row, where there is one
    thresholds.yaml     what the verdicts were judged with, when they were judged again
    records.before-judge.jsonl  the records as they were before that

Nothing is a pickle. A process that is killed at any moment loses no finished trial: the trace is
written before its record, and a line that was torn is cut off when the folder is opened again. An
array that was torn stays, and no record names it. One file for all curves, since making one takes
five times as long as writing to it, and shared disks are slow with thousands of them.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stabsweep.errors import BadInput
from stabsweep.plain import cut_torn_line, read_yaml, save_yaml, without_nan
from stabsweep.records import Array, Record, Trace

if TYPE_CHECKING:
    import pandas as pd

RECORDS, TRACES, CONFIG = "records.jsonl", "traces.npy", "config.yaml"
THRESHOLDS, NOTES, THEORY = "thresholds.yaml", "notes.txt", "theory.yaml"
BRACKET, PICK, TABLE = "bracket.jsonl", "pick.yaml", "trials.csv"


DERIVED = ("num_planned", "extended", "ending")
"""Keys of a config that follow from the others, and from how the sweep went."""


class Store:
    """A result folder that is written to.

    Args:
        folder: the folder; made when it is missing.
        config: what was asked for, as plain values; written when the folder is new.
        environment: the machine and the libraries; likewise.

    Raises:
        BadInput: the folder cannot be made or written to.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The config comes last and at once: a folder that has one is complete.
            if not (folder / CONFIG).exists():
                plain = without_nan(environment)
                text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
                (folder / "environment.json").write_text(text, encoding="utf-8")
                save_yaml(folder / CONFIG, config)
            # The answer to fewer trials; whoever watches takes it for the end.
            (folder / PICK).unlink(missing_ok=True)
            cut_torn_line(folder / RECORDS)
            self._file = open(folder / RECORDS, "a", encoding="utf-8")  # noqa: SIM115
            self._traces = open(folder / TRACES, "ab")  # noqa: SIM115
        except OSError as error:
            raise BadInput(
                f"cannot write results to {folder}: {error.strerror or error}; choose another "
                "folder with hydra.run.dir=DIR"
            ) from None

    def save_trace(self, trace: Trace) -> str:
        """Writes a trial's curves, at once; where they are, for its record."""
        place = f"{TRACES}@{self._traces.tell()}"
        np.save(self._traces, trace.stacked(), allow_pickle=False)
        self._traces.flush()
        return place

    def amend(self, config: Mapping[str, Any]) -> None:
        """Writes the config again, which now says how the sweep went on, or ended."""
        with contextlib.suppress(OSError):
            save_yaml(self.folder / CONFIG, config)

    def append(self, record: Record) -> None:
        """Writes a record, at once: it is kept whatever happens next."""
        self._file.write(_line(record))
        self._file.flush()

    def note(self, message: str) -> None:
        """Writes what the run has to say of itself, once."""
        line = " ".join(message.split())
        if line not in read_notes(self.folder):
            with open(self.folder / NOTES, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")

    def close(self) -> None:
        """Closes the files of records and of curves.

        What a full disk has refused once is refused again here; that was already told.
        """
        for file in (self._file, self._traces):
            with contextlib.suppress(OSError):
                file.close()


def read_records(folder: Path) -> list[Record]:
    """The records of a folder, in the order of their trials; a torn last line is left out.

    Raises:
        BadInput: the folder has no records file, or a line other than the last is broken.
    """
    path = folder / RECORDS
    if not path.is_file():
        raise BadInput(
            f"{folder} is no result folder: it has no {RECORDS}; give the folder of a sweep"
        )
    lines = path.read_bytes().split(b"\n")
    records: dict[int, Record] = {}
    # What follows the last newline is a line that was not finished.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = Record.from_dict(json.loads(line))
            records[record.trial] = record
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(
                f"{path}, line {number} is broken ({error!r}): remove that line"
            ) from None
    return [records[number] for number in sorted(records)]


def replace_records(folder: Path, records: Iterable[Record], expected: Iterable[Record]) -> Path:
    """Puts other records in the place of a folder's; returns where the old ones are kept.

    Old and new are whole files at every moment: the old one is kept under a name of its own
    before the new one, written completely, takes its place.

    Args:
        folder: the result folder.
        records: the new records.
        expected: the records that they were made from.

    Raises:
        BadInput: the folder holds other records than expected: a sweep is writing to it.
    """
    path, part = folder / RECORDS, folder / f"{RECORDS}.part"
    with open(part, "w", encoding="utf-8") as file:
        file.writelines(_line(record) for record in records)
        file.flush()
        os.fsync(file.fileno())
    if read_records(folder) != list(expected):
        part.unlink()
        raise BadInput(f"{folder} has changed meanwhile: wait until its sweep has ended")
    kept, number = folder / "records.before-judge.jsonl", 1
    while kept.exists():
        number += 1
        kept = folder / f"records.before-judge-{number}.jsonl"
    copy = folder / f"{kept.name}.part"
    shutil.copyfile(path, copy)
    os.replace(copy, kept)
    os.replace(part, path)
    return kept


_encode = json.JSONEncoder(allow_nan=False).encode


def _line(record: Record) -> str:
    return _encode(record.as_dict()) + "\n"


def read_config(folder: Path) -> dict[str, Any]:
    """What the sweep of a folder was asked for.

    Raises:
        BadInput: there is no such folder, or it is not a sweep's.
    """
    path = folder / CONFIG
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder: give the result folder of a sweep")
    if not path.is_file():
        raise BadInput(f"{folder} is no result folder: it has no {CONFIG}")
    config = read_yaml(path)
    if not isinstance(config, dict):
        raise BadInput(f"{path} is not the config of a sweep")
    return config


def read_environment(folder: Path) -> dict[str, Any]:
    """What the sweep of a folder ran on; empty when that was not written."""
    path = folder / "environment.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def read_notes(folder: Path) -> list[str]:
    """What the sweep of a folder had to say of itself; empty when that was not written."""
    path = folder / NOTES
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def read_thresholds(folder: Path) -> dict[str, Any]:
    """What the trials of a folder were judged again with; empty when they never were."""
    path = folder / THRESHOLDS
    return read_yaml(path) if path.is_file() else {}


def read_trace(folder: Path, record: Record) -> Array | None:
    """The (5, T) curves of a record, or None when they were not kept."""
    name, _, offset = (record.trace or "").partition("@")
    if not name or not (folder / name).is_file():
        return None
    with open(folder / name, "rb") as file:
        file.seek(int(offset or 0))
        return np.load(file, allow_pickle=False)


def as_table(records: Iterable[Record]) -> pd.DataFrame:
    """The records as a table: a column an axis, then everything else."""
    import pandas as pd  # A quarter of a second, which a sweep on the command line can do without.

    return pd.DataFrame(_columns(records))


def _columns(records: Iterable[Record]) -> dict[str, list[Any]]:
    """The columns of the table; where a number is missing its column holds floats."""
    rows = []
    for record in records:
        plain = record.as_dict()
        rows.append({"trial": plain.pop("trial"), **plain.pop("point"), **plain})
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
    for name, column in columns.items():
        kinds = {type(value) for value in column}
        if kinds <= {int, float, type(None)} and len(kinds) > 1 and kinds != {type(None)}:
            columns[name] = [None if value is None else float(value) for value in column]
    return columns


def save_outcome(folder: Path, records: Iterable[Record], pick: Mapping[str, Any]) -> None:
    """Writes what is derived from the records: `trials.csv` and `pick.yaml`."""
    columns = _columns(records)
    with open(folder / TABLE, "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator=os.linesep)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))
    save_yaml(folder / PICK, pick)


def save_proofs(folder: Path, proofs: Iterable[Mapping[str, Any]]) -> None:
    """Writes what the pick was put through, one JSON line a run."""
    lines = [json.dumps(proof, allow_nan=False) + "\n" for proof in proofs]
    (folder / "proofs.jsonl").write_text("".join(lines), encoding="utf-8")


def read_proofs(folder: Path) -> list[dict[str, Any]]:
    """What `save_proofs` wrote; nothing where there is no such file, or a torn one."""
    try:
        text = (folder / "proofs.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, ValueError):
        return []


def read_theory(folder: Path) -> dict[str, Any]:
    """The edge of linear theory as it was written; empty where there is none that can be read."""
    try:
        plain = read_yaml(folder / THEORY)
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def save_bracket(folder: Path, records: Iterable[Record]) -> None:
    """Writes the short trials that found the range of a sweep, one JSON line a trial."""
    (folder / BRACKET).write_text("".join(map(_line, records)), encoding="utf-8")


def read_bracket(folder: Path) -> list[Record]:
    """What `save_bracket` wrote; nothing where there is no such file, or a torn one."""
    try:
        text = (folder / BRACKET).read_text(encoding="utf-8")
        return [Record.from_dict(json.loads(line)) for line in text.splitlines()]
    except (OSError, ValueError, KeyError, TypeError):
        return []
