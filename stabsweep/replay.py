"""A recorded trial, trained again under a close watch: where it broke first, and why."""

from __future__ import annotations

import math
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep import report
from stabsweep.agreement import Agreement, find_agreement
from stabsweep.engine import Loop, is_out_of_memory, no_memory
from stabsweep.errors import BadInput
from stabsweep.guard import Diagnosis
from stabsweep.guard.runaway import Runaway, find_runaways
from stabsweep.guard.witness import Witness
from stabsweep.limits import check_count
from stabsweep.numerals import duration, plural, rate
from stabsweep.plain import without_nan
from stabsweep.progress import Watcher
from stabsweep.recorded import Recorded, other_end, record_of, title_of, watched
from stabsweep.records import Array, Record, Verdict
from stabsweep.result import Result, whole_curves
from stabsweep.runlog import Run
from stabsweep.target import one_line
from stabsweep.theory import answer_row
from stabsweep.verdict import Judgement

MAX_ROWS = 6
"""Rows of the table; the file has all layers."""

RUNAWAY = "runaway"


@dataclass(frozen=True)
class Replay:
    """What a trial did when it was trained again.

    Attributes:
        subject: what was swept, `sgd on mlp`.
        record: the trial as the sweep recorded it.
        judgement: what the training did this time; `verdict` is its settled word.
        verdict: see above.
        run: its curves, its early warnings and its layers, a step an attempt.
        stored: (5, T) curves that the sweep has kept; None without them.
        runaways: what grew, see `stabsweep.guard.runaway`.
        diagnosis: of the step that was not finite; None without one.
        lost_norm: the gradient norm that the format could not hold, where that ended it.
        agreement: how far the loss is that of the sweep; None where that kept none.
        notes: what weakens the answer, a sentence each.
        seconds: how long it took.
    """

    subject: str
    record: Record
    judgement: Judgement
    verdict: Verdict
    run: Run
    stored: Array | None
    runaways: tuple[Runaway, ...]
    diagnosis: Diagnosis | None
    lost_norm: float | None
    agreement: Agreement | None
    notes: tuple[str, ...]
    seconds: float

    @property
    def title(self) -> str:
        """Which trial it is, see `title_of`."""
        return title_of(self.subject, self.record)

    @property
    def num_steps(self) -> int:
        """Steps that were made, the broken one included."""
        return len(self.run.columns)

    @property
    def step(self) -> int | None:
        """The first step at which something was not finite; None where all was."""
        return self.judgement.bad_step

    @property
    def is_broken(self) -> bool:
        """Whether it was unstable, or not finite at once."""
        return self.step is not None or (self.verdict.is_judged and not self.verdict.is_stable)

    @property
    def first(self) -> Runaway | None:
        """What ran away first; None where nothing did before a step that was not finite."""
        end = self.num_steps if self.step is None else self.step
        is_first = bool(self.runaways) and self.runaways[0].step is not None
        return self.runaways[0] if is_first and self.runaways[0].step < end else None  # type: ignore[operator]

    @property
    def sentence(self) -> str:
        """Where it broke first, in a sentence or two."""
        word = self.verdict.label.replace("_", " ")
        if self.step is not None:
            head = f"Broke at step {self.step}: {self._broken}."
        elif self.is_broken:
            head = f"Broke, though all was finite ({word})."
        else:
            head = f"Did not break in {plural(self.num_steps, 'step')} ({word})."
        return f"{head} {self._grown}".strip()

    @property
    def _broken(self) -> str:
        """What was not finite."""
        found = self.diagnosis
        if self.lost_norm is not None:
            norm = rate(self.lost_norm)
            return f"the gradient was finite, but not the sum of its squares (its norm is {norm})"
        if found is None:
            layers = [name for name, table in self.run.layers.items() if _is_bad(table, self.step)]
            more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
            where = f", last in the gradient of {layers[-1]}{more}" if layers else ""
            return f"the loss scale collapsed{where}"
        if found.weights:
            return f"the weights {found.weights[0].name} were not finite"
        if found.inputs:
            return f"the batch was not finite ({found.inputs[0].name})"
        if found.module is not None:
            return f"the output of {found.module or 'the model'} was not finite"
        if found.is_loss_finite:
            return f"the gradient of {found.gradients[0].name} was not finite, the loss was"
        return "the loss was not finite, what the model returned was"

    @property
    def _grown(self) -> str:
        """What ran away first, or how little anything grew."""
        first = self.first
        if first is None:
            if self.step == 0:
                return ""
            known = [one for one in self.runaways if math.isfinite(one.factor)]
            if not known:
                return "Nothing had grown before."
            most = max(known, key=lambda one: one.factor)
            grew = f"{most.name} grew to {rate(most.factor)} times its level at step"
            return f"Nothing ran away: at most {grew} {most.high_step}."
        others = sum(one.step == first.step for one in self.runaways) - 1
        more = f" (with {others} more)" if others else ""
        back = "" if first.back_step is None else f", and was back by step {first.back_step}"
        name = first.name[0].upper() + first.name[1:]
        return (
            f"{name} ran away first, at step {first.step}{more}: from {rate(first.low)} to "
            f"{rate(first.high)} at step {first.high_step}{back}."
        )

    @property
    def warnings(self) -> list[tuple[int, str, str]]:
        """Early warnings as a guard would have given them: step, kind, message."""
        return [event for event in self.run.columns.events if event[1] != RUNAWAY]

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        blocks = [textwrap.fill(f"{self.title}: {self.sentence}", report.WIDTH)]
        blocks.append("\n".join(_table(self.runaways[:MAX_ROWS])))
        said = [("Verdict", f"{self.verdict.label}. {self.judgement.reason}")]
        if self.diagnosis is not None:
            found = self.diagnosis
            said += [("Cause", found.cause.value), ("Seen", found.evidence), ("Cure", found.cure)]
        if self.warnings:
            early = (f"{kind.replace('_', ' ')} at step {at}" for at, kind, _ in self.warnings)
            said.append(("Warned", ", ".join(early)))
        if self.agreement is not None:
            said.append(("Curve", self.agreement.sentence))
        said += [("Note", note) for note in self.notes]
        said.append(("Took", duration(self.seconds)))
        blocks.append("\n".join(report.entry(*pair) for pair in said))
        return "\n\n".join(block for block in blocks if block)

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        found = self.diagnosis
        return without_nan(
            {
                "subject": self.subject,
                "trial": self.record.trial,
                "point": dict(self.record.point),
                "seed": self.record.seed,
                "broke": self.is_broken,
                "step": self.step,
                "steps": self.num_steps,
                "verdict": self.verdict.label,
                "reason": self.judgement.reason,
                "sentence": self.sentence,
                "first": None if self.first is None else asdict(self.first),
                "cause": found.cause.label if found else None,
                "evidence": found.evidence if found else None,
                "cure": found.cure if found else None,
                "module": found.module if found else None,
                "runaways": [asdict(one) for one in self.runaways],
                "warnings": [
                    {"step": at, "kind": kind, "message": message}
                    for at, kind, message in self.warnings
                ],
                "curve": asdict(self.agreement) if self.agreement else None,
                "notes": list(self.notes),
                "seconds": self.seconds,
            }
        )

    def plot(self) -> Any:
        """The picture as a matplotlib figure: curves beside those of the sweep, and layers."""
        remarks = [str(self.diagnosis.cause.value)] if self.diagnosis else [self.judgement.reason]
        remarks += [self.agreement.sentence] if self.agreement else []
        title = f"{self.title}: {self.sentence}"
        info = report.replay_info(self.run, self.judgement, self.stored, title, remarks)
        return report.draw_run(info)

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `replay_trial_N.png`, `.svg` and `.csv`; returns their paths.

        The table has a row for each layer at each step.

        Raises:
            BadInput: the folder cannot be written to.
        """
        name = f"replay_trial_{self.record.trial}"
        path = Path(folder) / f"{name}.csv"
        try:
            import pandas as pd

            pd.DataFrame(self._rows()).to_csv(path, index=False)
            return [*report.save_figure(self.plot(), folder, name), path]
        except OSError as error:
            raise BadInput(f"cannot write {name} to {folder}: {error.strerror}") from None

    def _rows(self) -> dict[str, Array]:
        """The columns of the table."""
        names, count = list(self.run.layers), self.num_steps
        whole = np.stack([self.run.layers[name] for name in names], axis=1)
        outputs = np.full((count, len(names)), math.nan)
        for column, name in enumerate(names):
            for step, value in self.run.outputs.get(name, ()):
                outputs[int(step), column] = value
        sweep = np.full(count, math.nan)
        if self.stored is not None:
            known = self.stored[0, :count]
            sweep[: len(known)] = known
        columns = self.run.columns
        each = {"step": np.arange(count), "lr": columns["lr"], "loss": columns["loss"]}
        each["loss_in_sweep"] = sweep
        layers = {"layer": np.tile(np.array(names, object), count)}
        of_layer = ("grad_norm", "weight_norm", "update_norm")
        return {
            **{key: np.repeat(values, len(names)) for key, values in each.items()},
            **layers,
            **{key: whole[:, :, n + 1].reshape(-1) for n, key in enumerate(of_layer)},
            "output": outputs.reshape(-1),
        }


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
    count = steps or record.steps or again.setup.horizon
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
    notes = other_end(verdict, record)
    if stored is None:
        notes.append("The sweep has kept no curves of it to compare with.")
    return notes


def _table(runaways: Sequence[Runaway]) -> list[str]:
    """A line each, aligned: what grew, since when, from where to where."""
    if not runaways:
        return []
    table = [["", "ran away", "from", "to", "at step"]]
    for one in runaways:
        since = "no" if one.step is None else f"step {one.step}"
        numbers = rate(one.low), rate(one.high), str(one.high_step)
        table.append([one.name.removeprefix("the "), since, *numbers])
    widths = [max(len(line[n]) for line in table) for n in range(len(table[0]))]
    return [
        "  ".join(
            [
                line[0].ljust(widths[0]),
                *(t.rjust(w) for t, w in zip(line[1:], widths[1:], strict=True)),
            ]
        )
        for line in table
    ]


def _is_bad(table: Array, step: int | None) -> bool:
    """Whether the gradient of a layer was not finite at a step."""
    return step is not None and not bool(np.isfinite(table[step, 1]))
