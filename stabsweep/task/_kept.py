"""Batches of one structure, kept: in memory, or on disk when they are too many for it."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from stabsweep.errors import BadInput
from stabsweep.task._leaf import Leaf
from stabsweep.task._structure import Place, taken_apart

MEMORY_SHARE = 0.25
"""Share of what is free that batches may take; chosen by us: stacking them needs it twice for a
moment, and the trials need memory too."""

LEAST_GB = 0.25
"""What they may take however little is free: below it a disk is no help."""


class Folder:
    """A new folder for temporary files, which goes with the last who holds it, or at the exit."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="stabsweep-batches-")
        weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


class Kept:
    """Batches of one structure.

    Args:
        memory_gb: what they may take of the memory before they go on in files; None for a quarter
            of what is free.

    Attributes:
        num_batches: how many.
        num_bytes: what they take.
        folder: where the files are; None when all is in memory.
        tree: their structure, with a `Place` for every leaf.
        leaves: what stands there: a `Leaf` where it is a tensor, else what every batch has.
    """

    def __init__(self, memory_gb: float | None = None) -> None:
        if memory_gb is None:
            memory_gb = max(MEMORY_SHARE * _free_bytes() / 1e9, LEAST_GB)
        self.limit = memory_gb * 1e9
        self.num_batches = 0
        self.num_bytes = 0
        self.tree: Any = None
        self.leaves: dict[Place, Any] = {}
        self._folder: Folder | None = None

    @property
    def folder(self) -> str | None:
        """See the class."""
        return self._folder.name if self._folder else None

    @property
    def tensors(self) -> dict[Place, Leaf]:
        """The leaves that are tensors."""
        return {place: leaf for place, leaf in self.leaves.items() if isinstance(leaf, Leaf)}

    @property
    def is_ragged(self) -> bool:
        """Whether batches differ in shape."""
        return any(leaf.is_ragged for leaf in self.tensors.values())

    def add(self, batch: Any) -> dict[Place, Tensor]:
        """Keeps one more batch; its tensors, for whoever wants to look at them.

        Raises:
            BadInput: it is not as the first one, in more than the shapes, or there is no room.
        """
        tree, found = taken_apart(batch)
        number = self.num_batches
        if number == 0:
            self.tree = tree
            self.leaves = {
                place: Leaf(leaf.dtype) if isinstance(leaf, Tensor) else leaf
                for place, leaf in found.items()
            }
        elif tree != self.tree:
            raise BadInput(
                f"batch {number} has another structure than batch 0 "
                f"({_names(found)} instead of {_names(self.leaves)}): give every batch the same"
            )
        for place, leaf in found.items():
            _check(number, place, leaf, self.leaves[place])
        tensors = {place: leaf for place, leaf in found.items() if isinstance(leaf, Tensor)}
        if not tensors:
            raise BadInput(
                f"batch {number} holds no tensor, but {_kinds(found)}: give tensors or arrays, in "
                "dicts, lists or tuples"
            )
        self.num_batches += 1
        self.num_bytes += sum(leaf.numel() * leaf.element_size() for leaf in tensors.values())
        try:
            if self.num_bytes > self.limit and self._folder is None:
                self._folder = Folder()
                for count, leaf in enumerate(self.tensors.values()):
                    leaf.spill(Path(self._folder.name, str(count)))
            for place, tensor in tensors.items():
                self.leaves[place].add(tensor)
        except OSError as error:
            raise BadInput(
                f"{self.num_bytes / 1e9:.2g} GB of batches do not fit into "
                f"{self.folder or tempfile.gettempdir()} ({error.strerror}): lower horizon, raise "
                "memory_gb, or name a larger disk by the environment variable TMPDIR"
            ) from None
        return tensors

    def drop_smaller(self) -> bool:
        """Drops the last batch if it is smaller than the others, which are alike; whether so."""
        leaves = self.tensors.values()
        if self.num_batches < 2 or any(len(set(leaf.shapes[:-1])) > 1 for leaf in leaves):
            return False
        ends = [(leaf.shapes[0], leaf.shapes[-1]) for leaf in leaves]
        if not any(
            first and len(first) == len(last) and last[0] < first[0] for first, last in ends
        ):
            return False
        for leaf in leaves:
            leaf.shapes.pop()
            if leaf.file is None:
                leaf.tensors.pop()
        self.num_batches -= 1
        return True

    def complete(self) -> None:
        """Nothing is added any more."""
        for leaf in self.tensors.values():
            leaf.complete()

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Kept:
        """The same batches for a device, the floating ones in a type."""
        device = torch.device(device)
        stays = False
        if device.type == "cuda":
            stays = self.num_bytes > MEMORY_SHARE * torch.cuda.mem_get_info(device)[0]
        moved = copy.copy(self)
        tensors = {place: leaf.to(device, dtype, stays) for place, leaf in self.tensors.items()}
        moved.leaves = {**self.leaves, **tensors}
        return moved

    def at(self, index: Tensor) -> Any:
        """The batch of an index (...), in its own structure.

        Raises:
            CannotStack: several are asked for, and they differ in shape.
        """

        def found(place: Place) -> Any:
            leaf = self.leaves[place]
            return leaf.at(index) if isinstance(leaf, Leaf) else leaf

        return tree_map(found, self.tree)

    def __str__(self) -> str:
        shown = []
        for place, leaf in self.tensors.items():
            shape = "shapes differ" if leaf.is_ragged else ", ".join(map(str, leaf.shapes[0]))
            shown.append(f"{place} ({shape}) {str(leaf.dtype).removeprefix('torch.')}".strip())
        return ", ".join(shown[:6]) + (" ..." if len(shown) > 6 else "")


def _check(number: int, place: Place, leaf: Any, kept: Any) -> None:
    """Whether a leaf may stand where it does."""
    where = f"batch {number}" + (f" has at {place}" if place.path else " is")
    if isinstance(kept, Leaf):
        if not isinstance(leaf, Tensor):
            raise BadInput(f"{where} {_kind(leaf)}, batch 0 a tensor: give every batch the same")
        if leaf.layout != torch.strided or leaf.is_quantized:
            raise BadInput(f"{where} a tensor that is not dense: make it so with .to_dense()")
        if leaf.dtype != kept.dtype:
            raise BadInput(f"{where} {leaf.dtype}, batch 0 {kept.dtype}: give every batch one type")
        return
    if isinstance(leaf, Tensor):
        raise BadInput(f"{where} a tensor, batch 0 {_kind(kept)}: give every batch the same")
    try:
        is_same = leaf is kept or (type(leaf) is type(kept) and bool(leaf == kept))
    except Exception:  # noqa: BLE001  What cannot be compared is not known to be the same.
        is_same = False
    if not is_same:
        raise BadInput(
            f"{where} {_kind(leaf)}, which is no tensor and not the same in every batch: make it a "
            "tensor, or take it out"
        )


def _kind(leaf: Any) -> str:
    if isinstance(leaf, np.ndarray | np.generic):
        return f"a numpy array of {leaf.dtype}"
    return "None" if leaf is None else f"something of type {type(leaf).__name__}"


def _kinds(found: Mapping[Place, Any]) -> str:
    return ", ".join(dict.fromkeys(map(_kind, list(found.values())[:6]))) or "nothing at all"


def _names(places: Mapping[Place, Any]) -> str:
    return ", ".join(str(place) or "a tensor" for place in list(places)[:6]) or "nothing"


def _free_bytes() -> float:
    """Memory that is free for us, as far as the system tells."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable"):
                found.append(1024.0 * int(line.split()[1]))
        # In a container less may be allowed than the machine has.
        group = Path("/sys/fs/cgroup")
        most = float((group / "memory.max").read_text(encoding="ascii"))
        found.append(most - float((group / "memory.current").read_text(encoding="ascii")))
    except (OSError, ValueError):
        pass
    if not found and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=4e9)
