"""A close look at one step: norms layer by layer, and how far each layer moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stabsweep.guard.finding import norms_of

Layers = dict[str, tuple[float, float, float]]
"""Layer -> its gradient norm before clipping, its weight norm, the norm of its update."""


@dataclass(frozen=True)
class Seen:
    """What a close look has found.

    Attributes:
        layers: see `Layers`, in the order of the model's parameters.
        unmoved: layer -> share of its entries that stayed as they were; half precision only.
        update_ratio: norm of the whole update over that of all weights.
    """

    layers: Layers
    unmoved: dict[str, float]
    update_ratio: float


class CloseLook:
    """Remembers the weights before a step, and measures the step when it has been made.

    It costs a copy of the weights while it lasts, and some passes over them. All is a tensor on the
    device until `read` gets its numbers: the host does not wait.

    Args:
        names: of the parameters, `blocks.0.linear.weight`; what owns one is its layer.
        parameters: that are trained, those with a gradient.
        norms_N: their gradients' norms.
    """

    @torch.no_grad()
    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor], norms_N: Tensor) -> None:
        self._layers = [layer_of(name) for name in names]
        self._parameters = list(parameters)
        self._norms_N = norms_N
        self._before = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def measure(self) -> Tensor:
        """What `read` needs, as one vector on the device; to be called after the step."""
        after = [p.detach() for p in self._parameters]
        weights_N = norms_of(self._before)
        is_half = [t.dtype in (torch.float16, torch.bfloat16) for t in after]
        self._sizes = [a.numel() if half else 0 for a, half in zip(after, is_half, strict=True)]
        unmoved_N = torch.zeros_like(weights_N)
        if any(is_half):
            shares = [(a == b).float().mean() for a, b in zip(after, self._before, strict=True)]
            unmoved_N = torch.stack([share.to(weights_N) for share in shares])
        updates_N = norms_of([b.sub_(a) for b, a in zip(self._before, after, strict=True)])
        self._before = []
        parts = (self._norms_N, weights_N, updates_N, unmoved_N)
        return torch.cat([part.to(updates_N) for part in parts])

    def read(self, numbers: Sequence[float]) -> Seen:
        """The look in numbers, from the vector that `measure` returned."""
        count = len(self._layers)
        columns = [numbers[i * count : (i + 1) * count] for i in range(4)]
        sums: dict[str, list[float]] = {}
        for layer, grad, weight, update, share, size in zip(
            self._layers, *columns, self._sizes, strict=True
        ):
            row = sums.setdefault(layer, [0.0] * 5)
            for place, value in enumerate((grad**2, weight**2, update**2, share * size, size)):
                row[place] += value
        layers = {name: (row[0] ** 0.5, row[1] ** 0.5, row[2] ** 0.5) for name, row in sums.items()}
        unmoved = {name: row[3] / row[4] for name, row in sums.items() if row[4]}
        weight = sum(row[1] for row in sums.values()) ** 0.5
        update = sum(row[2] for row in sums.values()) ** 0.5
        return Seen(layers, unmoved, update / weight if weight else 0.0)


def layer_of(name: str) -> str:
    """The layer that a parameter belongs to: the module that owns it.

    >>> layer_of("blocks.0.linear.weight"), layer_of("theta")
    ('blocks.0.linear', 'theta')
    """
    return name.rpartition(".")[0] or name
