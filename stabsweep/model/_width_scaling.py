"""How first steps and learning rates follow the width of a model."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from torch import nn

from stabsweep.limits import check_count
from stabsweep.model._check import check_choice

WidthScaling: TypeAlias = Literal["standard", "mup"]
"""`standard`: the model as torch draws it, one rate for all. `mup`: the maximal update
parametrization (Yang et al. 2022, arXiv:2203.03466), under which the best rate of one width is
near that of another.

With r = width / base_width:

- the readout reads its inputs divided by r^(1/2), and attention divides its logits by r^(1/2) once
  more, to 1 / d_head (the number of heads being the same at every width);
- under rules that divide by the gradient's size the rate of hidden matrices is divided by r and
  that of the readout's matrix by r^(1/2);
- under SGD the rate of first layers, embeddings, norms and biases is multiplied by r, but for the
  readout's bias, whose length is not the width.

This is table 8 there, with the readout's factor 1 / r brought into the form (by its lemma J.1) in
which weights of variance 1 / fan_in are right for all matrices: so every named init goes with it. A
tied readout cannot have that form, since an embedding does not shrink with the width: it is the
table's own, inputs divided by r, one size of weights at every width, and the rate of an embedding.

At width = base_width nothing differs from `standard`. Decoupled weight decay is a share of the
rate, so that hidden matrices decay more slowly, the wider. Muon needs r^(-1/2) where Adam needs
1 / r, see `stabsweep.optimizer.muon`.

What carries over is the best rate; the edge need not. Measured on digits with Adam, depth 4: of
tanh from width 32 to 256 the best rate stays at 1e-2 (`standard`: falls to 3e-3) and the edge goes
from 0.13 to 0.24 (0.042); of relu from 64 to 512 the best rate stays at 1.4e-2 (2.7e-3), the edge
goes from 0.11 to 0.56 (0.094).
"""


def width_ratio(width_scaling: WidthScaling, width: int, base_width: int) -> float:
    """r, or 1 for `standard`.

    Raises:
        BadInput: no such scaling, or a base that is no width.
    """
    check_choice("width_scaling", width_scaling, ("standard", "mup"))
    check_count("model.base_width", base_width)
    return width / base_width if width_scaling == "mup" else 1.0


def width_lr_scales(
    module: nn.Module, ratio: float, is_adaptive: bool, inputs: Collection[str]
) -> dict[str, float]:
    """Name -> factor of the learning rate, for a model whose last layer is `readout`.

    Args:
        module: the model.
        ratio: see `width_ratio`.
        is_adaptive: see `stabsweep.optimizer.Optimizer`.
        inputs: names of the matrices that do not read the width: first layers and embeddings.
    """
    if ratio == 1:
        return {}
    named = dict(module.named_parameters())
    readout = {"readout.weight", "readout.bias"}
    hidden = {n for n, p in named.items() if p.ndim >= 2 and n not in {*inputs, *readout}}
    if not is_adaptive:
        return {name: ratio for name in named if name not in hidden | readout}
    # Tied, the readout's matrix is known by the embedding's name.
    factors = {name: 1 / ratio for name in hidden} | {"readout.weight": ratio**-0.5}
    return {name: factors[name] for name in named if name in factors}
