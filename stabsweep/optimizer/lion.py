"""Lion: steps along the sign of a momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State


class Lion(Optimizer):
    """Lion with decoupled decay.

    With g the gradient and m the momentum, the update is
    -lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * theta), and then
    m = beta2 * m + (1 - beta2) * g. Rates are 3 to 10 times smaller than those of AdamW, decays so
    much larger (section 5 of the paper).

    It has no edge on a quadratic: every weight moves by lr whatever the gradient, so it ends in a
    cycle as wide as lr and neither grows nor converges. With decay all weights end within
    1 / weight_decay (arXiv 2310.05898), for lr * weight_decay below 2.

    A gradient that is zero but for rounding, such as that of a key's bias before a softmax, has a
    random sign, and Lion has no eps to keep it small: such weights wander at full speed, and not
    alike in two engines. The loss does not feel it, or else the gradient would not be zero.

    A NaN stays NaN, as in the authors' JAX code; `torch.sign` would make it 0 and hide the failure.

    References:
        arXiv 2302.06675, algorithm 2, and the defaults of the authors' code.
    """

    name = "lion"
    defaults = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}
    buffers = ("exp_avg",)

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
        mean = state["exp_avg"]
        step_KP = sign(mean * beta1.to(theta_KP) + grad_KP * (1 - beta1).to(theta_KP))
        mean.mul_(beta2.to(theta_KP)).add_(grad_KP * (1 - beta2).to(theta_KP))
        step_KP.addcmul_(theta_KP, hyper["weight_decay"].to(theta_KP))
        return step_KP.mul_(-lr_K1.to(theta_KP))

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`PlainLion`, since torch has none."""
        return PlainLion(parameters.values(), **hyper)


def sign(values: Tensor) -> Tensor:
    """-1, 0 or 1 for each value, and NaN for NaN."""
    return torch.where(values.isnan(), values, values.sign())


class PlainLion(torch.optim.Optimizer):
    """Lion for the parameters of one module, written from the paper: what the plain loop runs.

    Args:
        parameters: the parameters of a module.
        beta1, beta2, weight_decay: as in `Lion`.
        lr: as in `torch.optim`.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        beta1: float,
        beta2: float,
        weight_decay: float,
        lr: float = 1.0,
    ) -> None:
        given = {"lr": lr, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
        super().__init__(parameters, given)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter; `closure` is not used."""
        for group in self.param_groups:
            beta1, beta2 = group["beta1"], group["beta2"]
            for theta in group["params"]:
                g, state = theta.grad, self.state[theta]
                m = state.get("m", torch.zeros_like(theta))
                update = sign(beta1 * m + (1 - beta1) * g)
                theta -= group["lr"] * (update + group["weight_decay"] * theta)
                state["m"] = beta2 * m + (1 - beta2) * g
