"""Attempts at a step, one after another: measured, decided, clipped, written down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.clipper import Twin
from stabsweep.errors import BadInput
from stabsweep.evidence import DEFAULTS
from stabsweep.guard.calls import Calls
from stabsweep.guard.cause import LOOK_BACK, Diagnosis, diagnose, lost_eps
from stabsweep.guard.close_look import CloseLook
from stabsweep.guard.entries import Entries, Entry
from stabsweep.guard.finding import norms_of, values, wide_norm
from stabsweep.guard.inquiry import inquire
from stabsweep.guard.journal import Journal
from stabsweep.guard.logits import Logits
from stabsweep.guard.outcome import Outcome
from stabsweep.guard.ranks import Ranks, on_host_type
from stabsweep.guard.recovery import Recovery
from stabsweep.guard.response import Response
from stabsweep.guard.wrapping import unwrapped
from stabsweep.numerals import plural, rate
from stabsweep.records import CURVES

OUTLIER_WINDOW = 128
"""Norms whose median an outlier is compared with, as many as for a loss spike (OLMo 2)."""


@dataclass
class Attempts:
    """The machine of a guard: `begin` before the optimizer's step, `end` after it.

    Attributes:
        model, optimizer, scheduler, scaler: those of the training.
        clipper: in its plain form.
        ranks, journal, response, recovery: who agrees, writes, decides and goes back.
        check_every, watch_every, checkpoint_every, skip_outliers, total_steps: as the guard takes
            them.
        num_steps, num_attempts: updates made, attempts ended.
        losses, batches: of the window so far.
        diagnosis: of the last attempt that was not finite.
        norm: gradient norm of the last attempt before clipping, a scalar on its device.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: torch.amp.GradScaler | None
    clipper: Twin
    ranks: Ranks
    journal: Journal
    response: Response
    recovery: Recovery
    check_every: int
    watch_every: int
    checkpoint_every: int | None
    skip_outliers: float | None
    total_steps: int | None
    num_steps: int = 0
    num_attempts: int = 0
    losses: list[Tensor] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    norm: Tensor | None = None

    def __post_init__(self) -> None:
        self._is_late = not all(p.device.type == "cpu" for p in self.model.parameters())
        self.entries = Entries(self.journal.write, self._is_late)
        self._logits = Logits(self.model)
        self._calls = Calls(self.model, before=self._before_forward, after=self._logits.end)
        self._line: dict[str, Any] = {}
        self._numbers: list[Tensor] = []
        self._look: CloseLook | None = None
        self._outcome = Outcome.ACCUMULATED
        self._is_lost = False
        self._sizes: list[int] = []
        self._named: dict[str, nn.Parameter] = {}
        self._summary: dict[str, Any] | None = None
        named = {parameter: name for name, parameter in self.parameters().items()}
        if lost := lost_eps(self.optimizer.param_groups, named):
            self.journal.event("numerics", f"{lost}: a gradient of 0 will give NaN; use eps=1e-7")

    def begin(self) -> Outcome:
        """Decides whether the step is to be made (`STEPPED`), and clips the gradients for it.

        Raises:
            BadInput: there is no gradient, or somebody else has unscaled it.
        """
        named = {name: p for name, p in self.parameters().items() if p.grad is not None}
        if not named or not self.losses:
            raise BadInput(
                "no parameter of the optimizer has a gradient: does the loss come from this model, "
                "and was it given to the guard?"
            )
        self._line = self._new_line()
        if self.scaler:
            self._unscale()
        norms_N = norms_of([p.grad for p in named.values() if p.grad is not None])
        total, wide = torch.linalg.vector_norm(norms_N), on_host_type(norms_N.device)
        self.norm = total
        loss = self.losses[0] if len(self.losses) == 1 else torch.stack(self.losses).mean()
        self._numbers, self._outcome, self._look = [], Outcome.STEPPED, None
        numbers = torch.stack([loss.to(total.device, wide), total.to(wide)])
        if self.num_attempts % self.check_every == 0:
            value, norm = self.entries.fetch(self.ranks.mean(numbers))
            self._line.update(loss=value, grad_norm=norm)
            if not math.isfinite(value + norm):
                total = self._on_hit(named, total)
            elif found := self._outlier(norm):
                self._outcome = self.response.to_outlier(found)
        else:
            self._numbers = [numbers]
        if not self._outcome.is_stepped:
            self.optimizer.zero_grad(set_to_none=True)
            return self._outcome
        if self.num_attempts % self.watch_every == 0:
            self._look = CloseLook(list(named), list(named.values()), norms_N)
        # policy=warn steps as if nobody had looked: clipping would spread what is not finite.
        if math.isfinite(self._line.get("grad_norm", 0.0)):
            self._numbers.append(self.clipper.clip_(named, total).to(wide).reshape(1))
        else:
            self._numbers.append(torch.ones(1, dtype=wide, device=total.device))
        return self._outcome

    def end(self) -> Outcome:
        """What belongs to a step after it: scaler, scheduler, counters, the line of the log."""
        if self.scaler:
            self.scaler.update()
        line, logits, outcome = self._line, self._logits.take(), self._outcome
        line["outcome"] = outcome.label
        self.num_attempts += 1
        self.losses.clear()
        self.batches.clear()
        self._calls.clear()
        if not outcome.is_stepped:
            line.setdefault("clip_coef", 1.0)
            if outcome is Outcome.SKIPPED_OVERFLOW:
                line["update_ratio"] = 0.0
            if outcome is Outcome.ROLLED_BACK:
                self.num_steps = self.response.back_at
            self.entries.fetch()
            self.journal.write(line)
            return outcome
        if self._look is not None:
            self._numbers.append(self._look.measure())
        if logits:
            self._numbers.append(torch.stack([v.to(self._numbers[0]) for v in logits.values()]))
        names = ("clip_coef",) if "loss" in line else ("loss", "grad_norm", "clip_coef")
        entry = Entry(line, names, torch.cat(self._numbers), self._look, tuple(logits))
        self.response.stepped()
        self.num_steps += 1
        if self.scheduler is not None:
            self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.checkpoint_every and self.num_steps % self.checkpoint_every == 0:
            self.save()
        # Before its line is written, which carries what is said of it.
        outcome = self._watch_loss()
        self.entries.add(entry)
        return outcome

    def save(self) -> Path | None:
        """Writes a checkpoint; its path, or None."""
        return self.recovery.save(self.num_steps, self.num_attempts)

    def close(self, **more: Any) -> dict[str, Any]:
        """Writes what is waiting and the summary, and takes the hooks off the model.

        Args:
            more: plain values for the summary.

        Returns:
            the summary; that of the first call again after that.
        """
        if self._summary is None:
            self.entries.fetch()
            self._logits.end()
            self._calls.close()
            reason = self.response.reason
            self._summary = {**self.journal.summary(reason, self.num_steps), **more}
            self.journal.close(self._summary)
        return self._summary

    def parameters(self) -> dict[str, nn.Parameter]:
        """Name -> parameter that the optimizer trains, in the model's order; a tied one once."""
        sizes = [len(group["params"]) for group in self.optimizer.param_groups]
        if sizes == self._sizes:
            return self._named
        self._sizes = sizes
        trained = {id(p): p for group in self.optimizer.param_groups for p in group["params"]}
        named = {
            name: parameter
            for name, parameter in unwrapped(self.model).named_parameters()
            if trained.pop(id(parameter), None) is not None
        }
        self._named = {**named, **{f"optimizer.{n}": p for n, p in enumerate(trained.values())}}
        return self._named

    def _new_line(self) -> dict[str, Any]:
        line: dict[str, Any] = {"attempt": self.num_attempts, "step": self.num_steps}
        line["lr"] = float(self.optimizer.param_groups[0]["lr"])
        # Reading it waits for the device.
        if self.scaler and not (self._is_late and self.num_attempts % self.watch_every):
            line["scale"] = float(self.scaler.get_scale())
        return line

    def _before_forward(self, called: str) -> None:
        if self.num_attempts % self.watch_every == 0 and not self.losses:
            self._logits.begin(called)

    def _unscale(self) -> None:
        assert self.scaler is not None
        try:
            self.scaler.unscale_(self.optimizer)
        except RuntimeError as error:
            raise BadInput(
                f"scaler.unscale_ before guard.step ({error}): leave unscaling to the guard, which "
                "does it once"
            ) from error

    def _on_hit(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        """Decides about a norm or a loss that is not finite; the norm to clip by, if so decided."""
        line, grads = self._line, [p.grad for p in named.values() if p.grad is not None]
        is_bad = not all(bool(torch.isfinite(values(grad)).all()) for grad in grads)
        is_loss_finite = math.isfinite(line["loss"])
        if is_loss_finite and not any(self.ranks.gather(is_bad)):
            # Its square alone has left float32.
            line["grad_norm"] = wide_norm(grads)
            return torch.tensor(line["grad_norm"], dtype=torch.float64, device=total.device)
        if self.scaler and is_loss_finite:
            last = self.journal.columns.outcomes[1 - DEFAULTS.scale_window :]
            label = Outcome.SKIPPED_OVERFLOW.label
            skipped = [*(outcome == label for outcome in last), True]
            line["scale"] = scale = float(self.scaler.get_scale())
            self._outcome = self.response.to_overflow(self._where(), scale, skipped)
            return total
        columns, groups = self.journal.columns, self.optimizer.param_groups
        facts = inquire(
            named,
            groups,
            self.losses,
            self.batches,
            self._calls,
            {name: columns.last(name, LOOK_BACK) for name in CURVES},
            self.num_steps,
            self.ranks.rank,
        )
        # Averaged gradients are bad on all ranks; the one whose data, layer or loss was knows why.
        known = (found for found in self.ranks.gather(facts) if found.is_hit)
        self.diagnosis = diagnose(max(known, key=lambda found: found.num_clues))
        where = self._where(self.diagnosis.micro_batch)
        is_scaled = self.scaler is not None
        self._outcome = self.response.to_hit(self.diagnosis, where, is_scaled)
        return total

    def _where(self, micro_batch: int | None = None) -> str:
        """The attempt in words: which batch, and how many updates there were before it."""
        many = len(self.losses)
        batch = f"batch {self.num_attempts}" if many == 1 else f"window {self.num_attempts}"
        if micro_batch is not None and many > 1:
            batch = f"batch {micro_batch + 1} of {many} of {batch}"
        return f"{batch} (after {plural(self.num_steps, 'step')})"

    def _outlier(self, norm: float) -> str:
        """Why a norm is an outlier, in words; empty when it is none."""
        if self.skip_outliers is None:
            return ""
        norms = self.journal.columns.last("grad_norm", OUTLIER_WINDOW)
        norms = norms[np.isfinite(norms)]
        if len(norms) < OUTLIER_WINDOW // 4:
            return ""
        median = float(np.median(norms))
        if not norm > self.skip_outliers * median > 0:
            return ""
        return (
            f"{self._where()}: its gradient norm {rate(norm)} is {rate(norm / median)} times the "
            f"median {rate(median)}."
        )

    def _watch_loss(self) -> Outcome:
        """Looks, a hundred times in a run, whether the loss can still become good."""
        total = self.total_steps
        if not total or self.num_steps % max(total // 100, 1) or self._is_lost:
            return Outcome.STEPPED
        why = self.journal.reason_to_stop()
        outcome = self.response.to_lost(why) if why else None
        self._is_lost = bool(why) and outcome is None
        if outcome is Outcome.ROLLED_BACK:
            self.num_steps = self.response.back_at
        return outcome or Outcome.STEPPED
