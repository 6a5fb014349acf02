"""Many trials as one stacked program."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from stabsweep.engine._base import Chunk, Engine, Setup, Starts, trained, untrained
from stabsweep.model import initialize
from stabsweep.optimizer import clip_coefficient, learning_rates
from stabsweep.records import CURVES, Trial


class Cohort(Engine):
    """K trials trained by one program: `vmap` over the gradient, one row of weights a trial.

    All weights of a trial are one row of a (K, P) tensor; the model sees views into it. So the
    norm, the clipping and the update of K trials are a handful of operations whatever the model,
    and a row never touches another: a neighbour's NaN stays in its row. What is not trained is
    stacked as well where it may differ (frozen parameters, buffers drawn at random); a buffer that
    is the same for every seed, such as a mask, is shared.

    Rows are added and taken away between rungs, so no work is done for a trial that has ended.
    """

    name = "cohort"

    def __init__(self, setup: Setup, capacity: int) -> None:
        super().__init__(setup, capacity)
        self._module, other = (initialize(setup.build_model, seed) for seed in (0, 1))
        own = _own(self._module, other)
        self._starts = Starts(setup, own)
        self._module.to(device=setup.device, dtype=setup.dtype)
        held = [(name, tensor.detach()) for name, tensor in untrained(self._module)]
        self._held_K = {name: tensor[None][:0] for name, tensor in held if name in own}
        self._shared = {name: tensor for name, tensor in held if name not in own}
        self._shapes = [(name, p.shape) for name, p in trained(self._module)]
        self._sizes = [shape.numel() for _, shape in self._shapes]
        self._trials: list[Trial] = []
        self._initial_loss_K: list[float] = []
        self._step_K = np.zeros(0, int)
        empty_KP = torch.zeros(0, sum(self._sizes), device=setup.device, dtype=setup.dtype)
        self._theta_KP, self._theta0_KP = empty_KP, empty_KP
        self._state = setup.optimizer.new_state(empty_KP)

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials in training, in the order of their rows."""
        return self._trials

    def _loss(
        self, theta_P: Tensor, held: dict[str, Tensor], inputs: Tensor, targets: Tensor
    ) -> Tensor:
        """Loss of one trial on one batch: what is differentiated and stacked."""
        pairs = zip(self._shapes, theta_P.split(self._sizes), strict=True)
        parameters = {name: part.view(shape) for (name, shape), part in pairs}
        # A shared buffer is captured, so that torch refuses a model which changes it in place, and
        # named, so that one which replaces it does not take the new one over to the next step.
        tensors = {**parameters, **self._shared, **held}
        return self.setup.task.loss(functional_call(self._module, tensors, inputs), targets)

    def admit(self, trials: Sequence[Trial]) -> None:
        """See `Engine.admit`."""
        if not trials:
            return
        starts = [self._starts[trial] for trial in trials]
        new_KP = torch.stack([start.theta_P for start in starts])
        self._theta_KP = torch.cat([self._theta_KP, new_KP])
        self._theta0_KP = torch.cat([self._theta0_KP, new_KP])
        fresh = self.setup.optimizer.new_state(new_KP)
        self._state = {name: torch.cat([old, fresh[name]]) for name, old in self._state.items()}
        self._held_K = {
            name: torch.cat([old, torch.stack([start.held[name] for start in starts])])
            for name, old in self._held_K.items()
        }
        self._step_K = np.concatenate([self._step_K, np.zeros(len(trials), int)])
        self._initial_loss_K.extend(start.initial_loss for start in starts)
        self._trials.extend(trials)

    def drop(self, number: int) -> None:
        """See `Engine.drop`."""
        self._keep([trial.number != number for trial in self._trials])

    def _keep(self, kept: Sequence[bool]) -> None:
        if all(kept):
            return
        rows = [row for row, keep in enumerate(kept) if keep]
        index = torch.tensor(rows, dtype=torch.long, device=self.setup.device)
        self._theta_KP, self._theta0_KP = self._theta_KP[index], self._theta0_KP[index]
        self._state = {name: buffer[index] for name, buffer in self._state.items()}
        self._held_K = {name: held[index] for name, held in self._held_K.items()}
        self._step_K = self._step_K[rows]
        self._initial_loss_K = [self._initial_loss_K[row] for row in rows]
        self._trials = [self._trials[row] for row in rows]

    @torch.no_grad()
    def advance(self, num_steps: int) -> list[Chunk]:
        """See `Engine.advance`. The host waits for the device once, at the end."""
        if not self._trials:
            return []
        began = time.perf_counter()
        setup = self.setup
        start_K = self._step_K.copy()
        num_steps = int(min(num_steps, (setup.horizon - start_K).min()))
        index_RKB = torch.stack(
            [
                self._starts.order(trial).index(start, start + num_steps)
                for trial, start in zip(self._trials, start_K, strict=True)
            ],
            dim=1,
        ).to(setup.device)
        lr_RK = self._rates(start_K, num_steps)
        lr_RK1 = self._column(lr_RK)
        step_RK1 = self._column(start_K + np.arange(num_steps)[:, None])
        hyper = {name: self._hyper(name) for name in setup.optimizer.defaults}
        clip_norm_K1 = self._hyper("clip_norm").to(setup.dtype)
        # Kept here: on `self` it would be a cycle, and the memory would outlive a halved engine.
        gradient = vmap(grad_and_value(self._loss))
        curves_R4K = []
        for index_KB, lr_K1, step_K1 in zip(index_RKB, lr_RK1, step_RK1, strict=True):
            inputs, targets = setup.task.batch(index_KB)
            grad_KP, loss_K = gradient(self._theta_KP, self._held_K, inputs, targets)
            norm_K1 = torch.linalg.vector_norm(grad_KP, dim=1, keepdim=True)
            coef_K1 = clip_coefficient(norm_K1, clip_norm_K1)
            size_K = torch.linalg.vector_norm(self._theta_KP, dim=1)
            delta_KP = setup.optimizer.delta(
                self._theta_KP, grad_KP.mul_(coef_K1), self._state, hyper, lr_K1, step_K1
            )
            self._theta_KP += delta_KP
            ratio_K = torch.linalg.vector_norm(delta_KP, dim=1) / size_K
            curves_R4K.append(torch.stack([loss_K, norm_K1[:, 0], coef_K1[:, 0], ratio_K]))
        moved_K = torch.linalg.vector_norm(self._theta_KP - self._theta0_KP, dim=1)
        moved_K /= torch.linalg.vector_norm(self._theta0_KP, dim=1)
        curves = np.empty((len(CURVES), len(self._trials), num_steps), setup.curve_type)
        curves[:4] = torch.stack(curves_R4K).cpu().numpy().transpose(1, 2, 0)
        curves[4] = lr_RK.T
        displacement_K = moved_K.cpu().numpy()
        self._step_K += num_steps
        seconds = (time.perf_counter() - began) / len(self._trials)
        done_K = self._step_K >= setup.horizon
        chunks = [
            Chunk(
                trial.number,
                int(start_K[row]),
                curves[:, row],
                self._initial_loss_K[row],
                float(displacement_K[row]),
                bool(done_K[row]),
                seconds,
            )
            for row, trial in enumerate(self._trials)
        ]
        self._keep([not done for done in done_K])
        return chunks

    def _rates(self, start_K: np.ndarray, num_steps: int) -> np.ndarray:
        lr_K, warmup_K = (
            np.array([self.setup.number(trial, name) for trial in self._trials])
            for name in ("lr", "warmup_steps")
        )
        steps_RK = start_K + np.arange(num_steps)[:, None]
        return learning_rates(steps_RK, lr_K, warmup_K, self.setup.horizon, self.setup.schedule)

    def _column(self, values: np.ndarray) -> Tensor:
        column = torch.as_tensor(values, dtype=torch.float64).unsqueeze(-1)
        return column.to(self.setup.device)

    def _hyper(self, name: str) -> Tensor:
        return self._column(np.array([self.setup.number(trial, name) for trial in self._trials]))


def _own(one: nn.Module, other: nn.Module) -> frozenset[str]:
    """Names of the untrained tensors that each trial needs of its own, from models of two seeds.

    Frozen parameters, since an init or its gain may change them, and buffers drawn at random.
    """
    pairs = zip(untrained(one), untrained(other), strict=True)
    return frozenset(
        name
        for (name, ours), (_, theirs) in pairs
        if isinstance(ours, nn.Parameter) or not torch.equal(ours, theirs)
    )
