"""Adam: steps scaled by running moments of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State


class Adam(Optimizer):
    """Adam with bias correction and coupled (L2) decay, as `torch.optim.Adam`.

    With g the gradient plus `weight_decay` times the weights, m and v are running means of g and
    g^2 with memories `beta1` and `beta2`; the update is -lr * m_hat / (sqrt(v_hat) + eps).

    With v frozen it is stable on a quadratic whose preconditioned largest eigenvalue is h for
    lr * h below 2 (1 + beta1) / (1 - beta1): 38 at beta1 = 0.9 (arXiv 2207.14484).

    References:
        arXiv 1412.6980.
    """

    name = "adam"
    defaults = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
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
        grad_KP = torch.addcmul(grad_KP, hyper["weight_decay"].to(theta_KP), theta_KP)
        return moment_step(grad_KP, state, hyper, lr_K1, step_K1)

    def move_row(
        self, theta_P: Tensor, grad_P: Tensor, state: State, hyper: Mapping[str, float], step: int
    ) -> None:
        """See `Optimizer.move_row`."""
        fused_step(torch.ops.aten._fused_adam_.default, theta_P, grad_P, state, hyper, step)

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.Adam`."""
        return torch.optim.Adam(parameters.values(), lr=1.0, **moment_arguments(hyper))


def moment_step(
    grad_KP: Tensor, state: State, hyper: Mapping[str, Tensor], lr_K1: Tensor, step_K1: Tensor
) -> Tensor:
    """The part that Adam and AdamW share: -lr * m_hat / (sqrt(v_hat) + eps)."""
    beta1, beta2 = hyper["beta1"], hyper["beta2"]
    mean = state["exp_avg"].lerp_(grad_KP, (1 - beta1).to(grad_KP))
    square = state["exp_avg_sq"].mul_(beta2.to(grad_KP))
    square.addcmul_(grad_KP * (1 - beta2).to(grad_KP), grad_KP)
    correction1 = 1 - beta1 ** (step_K1 + 1)
    correction2 = 1 - beta2 ** (step_K1 + 1)
    scale = square.sqrt().div_(correction2.sqrt().to(grad_KP)).add_(hyper["eps"].to(grad_KP))
    return torch.div(mean, scale, out=scale).mul_((-lr_K1 / correction1).to(grad_KP))


def fused_step(
    kernel: Callable[..., None],
    theta_P: Tensor,
    grad_P: Tensor,
    state: State,
    hyper: Mapping[str, float],
    step: int,
) -> None:
    """One update by torch's kernel for Adam, or AdamW; see `Optimizer.move_row`."""
    kernel(
        [theta_P],
        [grad_P],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [torch.tensor(step + 1.0)],
        lr=hyper["lr"],
        beta1=hyper["beta1"],
        beta2=hyper["beta2"],
        weight_decay=hyper["weight_decay"],
        eps=hyper["eps"],
        amsgrad=False,
        maximize=False,
    )


def moment_arguments(hyper: Mapping[str, float]) -> dict:
    """The hyperparameters under the names that `torch.optim` gives them."""
    return {
        "betas": (hyper["beta1"], hyper["beta2"]),
        "eps": hyper["eps"],
        "weight_decay": hyper["weight_decay"],
    }
