"""Gradient clipping by the global norm."""

from __future__ import annotations

import torch
from torch import Tensor


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
