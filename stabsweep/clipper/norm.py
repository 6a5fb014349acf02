"""Clipping by the global norm: the whole gradient is made shorter."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.clipper._base import Clipper, State, Twin, scale_


class Norm(Clipper):
    """A limit `clip_norm` on the L2 norm of the whole gradient; its direction stays.

    Without a limit it is no clipping at all, which is what a sweep does by default.

    References:
        Pascanu et al. 2013, arXiv:1211.5063.
    """

    name = "norm"
    defaults = {"clip_norm": None}

    def clip(
        self,
        grad_KP: Tensor,
        theta_KP: Tensor,
        norm_K1: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        step_K1: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """See `Clipper.clip`."""
        coef_K1 = clip_coefficient(norm_K1, hyper["clip_norm"].to(norm_K1))
        return grad_KP.mul_(coef_K1), coef_K1

    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """`torch.nn.utils.clip_grad_norm_`, of a norm that is known."""
        return _PlainNorm(hyper["clip_norm"])


class _PlainNorm(Twin):
    def __init__(self, clip_norm: float) -> None:
        super().__init__()
        self._limit = clip_norm

    @torch.no_grad()
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        if math.isinf(self._limit):
            return torch.ones_like(total)
        coefficient = (self._limit / (total + 1e-6)).clamp(max=1.0)
        scale_(named, coefficient)
        return coefficient


def clip_coefficient(norm: Tensor, clip_norm: Tensor) -> Tensor:
    """What to multiply a gradient with, so that its norm does not exceed the limit.

    As `torch.nn.utils.clip_grad_norm_`: min(1, clip_norm / (norm + 1e-6)). A norm that is not
    finite gives a coefficient (0 or NaN) that makes the weights NaN: the failure stays visible.

    Args:
        norm: global L2 norm before clipping, any shape.
        clip_norm: the limit, > 0; infinite for no clipping. Broadcasts with `norm`.
    """
    coefficient = (clip_norm / (norm + 1e-6)).clamp(max=1.0)
    return torch.where(torch.isinf(clip_norm), 1.0, coefficient)
