"""A guarded run's answer: what became of it, why, and where its picture is."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stabsweep import report
from stabsweep.errors import BadInput
from stabsweep.numerals import duration, share
from stabsweep.records import finite
from stabsweep.runlog import ABOUT, SUMMARY, Run, read_run
from stabsweep.store import read_environment
from stabsweep.verdict import Judgement, judge

FILES = "report.html run.png run.svg run.yaml steps.jsonl"
"""What a reader opens in a run's folder, the most useful first."""

CHECKPOINTS = "checkpoints"

NUMBERS = ("initial_loss", "blind_loss", "warmup_steps", "total_steps")
"""Keys of `run.yaml` that the judge needs."""


@dataclass(frozen=True)
class Watched:
    """A guarded run and its verdict.

    Attributes:
        run: its folder.
        judged: the verdict of its curves, by the judge of a sweep; None where no step was made.
        environment: what it ran on; empty where that cannot be read.
    """

    run: Run
    judged: Judgement | None
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        """Whether it was stable to its end, and was not stopped."""
        is_stable = self.judged is not None and self.judged.verdict.is_stable
        return is_stable and not self.run.failed and not self.run.summary.get("stopped")

    @property
    def headline(self) -> str:
        """Its outcome in one sentence."""
        return report.run_conclusion(self.run, self.judged)

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        columns, judged = self.run.columns, self.judged
        answer = [("Verdict", "none: no step was made")]
        if judged is not None:
            answer = [("Verdict", f"{judged.verdict.label}. {judged.reason}")]
        answer += [("Note", remark) for remark in report.run_remarks(self.run, judged)]
        answer += self._also
        cost = [("Attempts", f"{len(columns):,}, of which {self.num_steps:,} were steps")]
        seconds = self.run.summary.get("seconds")
        if isinstance(seconds, int | float) and math.isfinite(seconds):
            cost += [("Took", duration(seconds))]
        cost += [("Files", f"{self.run.folder}/ {FILES}")]
        if self.go_on:
            cost += [("Go on", ", or ".join(self.go_on.values()))]
        blocks = [textwrap.fill(self.headline, report.WIDTH)]
        blocks += ["\n".join(report.entry(*pair) for pair in part) for part in (answer, cost)]
        return "\n\n".join(block for block in blocks if block)

    @property
    def num_steps(self) -> int:
        """Updates that were made; what was undone counts, for it was paid."""
        return self.run.columns.outcomes.count("stepped")

    @property
    def go_on(self) -> dict[str, str]:
        """What may be done next -> the words to type; nothing for a run that came to its end."""
        folder = self.run.folder
        if self.run.summary and not self.run.failed and not self.run.summary.get("stopped"):
            return {}
        if not any((folder / CHECKPOINTS).glob("*")):
            return {}
        command = f"stabsweep train resume={_quoted(folder)}"
        return {
            "From its last verified checkpoint": command,
            "In a script of your own, on the guard of the same folder": "guard.resume()",
        }

    @property
    def _also(self) -> list[tuple[str, str]]:
        """What is said beside the verdict: a word and a text each."""
        columns = self.run.columns
        clipped = self.judged.clip_share if self.judged else 0.0
        known = [
            ("Skipped", report.skips_of(columns)),
            ("Bad", report.first_bad(columns)),
            ("Clipped", f"{share(clipped)} of the steps" if clipped else ""),
            ("Map", report.predicted_text(self.run)),
        ]
        return [(word, text) for word, text in known if text]

    def as_dict(self) -> dict[str, Any]:
        """The answer as plain values."""
        columns, judged = self.run.columns, self.judged
        known: dict[str, Any] = {"verdict": None, "reason": None}
        if judged is not None:
            known = {**judged.as_fields(), "verdict": judged.verdict.label}
        predicted = self.run.summary.get("predicted")
        return {
            "headline": self.headline,
            "ok": self.is_ok,
            **known,
            "attempts": len(columns),
            "steps": self.num_steps,
            "outcomes": {
                name: columns.outcomes.count(name) for name in dict.fromkeys(columns.outcomes)
            },
            "non_finite": report.first_bad(columns) or None,
            "events": [
                {
                    "kind": event.kind,
                    "attempt": event.attempt,
                    "last": event.last,
                    "step": event.step,
                    "message": event.message,
                }
                for event in report.events_of(self.run)
            ],
            "layers": [
                {
                    "name": line.name,
                    "grad_norm": finite(line.grad_norm),
                    "weight_norm": finite(line.weight_norm),
                    "update_ratio": finite(line.update_ratio),
                    "flags": list(line.flags),
                }
                for line in report.layer_lines(self.run)
            ],
            "predicted": dict(predicted) if isinstance(predicted, Mapping) else None,
            "stopped": self.run.summary.get("stopped"),
            "ended": bool(self.run.summary),
            "folder": str(self.run.folder),
        }

    def plot(self) -> Any:
        """The picture as a matplotlib figure: events, curves, layers."""
        return report.draw_run(report.run_info(self.run, self.judged))

    def save_report(self) -> list[Path]:
        """Writes `run.png`, `run.svg` and `report.html` into the run's folder; returns them.

        Raises:
            BadInput: the folder cannot be written to.
        """
        folder = self.run.folder
        try:
            paths = report.save_figure(self.plot(), folder, "run")
            page = report.render_run_page(
                self.run,
                self.judged,
                paths[0].read_bytes(),
                self._also,
                self.environment,
                {**self.go_on, "To draw this again": f"stabsweep report {_quoted(folder)}"},
            )
            return [report.save_page(folder, page), *paths]
        except OSError as error:
            raise BadInput(f"cannot write the report to {folder}: {error.strerror}") from None


def load_run(folder: str | Path) -> Watched:
    """A guarded run, read from its folder and judged anew; it may still be going on.

    Raises:
        BadInput: it is no such folder, or one of its files is not that of a run.
    """
    run = read_run(folder)
    if not len(run.columns):
        raise BadInput(f"{folder} holds a run without an attempt: wait until it has made one")
    for name, values in ((ABOUT, run.about), (SUMMARY, run.summary)):
        if values is not None and not isinstance(values, Mapping):
            raise BadInput(f"{Path(folder) / name} is not that of a run")
    run = replace(run, about=run.about or {}, summary=run.summary or {})
    for name in NUMBERS:
        value = run.about.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise BadInput(f"{Path(folder) / ABOUT}: {name}={value!r} is not a number")
    trace = run.trace()
    try:
        environment = read_environment(run.folder)
    except ValueError:
        # Torn by a kill, say: the run is no worse for it.
        environment = {}
    return Watched(run, judge(trace) if trace is not None else None, environment)


def _quoted(folder: Path) -> str:
    """A folder as a shell takes it."""
    return shlex.quote(str(folder))
