"""The user's own inputs and targets, from a file of arrays."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from stabsweep.errors import BadInput, unknown
from stabsweep.signature import Signature
from stabsweep.task._arrays_file import inputs_of, labels_of, read_arrays, values_of, variance
from stabsweep.task._base import Supervised, gathered
from stabsweep.task._loss import cross_entropy, entropy, mean_squared_error

KINDS = ("classification", "regression")
"""What targets may be."""


class Arrays(Supervised):
    """The arrays `x` and `y` of an .npz file, one row an example, used as they are.

    What they are follows from their types and shapes, and the run says it.

    - `x`: numbers (N,) or (N, D) are vectors, (N, L, D) sequences, more dimensions arrays such as
      images (N, C, H, W). Whole numbers (N, L) are tokens, of a vocabulary up to the greatest. True
      and false are 1 and 0, and unsigned whole numbers of three dimensions or more, such as images
      of bytes, are numbers.
    - `y`: whole numbers (N,) are labels, and (N, L) beside sequences or tokens of that length a
      label a step. The loss is the cross entropy, the blind loss the entropy of the labels. Other
      numbers are values, (N,) or (N, O), or (N, L, O) a step. The loss is their mean squared error
      without a factor 1/2, the blind loss the variance of each output around its mean.

    Nothing is standardised, and the scale of `x` moves the edge of stable training: the run says
    mean and deviation, too. All is held in memory.

    Args:
        path: the file, as `numpy.savez(path, x=x, y=y)` writes it.
        kind: `classification` where labels are stored as decimals, `regression` where whole
            numbers are meant as values; None goes by the type.

    Raises:
        BadInput: the file cannot be read, or its arrays cannot be learned.
    """

    name = "arrays"

    def __init__(
        self,
        path: str | None = None,
        kind: Literal["classification", "regression"] | None = None,
    ) -> None:
        if path is None:
            raise BadInput("task=arrays needs task.path=FILE.npz, with arrays x and y")
        if kind is not None and kind not in KINDS:
            raise unknown("task.kind", kind, KINDS)
        where = f"task.path={path}"
        x, y = read_arrays(path)
        self.inputs, form = inputs_of(where, x)
        self.kind = kind or ("regression" if y.dtype.kind == "f" else "classification")
        length = self.inputs.shape[1] if form in ("sequence", "tokens") else None
        if self.kind == "classification":
            self.targets = labels_of(where, y, length)
            num_outputs, per_step = int(self.targets.max()) + 1, self.targets.ndim == 2
            self.blind_loss = entropy(self.targets)
        else:
            self.targets = values_of(where, y, length)
            num_outputs, per_step = self.targets.shape[-1], self.targets.ndim == 3
            self.blind_loss = variance(self.targets)
        if form == "tokens":
            num_inputs = int(self.inputs.max()) + 1
            scale = f"a vocabulary of {num_inputs}"
        else:
            # An arrays' numbers an example, a vector's, and those of a sequence's step.
            num_inputs = self.inputs[0].numel() // (length or 1)
            deviation, mean = torch.std_mean(self.inputs.double(), correction=0)
            scale = f"mean {mean:.2f}, deviation {deviation:.2f}"
        self.num_examples = len(x)
        self.signature = Signature(form, num_inputs, num_outputs, length or 1, per_step)
        self.note = (
            f"task arrays: {len(x):,} examples; x {_shown(x)} -> {form}, {scale}; y {_shown(y)} -> "
            f"{self.kind} of {num_outputs}{' a step' if per_step else ''}, "
            f"blind loss {self.blind_loss:.3g}"
        )

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets (..., B, *) of examples (..., B)."""
        return gathered(self.inputs, index), gathered(self.targets, index)

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats, or mean squared error, a scalar."""
        is_classification = self.kind == "classification"
        wanted = (
            (*targets.shape, self.signature.num_outputs) if is_classification else targets.shape
        )
        # Other shapes could broadcast, or hide classes that are never asked for.
        if outputs.shape != wanted:
            raise ValueError(f"outputs {tuple(outputs.shape)} should be {tuple(wanted)}")
        return (cross_entropy if is_classification else mean_squared_error)(outputs, targets)


def _shown(array: np.ndarray) -> str:
    """Shape of an example and type: (8, 8) float32."""
    shape = ", ".join(map(str, array.shape[1:]))
    return f"({shape}) {array.dtype}" if shape else str(array.dtype)
