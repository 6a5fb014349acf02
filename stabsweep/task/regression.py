"""A progression of diabetes, from ten measurements of a patient."""

from __future__ import annotations

import torch
from torch import Tensor

from stabsweep.errors import BadInput
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised, gathered
from stabsweep.task._loss import mean_squared_error


class Regression(Supervised):
    """The 442 patients of the diabetes set that scikit-learn carries (Efron et al. 2004).

    Ten measurements (age, sex, blood pressure, ...) predict how far the disease went in a year.
    Each measurement and the target are standardised over all patients, so the loss, a mean
    squared error without a factor 1/2, is the share of the variance that is not explained. Linear
    regression reaches 0.482, its best; lower than that is a net that begins to learn by heart.

    The blind loss is the variance of the targets, 1 by the standardisation: what the best
    constant, their mean, leaves.

    Raises:
        BadInput: scikit-learn is not installed.
    """

    name = "regression"

    def __init__(self) -> None:
        try:
            from sklearn.datasets import load_diabetes
        except ImportError:
            raise BadInput("task=regression needs scikit-learn: pip install scikit-learn") from None
        measured, progress = load_diabetes(return_X_y=True)
        self.signature = Signature("vector", num_inputs=10, num_outputs=1)
        self.inputs_ND = _standardised(torch.from_numpy(measured)).float()
        self.targets_N1 = _standardised(torch.from_numpy(progress).unsqueeze(1)).float()
        self.num_examples = len(self.targets_N1)
        self.blind_loss = self.targets_N1.double().var(correction=0).item()

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., B, 10) and targets (..., B, 1), of examples (..., B)."""
        return gathered(self.inputs_ND, index), gathered(self.targets_N1, index)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error of outputs (B, 1), a scalar."""
        return mean_squared_error(outputs, targets)


def _standardised(x_ND: Tensor) -> Tensor:
    """Columns of mean 0 and variance 1, over all rows."""
    return (x_ND - x_ND.mean(0)) / x_ND.std(0, correction=0)
