"""What a task is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TypeVar

import torch
from torch import Tensor

from stabsweep.signature import Signature

TaskT = TypeVar("TaskT", bound="Task")


class Task(ABC):
    """Data that lie whole on the device, and the loss that is trained on them.

    Attributes:
        name: as on the command line.
        signature: what `batch` gives and what `loss` expects of a model.
        blind_loss: loss of the best predictor that ignores its input, computed from the task's
            own data; None when there is no such thing. A model that does no better has learned
            nothing, however far it came down from its first loss.
        num_examples: examples that an index may name.
    """

    name: str
    signature: Signature
    blind_loss: float | None
    num_examples: int

    def to(self: TaskT, device: torch.device | str, dtype: torch.dtype = torch.float32) -> TaskT:
        """A copy with its tensors on a device, the floating ones in a dtype."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                floating = value.is_floating_point()
                setattr(moved, name, value.to(device, dtype if floating else value.dtype))
        return moved

    @abstractmethod
    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and targets of examples.

        Args:
            index: (..., B) of int64 in [0, num_examples), on the task's device; with a leading K
                it names the batches of K trials.

        Returns:
            Two tensors of the same leading shape (..., B).
        """

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of one trial's batch, a scalar; may stand inside vmap and grad.

        Args:
            outputs: (B, num_outputs), or (B, L, num_outputs) with `signature.per_step`.
            targets: (B, ...), as `batch` gives them.
        """
