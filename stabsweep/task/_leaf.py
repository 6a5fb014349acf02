"""The tensors that stand in one place of many batches: in memory, or in a file."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from stabsweep.task._base import CannotStack


@dataclass
class Leaf:
    """The tensors that stand in one place of all batches.

    Attributes:
        dtype: of all of them.
        shapes: of each.
        tensors: they themselves, once complete: as one with a leading M when their shapes are
            equal, else one by one.
        device, kind: where a batch is wanted, and in which type.
        stays: whether they stay where they are, and only what is asked for moves.
    """

    dtype: torch.dtype
    shapes: list[torch.Size] = field(default_factory=list)
    tensors: Any = field(default_factory=list)
    file: BinaryIO | None = None
    device: torch.device = torch.device("cpu")
    kind: torch.dtype | None = None
    stays: bool = False

    @property
    def is_ragged(self) -> bool:
        """Whether the shapes differ."""
        return len(set(self.shapes)) > 1

    def add(self, tensor: Tensor) -> None:
        """One more."""
        self.shapes.append(tensor.shape)
        if self.file is None:
            self.tensors.append(tensor)
        else:
            self.file.write(_bytes(tensor))

    def spill(self, path: Path) -> None:
        """Goes on in a file."""
        self.file = path.open("wb")
        for tensor in self.tensors:
            self.file.write(_bytes(tensor))
        self.tensors, self.stays = [], True

    def complete(self) -> None:
        """Nothing is added any more."""
        if self.file is not None:
            self.file.close()
            sizes = [shape.numel() for shape in self.shapes]
            size, name = sum(sizes), self.file.name
            # An empty file cannot be mapped.
            flat = (
                torch.from_file(name, shared=False, size=size, dtype=self.dtype) if size else None
            )
            flat = torch.empty(0, dtype=self.dtype) if flat is None else flat
            parts = zip(flat.split(sizes), self.shapes, strict=True)
            self.tensors = (
                [part.view(shape) for part, shape in parts]
                if self.is_ragged
                else flat.view(len(sizes), *self.shapes[0])
            )
            self.file = None
        elif not self.is_ragged:
            self.tensors = torch.stack(self.tensors)

    def to(self, device: torch.device, dtype: torch.dtype, stays: bool) -> Leaf:
        """The same for a device; in a type, if they are floating."""
        moved = copy.copy(self)
        moved.device = device
        moved.kind = dtype if self.dtype.is_floating_point else self.dtype
        moved.stays = self.stays or stays or self.is_ragged
        if not moved.stays:
            moved.tensors = self.tensors.to(device, moved.kind)
        return moved

    def at(self, index: Tensor) -> Tensor:
        """Those of an index (...), as (..., *shape), in memory of their own.

        Raises:
            CannotStack: several are asked for, and the shapes differ.
        """
        if self.is_ragged:
            if index.ndim:
                shapes = ", ".join(str(tuple(s)) for s in list(dict.fromkeys(self.shapes))[:2])
                raise CannotStack(f"batches differ in shape ({shapes} ...)")
            return self.tensors[int(index)].clone().to(self.device, self.kind)
        shape = (*index.shape, *self.shapes[0])
        if not self.stays:
            return self.tensors.index_select(0, index.flatten()).view(shape)
        # Trials of one seed share their batches: each is fetched once.
        own, place = index.flatten().cpu().unique(return_inverse=True)
        fetched = self.tensors.index_select(0, own).to(self.device, self.kind)
        return fetched.index_select(0, place.to(self.device)).view(shape)


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().data
