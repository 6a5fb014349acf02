"""Batches and a loss of the user's own."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.target import one_line
from stabsweep.task._base import Task
from stabsweep.task._kept import Kept
from stabsweep.task._structure import Place

LOADER_SEED = 0
"""What the global generators are seeded with while a loader is read."""


class Batches(Task):
    """The batches of a loader, read once and kept, and a loss that reads model and batch.

    A batch may hold tensors and numpy arrays in any structure of dicts, lists and tuples; its size
    is the loader's affair, so `batch_size` has no effect. A sweep reads as many batches as a trial
    has steps, no more, under a fixed seed of the global generators (random, numpy, torch): an
    endless or streaming loader is fine, and a shuffling one gives the same batches every time. One
    that ends earlier is repeated, epoch by epoch. Every trial sees these batches, those of one seed
    in the same order, another seed in another.

    Batches of equal shapes are stacked, so that trials can train side by side; a last, smaller one
    is left out. Where shapes differ otherwise, as with padding to the longest text of a batch,
    trials train one by one. Batches that are too large for the memory are kept in files, in the
    folder for temporary ones (another is named by the environment variable TMPDIR).

    Without a blind loss, "learned nothing" is judged by the loss before training.

    Args:
        loader: whatever can be iterated, such as a `DataLoader` or a list, or a function that
            gives such a thing. A generator can be read once only: for two sweeps of different
            horizons give the function that makes it.
        loss: called with the model, in training mode, and a batch; gives one number, the mean loss.
            It may stand inside vmap and grad, so that a model which stacks is stacked.
        blind_loss: loss of the best predictor that ignores its input; None when it is not known.
        memory_gb: memory that the batches may take before they are kept in files; None for a
            quarter of what is free.

    Raises:
        BadInput: an argument is none of that.
    """

    name = "batches"
    is_batched = True

    def __init__(
        self,
        loader: Iterable[Any] | Callable[[], Iterable[Any]],
        loss: Callable[[nn.Module, Any], Tensor],
        *,
        blind_loss: float | None = None,
        memory_gb: float | None = None,
    ) -> None:
        if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
            if not callable(loader):
                raise BadInput(f"loader={loader!r} cannot be iterated: give a list or a DataLoader")
        if not callable(loss):
            raise BadInput(f"loss={loss!r} cannot be called: give a function of model and batch")
        self._loader = loader
        self._loss = loss
        self._memory_gb = _checked("memory_gb", memory_gb, low=0.0)
        self.blind_loss = _checked("blind_loss", blind_loss, low=-math.inf)
        self.num_examples = 0
        self._kept: Kept | None = None
        self._num_wanted = 0
        self._ended = self._left_out = False
        self._warnings: list[str] = []

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Batches:
        """See `Task.to`; what lies in files is moved when it is asked for."""
        moved = copy.copy(self)
        moved._kept = self._kept.to(device, dtype) if self._kept else None
        return moved

    def batch(self, index: Tensor) -> Any:
        """The batch of an index (1,) as the loader gave it; K of them, stacked, of (K, 1).

        Raises:
            CannotStack: several are asked for, and they differ in shape.
        """
        assert self._kept is not None, "read(num_batches) comes first"
        return self._kept.at(index[..., 0])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What the user's own function says, as a scalar."""
        value = self._loss(model, batch)
        is_one = isinstance(value, Tensor) and value.numel() == 1
        return value.reshape(()) if is_one else value

    def read(self, num_batches: int) -> None:
        """Reads the loader, unless it has been read as far already.

        Raises:
            BadInput: it fails, has no batch, or gives one that cannot be kept.
        """
        if self._kept is None or (num_batches > self._num_wanted and not self._ended):
            self._num_wanted = num_batches
            self._read(num_batches)
        assert self._kept is not None
        self.num_examples = min(self._kept.num_batches, num_batches)
        parts = [f"task {self.name}: {self.num_examples} batches of {self._kept}"]
        if self._left_out:
            parts.append("the last, smaller one is left out")
        if self.num_examples < num_batches:
            parts.append(f"repeated every {self.num_examples} steps")
        if self._kept.folder:
            parts.append(f"{self._kept.num_bytes / 1e9:.2g} GB, kept in {self._kept.folder}")
        self.note = "; ".join([*parts, *self._warnings])

    def _read(self, num_batches: int) -> None:
        kept, where = Kept(self._memory_gb), f"task={self.name}:"
        warnings: list[str] = []
        with seeded(), closing(self._batches(where)) as found:
            for _, batch in zip(range(num_batches), found, strict=False):
                try:
                    tensors = kept.add(batch)
                except BadInput as error:
                    raise BadInput(f"{where} {error}") from None
                warnings += [] if warnings else _not_finite(kept.num_batches - 1, tensors)
            # Whether a last, smaller batch is the last is known when the loader has been asked.
            self._ended = kept.num_batches < num_batches
            if not self._ended and kept.is_ragged:
                self._ended = next(found, found) is found
        if not kept.num_batches:
            once = " (any more: a generator can be read once)" if self._is_read_once else ""
            raise BadInput(f"{where} the loader gives no batch{once}: give one that does")
        self._left_out = self._ended and kept.drop_smaller()
        kept.complete()
        self._kept, self._warnings = kept, warnings

    @property
    def _is_read_once(self) -> bool:
        return hasattr(self._loader, "__next__")

    def _batches(self, where: str) -> Generator[Any, None, None]:
        """What the loader gives; an error of its own with the number of the batch."""
        if self._is_read_once and self._kept is not None:
            raise BadInput(
                f"{where} an earlier sweep has read {self._kept.num_batches} batches of the "
                "loader, a generator, which can be read once: give the function that makes it"
            )
        number = 0
        try:
            loader: Any = self._loader
            if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
                loader = loader()
            for number, batch in enumerate(loader):  # noqa: B007  For the error.
                yield batch
                number += 1
        except Exception as error:
            raise BadInput(
                f"{where} the loader fails at batch {number} ({one_line(error)})"
            ) from error


def _not_finite(number: int, tensors: dict[Place, Tensor]) -> list[str]:
    """What is to be said of numbers in a batch that are not finite."""
    for place, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            where = f" at {place}" if place.path else ""
            return [
                f"batch {number} has {count} values that are not finite{where}: if it is no mask, "
                "that is a problem of the data, not of the rate"
            ]
    return []


def _checked(key: str, value: Any, low: float) -> float | None:
    """A number that may be none, checked."""
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value or not abs(value) < math.inf:
        raise BadInput(f"{key}={value!r} is not allowed: use a number{' >= 0' if low == 0 else ''}")
    return float(value)


@contextmanager
def seeded() -> Iterator[None]:
    """A context in which all global generators begin from a fixed seed; put back after it."""
    before = random.getstate(), np.random.get_state()
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if on_gpu else []):
        # torch.manual_seed would reseed the generators of all other GPUs as well.
        torch.default_generator.manual_seed(LOADER_SEED)
        if on_gpu:
            torch.cuda.manual_seed(LOADER_SEED)
        random.seed(LOADER_SEED)
        np.random.seed(LOADER_SEED)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
