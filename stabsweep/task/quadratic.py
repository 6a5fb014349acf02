"""A quadratic bowl, whose edge is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from stabsweep.errors import BadInput
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised


class Quadratic(Supervised):
    """The loss sum_i h_i theta_i^2 / 2 of a model's parameters, with no data and no noise.

    The Hessian is diag(h), so gradient descent is stable exactly up to the rate 2 / max(h), with
    momentum m up to 2 (1 + m) / max(h) (Cohen et al. 2021, arXiv:2103.00065).

    There is no blind loss, since there is no input to ignore.

    Args:
        eigenvalues: h, at least one finite number; a negative one makes a saddle, on which every
            rate diverges.

    Raises:
        BadInput: no eigenvalue, or one that is not a finite number.
    """

    name = "quadratic"

    def __init__(self, eigenvalues: Sequence[float] = (0.01, 0.03, 0.1, 0.3, 1.0)) -> None:
        is_list = isinstance(eigenvalues, Sequence) and not isinstance(eigenvalues, str)
        if not is_list or not len(eigenvalues) or not all(_is_finite(h) for h in eigenvalues):
            raise BadInput(
                f"task.eigenvalues={eigenvalues!r} is not allowed: give a list of finite numbers"
            )
        self.eigenvalues_D = torch.tensor(eigenvalues, dtype=torch.float64)
        self.nothing = torch.zeros(())
        self.signature = Signature("nothing", num_inputs=0, num_outputs=len(eigenvalues))
        self.num_examples = 1
        self.blind_loss = None

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Zeros of shape (..., B), twice, which take no memory and are never read."""
        nothing = self.nothing.expand(index.shape)
        return nothing, nothing

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss at parameters (D,), a scalar."""
        return 0.5 * (self.eigenvalues_D.to(outputs.dtype) * outputs.square()).sum()


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
