"""What a task is."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from stabsweep.signature import Signature

TaskT = TypeVar("TaskT", bound="Task")


class CannotStack(ValueError):
    """Batches that can be had one by one, but not side by side; the message says why."""


class Task(ABC):
    """Data that lie whole on the device, and the loss that is trained on them.

    A task of one's own needs `num_examples`, `batch` and `loss`; the rest has a default.

    Attributes:
        name: as on the command line.
        signature: what `batch` gives and what `loss` expects of a model.
        blind_loss: loss of the best predictor that ignores its input, computed from the task's
            own data; None when there is no such thing. A model that does no better has learned
            nothing, however far it came down from its first loss.
        num_examples: examples that an index may name.
        is_batched: whether such an example is itself a batch, whose size is the task's affair.
        note: one line that a reader must see at the start, such as what was made of a file; empty
            when there is nothing to say.
    """

    name: str = "user"
    signature: Signature = Signature("batches", num_inputs=0, num_outputs=0)
    blind_loss: float | None = None
    note: str = ""
    num_examples: int
    is_batched: ClassVar[bool] = False

    def to(self: TaskT, device: torch.device | str, dtype: torch.dtype = torch.float32) -> TaskT:
        """A copy with its tensors on a device, the floating ones in a dtype."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                floating = value.is_floating_point()
                setattr(moved, name, value.to(device, dtype if floating else value.dtype))
        return moved

    @abstractmethod
    def batch(self, index: Tensor) -> Any:
        """The batch of examples: tensors, in tuples, lists and dicts as the loss reads them.

        Args:
            index: (..., B) of int64 in [0, num_examples), on the task's device; with a leading K
                it names the batches of K trials, and so every tensor has a leading K. What is no
                tensor is the same in every batch.

        Raises:
            CannotStack: the batches of K trials do not fit side by side; those of one trial do.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean loss of one trial's batch, a scalar; may stand inside vmap and grad.

        Args:
            model: in training mode.
            batch: as `batch` gives it, without a K.
        """

    def read(self, num_batches: int) -> None:  # noqa: B027  Most tasks have their data at hand.
        """Told before training how many batches the trials of a seed will see at most."""


def gathered(data: Tensor, index: Tensor) -> Tensor:
    """The rows of data (N, ...) that an index (..., B) names, (..., B, ...).

    As `data[index]`, which takes four times as long on a CPU: it does not know that rows lie in one
    piece.
    """
    return data.index_select(0, index.reshape(-1)).unflatten(0, index.shape)


class Supervised(Task):
    """A task of inputs and targets: its batches are pairs, its loss compares outputs with targets.

    Outputs in half precision are compared in float32, as is usual: a loss of 2.31 in bfloat16
    would be known to 0.02.
    """

    @abstractmethod
    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of examples, both of shape (..., B, ...)."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """See `Task.loss`."""
        inputs, targets = batch
        outputs = model(inputs)
        if outputs.dtype in (torch.bfloat16, torch.float16):
            outputs = outputs.float()
        return self.criterion(outputs, targets)

    @abstractmethod
    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of one trial's batch, a scalar.

        Args:
            outputs: (B, num_outputs), or (B, L, num_outputs) with `signature.per_step`.
            targets: (B, ...), as `batch` gives them.
        """
