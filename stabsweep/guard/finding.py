"""What is not finite, and how large a gradient is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten_with_path

from stabsweep.numerals import rate, share


@dataclass(frozen=True)
class BadTensor:
    """A tensor with entries that are not finite.

    Attributes:
        name: of the parameter, the module, or the place in a batch.
        num_nan, num_inf: how many entries are NaN, and infinite.
        size: how many there are.
        low, high: the least and the greatest of the finite ones; NaN when there is none.
    """

    name: str
    num_nan: int
    num_inf: int
    size: int
    low: float = math.nan
    high: float = math.nan

    @property
    def share(self) -> float:
        """Share of the entries that are not finite."""
        return (self.num_nan + self.num_inf) / max(self.size, 1)

    def __str__(self) -> str:
        kinds = [f"{n:,} {word}" for n, word in ((self.num_nan, "NaN"), (self.num_inf, "Inf")) if n]
        rest = f", the rest {rate(self.low)} to {rate(self.high)}" if self.low <= self.high else ""
        kind, part = " and ".join(kinds), share(self.share)
        return f"{self.name} ({kind} of {self.size:,} entries, {part}{rest})"


def values(tensor: Tensor) -> Tensor:
    """The entries of a tensor; of a sparse one those that it holds, each place once."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


@torch.no_grad()
def find_bad(name: str, tensor: Tensor) -> BadTensor | None:
    """What of a tensor is not finite, or None. Integers always are."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    entries = values(tensor.detach())
    is_good = torch.isfinite(entries)
    if bool(is_good.all()):
        return None
    num_nan = int(torch.isnan(entries).sum())
    num_bad = int((~is_good).sum())
    good = entries[is_good].abs() if entries.is_complex() else entries[is_good]
    ends = (float(good.min()), float(good.max())) if good.numel() else (math.nan, math.nan)
    return BadTensor(name, num_nan, num_bad - num_nan, entries.numel(), *ends)


def find_all_bad(named: Iterable[tuple[str, Tensor]]) -> list[BadTensor]:
    """What of some tensors is not finite, in their order."""
    return [bad for name, tensor in named if (bad := find_bad(name, tensor)) is not None]


def tensors_in(tree: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a batch, or of what a module returns, with the place where each stands.

    Args:
        tree: dictionaries, lists, tuples and data classes that torch knows, of anything.
        name: how the whole is called: `batch` gives `batch[0]`, `batch['mask']`.
    """
    if hasattr(tree, "keys") and not isinstance(tree, Mapping):
        tree = {key: tree[key] for key in tree.keys()}  # noqa: SIM118
    for path, leaf in tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, Tensor):
            yield name + keystr(path), leaf


@torch.no_grad()
def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """The L2 norm of each tensor, (N,), on the device of the first, in float32 or wider."""
    entries = [values(tensor.detach()) for tensor in tensors]
    is_half = any(t.dtype in (torch.float16, torch.bfloat16) for t in entries)
    # A sum of squares in half precision overflows at 256, or stalls.
    wide = [torch.float32] if is_half else []
    norms = torch._foreach_norm(entries, 2, *wide)  # pyright: ignore[reportPrivateImportUsage]
    first = norms[0]
    if any(norm.dtype != first.dtype or norm.device != first.device for norm in norms):
        norms = [norm.to(first) for norm in norms]
    return torch.stack(norms)


@torch.no_grad()
def wide_norm(tensors: Sequence[Tensor]) -> float:
    """The global L2 norm where float32 cannot hold its square: in float64, and slow."""
    return math.sqrt(sum(float(values(t).double().pow(2).sum()) for t in tensors))
