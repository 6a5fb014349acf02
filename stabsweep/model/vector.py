"""A bare parameter vector."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stabsweep.model._check import check_kind
from stabsweep.signature import Signature


class Vector(nn.Module):
    """n parameters that are their own output, so that a task can be a function of the weights.

    With a quadratic task the edge is known to the last digit (gradient descent: 2 / sharpness),
    which makes it the oracle for everything that looks for an edge. The parameters start at
    N(0, 1); an init or an init gain, which act on matrices, leave them alone.

    Args:
        signature: of kind `nothing`; `num_outputs` is n.

    Raises:
        BadInput: the task gives data.
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        check_kind("vector", signature, "nothing")
        self.theta = nn.Parameter(torch.randn(signature.num_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """The parameters (n,), whatever the inputs."""
        return self.theta
