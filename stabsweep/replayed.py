"""What a trial did that was trained again under a close watch: where it broke first, and why."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep import report
from stabsweep.agreement import Agreement
from stabsweep.errors import BadInput
from stabsweep.guard import Diagnosis
from stabsweep.guard.runaway import Runaway
from stabsweep.numerals import duration, plural, rate
from stabsweep.plain import without_nan
from stabsweep.recorded import title_of
from stabsweep.records import Array, Record, Verdict
from stabsweep.runlog import Run
from stabsweep.verdict import Judgement

MAX_ROWS = 6
"""Rows of the table; the file has all layers."""

RUNAWAY = "runaway"
"""Kind of the event that marks what ran away first; the others are early warnings."""


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
        if self.is_broken and self.step is not None and first is None:
            return "Nothing had grown tenfold before." if self.step else ""
        if not self.is_broken or first is None:
            most = max(self.runaways, key=lambda one: one.factor, default=None)
            if most is None:
                return ""
            grew = f"{most.name}, to {rate(most.factor)} times its level at step"
            return f"Largest growth: {grew} {most.high_step}."
        others = sum(one.step == first.step for one in self.runaways) - 1
        more = f" (with {others} more)" if others else ""
        back = "" if first.back_step is None else f", and was back by step {first.back_step}"
        name = first.name[0].upper() + first.name[1:]
        at = f" at step {first.high_step}" if first.high_step != first.step else ""
        return (
            f"{name} ran away first, at step {first.step}{more}: from {rate(first.low)} to "
            f"{rate(first.high)}{at}{back}."
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
            said.append(("Warned", _when(self.warnings)))
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
        remarks = [self.diagnosis.cause.value if self.diagnosis else self.judgement.reason]
        remarks += [message for _, _, message in self.warnings[:1]]
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


def _when(warnings: Sequence[tuple[int, str, str]]) -> str:
    """The first early warning as a guard says it, and when others came."""
    steps: dict[str, dict[int, None]] = {}
    for at, kind, _ in warnings[1:]:
        steps.setdefault(kind.replace("_", " "), {})[at] = None
    later = [f"{kind} at step {', '.join(map(str, found))}" for kind, found in steps.items()]
    return f"{warnings[0][2]}{'; then ' if later else ''}{', '.join(later)}"


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
