"""One trial at a time, in plain PyTorch: the oracle of the stacked engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.clipper import l2_norm
from stabsweep.engine._base import (
    TRAIN_NOISE,
    Chunk,
    Engine,
    Setup,
    Starts,
    borrowed_generators,
    seed_generators,
    trained,
)
from stabsweep.optimizer import learning_rates
from stabsweep.records import CURVES, Trial

INITIAL_SCALE = 2.0**16
"""What `torch.amp.GradScaler` begins with; it halves at every overflow."""

Look: TypeAlias = Callable[[Tensor, Any, Mapping[str, nn.Parameter]], None]
"""What is shown of a step: loss, batch, and the parameters by name, with their gradients."""


class Loop(Engine):
    """A training loop as anybody would write it: `backward`, clip, a `torch.optim` step.

    It shares nothing with `Cohort` but the start, the batches and the schedule. Whatever cannot be
    stacked runs here. A parameter that a step does not use has a gradient of zero, not none: its
    weight decay goes on, as it does when stacked.

    Attributes:
        module: the model of the trial that was admitted last, as it stands now.
        optimizer: what trains it, with its memory.
        look: called in every step once its gradients are there, unscaled, and before they are
            clipped; it must change nothing.
    """

    name = "loop"

    def __init__(self, setup: Setup, capacity: int = 1) -> None:
        super().__init__(setup, capacity=1)
        self._starts = Starts(setup)
        self._trial: Trial | None = None
        self.look: Look = lambda loss, batch, named: None

    @property
    def trials(self) -> Sequence[Trial]:
        """The trial in training, if any."""
        return [] if self._trial is None else [self._trial]

    def admit(self, trials: Sequence[Trial]) -> None:
        """See `Engine.admit`."""
        for trial in trials:
            setup = self.setup
            if self._trial is not None:
                raise ValueError(f"trial {self._trial.number} is in training: no room for another")
            start = self._starts[trial]
            self._initial_loss = start.initial_loss
            self._first_P = start.theta_P
            self._step = 0
            self.module, self.optimizer = begin(setup, trial)
            self._named = dict(trained(self.module))
            limits = {name: setup.number(trial, name) for name in setup.clipper.defaults}
            self._clipper = setup.clipper.twin(limits)
            self._shares = [float(group["lr"]) for group in self.optimizer.param_groups]
            # Off, it passes everything through unchanged.
            self._scaler = torch.amp.GradScaler(
                setup.device.type, init_scale=INITIAL_SCALE, enabled=setup.precision.scales
            )
            self._trial = trial

    def drop(self, number: int) -> None:
        """See `Engine.drop`."""
        if self._trial is not None and self._trial.number == number:
            self._trial = None

    def advance(self, num_steps: int) -> list[Chunk]:
        """See `Engine.advance`."""
        if self._trial is None:
            return []
        began = time.perf_counter()
        trial, setup, start = self._trial, self.setup, self._step
        stop = min(start + num_steps, setup.horizon)
        lr_R = self._rates(trial, np.arange(start, stop))
        index_RB = self._starts.order(trial).index(start, stop)
        rows = []
        with borrowed_generators(setup.device):
            for step, index_B, lr in zip(range(start, stop), index_RB, lr_R, strict=True):
                seed_generators(setup.device, trial.seed, TRAIN_NOISE, step)
                rows.append(self._train_step(index_B, float(lr)))
        curves = np.empty((len(CURVES), stop - start), setup.curve_type)
        curves[:4] = np.array(rows).T
        curves[4] = lr_R
        moved = l2_norm(self._flat() - self._first_P)
        self._step = stop
        is_done = stop >= setup.horizon
        if is_done:
            self._trial = None
        return [
            Chunk(
                trial.number,
                start,
                curves,
                self._initial_loss,
                float(moved / l2_norm(self._first_P)),
                is_done,
                time.perf_counter() - began,
            )
        ]

    def _rates(self, trial: Trial, steps: np.ndarray) -> np.ndarray:
        setup = self.setup
        lr, warmup_steps = (np.array(setup.number(trial, n)) for n in ("lr", "warmup_steps"))
        return learning_rates(steps, lr, warmup_steps, setup.horizon, setup.schedule)

    def _train_step(self, index_B: Tensor, lr: float) -> tuple[float, float, float, float]:
        """One optimizer update; loss, gradient norm, clip coefficient, update ratio."""
        setup, scaler = self.setup, self._scaler
        self.optimizer.zero_grad()
        batch = setup.task.batch(index_B.to(setup.device))
        loss = setup.loss(self.module, batch)
        scaler.scale(loss).backward()
        grads = self._gradients()
        # Once, and before the norm: a norm of scaled gradients would always be clipped.
        scaler.unscale_(self.optimizer)
        self.look(loss.detach(), batch, self._named)
        total = l2_norm(torch.stack([l2_norm(grad) for grad in grads]))
        coefficient = self._clipper.clip_(self._named, total)
        for group, share in zip(self.optimizer.param_groups, self._shares, strict=True):
            group["lr"] = lr * share
        before_P = self._flat()
        # An overflow skips the step: the norm is recorded as it is, and nothing has moved.
        scaler.step(self.optimizer)
        scaler.update()
        ratio = float(l2_norm(self._flat() - before_P) / l2_norm(before_P))
        is_skipped = scaler.is_enabled() and ratio == 0 and not torch.isfinite(total)
        clip = 1.0 if is_skipped else float(coefficient)
        return float(loss.detach()), float(total), clip, ratio

    def _gradients(self) -> list[Tensor]:
        grads = []
        for parameter in self._named.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse:
                # Neither a norm nor Adam can be had of a sparse gradient.
                parameter.grad = parameter.grad.to_dense()
            grads.append(parameter.grad)
        return grads

    def _flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._named.values()])


def begin(setup: Setup, trial: Trial) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model of a trial as it starts, and its optimizer in plain PyTorch.

    The rates of the optimizer's groups are their shares of the trial's: 1 where all have the same.
    """
    module = setup.new_module(trial)
    hyper = {name: setup.number(trial, name) for name in setup.optimizer.defaults}
    named = dict(trained(module))
    optimizer = setup.optimizer.twin(named, hyper)
    factors = setup.lr_factors(trial, module)
    if factors is not None:
        _split_groups(optimizer, dict(zip(named.values(), factors, strict=True)))
    return module, optimizer


def _split_groups(optimizer: torch.optim.Optimizer, factors: Mapping[Tensor, float]) -> None:
    """Gives every parameter the rate of its group times its factor, in groups of equal rates."""
    groups = []
    for group in optimizer.param_groups:
        parts: dict[float, list[int]] = {}
        for index, parameter in enumerate(group["params"]):
            parts.setdefault(factors.get(parameter, 1.0), []).append(index)
        # torch keeps the names beside the parameters when it was given both.
        lists = [key for key in ("params", "param_names") if key in group]
        groups += [
            {
                **group,
                **{key: [group[key][index] for index in part] for key in lists},
                "lr": group["lr"] * factor,
            }
            for factor, part in parts.items()
        ]
    optimizer.param_groups[:] = groups
