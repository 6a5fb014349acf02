"""All that is kept of stacked trials, one row each, and how a step moves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from stabsweep.clipper import Clipper, l2_norm
from stabsweep.optimizer import Optimizer

LONG = 1 << 12
"""Weights from which on a call for each row costs less than passes over all rows."""


@dataclass(frozen=True)
class Rows:
    """The tensors of K trials.

    Attributes:
        theta_KP: weights that are trained.
        theta0_KP: those that they began with.
        state: what the optimizer remembers.
        clip_state: what the clipper remembers.
        held: untrained tensors that differ between trials.
        factor: empty, or under "lr" (K, P): what the rate of each weight is multiplied with.
        hyper: hyperparameters of the optimizer, (K, 1) each, in float64.
        limits: those of the clipper.
    """

    theta_KP: Tensor
    theta0_KP: Tensor
    state: Mapping[str, Tensor]
    clip_state: Mapping[str, Tensor]
    held: Mapping[str, Tensor]
    factor: Mapping[str, Tensor]
    hyper: Mapping[str, Tensor]
    limits: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.theta_KP)

    def __getitem__(self, part: slice | Tensor) -> Rows:
        """Some of the rows: a slice shares their memory, an index of rows copies them."""
        return Rows(*(_each(value, lambda tensor: tensor[part]) for value in self._values()))

    def with_more(self, more: Rows) -> Rows:
        """These rows, and others after them."""
        pairs = zip(self._values(), more._values(), strict=True)
        return Rows(*(_joined(ours, theirs) for ours, theirs in pairs))

    def displacement_K(self) -> Tensor:
        """Distance of the weights from the first, over the norm of the first."""
        return l2_norm(self.theta_KP - self.theta0_KP, dim=1) / l2_norm(self.theta0_KP, dim=1)

    def _values(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]


class Update:
    """What a step does to some rows, once their gradients are known.

    Args:
        rows: they are changed in place.
        rule, clipper: laid out for the parameters of a row.
    """

    def __init__(self, rows: Rows, rule: Optimizer, clipper: Clipper) -> None:
        self.rows, self.rule, self.clipper = rows, rule, clipper
        theta_KP = rows.theta_KP
        self._is_half = theta_KP.dtype == torch.bfloat16
        self._by_row = (
            rule.moves_rows
            and theta_KP.device.type == "cpu"
            and theta_KP.shape[1] >= LONG
            and not self._is_half
            and not rows.factor
        )
        if self._by_row:
            # One for all, so that it stays in the cache.
            self._before_P = torch.empty_like(theta_KP[0])
            columns = {name: column[:, 0].tolist() for name, column in rows.hyper.items()}
            self._each = [
                (
                    theta_KP[row],
                    {name: buffer[row] for name, buffer in rows.state.items()},
                    {name: values[row] for name, values in columns.items()},
                )
                for row in range(len(rows))
            ]

    def __call__(self, grad_KP: Tensor, lr_K1: Tensor, step_K1: Tensor) -> Tensor:
        """Clips the gradients and moves the weights by one step.

        Returns:
            Gradient norm, clip coefficient, and length of the update over that of the weights,
            (3, K).
        """
        rows = self.rows
        norm_K1 = l2_norm(grad_KP, dim=1, keepdim=True)
        grad_KP, coef_K1 = self.clipper.clip(
            grad_KP, rows.theta_KP, norm_K1, dict(rows.clip_state), rows.limits, step_K1
        )
        size_K = l2_norm(rows.theta_KP, dim=1)
        move = self._one_by_one if self._by_row else self._together
        moved_K = move(grad_KP, lr_K1, step_K1)
        return torch.stack([norm_K1[:, 0], coef_K1[:, 0], moved_K / size_K])

    def _one_by_one(self, grad_KP: Tensor, lr_K1: Tensor, step_K1: Tensor) -> Tensor:
        """Moves the rows one by one, each in one pass; by how much, (K,)."""
        moved_K = self.rows.theta_KP.new_empty(len(grad_KP))
        for (theta_P, state, hyper), grad_P, lr, step, moved in zip(
            self._each, grad_KP, lr_K1[:, 0].tolist(), step_K1[:, 0].tolist(), moved_K, strict=True
        ):
            self._before_P.copy_(theta_P)
            self.rule.move_row(theta_P, grad_P, state, {**hyper, "lr": lr}, int(step))
            moved.copy_(l2_norm(self._before_P.sub_(theta_P)))
        return moved_K

    def _together(self, grad_KP: Tensor, lr_K1: Tensor, step_K1: Tensor) -> Tensor:
        """Moves all rows, an operation at a time; by how much, (K,)."""
        kept_KP, kept = self.rows.theta_KP, self.rows.state
        theta_KP, state = kept_KP, dict(kept)
        if self._is_half:
            # Computed in float32 and rounded where it is kept, as torch's own kernels do.
            theta_KP, grad_KP = theta_KP.float(), grad_KP.float()
            state = {name: buffer.to(wide(buffer.dtype)) for name, buffer in state.items()}
        delta_KP = self.rule.delta(theta_KP, grad_KP, state, self.rows.hyper, lr_K1, step_K1)
        if self.rows.factor:
            delta_KP = delta_KP.mul_(self.rows.factor["lr"])
        kept_KP += delta_KP
        if self._is_half:
            # What was rounded away has not moved.
            delta_KP = kept_KP - theta_KP
            for name, buffer in state.items():
                kept[name].copy_(buffer)
        return l2_norm(delta_KP, dim=1)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type to compute in: float32 of bfloat16, else the same."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    return {name: change(tensor) for name, tensor in value.items()}


def _joined(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, Tensor):
        return torch.cat([ours, theirs])
    return {name: torch.cat([tensor, theirs[name]]) for name, tensor in ours.items()}
