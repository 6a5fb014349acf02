"""Muon: orthogonal steps for hidden matrices, AdamW for all other parameters."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.optimizer._base import Optimizer, State
from stabsweep.optimizer.adamw import AdamW

EXCLUDED = ("*embed*", "*position*", "*readout*", "*head.*")
"""Patterns of the matrices that are no hidden ones, by the names that they usually have."""

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration: the steepest at zero that stays within 0.7 to 1.2 (Jordan's post)."""

NUM_ITERATIONS = 5
"""As in Jordan's post: singular values down to a few thousandths of the norm come near 1."""

LEAST_NORM = 1e-7
"""Below it a matrix is not blown up to norm 1 any more: that of `torch.optim.Muon`."""


class Muon(Optimizer):
    """Muon for hidden matrices and AdamW for the rest, with one rate for both.

    With g the gradient of an m x n matrix, b = momentum * b + (1 - momentum) * g is followed (with
    Nesterov g * (1 - momentum) + momentum * b); five Newton-Schulz iterations bring its singular
    values near 1, and the update is -lr * (0.2 * sqrt(max(m, n)) * that + weight_decay * theta).
    The factor gives it the size of AdamW's usual steps, so that AdamW's rates and decays fit
    (Moonlight, section 2.2); `torch.optim.Muon` calls it `match_rms_adamw`.

    A matrix is hidden when it has two dimensions and a name that no pattern of `exclude` matches.
    All else gets AdamW, so a model without matrices is trained by AdamW alone. Names that say
    nothing mislead it: the last layer of an `nn.Sequential` counts as hidden, and so does a first
    layer, which Jordan leaves to AdamW. Matrices stacked in one parameter (queries, keys, values)
    are one matrix, as in `torch.optim.Muon`.

    It differs from `torch.optim.Muon` in one thing: the iterations are computed in the type of the
    weights (float32 under `bf16_pure`), not in bfloat16, whose three digits would hide any
    disagreement of two engines and gain nothing on a CPU.

    Momentum, decay and Nesterov are torch's defaults for Muon, betas and eps those for AdamW.
    Momentum belongs to the matrices, betas and eps to the rest, the decay to both.

    Args:
        nesterov: look ahead along the momentum.
        exclude: patterns of parameter names (`readout.*`) that get AdamW though they are matrices.

    Raises:
        BadInput: `exclude` is no list of patterns.

    References:
        Keller Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; arXiv 2502.16982.
    """

    name = "muon"
    defaults = {
        "momentum": 0.95,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-8,
        "weight_decay": 0.1,
    }
    buffers = ("momentum_buffer", "exp_avg", "exp_avg_sq")

    def __init__(self, nesterov: bool = True, exclude: Sequence[str] = EXCLUDED) -> None:
        is_list = isinstance(exclude, Sequence) and not isinstance(exclude, str)
        if not is_list or not all(isinstance(pattern, str) for pattern in exclude):
            raise BadInput(
                f"optimizer.exclude={exclude!r} is no list of patterns: give ['readout.*', ...]"
            )
        self.nesterov = nesterov
        self.exclude = exclude
        self._shapes: Sequence[torch.Size] = ()
        self._is_hidden: Sequence[bool] = ()
        self._adamw = AdamW()

    def laid_out(self, shapes: Sequence[tuple[str, torch.Size]]) -> Muon:
        """See `Optimizer.laid_out`: a copy that knows where the hidden matrices lie."""
        rule = copy.copy(self)
        rule._shapes = [shape for _, shape in shapes]
        rule._is_hidden = [self.is_hidden(name, shape) for name, shape in shapes]
        return rule

    def is_hidden(self, name: str, shape: torch.Size) -> bool:
        """Whether a parameter is a matrix that gets orthogonal steps."""
        return len(shape) == 2 and not any(fnmatchcase(name, p) for p in self.exclude)

    def lr_scale_power(self, name: str, shape: torch.Size) -> float:
        """See `Optimizer.lr_scale_power`: one half for hidden matrices.

        A step of Adam has few large singular values, of the order of the width; those of a step of
        Muon are all 0.2 * sqrt(width) or so, and need the root of what Adam's need.
        """
        return 0.5 if self.is_hidden(name, shape) else 1.0

    def new_state(self, theta_KP: Tensor) -> State:
        """See `Optimizer.new_state`: each buffer as wide as the parameters that it serves."""
        hidden_KP, rest_KP = self._parted(theta_KP)
        return {
            name: torch.zeros_like(hidden_KP if name == "momentum_buffer" else rest_KP)
            for name in self.buffers
        }

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
        hidden_KP, rest_KP = self._parted(theta_KP)
        grad_KP, rest_grad_KP = self._parted(grad_KP)
        rest_KP = self._adamw.delta(rest_KP, rest_grad_KP, state, hyper, lr_K1, step_K1)
        if not any(self._is_hidden):
            return rest_KP
        momentum = hyper["momentum"]
        buffer_KP = state["momentum_buffer"].lerp_(grad_KP, (1 - momentum).to(grad_KP))
        if self.nesterov:
            buffer_KP = grad_KP.lerp(buffer_KP, momentum.to(grad_KP))
        hidden_KP = hidden_KP * hyper["weight_decay"].to(hidden_KP)
        hidden_KP = hidden_KP.add_(self._steps(buffer_KP)).mul_(-lr_K1.to(hidden_KP))
        return self._joined(hidden_KP, rest_KP)

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """`PlainMuon`, since torch's own rounds to bfloat16 and takes nothing but matrices."""
        hidden = {name for name, p in parameters.items() if self.is_hidden(name, p.shape)}
        return PlainMuon(
            [p for name, p in parameters.items() if name in hidden],
            [p for name, p in parameters.items() if name not in hidden],
            nesterov=self.nesterov,
            **hyper,
        )

    def _steps(self, followed_KP: Tensor) -> Tensor:
        """The orthogonal steps of all hidden matrices, as long as AdamW's."""
        shapes = [s for s, hidden in zip(self._shapes, self._is_hidden, strict=True) if hidden]
        parts = followed_KP.split([shape.numel() for shape in shapes], dim=1)
        pairs = zip(parts, shapes, strict=True)
        return torch.cat(
            [
                orthogonal(part.unflatten(1, shape)).flatten(1) * (0.2 * math.sqrt(max(shape)))
                for part, shape in pairs
            ],
            dim=1,
        )

    def _parted(self, values_KP: Tensor) -> tuple[Tensor, Tensor]:
        """The columns of the hidden matrices, and all others; without a layout all are others."""
        if not any(self._is_hidden):
            return values_KP[:, :0], values_KP
        parts = values_KP.split([shape.numel() for shape in self._shapes], dim=1)
        hidden, rest = (
            [part for part, hidden in zip(parts, self._is_hidden, strict=True) if hidden == which]
            for which in (True, False)
        )
        return torch.cat(hidden, dim=1), torch.cat([*rest, values_KP[:, :0]], dim=1)

    def _joined(self, hidden_KP: Tensor, rest_KP: Tensor) -> Tensor:
        """The inverse of `_parted`."""
        sizes = [shape.numel() for shape in self._shapes]
        pairs = list(zip(sizes, self._is_hidden, strict=True))
        hidden, rest = (
            iter(columns_KP.split([size for size, hidden in pairs if hidden == which], dim=1))
            for columns_KP, which in ((hidden_KP, True), (rest_KP, False))
        )
        return torch.cat([next(hidden if which else rest) for which in self._is_hidden], dim=1)


def orthogonal(matrices_KMN: Tensor) -> Tensor:
    """Matrices with the singular vectors of those given, and singular values of 0.7 to 1.2.

    Values below a few thousandths of a matrix's norm stay below that.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices_KMN.shape[1] > matrices_KMN.shape[2]
    x = matrices_KMN.mT if is_tall else matrices_KMN
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=LEAST_NORM)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class PlainMuon(torch.optim.Optimizer):
    """Muon and AdamW for the parameters of one module, from the papers: what the plain loop runs.

    Args:
        hidden: the matrices that get orthogonal steps.
        rest: all other parameters.
        nesterov, momentum, beta1, beta2, eps, weight_decay: as in `Muon`.
        lr: as in `torch.optim`.
    """

    def __init__(
        self,
        hidden: Iterable[Tensor],
        rest: Iterable[Tensor],
        nesterov: bool,
        momentum: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        lr: float = 1.0,
    ) -> None:
        given = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        groups = [
            {"params": list(hidden), "rule": self._orthogonal_step},
            {"params": list(rest), "rule": self._adam_step},
        ]
        super().__init__(groups, {**given, "beta1": beta1, "beta2": beta2, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """One update of every parameter; `closure` is not used."""
        for group in self.param_groups:
            for theta in group["params"]:
                # A half is too coarse for the sums below: they are float32 there.
                g = theta.grad.to(torch.promote_types(theta.dtype, torch.float32))
                step = group["rule"](g, self.state[theta], group)
                theta.mul_(1 - group["lr"] * group["weight_decay"])
                theta.sub_((group["lr"] * step).to(theta.dtype))

    @staticmethod
    def _orthogonal_step(g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        mu = group["momentum"]
        b = state["b"] = mu * state.get("b", torch.zeros_like(g)) + (1 - mu) * g
        x = (1 - mu) * g + mu * b if group["nesterov"] else b
        is_tall = len(x) > len(x.T)
        x = (x.T if is_tall else x) / max(x.norm(), LEAST_NORM)
        (a, b, c), identity = COEFFICIENTS, torch.eye(len(x), dtype=x.dtype, device=x.device)
        for _ in range(NUM_ITERATIONS):
            square = x @ x.T
            x = (a * identity + b * square + c * square @ square) @ x
        return 0.2 * math.sqrt(max(g.shape)) * (x.T if is_tall else x)

    @staticmethod
    def _adam_step(g: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["beta1"], group["beta2"]
        t = state["t"] = state.get("t", 0) + 1
        m = state["m"] = beta1 * state.get("m", torch.zeros_like(g)) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", torch.zeros_like(g)) + (1 - beta2) * g**2
        return m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + group["eps"])
