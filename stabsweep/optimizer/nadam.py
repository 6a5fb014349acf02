"""NAdam: Adam with a look ahead along its momentum."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.optimizer._base import Optimizer, State
from stabsweep.optimizer.adam import moment_arguments


class NAdam(Optimizer):
    """Nesterov's Adam with coupled (L2) decay, as `torch.optim.NAdam`.

    With m and v as in Adam and, at step t from 1, mu_t = beta1 * (1 - 0.5 * 0.96^(t *
    momentum_decay)) and M_t the product of mu_1 ... mu_t, the update is
    -lr * ((1 - mu_t) / (1 - M_t) * g + mu_(t+1) / (1 - M_(t+1)) * m) / (sqrt(v_hat) + eps).

    With v frozen and mu constant it is stable on a quadratic whose preconditioned largest
    eigenvalue is h for lr * h below 2 (1 + beta1) / (1 + beta1 - 2 mu beta1) (derived here from the
    linear recurrence). At beta1 = 0.9 the edge is 3.49 at first, where mu = beta1 / 2, and rises to
    13.57 as mu goes to beta1, within thousands of steps by default; that of Adam is 38.

    References:
        Dozat 2016, "Incorporating Nesterov momentum into Adam".
    """

    name = "nadam"
    defaults = {
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.0,
        "momentum_decay": 4e-3,
    }
    buffers = ("exp_avg", "exp_avg_sq")

    def new_state(self, theta_KP: Tensor) -> State:
        """See `Optimizer.new_state`: the moments, and M as one number a trial."""
        one_K1 = torch.ones(len(theta_KP), 1, dtype=torch.float64, device=theta_KP.device)
        return {**super().new_state(theta_KP), "mu_product": one_K1}

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
        beta1, beta2, decay = hyper["beta1"], hyper["beta2"], hyper["momentum_decay"]
        grad_KP = torch.addcmul(grad_KP, hyper["weight_decay"].to(theta_KP), theta_KP)
        t = step_K1 + 1
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (u * decay)) for u in (t, t + 1))
        product = state["mu_product"].mul_(mu)
        mean = state["exp_avg"].lerp_(grad_KP, (1 - beta1).to(theta_KP))
        square = state["exp_avg_sq"].mul_(beta2.to(theta_KP))
        square.addcmul_(grad_KP * (1 - beta2).to(theta_KP), grad_KP)
        scale = square.div((1 - beta2**t).to(theta_KP)).sqrt_().add_(hyper["eps"].to(theta_KP))
        step_KP = grad_KP.mul_((-lr_K1 * (1 - mu) / (1 - product)).to(theta_KP))
        step_KP.addcmul_(mean, (-lr_K1 * mu_next / (1 - product * mu_next)).to(theta_KP))
        return step_KP.div_(scale)

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`torch.optim.NAdam`, its product of mu kept in float64.

        torch itself keeps that number in float32 whatever the type of the weights, which costs a
        float64 run half of its digits.
        """
        twin = torch.optim.NAdam(
            parameters.values(),
            lr=1.0,
            momentum_decay=hyper["momentum_decay"],
            **moment_arguments(hyper),
        )
        for parameter in twin.param_groups[0]["params"]:
            # All that torch would fill in at the first step, which it skips for a state that is
            # there.
            twin.state[parameter] = {
                "step": torch.tensor(0.0),
                "mu_product": torch.tensor(1.0, dtype=torch.float64),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return twin
