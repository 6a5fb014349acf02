"""Numbers that are the same on every machine: integers of a counter, scaled exactly."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from stabsweep.records import Array

BITS = 24
"""Bits of a number: as many as float32 holds, so that both precisions are given the same values."""


@lru_cache(maxsize=64)
def integers(name: str, count: int, bits: int = BITS) -> Array:
    """Integers in [0, 2^bits), int64, that depend on nothing but the arguments.

    Torch's own generators give other numbers on other devices, for other vector levels (a normal
    draw of 16 numbers or more) and in other versions. Here is Philox (Salmon et al. 2011), a
    counter that is encrypted in integers, and none of numpy's distributions: numpy promises the
    stream of a bit generator for ever (NEP 19), that of a distribution it does not.

    Args:
        name: of the draw: its hash is the key.
        count: how many.
        bits: of each, at most 63.
    """
    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    raw = np.random.Philox(key=key).random_raw(count)
    drawn = (raw >> np.uint64(64 - bits)).astype(np.int64)
    drawn.setflags(write=False)  # It is kept, for the next who asks.
    return drawn


def signed(name: str, *shape: int) -> Tensor:
    """Numbers in [-1, 1), evenly spread, as float64 that float32 holds exactly."""
    half = 2 ** (BITS - 1)
    drawn = integers(name, int(np.prod(shape))) - half
    return torch.from_numpy(drawn / half).reshape(shape)


def positive(name: str, *shape: int) -> Tensor:
    """Numbers in [0, 1), likewise."""
    drawn = integers(name, int(np.prod(shape)))
    return torch.from_numpy(drawn / 2**BITS).reshape(shape)


def order(name: str, count: int) -> Tensor:
    """The numbers 0 to `count` - 1, shuffled, int64 (`count`,)."""
    return torch.from_numpy(np.argsort(integers(name, count, 63), kind="stable"))
