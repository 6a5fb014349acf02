import base64
import math
import zlib

import numpy as np
import pytest

from stabsweep.records import CURVES
from stabsweep.report import curve_codes as codes
from tests.report.conftest import make_records, make_trace


def unpacked(block, num_trials, count):
    """Codes (K, C, N), ends (K, C, 2) and whether linear (K, C), as a page reads them."""
    found = zlib.decompress(base64.b64decode(block))
    curves = num_trials * len(codes.SHOWN)
    ends = np.frombuffer(found, "<f8", 2 * curves).reshape(num_trials, -1, 2)
    linear = np.frombuffer(found, np.uint8, curves, 16 * curves).reshape(num_trials, -1)
    deltas = np.frombuffer(found, np.uint8, offset=17 * curves).reshape(num_trials, -1, count)
    return np.cumsum(deltas, axis=-1, dtype=np.uint8), ends, linear


def packed(curves, horizon=None):
    """The codes of the loss of one trial."""
    curves = np.asarray(curves, float)
    five = np.stack([curves, *([np.ones_like(curves)] * 4)])
    horizon = horizon or len(curves)
    records = make_records()[:1]
    count = codes.num_values(horizon, codes.BUCKETS)
    block = codes.pack(records, lambda record: five, horizon)
    assert len(block) == 1
    found, ends, linear = unpacked(block[0], 1, count)
    return found[0, 0], ends[0, 0], bool(linear[0, 0])


def test_every_special_value_has_its_code():
    found, ends, linear = packed([1.0, 10.0, math.nan, math.inf, 0.0, 100.0], horizon=8)
    assert found.tolist() == [
        codes.LOWEST, 129, codes.NOT_FINITE, codes.NOT_FINITE, codes.ZERO, 255,
        codes.NOT_RECORDED, codes.NOT_RECORDED,
    ]  # fmt: skip
    assert ends.tolist() == [0.0, 2.0] and not linear


def test_negative_losses_are_kept_on_a_linear_scale():
    found, ends, linear = packed([-3.0, 0.0, 3.0])
    assert linear and ends.tolist() == [-3.0, 3.0]
    assert found.tolist() == [codes.LOWEST, 129, 255]


def test_a_long_curve_keeps_its_spike():
    curve = np.ones(100_000)
    curve[54_321] = 1e6
    found, ends, _ = packed(curve)
    assert len(found) == 200 and ends.tolist() == [0.0, 6.0]
    assert found.tolist().count(255) == 1 and found[108:110].max() == 255


def test_a_long_curve_shows_where_it_is_not_finite():
    curve = np.ones(1000)
    curve[500] = math.nan
    found, *_ = packed(curve)
    assert np.flatnonzero(found == codes.NOT_FINITE).tolist() == [101]


def test_a_trial_that_was_stopped_ends_where_it_was():
    found, *_ = packed(np.ones(333), horizon=1000)
    assert np.flatnonzero(found == codes.NOT_RECORDED).tolist() == list(range(68, 200))


def test_every_trial_is_in_its_place():
    records = make_records()
    horizon = records[0].horizon
    blocks = codes.pack(records + records, make_trace, horizon)
    assert len(blocks) == 2
    found, ends, _ = unpacked(blocks[0], codes.BLOCK, horizon)
    for number in (0, 17, 100, 191):
        trace = make_trace(records[number])
        for which, name in enumerate(codes.SHOWN):
            curve = trace[CURVES.index(name)]
            kept = found[number, which, : len(curve)]
            assert np.array_equal(kept == codes.NOT_FINITE, ~np.isfinite(curve))
            assert ends[number, which, 1] == pytest.approx(math.log10(np.nanmax(curve)))


def test_what_was_not_kept_is_not_recorded():
    records = make_records()[:3]
    (block,) = codes.pack(records, lambda record: None, 50)
    assert (unpacked(block, 3, 50)[0] == codes.NOT_RECORDED).all()


def test_very_many_trials_get_fewer_values():
    assert codes.num_values(5000, codes.num_buckets(20_000)) == 200
    assert codes.num_values(5000, codes.num_buckets(20_001)) == 64
    assert codes.num_values(50, codes.num_buckets(20_001)) == 50
