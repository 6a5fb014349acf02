from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from stabsweep.engine import Chunk
from stabsweep.records import CURVES, Trial, skipped
from stabsweep.run import _rung_losses
from stabsweep.verdict import scale_collapse


def median_of(chunk: Chunk) -> float:
    """The same of one piece, value by value."""
    left_out = skipped(chunk.curves)
    is_finite = (np.isfinite(chunk.curves[:2]) | left_out).all()
    if not is_finite or scale_collapse(left_out) is not None:
        return math.nan
    return statistics.median(chunk.curves[0].tolist())


def piece(rng: np.random.Generator, num_steps: int, dtype: type) -> Chunk:
    curves = rng.lognormal(0, 3, (len(CURVES), num_steps)).astype(dtype)
    curves[2], curves[3] = 1, 0
    kind, step = rng.integers(8), rng.integers(num_steps)
    curves[0, step] = {0: np.nan, 1: np.inf, 2: -np.inf}.get(int(kind), curves[0, step])
    if kind == 3:
        curves[1, step] = np.inf  # A scaler's step.
    if kind == 4:
        curves[1] = np.inf
    if kind == 5:
        curves[1, step], curves[2, step] = np.inf, 0
    return Chunk(0, 0, curves, 2.0, 0.1, is_done=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_looked_at_together_are_seen_as_each_alone(dtype):
    rng = np.random.default_rng(0)
    chunks = [piece(rng, int(n), dtype) for n in rng.choice([1, 2, 20, 21], 400)]
    chunks.insert(7, Chunk.failed(Trial(1, {}, 0), ValueError("no")))
    found = _rung_losses(chunks)
    assert math.isnan(found.pop(7))
    expected = [median_of(chunk) for chunk in chunks if chunk.error is None]
    assert np.array_equal(found, expected, equal_nan=True)
    assert 100 < np.isfinite(found).sum() < 300
    assert _rung_losses([]) == []
