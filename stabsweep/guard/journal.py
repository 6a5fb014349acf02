"""What a guard remembers, writes and shows of a run."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stabsweep import environment
from stabsweep.guard.live import LiveLine
from stabsweep.guard.outcome import Outcome
from stabsweep.guard.trends import Look, Trends
from stabsweep.records import Trace, finite
from stabsweep.runlog import STEPS, Columns, RunLog, read_lines
from stabsweep.verdict import Judgement, judge, reason_to_stop

MAX_JUDGED = 2000
"""Steps that are judged while a run goes on; ours: the verdict so far is for the eye."""

CLIP_WINDOW = 200
"""Steps of the clip share that is shown."""


class Journal:
    """The lines of a run: in memory, in its folder, on the terminal and in TensorBoard.

    Args:
        folder: where they are written; None keeps them in memory.
        about: what was asked for, see `stabsweep.runlog`.
        live: the terminal's line.
        tensorboard: whether scalars go there too; None: where it is installed, and a folder given.
    """

    def __init__(
        self,
        folder: Path | None,
        about: Mapping[str, Any],
        live: LiveLine,
        tensorboard: bool | None = None,
    ) -> None:
        self.columns = Columns()
        self.folder = folder
        self._about = dict(about)
        self._live = live
        self._trends = Trends()
        self._log: RunLog | None = None
        self._events: list[dict[str, Any]] = []
        self._resumed = False
        self._began = time.monotonic()
        self._board = _board(folder, tensorboard)

    def open(self, attempt: int | None = None) -> None:
        """Begins the log, or goes on with the one that is there from a given attempt."""
        if self.folder is None:
            return
        self._resumed = attempt is not None and (self.folder / STEPS).exists()
        if self._resumed:
            for line in read_lines(self.folder / STEPS):
                if line["attempt"] < attempt:
                    self.columns.append(line)
                    self._read_trends(line, {})
        self._log = RunLog(self.folder, self._about, environment.take(), go_on=attempt is not None)

    def event(self, kind: str, message: str, **more: Any) -> None:
        """Something that happened at the attempt whose line comes next."""
        self._events.append({"kind": kind, "message": message, **more})
        self._live.say(f"stabsweep: {message}")

    def write(self, line: dict[str, Any], unmoved: Mapping[str, float] | None = None) -> None:
        """Writes the line of an attempt, with its events and the early warnings that it gives."""
        if line["outcome"] == Outcome.STEPPED.label:
            for warned in self._read_trends(line, unmoved or {}):
                at = f"step {line['step']}: {warned.message}"
                self.event(warned.kind, at, **({"layer": warned.layer} if warned.layer else {}))
        if self._events:
            line["events"], self._events = self._events, []
        if self._resumed:
            line["resumed"], self._resumed = True, False
        self.columns.append(line)
        self._keep({**line, "seconds": round(time.monotonic() - self._began, 3)})
        if self._board is not None:
            _to_board(self._board, line)
        if self._live.is_due:
            self.show(line)

    def _keep(self, line: Mapping[str, Any]) -> None:
        """Writes a line into the folder; a disk that is full ends the log, not the training."""
        if self._log is None:
            return
        try:
            self._log.append(line)
        except OSError as error:
            self._log.release()
            self._log = None
            self.event("log", f"the log ends here, training goes on: {error.strerror or error}")

    def show(self, line: Mapping[str, Any]) -> None:
        """Renews the terminal's line."""
        found = self.judge(thinned=True)
        self._live.show(
            line["step"],
            line["loss"],
            line["lr"],
            line["grad_norm"],
            self.clip_share,
            found.verdict.label if found else "",
        )

    @property
    def clip_share(self) -> float:
        """Share of the last attempts whose gradient was clipped."""
        last = self.columns.last("clip_coef", CLIP_WINDOW)
        return float(np.mean(last < 1)) if len(last) else 0.0

    def judge(self, failed: bool = False, thinned: bool = False) -> Judgement | None:
        """The verdict on the run so far, by the judge of the sweeps; None before a first step.

        Args:
            failed: whether the run has ended with what was not finite.
            thinned: every n-th step, so that it takes no time; spikes may be missed.
        """
        trace = self._trace(failed)
        if trace is None:
            return None
        if thinned and trace.num_steps > MAX_JUDGED:
            trace = trace.every(math.ceil(trace.num_steps / MAX_JUDGED))
        return judge(trace)

    def reason_to_stop(self) -> str | None:
        """Why the loss cannot become good any more, see `stabsweep.verdict.reason_to_stop`."""
        trace = self._trace()
        if trace is None:
            return None
        stride = max(trace.num_steps // MAX_JUDGED, 1)
        return reason_to_stop(
            np.arange(trace.num_steps)[::stride],
            trace.loss[::stride],
            initial_loss=trace.initial_loss,
            horizon=trace.horizon,
            warmup_steps=trace.warmup_steps,
            blind_loss=trace.blind_loss,
        )

    def _trace(self, failed: bool = False) -> Trace | None:
        known = ("initial_loss", "blind_loss", "warmup_steps")
        given = {name: self._about[name] for name in known if self._about.get(name) is not None}
        return self.columns.trace(self._about.get("total_steps"), **given, failed=failed)

    def summary(self, reason: str, steps: int) -> dict[str, Any]:
        """What became of the run, plain values."""
        columns, found = self.columns, self.judge(failed=bool(reason))
        losses, norms = columns["loss"], columns["grad_norm"]
        bad = np.flatnonzero(~np.isfinite(losses) | ~np.isfinite(norms))
        coefs = columns["clip_coef"]
        is_stepped = np.array([outcome == Outcome.STEPPED.label for outcome in columns.outcomes])
        share = float(np.mean(coefs[is_stepped] < 1)) if is_stepped.any() else 0.0
        return {
            "verdict": found.verdict.label if found else None,
            "reason": found.reason if found else "No step was made.",
            "stopped": reason or None,
            "steps": steps,
            "attempts": len(columns),
            "outcomes": dict(Counter(columns.outcomes)),
            "non_finite": {
                "count": len(bad),
                "first_attempt": int(columns["attempt"][bad[0]]) if len(bad) else None,
            },
            "clip_share": share,
            "final_loss": finite(found.final_loss) if found else None,
            "best_loss": finite(found.best_loss) if found else None,
            "seconds": round(time.monotonic() - self._began, 3),
            "events": dict(Counter(kind for _, kind, _ in columns.events)),
        }

    def close(self, summary: Mapping[str, Any]) -> None:
        """Writes the summary."""
        self._live.end()
        if self._log is not None:
            try:
                self._log.close(summary)
            except OSError as error:
                self._live.say(f"stabsweep: no summary was written: {error.strerror or error}")
            self._log = None
        if self._board is not None:
            self._board.close()

    def _read_trends(self, line: Mapping[str, Any], unmoved: Mapping[str, float]) -> Any:
        nan = math.nan
        layers = {
            name: tuple(nan if value is None else value for value in values)
            for name, values in line.get("layers", {}).items()
        }
        return self._trends.read(
            Look(
                line["grad_norm"],
                line["clip_coef"],
                line["lr"],
                line.get("update_ratio", nan),
                layers,  # type: ignore[arg-type]
                line.get("logits", {}),
                unmoved,
            )
        )


def _board(folder: Path | None, wanted: bool | None) -> Any:
    """TensorBoard's writer, where it is wanted and there."""
    if folder is None or wanted is False:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        if wanted:
            from stabsweep.errors import BadInput

            raise BadInput("tensorboard=True needs TensorBoard: pip install tensorboard") from None
        return None
    return SummaryWriter(str(folder / "tensorboard"))


def _to_board(board: Any, line: Mapping[str, Any]) -> None:
    """One line as scalars; a point that is not finite is written as it is."""
    for name in ("loss", "grad_norm", "clip_coef", "update_ratio", "lr", "scale"):
        if name in line:
            board.add_scalar(name, line[name], line["attempt"])
    for layer, (grad, weight, update) in line.get("layers", {}).items():
        board.add_scalar(f"grad_norm/{layer}", grad, line["attempt"])
        board.add_scalar(
            f"update_ratio/{layer}", update / weight if weight else 0.0, line["attempt"]
        )
