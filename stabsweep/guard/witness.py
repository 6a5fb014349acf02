"""A trial that is watched step by step, as closely as a guard could, and changed in nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.engine import Loop
from stabsweep.guard.calls import Calls
from stabsweep.guard.cause import LOOK_BACK, Diagnosis, diagnose
from stabsweep.guard.close_look import CloseLook
from stabsweep.guard.finding import norms_of, wide_norm
from stabsweep.guard.inquiry import inquire
from stabsweep.guard.journal import Journal
from stabsweep.guard.live import LiveLine
from stabsweep.guard.logits import Logits
from stabsweep.guard.outcome import Outcome
from stabsweep.guard.outputs import Outputs
from stabsweep.guard.runaway import KINDS
from stabsweep.records import CURVES, Array, skipped


class Witness:
    """Trains the trial of a loop on, and writes down what each step did to each layer.

    It ends with the first loss or gradient that is not finite, and finds out why, before the step
    that would spread it. What a gradient scaler leaves out is no such step.

    Args:
        loop: with one trial, not trained yet.

    Attributes:
        columns: the curves and early warnings so far, an attempt a step.
        layers: layer -> a row a step: the step, norms of gradient, weights and update.
        outputs: layer -> a row a step: the step, the largest magnitude of its output.
        logits: layer -> a row a step: the step, the largest attention logit.
        diagnosis: of the step that was not finite; None without one, or where every entry was and
            only the norm was not.
        initial_loss: the loss before training; NaN before the first step.
        lost_norm: the gradient norm that the format could not hold; None where none was.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._journal = Journal(None, {}, LiveLine("off"))
        self.columns = self._journal.columns
        self.layers: dict[str, list[list[float]]] = {}
        self.outputs: dict[str, list[list[float]]] = {}
        self.logits: dict[str, list[list[float]]] = {}
        self.diagnosis: Diagnosis | None = None
        self.lost_norm: float | None = None
        self.initial_loss = math.nan
        self._outputs = Outputs(loop.module)
        self._logits = Logits(loop.module)
        self._calls = Calls(loop.module, before=self._logits.begin, after=self._logits.end)
        self._close_look: CloseLook | None = None
        self._is_broken = False
        self._pieces: list[Array] = []
        loop.look = self._look

    @property
    def curves(self) -> Array:
        """(5, T) the curves in the order of `CURVES`, as the loop gave them."""
        return np.concatenate(self._pieces, axis=1)

    @property
    def num_steps(self) -> int:
        """Steps that were made."""
        return len(self._pieces)

    def step(self) -> bool:
        """One more step; whether all was finite in it."""
        (now,) = self._loop.advance(1)
        self._pieces.append(now.curves)
        self.initial_loss = now.initial_loss
        self._calls.clear()
        at = float(now.start_step)
        values = dict(zip(CURVES, (float(x) for x in now.curves[:, 0]), strict=True))
        outcome = Outcome.SKIPPED_OVERFLOW if skipped(now.curves)[0] else Outcome.STEPPED
        outcome = Outcome.STOPPED if self._is_broken else outcome
        assert self._close_look is not None
        seen = self._close_look.read(self._close_look.measure().tolist())
        logits = {name: float(value) for name, value in self._logits.take().items()}
        line: dict[str, Any] = {
            "attempt": now.start_step,
            "step": now.start_step,
            "outcome": outcome.label,
            **values,
            "layers": seen.layers,
            "logits": logits,
        }
        self._journal.write(line, seen.unmoved)
        for name, row in seen.layers.items():
            self.layers.setdefault(name, []).append([at, *row])
        for table, found in ((self.outputs, self._outputs.take()), (self.logits, logits)):
            for name, value in found.items():
                table.setdefault(name, []).append([at, value])
        return not self._is_broken

    def tables(self) -> dict[str, Array]:
        """Layer -> (T, 3), as `find_runaways` takes it."""
        found, overflowed = {}, skipped(self.curves)
        for name, rows in self.layers.items():
            table = np.full((self.num_steps, len(KINDS)), math.nan)
            table[:, :2] = np.array(rows)[:, 1:3]
            for step, value in self.outputs.get(name, ()):
                table[int(step), 2] = value
            is_seen = np.array([True, True, name in self.outputs])
            table[~np.isfinite(table) & is_seen] = math.inf
            # How large a gradient was that a scaler has left out, nobody knows.
            table[overflowed, 0] = math.nan
            found[name] = table
        return found

    def close(self) -> None:
        """Takes the hooks off the model."""
        self._logits.end()
        self._calls.close()
        self._outputs.close()

    def _look(self, loss: Tensor, batch: Any, named: Mapping[str, nn.Parameter]) -> None:
        """Looks at the gradients of a step, before anything is done with them."""
        grads = [p.grad for p in named.values() if p.grad is not None]
        norms_N = norms_of(grads)
        self._close_look = CloseLook(list(named), list(named.values()), norms_N)
        total = float(torch.linalg.vector_norm(norms_N))
        is_loss_finite = math.isfinite(loss)
        if math.isfinite(total) and is_loss_finite:
            return
        is_bad = not all(bool(torch.isfinite(grad).all()) for grad in grads)
        if is_bad and is_loss_finite and self._loop.setup.precision.scales:
            return
        self._is_broken = True
        if not is_bad and is_loss_finite:
            # Its square alone has left the format; a sweep calls that not finite as well.
            self.lost_norm = wide_norm(grads)
            return
        curves = {name: self.columns.last(name, LOOK_BACK) for name in CURVES}
        groups, step = self._loop.optimizer.param_groups, self.num_steps
        facts = inquire(named, groups, [loss], [batch], self._calls, curves, step, rank=0)
        self.diagnosis = diagnose(facts)
