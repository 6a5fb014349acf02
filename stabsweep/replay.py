"""A recorded trial, trained again under a close watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep.agreement import find_agreement
from stabsweep.engine import Loop, is_out_of_memory, no_memory
from stabsweep.errors import BadInput
from stabsweep.guard.runaway import find_runaways
from stabsweep.guard.witness import Witness
from stabsweep.limits import check_count
from stabsweep.progress import Watcher
from stabsweep.recorded import Recorded, other_end, record_of, watched
from stabsweep.records import Array, Record, Verdict
from stabsweep.replayed import RUNAWAY, Replay
from stabsweep.result import Result, whole_curves
from stabsweep.runlog import Run
from stabsweep.target import one_line
from stabsweep.theory import answer_row


def find_replay(
    result: Result,
    trial: int | None = None,
    *,
    steps: int | None = None,
    model: Any = None,
    task: Any = None,
    watcher: Watcher | str = "auto",
) -> Replay:
    """Trains a trial of a sweep again, in the plain loop, and finds where it broke first.

    Every step is looked at layer by layer, and the first loss or gradient that is not finite as
    closely as a guard looks. Rounding is not that of the sweep where that was stacked: a trial
    whose rounding grows parts from its curve, which is said.

    Args:
        result: of the sweep, as `stabsweep.sweep` or `stabsweep.load` gives it.
        trial: its number; None is the trial of the lowest rate that broke, see `telling`.
        steps: how far to train; None: as far as the sweep did.
        model: the model again, where it was a Python object.
        task: the task again, likewise.
        watcher: as `stabsweep.sweep` takes it.

    Raises:
        BadInput: there is no such trial, or it cannot be trained again.
    """
    began = time.perf_counter()
    record = record_of(result.region, trial) if trial is not None else telling(result)
    again = Recorded.find(result, record, "find_replay", model, task)
    check_count("steps", 1 if steps is None else steps, 1, again.setup.horizon)
    # One that ended in an error is to come to it again, or to get past it.
    count = steps or (again.setup.horizon if record.state == "failed" else record.steps)
    stored = whole_curves(result.folder, record) if result.folder else None
    title = f"replay of trial {record.trial} of {result.subject}"
    with watched(watcher, title, count, "step") as tell:
        witness = _witnessed(again, count, tell)
    if record.state == "failed":
        known = {"blind_loss": again.setup.task.blind_loss, "horizon": again.setup.horizon}
        again = replace(again, record=replace(record, initial_loss=witness.initial_loss, **known))
    judgement = again.judged(witness.curves)
    verdict = judgement.verdict if record.state == "failed" else again.settled(judgement)
    runaways = find_runaways(witness.tables())
    agreement = None
    if stored is not None:
        tolerance = again.setup.precision.tolerance
        agreement = find_agreement(witness.curves[0], stored[0], tolerance)
    replay = Replay(
        result.subject,
        record,
        judgement,
        verdict,
        _run(witness, result.folder, again.setup.task.blind_loss),
        stored,
        tuple(runaways),
        witness.diagnosis,
        witness.lost_norm,
        agreement,
        tuple(_notes(record, verdict, witness.num_steps, stored)),
        time.perf_counter() - began,
    )
    if replay.first is not None and replay.first.step is not None:
        replay.run.columns.events.append((replay.first.step, RUNAWAY, replay.first.name))
    return replay


def telling(result: Result) -> Record:
    """The trial that says most: of those that broke the one with the lowest rate.

    One that diverged goes before one that failed otherwise, and the row of the pick before others.
    Where none broke it is the trial of the highest rate.

    Raises:
        BadInput: no trial has ended.
    """
    region = result.region
    if not region.records:
        raise BadInput("no trial of this sweep has ended: there is nothing to replay")
    answer = answer_row(region, result.pick)
    of_row = {r.trial for cell in answer[0].cells for r in cell.records} if answer else set()

    def rank(record: Record) -> tuple[Any, ...]:
        verdict = record.verdict
        is_bad = verdict is Verdict.INVALID or (verdict.is_judged and not verdict.is_stable)
        kind = 0 if verdict is Verdict.DIVERGED else 1 if is_bad else 2
        kind = 3 if record.state == "failed" else kind
        lr = record.lr if kind < 2 else -record.lr
        return kind, record.trial not in of_row, lr, record.seed, record.trial

    return min(region.records, key=rank)


def _witnessed(again: Recorded, count: int, tell: Callable[[int], None]) -> Witness:
    """The witness of a trial at its end."""
    number, loop, witness = again.record.trial, Loop(again.setup), None
    try:
        loop.admit([again.trial])
        witness = Witness(loop)
        while witness.num_steps < count and witness.step():
            tell(witness.num_steps)
        witness.close()
    except BadInput:
        raise
    except Exception as error:  # Whatever a model of the user's raises.
        if is_out_of_memory(error):
            raise no_memory() from error
        where = f"at step {witness.num_steps}" if witness else "before its first step"
        raise BadInput(f"trial={number} ended in an error {where}: {one_line(error)}") from error
    return witness


def _run(witness: Witness, folder: Path | None, blind_loss: float | None) -> Run:
    layers, logits, outputs = (
        {name: np.array(rows) for name, rows in found.items()}
        for found in (witness.layers, witness.logits, witness.outputs)
    )
    about = {"blind_loss": blind_loss}
    return Run(folder or Path(), about, witness.columns, layers, logits, outputs)


def _notes(record: Record, verdict: Verdict, num_steps: int, stored: Array | None) -> list[str]:
    """What a reader should know before a conclusion."""
    if record.state == "failed":
        error = record.error or "of which nothing is known"
        return [f"In the sweep it ended in an error ({error}), this time it did not."]
    is_whole = num_steps >= record.steps or verdict is Verdict.DIVERGED
    notes = [other_end(verdict, record)] if is_whole and verdict is not record.verdict else []
    if stored is None:
        notes.append("The sweep has kept no curves of it to compare with.")
    return notes
