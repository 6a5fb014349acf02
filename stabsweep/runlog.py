"""The folder of a guarded run: one JSON line for every attempt at a step, kept as it was measured.

    run.yaml          what was asked for: policy, clipping, layers, the levels to compare with
    environment.json  the machine and the libraries
    steps.jsonl       one line an attempt, flushed as it ends: the truth
    summary.yaml      what became of it, written at the end
    checkpoints/      verified states, see `stabsweep.guard`

An *attempt* is one batch, or one window of accumulated ones, that was to become a step; `step`
counts the updates that were made before it. A line has these keys:

    attempt, step, outcome
    loss, grad_norm, clip_coef, update_ratio, lr   the curves of `stabsweep.records.CURVES`
    scale        loss scale of a gradient scaler
    layers       layer -> [gradient norm, weight norm, update norm], on the steps looked at closely
    logits       layer -> largest attention logit, likewise
    events       [{"kind": ..., "message": ...}], where there is something to say
    not_finite   name -> "nan", "inf" or "-inf": the curve itself is null there, never repaired

A run that goes on after it was killed repeats some attempts: the later line holds.
"""

from __future__ import annotations

import contextlib
import json
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep.errors import BadInput
from stabsweep.plain import cut_torn_line, read_yaml, save_yaml, without_nan
from stabsweep.records import CURVES, Array, Trace

ABOUT, STEPS, SUMMARY = "run.yaml", "steps.jsonl", "summary.yaml"
OF_PATH = ("stepped", "skipped_overflow")
"""Outcomes of attempts that a trace holds: an update, or one that a gradient scaler left out."""


class Columns:
    """The curves of a run in memory, an entry an attempt: 50 bytes each.

    Attributes:
        outcomes: the outcome of each attempt.
        events: (attempt, kind, message) of all that happened.
    """

    def __init__(self) -> None:
        self._numbers = {name: array("d") for name in ("attempt", "step", *CURVES)}
        self.outcomes: list[str] = []
        self.events: list[tuple[int, str, str]] = []

    def __len__(self) -> int:
        return len(self.outcomes)

    def append(self, line: Mapping[str, Any]) -> None:
        """Adds the line of an attempt, as measured or as `read_lines` returns it."""
        for name, column in self._numbers.items():
            column.append(line.get(name, math.nan))
        self.outcomes.append(line["outcome"])
        for event in line.get("events", ()):
            self.events.append((line["attempt"], event["kind"], event["message"]))

    def __getitem__(self, name: str) -> Array:
        """One column as (N,) float64: a curve, `attempt` or `step`."""
        # A copy: a view would forbid the array to grow.
        return np.array(self._numbers[name])

    def last(self, name: str, count: int) -> Array:
        """The last entries of a column."""
        return np.array(self._numbers[name][-count:])

    def path(self) -> Array:
        """The attempts that training consists of now, as indices; what was undone is left out."""
        rows = (
            np.flatnonzero(np.isin(self.outcomes, OF_PATH)) if self.outcomes else np.zeros(0, int)
        )
        step = self["step"][rows]
        stepped = np.array([self.outcomes[row] == OF_PATH[0] for row in rows], bool)
        # An update is undone where a later one has its number, or a smaller one.
        later = np.minimum.accumulate(np.where(stepped, step, np.inf)[::-1])[::-1]
        after = np.append(later[1:], np.inf)
        return rows[np.where(stepped, step < after, step <= after)]

    def trace(
        self,
        horizon: int | None = None,
        *,
        initial_loss: float | None = None,
        blind_loss: float | None = None,
        warmup_steps: int = 0,
        failed: bool = False,
    ) -> Trace | None:
        """The curves as a sweep's trial would have them, for `stabsweep.judge`; None before any.

        Args:
            horizon: updates that the run was to make; None: as many as it made.
            initial_loss: loss before training; None takes the first.
            blind_loss: loss of the best predictor that ignores its input.
            warmup_steps: updates until the peak rate.
            failed: whether what was skipped last belongs to it: then the run ended so.
        """
        rows = self.path()
        if failed and self.outcomes and self.outcomes[-1] not in OF_PATH:
            rows = np.append(rows, len(self.outcomes) - 1)
        if not len(rows):
            return None
        loss, *others = (self[name][rows] for name in CURVES)
        if initial_loss is None:
            initial_loss = float(loss[0])
        return Trace(
            loss,
            *others,
            initial_loss=initial_loss,
            blind_loss=blind_loss,
            horizon=horizon or len(rows),
            warmup_steps=warmup_steps,
        )


class RunLog:
    """A run's folder that is written to.

    Args:
        folder: made when it is missing.
        about: what was asked for, plain values.
        environment: as `stabsweep.environment.take` returns it.
        go_on: whether lines may follow those that are there.

    Raises:
        BadInput: the folder cannot be written to, or has a run already.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Any],
        environment: Mapping[str, Any],
        go_on: bool = False,
    ) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            steps = folder / STEPS
            if steps.exists() and steps.stat().st_size and not go_on:
                raise BadInput(
                    f"log={str(folder)!r} holds a run already: choose another folder, or go on "
                    "with it (guard.resume(), stabsweep train resume=DIR)"
                )
            if not (folder / ABOUT).exists() or not go_on:
                text = json.dumps(without_nan(environment), indent=2, allow_nan=False) + "\n"
                (folder / "environment.json").write_text(text, encoding="utf-8")
                save_yaml(folder / ABOUT, about)
            cut_torn_line(steps)
            self._file = open(steps, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise BadInput(
                f"cannot write to log={str(folder)!r} ({error.strerror or error}): choose another "
                "folder"
            ) from None

    def append(self, line: Mapping[str, Any]) -> None:
        """Writes the line of an attempt, at once."""
        self._file.write(as_json(line))
        self._file.flush()

    def release(self) -> None:
        """Closes the file; what is not on the disk yet may be lost."""
        with contextlib.suppress(OSError):
            self._file.close()

    def close(self, summary: Mapping[str, Any]) -> None:
        """Writes the summary and closes the file."""
        self.release()
        save_yaml(self.folder / SUMMARY, without_nan(summary))


@dataclass(frozen=True)
class Run:
    """A run as its folder tells it.

    Attributes:
        folder: where it lies.
        about: what was asked for.
        columns: its curves.
        layers: layer -> (M, 4): attempt, gradient norm, weight norm, update norm.
        logits: layer -> (M, 2): attempt, largest attention logit.
        outputs: layer -> (M, 2): attempt, largest magnitude of its output; of a replay alone.
        scales: (M, 2): attempt, loss scale; empty without a scaler.
        summary: what became of it; empty while it runs, or where it was killed.
    """

    folder: Path
    about: Mapping[str, Any]
    columns: Columns
    layers: Mapping[str, Array] = field(default_factory=dict)
    logits: Mapping[str, Array] = field(default_factory=dict)
    outputs: Mapping[str, Array] = field(default_factory=dict)
    scales: Array = field(default_factory=lambda: np.zeros((0, 2)))
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it was stopped by its guard."""
        return bool(self.columns.outcomes) and self.columns.outcomes[-1] == "stopped"

    def trace(self) -> Trace | None:
        """Its curves for `stabsweep.judge`, see `Columns.trace`."""
        known = ("initial_loss", "blind_loss", "warmup_steps")
        given = {name: self.about[name] for name in known if self.about.get(name) is not None}
        return self.columns.trace(self.about.get("total_steps"), **given, failed=self.failed)


def is_run(folder: str | Path) -> bool:
    """Whether a folder is that of a guarded run."""
    return (Path(folder) / STEPS).is_file()


def read_run(folder: str | Path) -> Run:
    """The run that a folder holds; a line that was torn by a kill is left out.

    Raises:
        BadInput: there is no run, or its file is not ours.
    """
    folder = Path(folder)
    if not is_run(folder):
        raise BadInput(f"{folder} holds no run: there is no {STEPS}")
    columns = Columns()
    tables: tuple[dict[str, list[Sequence[float]]], ...] = ({}, {})
    scales = []
    for line in read_lines(folder / STEPS):
        columns.append(line)
        for key, table in zip(("layers", "logits"), tables, strict=True):
            for name, value in line.get(key, {}).items():
                values = value if isinstance(value, list) else [value]
                row = [math.nan if number is None else number for number in values]
                table.setdefault(name, []).append([line["attempt"], *row])
        if "scale" in line:
            scales.append([line["attempt"], line["scale"]])
    layers, logits = ({name: np.array(rows) for name, rows in table.items()} for table in tables)
    summary = read_yaml(folder / SUMMARY) if (folder / SUMMARY).exists() else {}
    about = read_yaml(folder / ABOUT) if (folder / ABOUT).exists() else {}
    scales = np.array(scales).reshape(-1, 2)
    return Run(folder, about, columns, layers, logits, scales=scales, summary=summary)


def read_about(folder: Path) -> dict[str, Any]:
    """What a run was asked for.

    Raises:
        BadInput: the folder holds no run.
    """
    if not (folder / ABOUT).is_file():
        raise BadInput(f"{folder} holds no run: there is no {ABOUT}")
    about = read_yaml(folder / ABOUT)
    if not isinstance(about, dict):
        raise BadInput(f"{folder / ABOUT} is not that of a run")
    return about


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a run in order, the later one where an attempt was repeated.

    What was not finite is so again: NaN or infinite, where the file has null.

    Raises:
        BadInput: a line that is not the last one cannot be read.
    """
    lines: dict[int, dict[str, Any]] = {}
    texts = path.read_text(encoding="utf-8").split("\n")
    for number, text in enumerate(texts):
        try:
            line = json.loads(text) if text else None
            if line is not None:
                for name in CURVES:
                    if line.get(name, 0) is None:
                        line[name] = float(line.get("not_finite", {}).get(name, "nan"))
                if line.get("resumed"):
                    # What had come after it is repeated as well, or was never made.
                    lines = {n: old for n, old in lines.items() if n < line["attempt"]}
                lines[line["attempt"]] = line
        except (ValueError, TypeError, KeyError, AttributeError):
            if number < len(texts) - 1:
                raise BadInput(f"{path} line {number + 1} is not a line of a run") from None
    yield from (lines[attempt] for attempt in sorted(lines))


def as_json(line: Mapping[str, Any]) -> str:
    """A line as its file holds it, with its line break."""
    try:
        return json.dumps(line, allow_nan=False) + "\n"
    except ValueError:
        # Something is not finite, which is rare.
        pass
    plain = without_nan(line)
    bad = {
        name: str(float(value))
        for name, value in line.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    if bad:
        plain["not_finite"] = bad
    return json.dumps(plain, allow_nan=False) + "\n"
