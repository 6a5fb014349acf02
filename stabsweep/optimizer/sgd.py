"""Stochastic gradient descent, with momentum and weight decay."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.optimizer._base import Optimizer, State


class SGD(Optimizer):
    """SGD with heavy-ball or Nesterov momentum, dampening and coupled (L2) decay.

    With g the gradient plus `weight_decay` times the weights, b = momentum * b + (1 - dampening)
    * g (b = g at the first step), and the update is -lr * b, or -lr * (g + momentum * b) with
    Nesterov. The semantics are those of `torch.optim.SGD`.

    On a quadratic with largest eigenvalue h it is stable for lr * h below 2 (1 + momentum) /
    (1 - dampening), or 2 (1 + momentum) / (1 + 2 momentum) with Nesterov.

    Args:
        nesterov: look ahead along the momentum.

    References:
        Sutskever et al. 2013 (Nesterov momentum as used here).
    """

    name = "sgd"
    defaults = {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}
    buffers = ("momentum_buffer",)
    moves_rows = True
    is_adaptive = False

    def __init__(self, nesterov: bool = False) -> None:
        self.nesterov = nesterov

    def check(self, hyper: Mapping[str, float]) -> None:
        """See `Optimizer.check`."""
        if self.nesterov and hyper["dampening"] > 0:
            raise BadInput(
                f"optimizer.dampening={hyper['dampening']:g} does not go with nesterov=true: "
                "use dampening=0 or nesterov=false"
            )

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
        momentum = hyper["momentum"].to(theta_KP)
        grad_KP = torch.addcmul(grad_KP, hyper["weight_decay"].to(theta_KP), theta_KP)
        # torch neither damps the first step nor a trial without momentum.
        is_plain = (step_K1 == 0) | (momentum == 0)
        kept = (1 - torch.where(is_plain, 0.0, hyper["dampening"])).to(theta_KP)
        buffer = state["momentum_buffer"].mul_(momentum).addcmul_(grad_KP, kept)
        if self.nesterov:
            return torch.addcmul(grad_KP, buffer, momentum).mul_(-lr_K1.to(theta_KP))
        return buffer * -lr_K1.to(theta_KP)

    def move_row(
        self, theta_P: Tensor, grad_P: Tensor, state: State, hyper: Mapping[str, float], step: int
    ) -> None:
        """See `Optimizer.move_row`."""
        torch.ops.aten._fused_sgd_.default(
            [theta_P],
            [grad_P],
            [state["momentum_buffer"]] if hyper["momentum"] else [],
            weight_decay=hyper["weight_decay"],
            momentum=hyper["momentum"],
            lr=hyper["lr"],
            dampening=hyper["dampening"],
            nesterov=self.nesterov,
            maximize=False,
            is_first_step=step == 0,
        )

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.SGD`."""
        return torch.optim.SGD(
            parameters.values(),
            lr=1.0,
            momentum=hyper["momentum"],
            # torch refuses Nesterov with momentum 0, where it is the same as none.
            nesterov=self.nesterov and hyper["momentum"] > 0,
            dampening=hyper["dampening"],
            weight_decay=hyper["weight_decay"],
        )
