"""Clipping by value: every entry of the gradient for itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stabsweep.clipper._base import Clipper, State, Twin, gradients, kept_share, l2_norm


class Value(Clipper):
    """Every entry is held between -`clip_value` and `clip_value`, as `clip_grad_value_` does it.

    The direction changes: with a low limit little more than the signs is left. An infinite entry
    becomes a finite one, so that the weights survive it; the norm that is recorded does not, and
    the trial is called diverged for it.

    References:
        Mikolov 2012, "Statistical language models based on neural networks" (PhD thesis).
    """

    name = "value"
    defaults = {"clip_value": 1.0}

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
        limit_K1 = hyper["clip_value"].to(grad_KP)
        grad_KP.clamp_(-limit_K1, limit_K1)
        return grad_KP, kept_share(l2_norm(grad_KP, dim=1, keepdim=True), norm_K1)

    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """`torch.nn.utils.clip_grad_value_`, and what it has left."""
        return _PlainValue(hyper["clip_value"])


class _PlainValue(Twin):
    def __init__(self, clip_value: float) -> None:
        super().__init__()
        self._limit = clip_value

    @torch.no_grad()
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        sizes, engaged = [], torch.zeros_like(total, dtype=torch.bool)
        for _, _, entries in gradients(named):
            engaged |= (entries.abs() > self._limit).any().to(total.device)
            entries.clamp_(-self._limit, self._limit)
            sizes.append(l2_norm(entries).to(total))
        after = l2_norm(torch.stack(sizes)) if sizes else total
        # Whoever added up `total` may have rounded otherwise: that is no clipping.
        return torch.where(engaged | total.isnan(), kept_share(after, total), 1.0)
