"""What must hold to the last bit: inputs, their bits, distances between numbers."""

import numpy as np
import pytest
import torch

from stabsweep.fingerprint import bits, ladder, trainings
from stabsweep.fingerprint.inputs import integers, order, positive, signed


def test_the_inputs_are_those_of_every_other_machine():
    # Written down once: a change here makes every file that was ever taken useless.
    assert integers("probe", 4).tolist() == EXPECTED
    assert integers("probe", 2, 3).tolist() == [x >> 21 for x in EXPECTED[:2]]
    assert integers("probe", 100).tolist()[:4] == EXPECTED


EXPECTED = [9099188, 16697418, 7659398, 5647512]


def test_torchs_own_generator_is_neither_used_nor_moved():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = trainings.train(trainings.RECIPES[0], "fp32", torch.device("cpu"), 10)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    second = trainings.train(trainings.RECIPES[0], "fp32", torch.device("cpu"), 10)
    assert first.data == second.data and np.array_equal(first.curves, second.curves)


@pytest.mark.parametrize("draw, low", [(signed, -1), (positive, 0)])
def test_float32_holds_every_input_exactly(draw, low):
    x = draw("any", 64, 100)
    assert x.dtype == torch.float64 and x.shape == (64, 100)
    assert torch.equal(x.float().double(), x)
    assert low <= x.min() < low + 0.01 and 0.99 < x.max() < 1
    assert x.mean() == pytest.approx((low + 1) / 2, abs=0.03)


def test_both_precisions_train_on_the_same():
    cpu = torch.device("cpu")
    for recipe in trainings.RECIPES:
        single, double = (trainings.train(recipe, p, cpu, 10) for p in ("fp32", "fp64"))
        assert single.data == double.data
        assert single.curves[0, 0] == pytest.approx(double.curves[0, 0], rel=1e-6)
        another = trainings.train(recipe, "fp32", cpu, 10, seed=1)
        assert another.data != single.data


def test_an_order_is_a_permutation():
    assert sorted(order("any", 500).tolist()) == list(range(500))
    assert order("any", 500).tolist() != order("other", 500).tolist()


@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_bits_are_written_and_read_exactly(precision):
    kind = bits.TYPES[precision]
    values = np.array([0.0, -0.0, 1.0, np.pi, np.nan, np.inf, -np.inf, 1e-40], kind)
    text = bits.to_hex(values)
    assert text[2 * len(text) // 8 :].startswith({"fp32": "3f800000", "fp64": "3ff00"}[precision])
    again = bits.from_hex(text, precision)
    assert again.dtype == kind and again.tobytes() == values.tobytes()
    assert bits.digest(again) == bits.digest(values) != bits.digest(-values)
    for broken in (text[:-1], "zz" + text[2:]):
        with pytest.raises(ValueError):
            bits.from_hex(broken, precision)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_ulps_are_counted_across_zero_and_never_overflow(kind):
    one, tiny, huge = kind(1), np.nextafter(kind(0), kind(1)), np.finfo(kind).max
    a = np.array([one, tiny, -huge, np.nan, np.nan, 0.0], kind)
    b = np.array([np.nextafter(one, kind(0)), -tiny, huge, np.nan, 1.0, -0.0], kind)
    counted = bits.num_ulps(a, b).tolist()
    assert counted[:2] == [1, 2] and counted[3] == counted[5] == 0
    assert counted[2] > 2 ** (8 * a.itemsize - 2) and counted[4] > 0


def test_the_relative_error_is_that_of_the_largest():
    a = np.array([1000.0, 1e-6])
    assert bits.relative_error(a, a + [0, 1e-3]) == pytest.approx(1e-6)
    assert bits.relative_error(np.array([1, np.nan]), np.array([1, np.nan])) == 0
    assert bits.relative_error(np.array([1, np.nan]), np.array([1, 2.0])) == np.inf
    assert bits.relative_error(np.zeros(3), np.zeros(3)) == 0
    assert bits.is_large(a, a).tolist() == [True, False]


def test_what_is_kept_lies_everywhere():
    kept = bits.kept(np.arange(256 * 256))
    assert len(set(kept.tolist())) == bits.NUM_KEPT
    assert {x % 16 for x in kept.tolist()} == set(range(16))
    assert len({x // 256 for x in kept.tolist()}) > 200
    assert bits.kept(np.arange(5)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("operation", ladder.LADDER, ids=lambda operation: operation.name)
def test_both_precisions_compute_the_same_thing(operation):
    cpu = torch.device("cpu")
    single, double = (bits.as_array(operation.run(cpu, d)) for d in bits.DTYPES.values())
    assert single.dtype == np.float32 and double.dtype == np.float64
    assert len(single) == len(double) and np.isfinite(double).all()
    assert 0 < bits.relative_error(single, double) < 2e-6


def test_tf32_gives_the_quadratic_form_that_ampere_was_seen_to_give():
    """9.8616 instead of 9.8596: the product with the matrix is that of 10 bits."""
    x = torch.tensor([0, 3.14], dtype=torch.float64)
    rounded = ladder.round_mantissa(x, 10)
    assert float(rounded @ x) == pytest.approx(9.8616, abs=5e-5)
    plain = ladder.OPERATIONS["quadratic form"].run(torch.device("cpu"), torch.float64)
    assert float(plain) == pytest.approx(9.8596, abs=1e-12)
    # 1 + 2^-10 is the next number of 10 bits; ties go to the even one.
    ties = torch.tensor([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20], dtype=torch.float64)
    assert ladder.round_mantissa(ties, 10).tolist() == [1, 1 + 2**-9, 1 + 2**-10]
