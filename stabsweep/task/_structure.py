"""Batches of any structure, taken apart into the tensors that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Place:
    """Where in the structure of a batch something stands: the keys and numbers on the way."""

    path: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return ".".join(map(str, self.path))


def taken_apart(batch: Any, path: tuple[Any, ...] = ()) -> tuple[Any, dict[Place, Any]]:
    """The structure of a batch with a `Place` for every leaf, and the leaves.

    Any mapping becomes a dict. Tensors come to the CPU and out of their graph, numpy's arrays and
    numbers become tensors; both are copies, since a loader may use its memory again.
    """
    if isinstance(batch, Mapping):
        parts = {key: taken_apart(value, (*path, key)) for key, value in batch.items()}
        tree: Any = {key: part for key, (part, _) in parts.items()}
        return tree, {place: leaf for _, found in parts.values() for place, leaf in found.items()}
    if isinstance(batch, list | tuple):
        names = getattr(batch, "_fields", range(len(batch)))
        pieces = [taken_apart(part, (*path, name)) for name, part in zip(names, batch, strict=True)]
        found = {place: leaf for _, leaves in pieces for place, leaf in leaves.items()}
        items = [part for part, _ in pieces]
        if isinstance(batch, list):
            return items, found
        make: Any = getattr(type(batch), "_make", tuple)
        return make(items), found
    if isinstance(batch, Tensor):
        return Place(path), {Place(path): batch.detach().to("cpu", copy=True)}
    if isinstance(batch, np.ndarray | np.generic):
        try:
            batch = torch.from_numpy(np.array(batch))
        except (TypeError, ValueError):
            pass  # Text and the like, which are told of as what they are.
    return Place(path), {Place(path): batch}
