"""Handwritten digits, as vectors."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from stabsweep.errors import BadInput
from stabsweep.records import Array
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised, gathered
from stabsweep.task._loss import cross_entropy, entropy


class Digits(Supervised):
    """The 1797 digits of 8 x 8 pixels that scikit-learn carries (UCI, Alpaydin & Kaynak 1998).

    All pixels are standardised with one mean and one deviation: a pixel at the border is blank in
    almost every image, and its own deviation would turn the few others into outliers.

    The blind loss is the entropy of the labels, 2.3025 nats (ln 10 is 2.3026).

    Raises:
        BadInput: scikit-learn is not installed.
    """

    name = "digits"

    def __init__(self) -> None:
        pixels, labels = _read()
        self.signature = Signature("vector", num_inputs=64, num_outputs=10)
        pixels_ND = torch.from_numpy(pixels)
        self.inputs = ((pixels_ND - pixels_ND.mean()) / pixels_ND.std()).float()
        self.labels_N = torch.from_numpy(labels).long()
        self.num_examples = len(self.labels_N)
        self.blind_loss = entropy(self.labels_N)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., B, 64) and labels (..., B), of examples (..., B)."""
        return gathered(self.inputs, index), gathered(self.labels_N, index)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats of logits (B, 10) and labels (B,), a scalar."""
        return cross_entropy(outputs, targets)


def _read() -> tuple[Array, Array]:
    """Pixels (N, 64) and labels (N,), from the file in which scikit-learn has them.

    Its own `load_digits` gives the same and takes a second, nearly all of it for imports.
    """
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise BadInput("task=digits needs scikit-learn: pip install scikit-learn")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    if not path.is_file():
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)  # type: ignore[return-value]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        table = np.loadtxt(file, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)
