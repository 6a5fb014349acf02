"""Many trials as one stacked program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map

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
from stabsweep.engine._program import Gradient, Programs
from stabsweep.engine._rows import Rows, Update, wide
from stabsweep.engine._tiles import Tiles
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

    def __init__(self, setup: Setup, capacity: int, traces: bool = True) -> None:
        super().__init__(setup, capacity)
        self._module, other = (
            initialize(setup.build_model, seed).to(device=setup.device, dtype=setup.dtype)
            for seed in (0, 1)
        )
        own = _own(self._module, other) | _changed(other, setup)
        self._starts = Starts(setup, own)
        self._objective = Objective(self._module, setup)
        named = {name: tensor.detach() for name, tensor in untrained(self._module)}
        self._held = [name for name in named if name in own]
        self._shared = {name: tensor for name, tensor in named.items() if name not in own}
        self._shapes = [(name, p.shape) for name, p in trained(self._module)]
        self._sizes = [shape.numel() for _, shape in self._shapes]
        self._rule = setup.optimizer.laid_out(self._shapes)
        self._clipper = setup.clipper.laid_out(self._shapes)
        self.programs = Programs(self._objective, setup.precision.tolerance) if traces else None
        self.tiles = Tiles(setup.device)
        self._speed = ""
        self._trials: list[Trial] = []
        self._initial_loss_K: list[float] = []
        self._step_K = np.zeros(0, int)
        self._rows: Rows | None = None

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials in training, in the order of their rows."""
        return self._trials

    @property
    def speed(self) -> str:
        """See `Engine.speed`."""
        size = self.tiles.size
        if size is None or self.programs is None:
            return ""
        if not self._speed:
            took = self.tiles.milliseconds[size]
            obstacle = self.programs.obstacle
            how = f"not traced, since {obstacle}" if obstacle else "traced"
            self._speed = f"{how}, {size} side by side, {took:.2g} ms a trial-step"
            share = self.programs.product_seconds(size) / size * 1e3 / took
            if share:
                # More than all of it would be noise.
                self._speed += f" ({min(share, 1):.0%} of the peak of its matrix products)"
        return self._speed

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
        theta_KP = torch.stack([start.theta_P for start in starts])
        new = Rows(
            theta_KP,
            theta_KP.clone(),
            self._rule.new_state(theta_KP),
            self._clipper.new_state(theta_KP),
            {name: torch.stack([start.held[name] for start in starts]) for name in self._held},
            self._factor(trials, theta_KP),
            *(
                {name: self._column(self._numbers(trials, name)) for name in rule.defaults}
                for rule in (self.setup.optimizer, self.setup.clipper)
            ),
        )
        self._rows = new if self._rows is None else self._rows.with_more(new)
        self._step_K = np.concatenate([self._step_K, np.zeros(len(trials), int)])
        self._initial_loss_K.extend(start.initial_loss for start in starts)
        self._trials.extend(trials)

    def _factor(self, trials: Sequence[Trial], theta_KP: Tensor) -> dict[str, Tensor]:
        """What the rate of each weight is multiplied with, where that is not 1 for all."""
        factors = [self.setup.lr_factors(trial, self._module) for trial in trials]
        if None in factors:
            return {}
        factor_KN = torch.tensor(factors, device=theta_KP.device, dtype=wide(theta_KP.dtype))
        sizes = torch.tensor(self._sizes, device=theta_KP.device)
        return {"lr": factor_KN.repeat_interleave(sizes, dim=1)}

    def drop(self, number: int) -> None:
        """See `Engine.drop`."""
        self._keep([trial.number != number for trial in self._trials])

    def _keep(self, kept: Sequence[bool]) -> None:
        if all(kept):
            return
        rows = [row for row, keep in enumerate(kept) if keep]
        assert self._rows is not None
        self._rows = self._rows[torch.tensor(rows, dtype=torch.long, device=self.setup.device)]
        self._step_K = self._step_K[rows]
        self._initial_loss_K = [self._initial_loss_K[row] for row in rows]
        self._trials = [self._trials[row] for row in rows]

    @torch.no_grad()
    def advance(self, num_steps: int) -> list[Chunk]:
        """See `Engine.advance`. The host waits for the device once a tile, at its end."""
        if self._rows is None or not self._trials:
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
        curves = np.empty((len(CURVES), len(self._trials), num_steps), setup.curve_type)
        curves[4] = lr_RK.T
        lr_RK1 = self._column(lr_RK)
        step_RK1 = self._column(start_K + np.arange(num_steps)[:, None])
        for part in self.tiles.parts(len(self._trials)):
            tile_began = time.perf_counter()
            found_R4K = self._train(
                part, index_RKB[:, part], lr_RK1[:, part].unbind(0), step_RK1[:, part].unbind(0)
            )
            curves[:4, part] = found_R4K.cpu().numpy().transpose(1, 2, 0)
            took = time.perf_counter() - tile_began
            self.tiles.timed(part.stop - part.start, num_steps, took)
        displacement_K = self._rows.displacement_K().cpu().numpy()
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

    def _train(
        self,
        part: slice,
        index_RKB: Tensor,
        lr_RK1: Sequence[Tensor],
        step_RK1: Sequence[Tensor],
    ) -> Tensor:
        """Trains some of the rows for a rung; their first four curves, (R, 4, K)."""
        assert self._rows is not None
        setup, rows = self.setup, self._rows[part]
        update = Update(rows, self._rule, self._clipper)
        dtype = wide(setup.dtype)
        curves_R4K = torch.empty(len(index_RKB), 4, len(rows), dtype=dtype, device=setup.device)
        for index_KB, lr_K1, step_K1, curves_4K in zip(
            index_RKB, lr_RK1, step_RK1, curves_R4K, strict=True
        ):
            batch_K = setup.task.batch(index_KB)
            gradient = self._gradient(batch_K, rows)
            grad_KP, curves_4K[0] = gradient(rows.theta_KP, rows.held, batch_K)
            curves_4K[1:] = update(grad_KP, lr_K1, step_K1)
        return curves_R4K

    def _gradient(self, batch_K: Any, rows: Rows) -> Gradient:
        """Gradients and losses of all trials, a function of weights, held tensors and batches."""
        # What is no tensor in a batch is the same for every trial.
        dims = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, batch_K)
        gradient = vmap(grad_and_value(self._loss), in_dims=(0, 0, dims))
        if self.programs is None:
            return gradient
        return self.programs.find(gradient, rows.theta_KP, rows.held, batch_K)

    def _rates(self, start_K: np.ndarray, num_steps: int) -> np.ndarray:
        lr_K, warmup_K = (self._numbers(self._trials, name) for name in ("lr", "warmup_steps"))
        steps_RK = start_K + np.arange(num_steps)[:, None]
        return learning_rates(steps_RK, lr_K, warmup_K, self.setup.horizon, self.setup.schedule)

    def _numbers(self, trials: Sequence[Trial], name: str) -> np.ndarray:
        return np.array([self.setup.number(trial, name) for trial in trials])

    def _column(self, values: np.ndarray) -> Tensor:
        column = torch.as_tensor(values, dtype=torch.float64).unsqueeze(-1)
        return column.to(self.setup.device)


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
