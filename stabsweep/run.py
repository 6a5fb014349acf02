"""The whole tool on one page: ask, admit, advance, judge, prune, tell."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stabsweep.engine import Chunk
from stabsweep.executor import Executor
from stabsweep.progress import Progress, Watcher
from stabsweep.records import (
    CURVES,
    Point,
    Record,
    Trace,
    Trial,
    Value,
    Verdict,
    finite,
    skipped,
)
from stabsweep.region import Region, find_region
from stabsweep.roster import Roster
from stabsweep.space import Space
from stabsweep.store import Store
from stabsweep.study import Study
from stabsweep.verdict import judge, scale_collapse

REGION_SECONDS, REGION_SHARE = 1.0, 0.01
"""Least time between two looks at the region for the live display, and the most of the whole time
that they may take: with thousands of trials a look costs a tenth of a second."""


@dataclass
class Run:
    """One sweep in progress: the study's trials go to the executor, their curves come back.

    Attributes:
        space: what is swept; a wider one may take its place, with a study, before another `run`.
        study: hands out trials and takes records.
        executor: where trials run.
        store: where records go; None to keep them in memory only.
        watcher: told how far the sweep has come.
        horizon: steps of a trial.
        rung_steps: steps between two looks at the losses.
        fixed: hyperparameters that no axis sweeps.
        blind_loss: of the task, at a point.
        records: the finished trials, in the order in which they ended.
    """

    space: Space
    study: Study | Roster
    executor: Executor
    store: Store | None
    watcher: Watcher
    horizon: int
    rung_steps: int
    fixed: Mapping[str, Value]
    blind_loss: Callable[[Point], float | None]
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._num_before = len(self.records)
        self._trials: dict[int, Trial] = {}
        self._chunks: dict[int, list[Chunk]] = {}
        self._began = time.perf_counter()
        self._region: Region | None = None
        self._region_of: tuple[Space, int] | None = None
        self._counts = Counter(record.verdict for record in self.records)
        self._region_due = 0.0

    def run(self) -> None:
        """Runs until every trial has ended, or until it is interrupted: records are kept."""
        while True:
            trials = self.study.ask(self.executor.num_free)
            self._trials.update((trial.number, trial) for trial in trials)
            self.executor.admit(trials)
            if not self.executor.num_running:
                # That it is enough is found out after the last trial was shown.
                if self.study.satisfied:
                    self.watcher.update(self.progress())
                break
            chunks = self.executor.advance(self.rung_steps)
            for chunk, loss in zip(chunks, _rung_losses(chunks), strict=True):
                self._take(chunk, loss)
            self.watcher.update(self.progress())

    def _take(self, chunk: Chunk, loss: float) -> None:
        """One piece of a trial's curves: kept, reported, and judged when the trial ends here."""
        number, num_steps = chunk.trial, chunk.curves.shape[1]
        if chunk.error is not None:
            return self._fail(self._trials[number], chunk.error)
        trial = self._trials[number]
        known = {}
        if chunk.start_step == 0:
            self._chunks[number] = []
            known = {
                "initial_loss": chunk.initial_loss,
                "horizon": self.horizon,
                "warmup_steps": self._value(trial, "warmup_steps"),
                "blind_loss": self.blind_loss(trial.point),
            }
        self._chunks[number].append(chunk)
        wants_stop = self.study.report(number, chunk.start_step + num_steps, loss, known)
        if chunk.is_done or wants_stop:
            if chunk.is_done:
                return self._finish(trial)
            self.executor.drop(number)
            self._finish(trial, "pruned", is_cut=self.study.is_cut(number))

    def _fail(self, trial: Trial, error: str) -> None:
        """A trial that ended with an error of the model's own: nothing to judge, but recorded."""
        chunks = self._chunks.pop(trial.number, [])
        self._keep(
            Record(
                trial.number,
                trial.point,
                trial.seed,
                Verdict.INVALID,
                state="failed",
                reason="It ended with an error of the model's own.",
                steps=sum(chunk.curves.shape[1] for chunk in chunks),
                horizon=self.horizon,
                blind_loss=self.blind_loss(trial.point),
                error=error,
            )
        )

    def _finish(self, trial: Trial, state: str = "complete", is_cut: bool = False) -> None:
        chunks = self._chunks.pop(trial.number)
        last = chunks[-1]
        curves = np.concatenate([chunk.curves for chunk in chunks], axis=1)
        trace = Trace(
            **dict(zip(CURVES, curves, strict=True)),
            initial_loss=last.initial_loss,
            blind_loss=self.blind_loss(trial.point),
            horizon=self.horizon,
            warmup_steps=int(self._value(trial, "warmup_steps") or 0),
            displacement=last.displacement,
        )
        found = judge(trace)
        # A look at the whole curve may see a divergence that no rung has shown.
        if is_cut and found.verdict not in (Verdict.DIVERGED, Verdict.INVALID):
            seen = f"Stopped for its loss at step {trace.num_steps - 1}"
            reason = f"{seen}, when it was {found.verdict.label}: {found.reason}"
            found = replace(found, verdict=Verdict.CUT_SHORT, reason=reason, provisional=False)
        record = Record(
            trial.number,
            trial.point,
            trial.seed,
            **found.as_fields(),
            state=state,
            steps=trace.num_steps,
            horizon=self.horizon,
            initial_loss=finite(trace.initial_loss),
            blind_loss=trace.blind_loss,
            displacement=finite(last.displacement),
            seconds=round(sum(chunk.seconds for chunk in chunks), 6),
            trace=self.store.save_trace(trace) if self.store else None,
        )
        self._keep(record)

    def _keep(self, record: Record) -> None:
        self.study.tell(record)
        if self.store:
            self.store.append(record)
        self.records.append(record)
        self._counts[record.verdict] += 1
        del self._trials[record.trial]

    def _value(self, trial: Trial, name: str) -> Value:
        return trial.point[name] if name in trial.point else self.fixed[name]

    @property
    def region(self) -> Region:
        """What the records say so far."""
        if self._region is None or self._region_of != (self.space, len(self.records)):
            self._region = find_region(self.space, self.records)
            self._region_of = self.space, len(self.records)
        return self._region

    def progress(self) -> Progress:
        """How far the sweep has come; the region is looked at once a second or less."""
        now = time.perf_counter()
        is_last = len(self.records) == self.study.num_trials
        if self.records and (now > self._region_due or is_last):
            # Its records: there a stall is named by its row, too slow or collapsed.
            self._counts = Counter(record.verdict for record in self.region.records)
            took = time.perf_counter() - now
            self._region_due = now + max(REGION_SECONDS, took / REGION_SHARE)
        seconds = now - self._began
        done = len(self.records) - self._num_before
        todo = self.study.num_trials - len(self.records)
        running_steps = sum(c.curves.shape[1] for cs in self._chunks.values() for c in cs)
        part_done = running_steps / self.horizon
        rate = (done + part_done) / seconds
        eta = max(todo - part_done, 0) / rate if rate > 0 else None
        return Progress(
            num_trials=self.study.num_trials,
            num_done=len(self.records),
            num_before=self._num_before,
            num_running=self.executor.num_running,
            part_done=part_done,
            seconds=seconds,
            eta_seconds=eta,
            counts=dict(self._counts),
            records=self._region.records if self._region else (),
            may_stop=self.study.may_stop,
            **(self._region.landmarks if self._region else {}),
        )


def _rung_losses(chunks: Sequence[Chunk]) -> list[float]:
    """The median loss of each piece of curves; NaN where it is not finite, or the scale collapsed.

    Pieces of one length are looked at together: a look at each costs ten times as much.
    """
    losses = [math.nan] * len(chunks)
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, chunk in enumerate(chunks):
        if chunk.error is None:
            by_length[chunk.curves.shape[1]].append(place)
    for num_steps, places in by_length.items():
        curves = np.stack([chunks[place].curves for place in places], axis=1)
        left_out_KT = skipped(curves)
        is_finite_K = np.all(np.isfinite(curves[:2]) | left_out_KT, axis=(0, 2))
        for row in np.flatnonzero(left_out_KT.any(axis=1)):
            if scale_collapse(left_out_KT[row]) is not None:
                is_finite_K[row] = False
        half = (num_steps - 1) // 2
        ordered_KT = np.sort(curves[0], axis=1).astype(np.float64)[:, half : num_steps - half]
        with np.errstate(invalid="ignore", over="ignore"):  # Of what is not finite.
            medians_K = ordered_KT.mean(axis=1)
        for row, place in enumerate(places):
            if is_finite_K[row]:
                losses[place] = float(medians_K[row])
    return losses
