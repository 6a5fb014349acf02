"""One trial at a time, in plain PyTorch: the oracle of the stacked engine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.engine._base import Chunk, Engine, Setup, Starts
from stabsweep.optimizer import clip_coefficient, learning_rates
from stabsweep.records import CURVES, Trial


class Loop(Engine):
    """A training loop as anybody would write it: `backward`, clip, a `torch.optim` step.

    It shares nothing with `Cohort` but the start, the batches and the schedule. Whatever cannot be
    stacked runs here.
    """

    name = "loop"

    def __init__(self, setup: Setup, capacity: int = 1) -> None:
        super().__init__(setup, capacity=1)
        self._starts = Starts(setup)
        self._trial: Trial | None = None

    @property
    def trials(self) -> Sequence[Trial]:
        """The trial in training, if any."""
        return [] if self._trial is None else [self._trial]

    def admit(self, trials: Sequence[Trial]) -> None:
        """See `Engine.admit`."""
        for trial in trials:
            setup = self.setup
            self._trial = trial
            self._step = 0
            self._module = setup.build_model().to(device=setup.device, dtype=setup.dtype)
            self._parameters = list(self._module.parameters())
            theta_P = self._starts[trial].theta_P.clone()
            nn.utils.vector_to_parameters(theta_P, self._parameters)
            hyper = {name: setup.number(trial, name) for name in setup.optimizer.defaults}
            self._optimizer = setup.optimizer.twin(self._parameters, hyper)

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
        rows = [
            self._train_step(index_B, float(lr))
            for index_B, lr in zip(self._starts.order(trial).index(start, stop), lr_R)
        ]
        curves = np.empty((len(CURVES), stop - start), setup.curve_type)
        curves[:4] = np.array(rows).T
        curves[4] = lr_R
        first_P = self._starts[trial].theta_P
        moved = torch.linalg.vector_norm(self._flat() - first_P)
        self._step = stop
        is_done = stop >= setup.horizon
        if is_done:
            self._trial = None
        return [
            Chunk(
                trial.number,
                start,
                curves,
                self._starts[trial].initial_loss,
                float(moved / torch.linalg.vector_norm(first_P)),
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
        assert self._trial is not None
        setup = self.setup
        self._optimizer.zero_grad()
        inputs, targets = setup.task.batch(index_B.to(setup.device))
        loss = setup.task.loss(self._module(inputs), targets)
        loss.backward()
        grads = [p.grad for p in self._parameters if p.grad is not None]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        limit = torch.tensor(setup.number(self._trial, "clip_norm"), dtype=setup.dtype)
        coefficient = clip_coefficient(norm, limit.to(setup.device))
        for grad in grads:
            grad.mul_(coefficient)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        before_P = self._flat()
        self._optimizer.step()
        moved = torch.linalg.vector_norm(self._flat() - before_P)
        ratio = moved / torch.linalg.vector_norm(before_P)
        return float(loss.detach()), float(norm), float(coefficient), float(ratio)

    def _flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._parameters])
