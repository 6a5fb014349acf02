"""The product of two vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.model._check import check_kind
from stabsweep.signature import Signature


class UV(nn.Module):
    """f = u.v / sqrt(n): a linear net with one hidden layer of n units and the input 1.

    The smallest net that catapults (Lewkowycz et al. 2020, arXiv:2003.02218). Under f^2 / 2 its
    curvature in function space is lambda = (|u|^2 + |v|^2) / n, about 2 at the start, and plain
    gradient descent is, in full,

        f      <- f (1 - lr lambda + lr^2 f^2 / n)
        lambda <- lambda + lr (lr lambda - 4) f^2 / n.

    So with c = lr lambda_0 the loss falls up to c = 2; from there to c = 4 it first rises, as far
    as n allows, until lambda has come down; above c = 4 lambda grows, too, and it diverges. The
    edge is exactly known though the model is not linear, and below it stand peaks that a limit
    on the loss takes for divergence.

    lambda_0 depends on the seed, and so does the edge in lr, by about its 1 / sqrt(n)-th part.
    The vectors start at N(0, 1); an init or an init gain, which act on matrices, leave them alone.

    Args:
        signature: of kind `nothing`, with one output.
        width: n, at least 1; the wider, the higher the catapult.

    Raises:
        BadInput: an argument is out of range, or the task gives data or reads several outputs.
    """

    def __init__(self, signature: Signature, *, width: int = 256) -> None:
        super().__init__()
        check_kind("uv", signature, "nothing")
        check_count("model.width", width)
        if signature.num_outputs != 1:
            raise BadInput(
                f"model=uv gives one output, but the task reads {signature.num_outputs}: use "
                "task=uv, or model=vector"
            )
        self.u = nn.Parameter(torch.randn(width))
        self.v = nn.Parameter(torch.randn(width))

    def forward(self, inputs: Tensor) -> Tensor:
        """The output f as (1,), whatever the inputs."""
        return (self.u * self.v).sum(0, keepdim=True) / math.sqrt(len(self.u))
