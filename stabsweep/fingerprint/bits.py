"""Floating point numbers by their bits: written down exactly, and counted apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from stabsweep.records import Array

TYPES: Mapping[str, type[np.floating]] = {"fp32": np.float32, "fp64": np.float64}
"""Precision -> the type of its numbers."""

DTYPES: Mapping[str, torch.dtype] = {"fp32": torch.float32, "fp64": torch.float64}
"""Precision -> the same, in torch's words."""

NUM_KEPT = 512
"""Values of an output that are written down. Ours: the file stays below 300 kB."""

LARGE = 2.0**-4
"""What counts as large beside the largest value. Ours."""

_STRIDE = 7919
"""A prime: kept values lie at all places of a vector register, and in all rows."""


def digest(values: Array) -> str:
    """SHA-256 of the numbers' bits, in the order of bytes that most machines have."""
    return hashlib.sha256(
        np.ascontiguousarray(values).astype(_little(values)).tobytes()
    ).hexdigest()


def digest_text(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def to_hex(values: Array) -> str:
    """The bits of each number as hex digits, one after the other: 3f800000 is 1 in float32."""
    return np.ascontiguousarray(values).astype(_big(values)).tobytes().hex()


def from_hex(text: str, precision: str) -> Array:
    """The numbers that `to_hex` wrote.

    Raises:
        ValueError: it did not write that.
    """
    kind = np.dtype(TYPES[precision])
    return np.frombuffer(bytes.fromhex(text), kind.newbyteorder(">")).astype(kind)


def kept(values: Array) -> Array:
    """At most `NUM_KEPT` of the numbers, from all over."""
    flat = values.reshape(-1)
    if len(flat) <= NUM_KEPT:
        return flat
    return flat[np.arange(NUM_KEPT) * _STRIDE % len(flat)]


def num_ulps(a: Array, b: Array) -> Array:
    """How many numbers of the format lie between two, plus one; 0 for the same bits or both NaN.

    >>> num_ulps(np.float32([1.0, -0.0]), np.float32([np.nextafter(np.float32(1), 2), 0.0]))
    array([1, 0], dtype=uint64)
    """
    word = np.dtype(f"u{a.dtype.itemsize}")
    top = word.type(1 << (8 * word.itemsize - 1))
    bits = [np.ascontiguousarray(x).view(word) for x in (a, b)]
    sizes = [(x & (top - word.type(1))).astype(np.uint64) for x in bits]
    same_sign = (bits[0] & top) == (bits[1] & top)
    apart = np.where(
        same_sign, np.maximum(*sizes) - np.minimum(*sizes), sizes[0] + sizes[1]
    )  # fmt: skip
    both_nan = np.isnan(a) & np.isnan(b)
    return np.where(both_nan, np.uint64(0), apart)


def is_large(a: Array, b: Array) -> Array:
    """Which of two arrays' numbers are at least `LARGE` times the largest, or not finite.

    Near zero numbers lie close together: what cancels to nearly zero is millions of ulps off in
    another order of summation, and as exact as the others.
    """
    sizes = np.maximum(np.abs(a), np.abs(b)).astype(np.float64)
    finite = sizes[np.isfinite(sizes)]
    return ~(sizes < LARGE * finite.max(initial=0.0))


def relative_error(a: Array, b: Array) -> float:
    """The largest difference over the largest value; infinite where only one is finite.

    Not number by number: what cancels to nearly zero has no right digit in any order of summation.
    """
    wide = [np.asarray(x, np.float64) for x in (a, b)]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    if not np.array_equal(wide[0][~finite], wide[1][~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = max(float(np.abs(x[finite]).max()) for x in wide)
    apart = float(np.abs(wide[0][finite] - wide[1][finite]).max())
    return apart / largest if largest else 0.0


def eps(precision: str) -> float:
    """The distance from 1 to the next number."""
    return float(np.finfo(TYPES[precision]).eps)


def as_array(values: Tensor) -> Array:
    """A tensor's numbers as a flat array on the CPU."""
    return values.detach().reshape(-1).cpu().numpy()


def _little(values: Array) -> np.dtype:
    return values.dtype.newbyteorder("<")


def _big(values: Array) -> np.dtype:
    return values.dtype.newbyteorder(">")
