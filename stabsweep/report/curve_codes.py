"""Curves of many trials in few bytes, for a page that draws them: one byte a value, compressed.

For the eye only: a value is known to 1/252 of the range of its curve. Of three real sweeps half of
the values were off by less than 0.13 % of their size, one in a hundred by more than 3 %, where a
curve runs over many decades. What a page says in numbers comes from the records.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from stabsweep.records import CURVES, Array, Record

SHOWN = ("loss", "grad_norm", "update_ratio", "clip_coef")
"""Curves that a page draws, in their order there."""

PLACES = [CURVES.index(name) for name in SHOWN]
"""Where they stand in a trace."""

BLOCK = 256
"""Trials that are packed together, and unpacked when the first of them is looked at."""

NOT_FINITE, NOT_RECORDED, ZERO, LOWEST = 0, 1, 2, 3
"""Codes with a meaning; from `LOWEST` to 255 a value lies in the range of its curve."""

BUCKETS, FEW_BUCKETS = 100, 32
"""Parts of a long curve; of each its least and its greatest value are kept, so no spike is lost."""

MANY_TRIALS = 20_000
"""Above this number curves are kept in `FEW_BUCKETS` parts."""


def num_buckets(num_trials: int) -> int:
    """Parts that a long curve is cut into."""
    return BUCKETS if num_trials <= MANY_TRIALS else FEW_BUCKETS


def num_values(horizon: int, buckets: int) -> int:
    """Values kept of a curve: all of a short one, two of each part of a long one."""
    return min(horizon, 2 * buckets)


def pack(
    records: Sequence[Record], load_trace: Callable[[Record], Array | None], horizon: int
) -> list[str]:
    """The curves of trials, `BLOCK` trials a text.

    A block is base64 of zlib of: the lowest and highest value of each curve (float64, little
    endian; as log10 where the curve is not linear), whether each is linear (a byte), and the codes,
    each as its difference from the one before, modulo 256. Neighbours compress each other, so sort
    them by what makes curves alike.

    Args:
        records: in the order of the page.
        load_trace: gives the (5, T) curves of a record; None where they were not kept.
        horizon: the longest of the records.
    """
    buckets = num_buckets(len(records))
    return [
        _block([load_trace(record) for record in records[at : at + BLOCK]], horizon, buckets)
        for at in range(0, len(records), BLOCK)
    ]


def _block(traces: Sequence[Array | None], horizon: int, buckets: int) -> str:
    shape = (len(traces), len(SHOWN))
    ends = np.zeros((*shape, 2), "<f8")
    is_linear = np.zeros(shape, np.uint8)
    codes = np.full((*shape, num_values(horizon, buckets)), NOT_RECORDED, np.uint8)
    for number, curves in enumerate(traces):
        if curves is None or not curves.shape[1]:
            continue
        shown = np.asarray(curves, float)[PLACES, :horizon]
        code, ends[number], is_linear[number] = _encoded(condensed(shown, horizon, buckets))
        codes[number, :, : code.shape[1]] = code
    deltas = np.diff(codes, axis=-1, prepend=np.uint8(0))
    packed = zlib.compress(ends.tobytes() + is_linear.tobytes() + deltas.tobytes(), 6)
    return base64.b64encode(packed).decode("ascii")


def condensed(curves: Array, horizon: int, buckets: int) -> Array:
    """Curves (C, T) as at most two values a bucket, (C, N), in the order in which they came about.

    A bucket that is not finite somewhere ends in NaN, after the greatest of what is finite in it.

    >>> condensed(np.array([[1.0, 5, 2, 0, 9, 9]]), 6, 2).tolist()
    [[1.0, 5.0, 0.0, 9.0]]
    """
    if horizon <= 2 * buckets:
        return curves
    edges = np.arange(buckets + 1) * horizon // buckets
    starts = edges[:-1][edges[:-1] < curves.shape[1]]
    stops = np.minimum(edges[1 : len(starts) + 1], curves.shape[1])
    is_finite = np.isfinite(curves)
    low = np.minimum.reduceat(np.where(is_finite, curves, np.inf), starts, axis=1)
    high = np.maximum.reduceat(np.where(is_finite, curves, -np.inf), starts, axis=1)
    is_falling = curves[:, starts] > curves[:, stops - 1]
    first, second = np.where(is_falling, high, low), np.where(is_falling, low, high)
    is_broken = ~np.logical_and.reduceat(is_finite, starts, axis=1)
    first, second = np.where(is_broken, high, first), np.where(is_broken, np.nan, second)
    return np.stack([first, second], axis=2).reshape(len(curves), -1)


def _encoded(values: Array) -> tuple[Array, Array, Array]:
    """Codes of curves (C, N), the ends of their ranges (C, 2), whether these are linear (C,)."""
    is_finite = np.isfinite(values)
    is_linear: Array = np.any(is_finite & (values < 0), axis=1)
    is_zero = (values == 0) & ~is_linear[:, None]
    is_kept = is_finite & ~is_zero
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.log10(values)
    scaled[is_linear] = values[is_linear]
    low = np.where(is_kept, scaled, np.inf).min(axis=1)
    high = np.where(is_kept, scaled, -np.inf).max(axis=1)
    ends = np.where((low <= high)[:, None], np.stack([low, high], axis=1), 0.0)
    width = ends[:, 1:] - ends[:, :1]
    place = np.where(is_kept, scaled - ends[:, :1], 0.0) / np.where(width > 0, width, 1.0)
    code = np.where(is_kept, LOWEST + np.rint(place * (255 - LOWEST)), NOT_FINITE)
    code[is_zero] = ZERO
    return code.astype(np.uint8), ends, is_linear
