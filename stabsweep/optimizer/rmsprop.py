"""RMSprop: steps scaled by the running size of the gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State


class RMSprop(Optimizer):
    """RMSprop with momentum and coupled (L2) decay, as `torch.optim.RMSprop` (not centered).

    With g the gradient plus `weight_decay` times the weights, v = alpha * v + (1 - alpha) * g^2,
    b = momentum * b + g / (sqrt(v) + eps), and the update is -lr * b. Nothing corrects v for its
    start at zero: the first step is lr / sqrt(1 - alpha) long, 10 lr by default, so short runs may
    fail at rates that a warmed up one takes.

    With v frozen it is stable on a quadratic whose preconditioned largest eigenvalue is h for
    lr * h below 2 (1 + momentum): the edge of the heavy ball.

    References:
        Tieleman and Hinton 2012 (lecture 6.5 of "Neural networks for machine learning").
    """

    name = "rmsprop"
    defaults = {"alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "weight_decay": 0.0}
    buffers = ("square_avg", "momentum_buffer")

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
        alpha, momentum = hyper["alpha"], hyper["momentum"].to(theta_KP)
        grad_KP = torch.addcmul(grad_KP, hyper["weight_decay"].to(theta_KP), theta_KP)
        square = state["square_avg"].mul_(alpha.to(theta_KP))
        square.addcmul_(grad_KP * (1 - alpha).to(theta_KP), grad_KP)
        scale = square.sqrt().add_(hyper["eps"].to(theta_KP))
        buffer = state["momentum_buffer"].mul_(momentum).addcdiv_(grad_KP, scale)
        return buffer * -lr_K1.to(theta_KP)

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.RMSprop`."""
        return torch.optim.RMSprop(
            parameters.values(),
            lr=1.0,
            alpha=hyper["alpha"],
            eps=hyper["eps"],
            momentum=hyper["momentum"],
            weight_decay=hyper["weight_decay"],
        )
