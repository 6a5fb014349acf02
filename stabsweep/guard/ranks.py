"""Processes that train together, and must agree before one of them passes over a step."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stabsweep.errors import BadInput


class Ranks:
    """The processes of a data-parallel run; one process alone when torch.distributed is not used.

    Attributes:
        rank, size: of this process.
    """

    def __init__(self) -> None:
        on = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if on else 0
        self.size = dist.get_world_size() if on else 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and shows what all have in common."""
        return self.rank == 0

    def mean(self, numbers: Tensor) -> Tensor:
        """The mean of some numbers over all processes, which all must call.

        What is not finite on one is so on all: by this they agree.
        """
        if self.size > 1:
            dist.all_reduce(numbers)
            numbers = numbers / self.size
        return numbers

    def gather(self, value: Any) -> list[Any]:
        """A value of every process, which all must call."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def first(self, value: Any) -> Any:
        """The value that the first process has."""
        return self.gather(value)[0]


def check_plain(model: nn.Module) -> None:
    """Nothing, if a model's gradients lie whole on each process.

    Raises:
        BadInput: they are sharded.
    """
    for name, parameter in model.named_parameters():
        kind = type(parameter.data).__name__
        if kind in ("DTensor", "ShardedTensor") or hasattr(parameter, "_sharding_spec"):
            raise BadInput(
                f"model: parameter {name} is sharded ({kind}), and its gradient norm would be that "
                "of one shard: GradientGuard supports whole parameters (single process, DDP), not "
                "FSDP or tensor parallelism"
            )
    for name, module in model.named_modules():
        if type(module).__name__ in ("FullyShardedDataParallel", "DeepSpeedEngine"):
            raise BadInput(
                f"model: {name or 'the model'} is a {type(module).__name__}, whose gradients are "
                "sharded: GradientGuard supports whole parameters (single process, DDP)"
            )


def on_host_type(device: torch.device) -> torch.dtype:
    """The widest type in which a device adds numbers up: float64, but for Apple's GPUs."""
    return torch.float32 if device.type == "mps" else torch.float64
