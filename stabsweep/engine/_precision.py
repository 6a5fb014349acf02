"""The number formats of a training run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Precision:
    """Which format holds the weights, and which one the products are computed in.

    Attributes:
        dtype: format of weights, optimizer state and data.
        compute: format of the products under `torch.autocast`; None for no autocast.
        scales: whether the loss is scaled up before the backward pass, as gradients need in a
            format that ends at 6e-8 (Micikevicius et al. 2018, arXiv:1710.03740).
        tolerance: relative difference that two engines may show after two steps (chosen by us:
            above the rounding of the format, far below what a wrong stack does).
    """

    dtype: torch.dtype
    compute: torch.dtype | None = None
    scales: bool = False
    tolerance: float = 1e-3

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """The context that a loss is computed in."""
        if self.compute is None:
            return nullcontext()
        # A cached cast of a weight would outlive the vmap that it was made in.
        return torch.autocast(device.type, self.compute, cache_enabled=False)


PRECISIONS: Mapping[str, Precision] = {
    "fp32": Precision(torch.float32),
    "fp64": Precision(torch.float64),
    "bf16": Precision(torch.float32, torch.bfloat16, tolerance=0.1),
    "bf16_pure": Precision(torch.bfloat16, tolerance=0.1),
    "fp16": Precision(torch.float32, torch.float16, scales=True),
}
"""Every choice of `precision=`.

`bf16` and `fp16` keep float32 weights and compute under autocast; `fp16` scales the loss as
`torch.amp.GradScaler` does. `bf16_pure` has nothing but bfloat16: an update below 1/256 of its
weight vanishes, so that low rates stand still.
"""
