"""Adaptive gradient clipping: each unit's gradient beside its own weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from stabsweep.clipper._base import (
    Clipper,
    State,
    Twin,
    gradients,
    kept_share,
    l2_norm,
    share_within,
)
from stabsweep.errors import BadInput

LEAST_NORM = 1e-3
"""A unit's weights count as so long at least (eps in the paper): those that start at zero would
never move otherwise."""

EXCLUDED = ("*readout*", "*head.*", "fc.*", "classifier.*")
"""Patterns of the last linear layer, by the names that it usually has."""


class AGC(Clipper):
    """The gradient of each unit is at most `clip_factor` times as long as the unit's weights.

    With w a row of a weight matrix (for a convolution all weights of one output channel) and g its
    gradient, g is multiplied with min(1, clip_factor * max(|w|, 1e-3) / |g|). A bias or another
    vector is one unit, as in the authors' code; each row of an embedding is one.

    The last linear layer is left out, as in the paper (section 4.1), if `exclude` matches its name.
    Names that say nothing mislead it: the last layer of an `nn.Sequential` is clipped. A limit
    that goes with the weights is one on SGD's relative step; a rule that divides by the gradient's
    own size (Adam) gets less out of it. What is recorded as clipping says that some unit was
    clipped, which at the default is most steps; the norm may hardly change.

    Args:
        exclude: patterns of parameter names that are never clipped.

    Raises:
        BadInput: `exclude` is no list of patterns.

    References:
        Brock et al. 2021, arXiv:2102.06171, equation 3.
    """

    name = "agc"
    defaults = {"clip_factor": 0.01}

    def __init__(self, exclude: Sequence[str] = EXCLUDED) -> None:
        is_list = isinstance(exclude, Sequence) and not isinstance(exclude, str)
        if not is_list or not all(isinstance(pattern, str) for pattern in exclude):
            raise BadInput(
                f"clipper.exclude={exclude!r} is no list of patterns: give ['readout.*', ...]"
            )
        self.exclude = exclude
        self._layout: Sequence[tuple[int, int, bool]] = ()

    def laid_out(self, shapes: Sequence[tuple[str, torch.Size]]) -> AGC:
        """See `Clipper.laid_out`: a copy that knows where units lie."""
        clipper = copy.copy(self)
        clipper._layout = [
            (shape.numel(), shape[0] if len(shape) > 1 else 1, self.is_clipped(name))
            for name, shape in shapes
        ]
        return clipper

    def is_clipped(self, name: str) -> bool:
        """Whether a parameter is clipped at all."""
        return not any(fnmatchcase(name, pattern) for pattern in self.exclude)

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
        factor_K11 = hyper["clip_factor"].to(norm_K1).unsqueeze(2)
        sizes = [size for size, _, _ in self._layout]
        parts = zip(self._layout, grad_KP.split(sizes, 1), theta_KP.split(sizes, 1), strict=True)
        for (_, num_units, is_clipped), grad_KS, theta_KS in parts:
            if is_clipped:
                grad_KUD, theta_KUD = (x.unflatten(1, (num_units, -1)) for x in (grad_KS, theta_KS))
                weights_KU1 = l2_norm(theta_KUD, 2, keepdim=True).clamp(min=LEAST_NORM)
                norm_KU1 = l2_norm(grad_KUD, 2, keepdim=True)
                grad_KUD.mul_(share_within(norm_KU1, factor_K11 * weights_KU1))
        return grad_KP, kept_share(l2_norm(grad_KP, dim=1, keepdim=True), norm_K1)

    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """The paper's equation, one parameter after the other."""
        return _PlainAGC(self, hyper["clip_factor"])


class _PlainAGC(Twin):
    def __init__(self, clipper: AGC, clip_factor: float) -> None:
        super().__init__()
        self._clipper, self._factor = clipper, clip_factor

    @torch.no_grad()
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        sizes, engaged = [], torch.zeros_like(total, dtype=torch.bool)
        for name, parameter, entries in gradients(named):
            if self._clipper.is_clipped(name):
                weights = parameter.detach()
                if parameter.grad is not None and parameter.grad.is_sparse:
                    # Of an embedding, the rows that were read.
                    weights = weights[tuple(parameter.grad._indices())]
                dims = tuple(range(1, entries.ndim)) or None
                size = l2_norm(entries, dims, keepdim=True)
                limit = self._factor * l2_norm(weights, dims, keepdim=True).clamp(min=LEAST_NORM)
                engaged |= (size > limit).any().to(total.device)
                entries.mul_(share_within(size, limit))
            sizes.append(l2_norm(entries).to(total))
        after = l2_norm(torch.stack(sizes)) if sizes else total
        return torch.where(engaged | total.isnan(), kept_share(after, total), 1.0)
