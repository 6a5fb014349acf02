"""Handwritten digits, read a pixel or a row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from stabsweep.errors import unknown
from stabsweep.signature import Signature
from stabsweep.task.digits import Digits

SHAPES: Mapping[str, tuple[int, int]] = {"pixel": (64, 1), "row": (8, 8)}
"""What one step reads -> length and features of a step."""


class SequentialDigits(Digits):
    """The digits of `Digits` as sequences, from the top left: sequential MNIST, only smaller.

    Pixel by pixel the gradient has 64 steps to vanish or explode in; row by row only 8.

    Args:
        step: `pixel`: 64 steps of one feature; `row`: 8 steps of 8.

    Raises:
        BadInput: `step` is not known, or scikit-learn is not installed.

    References:
        Le et al. 2015, arXiv 1504.00941.
    """

    name = "sequential_digits"

    def __init__(self, step: Literal["pixel", "row"] = "pixel") -> None:
        if step not in SHAPES:
            raise unknown("task.step", step, SHAPES)
        super().__init__()
        length, num_inputs = SHAPES[step]
        self.signature = Signature("sequence", num_inputs, num_outputs=10, length=length)
        self.inputs = self.inputs.view(-1, length, num_inputs)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (..., B, L, D) and labels (..., B) of examples (..., B)."""
        return super().batch(index)
