"""The network whose boundary of trainability is a fractal."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.model._check import check_kind
from stabsweep.signature import Signature


class Fractal(nn.Module):
    """y = W_1 tanh(sqrt(2 / D) W_0 x) / D: one hidden layer as wide as its input, no biases.

    The tanh network of Sohl-Dickstein 2024 (arXiv:2402.06184), in mean-field scaling: all weights
    start at N(0, 1), and the factors that other networks have in their first weights stand in the
    forward pass. So the two layers ask for rates of their own, of very different size. Against
    each other, `space.output_lr={values: [...], to: "lr:output"}`, they show a boundary between
    what trains and what does not that is rough at every scale.

    Args:
        signature: of kind `vector`; D is `num_inputs`, and there is one output.

    Raises:
        BadInput: the task gives something else, or reads several outputs.
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__()
        check_kind("fractal", signature, "vector")
        if signature.num_outputs != 1:
            raise BadInput(
                f"model=fractal gives one output, but the task reads {signature.num_outputs}: use "
                "task=fractal or regression, or model=mlp"
            )
        width = signature.num_inputs
        self.input = nn.Parameter(torch.randn(width, width))
        self.output = nn.Parameter(torch.randn(1, width))

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (B, 1) of inputs (B, D)."""
        width = inputs.shape[-1]
        return torch.tanh(inputs @ self.input.mT * math.sqrt(2 / width)) @ self.output.mT / width
