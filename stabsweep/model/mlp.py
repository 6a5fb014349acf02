"""A multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep.errors import BadInput
from stabsweep.limits import check_count
from stabsweep.model._check import check_choice, check_kind
from stabsweep.model._width_scaling import WidthScaling, width_lr_scales, width_ratio
from stabsweep.signature import Signature

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "tanh": F.tanh,
}
"""What may stand between two layers."""


class MLP(nn.Module):
    """`depth` weight layers with an activation between them: 64-128-128-128-10 has depth 4.

    Reads vectors, and sequences and other arrays by flattening them. A depth of 1 is linear
    regression. With `norm="layer"` each hidden layer is normalised before its activation (Ba et
    al. 2016, arXiv:1607.06450), which moves the edge of stable training up.

    Args:
        signature: of kind `vector`, `sequence` or `arrays`, with one output an example.
        depth: number of weight matrices, at least 1; `depth - 1` of them have `width` rows.
        width: units of a hidden layer, at least 1; has no effect at depth 1.
        activation: between two layers.
        norm: `none`, or `layer` for layer normalisation of every hidden layer.
        width_scaling: `standard`, or `mup`: rates that fit one width fit others, see
            `stabsweep.model._width_scaling`.
        base_width: the width at which `mup` changes nothing.

    Raises:
        BadInput: an argument is out of range, or the task gives something else.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        depth: int = 4,
        width: int = 128,
        activation: Literal["relu", "tanh", "gelu"] = "relu",
        norm: Literal["none", "layer"] = "none",
        width_scaling: WidthScaling = "standard",
        base_width: int = 64,
    ) -> None:
        super().__init__()
        check_kind("mlp", signature, "vector", "sequence", "arrays")
        check_count("model.depth", depth)
        check_count("model.width", width)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        check_choice("norm", norm, ("none", "layer"))
        ratio = width_ratio(width_scaling, width, base_width)
        # Without a hidden layer nothing is as wide as `width`.
        self.ratio = ratio if depth > 1 else 1.0
        if signature.per_step:
            raise BadInput(
                "model=mlp gives one output an example, the task wants one a step: use model=rnn"
            )
        sizes = [signature.length * signature.num_inputs, *[width] * (depth - 1)]
        self.activation = ACTIVATIONS[activation]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if norm == "layer" else nn.Identity() for _ in self.hidden
        )
        self.readout = nn.Linear(sizes[-1], signature.num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (B, num_outputs) of inputs (B, num_inputs) or flattened to that."""
        x_BD = inputs.flatten(1)
        for linear, norm in zip(self.hidden, self.norms, strict=True):
            x_BD = self.activation(norm(linear(x_BD)))
        return self.readout(x_BD if self.ratio == 1 else x_BD / math.sqrt(self.ratio))

    def lr_scales(self, is_adaptive: bool) -> Mapping[str, float]:
        """Factors of the learning rate that `width_scaling` asks for: name -> factor."""
        return width_lr_scales(self, self.ratio, is_adaptive, ("hidden.0.weight",))
