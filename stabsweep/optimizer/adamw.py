"""AdamW: Adam with decay that does not pass through the moments."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State
from stabsweep.optimizer.adam import fused_step, moment_arguments, moment_step


class AdamW(Optimizer):
    """Adam with decoupled decay, as `torch.optim.AdamW`: the weights shrink by lr * decay a step.

    References:
        arXiv 1711.05101.
    """

    name = "adamw"
    defaults = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    buffers = ("exp_avg", "exp_avg_sq")
    moves_rows = True

    def delta(
        self,
        theta_KP: Tensor,
        grad_KP: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        lr_K1: Tensor,
        step_K1: Tensor,
    ) -> Tensor:
        """See `Optimizer.delta`."""
        step_KP = moment_step(grad_KP, state, hyper, lr_K1, step_K1)
        return step_KP.addcmul_(theta_KP, (-lr_K1 * hyper["weight_decay"]).to(theta_KP))

    def move_row(
        self, theta_P: Tensor, grad_P: Tensor, state: State, hyper: Mapping[str, float], step: int
    ) -> None:
        """See `Optimizer.move_row`."""
        fused_step(torch.ops.aten._fused_adamw_.default, theta_P, grad_P, state, hyper, step)

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.AdamW`."""
        return torch.optim.AdamW(parameters.values(), lr=1.0, **moment_arguments(hyper))
