"""Sums of two marked numbers in a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from stabsweep.limits import check_count
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised, gathered
from stabsweep.task._loss import mean_squared_error


class Adding(Supervised):
    """The adding problem of Hochreiter & Schmidhuber 1997, for models with a memory.

    A step has two features: a number drawn from U(0, 1), and a mark. Two steps are marked, one in
    each half; the target is the sum of their numbers. This is the variant of Le et al. 2015
    (arXiv:1504.00941) and Arjovsky et al. 2015 (arXiv:1511.06464). The loss is the mean squared
    error, without a factor 1/2.

    The blind loss is the variance of the data set's own targets, which the best constant, their
    mean, leaves: 1/6 = 0.167 for endlessly many examples. A longer sequence is harder, and often
    stays at that plateau for hundreds of steps before it falls.

    Args:
        length: steps of a sequence, at least 2.
        num_examples: at least 2.
        seed: of the data set, at least 0; trials of every seed share the data.

    Raises:
        BadInput: an argument is out of range.
    """

    name = "adding"

    def __init__(self, length: int = 20, num_examples: int = 8192, seed: int = 0) -> None:
        check_count("task.length", length, low=2)
        check_count("task.num_examples", num_examples, low=2)
        check_count("task.seed", seed, low=0)
        self.num_examples = num_examples
        self.signature = Signature("sequence", num_inputs=2, num_outputs=1, length=length)
        generator = torch.Generator().manual_seed(seed)
        number_NL = torch.rand(num_examples, length, generator=generator)
        first_N1 = torch.randint(length // 2, (num_examples, 1), generator=generator)
        second_N1 = torch.randint(length // 2, length, (num_examples, 1), generator=generator)
        mark_NL = torch.zeros(num_examples, length)
        mark_NL.scatter_(1, torch.cat([first_N1, second_N1], 1), 1.0)
        self.inputs_NLD = torch.stack([number_NL, mark_NL], 2)
        self.targets_N1 = (number_NL * mark_NL).sum(1, keepdim=True)
        self.blind_loss = self.targets_N1.double().var(correction=0).item()

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., B, L, 2) and targets (..., B, 1) of examples (..., B)."""
        return gathered(self.inputs_NLD, index), gathered(self.targets_N1, index)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error of outputs (B, 1), a scalar."""
        return mean_squared_error(outputs, targets)
