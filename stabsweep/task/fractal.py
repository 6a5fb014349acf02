"""Gaussian noise, to be learned by heart."""

from __future__ import annotations

import torch
from torch import Tensor

from stabsweep.limits import check_count
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised, gathered
from stabsweep.task._loss import mean_squared_error


class Fractal(Supervised):
    """As many random points as `model=fractal` has weights: inputs and targets are all N(0, 1).

    The data of Sohl-Dickstein 2024 (arXiv:2402.06184): nothing can be learned but the points
    themselves, 272 of 16 numbers each. Train on all of them at every step, as the paper does:
    batch_size=272. The loss is the mean squared error, without a factor 1/2.

    The blind loss is the variance of the data set's own targets, which the best constant leaves.

    Args:
        num_inputs: numbers of a point, D, at least 1.
        num_examples: points, at least 2; None is D^2 + D, the number of weights.
        seed: of the data set, at least 0; trials of every seed share the data.

    Raises:
        BadInput: an argument is out of range.
    """

    name = "fractal"

    def __init__(
        self, num_inputs: int = 16, num_examples: int | None = None, seed: int = 0
    ) -> None:
        check_count("task.num_inputs", num_inputs)
        if num_examples is None:
            num_examples = num_inputs**2 + num_inputs
        check_count("task.num_examples", num_examples, low=2)
        check_count("task.seed", seed, low=0)
        self.num_examples = num_examples
        self.signature = Signature("vector", num_inputs=num_inputs, num_outputs=1)
        generator = torch.Generator().manual_seed(seed)
        self.inputs_ND = torch.randn(num_examples, num_inputs, generator=generator)
        self.targets_N1 = torch.randn(num_examples, 1, generator=generator)
        self.blind_loss = self.targets_N1.double().var(correction=0).item()

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., B, D) and targets (..., B, 1), of examples (..., B)."""
        return gathered(self.inputs_ND, index), gathered(self.targets_N1, index)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error of outputs (B, 1), a scalar."""
        return mean_squared_error(outputs, targets)
