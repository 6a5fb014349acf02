"""Which examples a step trains on."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stabsweep.limits import check_count

TRAIN, PROBE = 0, 1
"""Streams of a seed: batches to train on, and batches for the loss before training."""

MAX_CACHED = 8
"""Permutations kept: slots of one cohort stand at different steps. Chosen by us: 8 of the longest
(text, 0.46 million starts) are 30 MB."""


class BatchOrder:
    """The batches of a seed, by random access: step t has the same batch whoever asks, and when.

    Every epoch is a fresh permutation without replacement; the last, incomplete batch of an epoch
    is dropped. A batch size of the whole data set or more is full-batch training: every step has
    all examples, in their order.

    The permutation of an epoch is torch.randperm from a CPU generator, seeded with the first
    64-bit word of numpy's SeedSequence over (seed, stream, epoch). That mix keeps neighbouring
    seeds and epochs unrelated, where seed + epoch would give two seeds the same batches.

    Args:
        seed: at least 0.
        num_examples: examples of the task, at least 1.
        batch_size: examples of a batch, at least 1.

    Raises:
        BadInput: an argument is out of range.
    """

    def __init__(self, seed: int, num_examples: int, batch_size: int) -> None:
        check_count("seed", seed, low=0)
        check_count("num_examples", num_examples)
        check_count("batch_size", batch_size)
        self.seed = seed
        self.num_examples = num_examples
        self.batch_size = min(batch_size, num_examples)
        self.epoch_steps = num_examples // self.batch_size
        self._cache: dict[tuple[int, int], Tensor] = {}

    def index(self, start: int, stop: int) -> Tensor:
        """The examples of the steps `start` (from 0) to `stop` - 1: (stop - start, B) of int64."""
        return self._batches(TRAIN, start, stop)

    def probe(self, num_batches: int) -> Tensor:
        """Batches for the loss before training, always the same: (num_batches, B) of int64."""
        return self._batches(PROBE, 0, num_batches)

    def _batches(self, stream: int, start: int, stop: int) -> Tensor:
        if self.batch_size == self.num_examples:
            return torch.arange(self.num_examples).expand(max(stop - start, 0), -1)
        rows = [torch.empty(0, self.batch_size, dtype=torch.int64)]
        while start < stop:
            epoch, first = divmod(start, self.epoch_steps)
            last = min(first + stop - start, self.epoch_steps)
            rows.append(self._epoch(stream, epoch)[first:last])
            start += last - first
        return torch.cat(rows)

    def _epoch(self, stream: int, epoch: int) -> Tensor:
        key = (stream, epoch)
        if key not in self._cache:
            if len(self._cache) == MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            words = np.random.SeedSequence((self.seed, stream, epoch)).generate_state(1, np.uint64)
            generator = torch.Generator().manual_seed(int(words[0]))
            order = torch.randperm(self.num_examples, generator=generator)
            used = self.epoch_steps * self.batch_size
            self._cache[key] = order[:used].view(self.epoch_steps, self.batch_size)
        return self._cache[key]
