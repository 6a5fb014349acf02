"""Many trials as one stacked program."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

from stabsweep.clipper import l2_norm
from stabsweep.engine._base import (
    Chunk,
    Engine,
    Setup,
    Starts,
    borrowed_generators,
    seed_generators,
    trained,
    untrained,
)
from stabsweep.model import initialize
from stabsweep.optimizer import learning_rates
from stabsweep.records import CURVES, Trial
from stabsweep.task import BatchOrder


class Cohort(Engine):
    """K trials trained by one program: `vmap` over the gradient, one row of weights a trial.

    All weights of a trial are one row of a (K, P) tensor; the model sees views into it. So the
    norm, the clipping and the update of K trials are a handful of operations whatever the model,
    and a row never touches another: a neighbour's NaN stays in its row. What is not trained is
    stacked as well where it may differ (frozen parameters, buffers drawn at random or changed in
    training, as BatchNorm's); a buffer that is always the same, such as a mask, is shared.

    Rows are added and taken away between rungs, so no work is done for a trial that has ended.
    """

    name = "cohort"

    def __init__(self, setup: Setup, capacity: int) -> None:
        super().__init__(setup, capacity)
        self._module, other = (
            initialize(setup.build_model, seed).to(device=setup.device, dtype=setup.dtype)
            for seed in (0, 1)
        )
        own = _own(self._module, other) | _changed(other, setup)
        self._starts = Starts(setup, own)
        self._objective = Objective(self._module, setup)
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
        self._rule = setup.optimizer.laid_out(self._shapes)
        self._state = self._rule.new_state(empty_KP)
        self._clipper = setup.clipper.laid_out(self._shapes)
        self._clip_state = self._clipper.new_state(empty_KP)
        self._factor_KP: Tensor | None = None

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials in training, in the order of their rows."""
        return self._trials

    def _loss(self, theta_P: Tensor, held: dict[str, Tensor], batch: Any) -> Tensor:
        """Loss of one trial on one batch: what is differentiated and stacked."""
        pairs = zip(self._shapes, theta_P.split(self._sizes), strict=True)
        parameters = {name: part.view(shape) for (name, shape), part in pairs}
        # A shared buffer is captured, so that torch refuses a model which changes it in place, and
        # named, so that one which replaces it does not take the new one over to the next step.
        tensors = {**parameters, **self._shared, **held}
        named = {f"model.{name}": tensor for name, tensor in tensors.items()}
        return functional_call(self._objective, named, (batch,))

    def admit(self, trials: Sequence[Trial]) -> None:
        """See `Engine.admit`."""
        if not trials:
            return
        starts = [self._starts[trial] for trial in trials]
        new_KP = torch.stack([start.theta_P for start in starts])
        self._theta_KP = torch.cat([self._theta_KP, new_KP])
        self._theta0_KP = torch.cat([self._theta0_KP, new_KP])
        self._state = _longer(self._state, self._rule.new_state(new_KP))
        self._clip_state = _longer(self._clip_state, self._clipper.new_state(new_KP))
        self._held_K = {
            name: torch.cat([old, torch.stack([start.held[name] for start in starts])])
            for name, old in self._held_K.items()
        }
        factors = [self.setup.lr_factors(trial, self._module) for trial in trials]
        if None not in factors:
            factor_KP = torch.tensor(factors, device=new_KP.device, dtype=_wide(new_KP.dtype))
            factor_KP = factor_KP.repeat_interleave(
                torch.tensor(self._sizes, device=new_KP.device), dim=1
            )
            old = [] if self._factor_KP is None else [self._factor_KP]
            self._factor_KP = torch.cat([*old, factor_KP])
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
        self._clip_state = {name: kept[index] for name, kept in self._clip_state.items()}
        self._held_K = {name: held[index] for name, held in self._held_K.items()}
        if self._factor_KP is not None:
            self._factor_KP = self._factor_KP[index]
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
        hyper, limits = (
            {name: self._hyper(name) for name in rule.defaults}
            for rule in (setup.optimizer, setup.clipper)
        )
        # Kept here: on `self` it would be a cycle, and the memory would outlive a halved engine.
        gradient: Callable[..., Any] | None = None
        curves_R4K = []
        for index_KB, lr_K1, step_K1 in zip(index_RKB, lr_RK1, step_RK1, strict=True):
            batch_K = setup.task.batch(index_KB)
            gradient = gradient or self._gradient(batch_K)
            grad_KP, loss_K = gradient(self._theta_KP, self._held_K, batch_K)
            norm_K1 = l2_norm(grad_KP, dim=1, keepdim=True)
            grad_KP, coef_K1 = self._clipper.clip(
                grad_KP, self._theta_KP, norm_K1, self._clip_state, limits, step_K1
            )
            ratio_K = self._update(grad_KP, hyper, lr_K1, step_K1)
            curves_R4K.append(torch.stack([loss_K, norm_K1[:, 0], coef_K1[:, 0], ratio_K]))
        moved_K = l2_norm(self._theta_KP - self._theta0_KP, dim=1) / l2_norm(self._theta0_KP, dim=1)
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

    def _gradient(self, batch_K: Any) -> Callable[..., Any]:
        """Gradients and losses of all trials, a function of weights, held tensors and batches."""
        # What is no tensor in a batch is the same for every trial.
        dims = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, batch_K)
        return vmap(grad_and_value(self._loss), in_dims=(0, 0, dims))

    def _update(
        self, grad_KP: Tensor, hyper: Mapping[str, Tensor], lr_K1: Tensor, step_K1: Tensor
    ) -> Tensor:
        """Moves the weights by one step; the updates' norms over those of the weights, (K,)."""
        is_half = self._theta_KP.dtype == torch.bfloat16
        theta_KP, state = self._theta_KP, self._state
        if is_half:
            # Computed in float32 and rounded where it is kept, as torch's own kernels do.
            theta_KP, grad_KP = theta_KP.float(), grad_KP.float()
            state = {name: buffer.to(_wide(buffer.dtype)) for name, buffer in state.items()}
        size_K = l2_norm(theta_KP, dim=1)
        delta_KP = self._rule.delta(theta_KP, grad_KP, state, hyper, lr_K1, step_K1)
        if self._factor_KP is not None:
            delta_KP = delta_KP.mul_(self._factor_KP)
        self._theta_KP += delta_KP
        if is_half:
            # What was rounded away has not moved.
            delta_KP = self._theta_KP - theta_KP
            self._state = {name: new.to(self._state[name].dtype) for name, new in state.items()}
        return l2_norm(delta_KP, dim=1) / size_K

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


class Objective(nn.Module):
    """A model with the loss of its task, as one module: so a loss may use the model as it likes.

    The model has its names under `model.`, and `functional_call` puts tensors in their places for
    the whole of the loss.
    """

    def __init__(self, model: nn.Module, setup: Setup) -> None:
        super().__init__()
        self.model = model
        self.setup = setup

    def forward(self, batch: Any) -> Tensor:
        """The loss of a batch, a scalar.

        On a CPU attention is computed by its formula: torch's fused one can neither be stacked nor
        differentiated twice there, and it gives the same up to rounding.
        """
        if self.setup.device.type != "cpu":
            return self.setup.loss(self.model, batch)
        with sdpa_kernel(SDPBackend.MATH):
            return self.setup.loss(self.model, batch)


def _longer(state: Mapping[str, Tensor], fresh: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([old, fresh[name]]) for name, old in state.items()}


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype == torch.bfloat16 else dtype


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


def _changed(module: nn.Module, setup: Setup) -> frozenset[str]:
    """Names of the buffers that a step changes, such as BatchNorm's running statistics."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    if not before:
        return frozenset()
    order = BatchOrder(0, setup.task.num_examples, setup.batch_size)
    with borrowed_generators(setup.device), torch.no_grad():
        seed_generators(setup.device, 0)
        setup.loss(module, setup.task.batch(order.probe(1)[0].to(setup.device)))
    return frozenset(
        name for name, buffer in module.named_buffers() if not torch.equal(before[name], buffer)
    )
