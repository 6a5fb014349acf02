"""RAdam: Adam that waits until it knows the size of the gradient."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State
from stabsweep.optimizer.adam import moment_arguments


class RAdam(Optimizer):
    """Rectified Adam with coupled (L2) decay, as `torch.optim.RAdam`.

    With m and v as in Adam, rho_inf = 2 / (1 - beta2) - 1 and, at step t from 1,
    rho = rho_inf - 2 t beta2^t / (1 - beta2^t), the number of gradients that v rests on, the update
    is -lr * m_hat while rho <= 5 (the first five steps at beta2 = 0.999; all of them for beta2 up
    to 2/3), and then -lr * m_hat * r * sqrt(1 - beta2^t) / (sqrt(v) + eps), with
    r^2 = (rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho), which rises to 1.

    The first steps are plain momentum whose length is that of the gradient: a rate that suits the
    later ones may be far too small, or, where gradients are large, too large for them.

    With v frozen it has the edge of Adam on a quadratic, lr * r * h = 2 (1 + beta1) / (1 - beta1),
    so r is a warmup: 0.03 at step 6, 0.15 at step 50, 0.65 at step 1000 (beta2 = 0.999).

    References:
        arXiv 1908.03265; eps as in torch, before the correction of v.
    """

    name = "radam"
    defaults = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    buffers = ("exp_avg", "exp_avg_sq")

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
        beta1, beta2 = hyper["beta1"], hyper["beta2"]
        grad_KP = torch.addcmul(grad_KP, hyper["weight_decay"].to(theta_KP), theta_KP)
        mean = state["exp_avg"].lerp_(grad_KP, (1 - beta1).to(theta_KP))
        square = state["exp_avg_sq"].mul_(beta2.to(theta_KP))
        square.addcmul_(grad_KP * (1 - beta2).to(theta_KP), grad_KP)
        t = step_K1 + 1
        correction2 = 1 - beta2**t
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * beta2**t / correction2
        # Not a number where rho is small, and not used there.
        r = torch.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
        is_rectified = rho > 5
        scale = square.sqrt().add_(hyper["eps"].to(theta_KP)).reciprocal_()
        scale.mul_((r * correction2.sqrt()).to(theta_KP))
        step_KP = mean * torch.where(is_rectified, scale, 1.0)
        return step_KP.mul_((-lr_K1 / (1 - beta1**t)).to(theta_KP))

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.RAdam`."""
        return torch.optim.RAdam(parameters.values(), lr=1.0, **moment_arguments(hyper))
