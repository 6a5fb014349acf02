import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task import BatchOrder
from stabsweep.task._order import MAX_CACHED

NUM, SIZE = 23, 4
EPOCH = NUM // SIZE


def test_any_step_can_be_asked_for_at_any_time():
    sequential_TB = BatchOrder(7, NUM, SIZE).index(0, 40)
    assert sequential_TB.shape == (40, SIZE) and sequential_TB.dtype == torch.int64
    order = BatchOrder(7, NUM, SIZE)
    for start, stop in [(39, 40), (3, 17), (0, 1), (12, 12), (4, 6), (0, 40)]:
        assert torch.equal(order.index(start, stop), sequential_TB[start:stop])


def test_a_late_step_costs_no_earlier_ones_and_memory_stays_bounded():
    order = BatchOrder(7, NUM, SIZE)
    order.index(10**9, 10**9 + 3)
    assert len(order._cache) <= 2
    order.index(0, 50 * EPOCH)
    assert len(order._cache) == MAX_CACHED


@pytest.mark.parametrize("num, size", [(NUM, SIZE), (24, 4), (5, 1), (5, 3)])
def test_an_epoch_names_every_example_at_most_once_and_drops_the_rest(num, size):
    steps = num // size
    index_TB = BatchOrder(0, num, size).index(0, 3 * steps)
    for epoch_TB in index_TB.view(3, steps, size):
        assert epoch_TB.unique().numel() == steps * size
        assert 0 <= epoch_TB.min() and epoch_TB.max() < num
    assert not torch.equal(index_TB[:steps], index_TB[steps : 2 * steps])


def test_dropped_examples_are_others_in_each_epoch():
    seen = BatchOrder(0, NUM, SIZE).index(0, 20 * EPOCH)
    assert seen.unique().numel() == NUM


def test_seeds_and_epochs_do_not_share_permutations():
    rows = [
        tuple(epoch.flatten().tolist())
        for seed in range(20)
        for epoch in BatchOrder(seed, NUM, SIZE).index(0, 10 * EPOCH).split(EPOCH)
    ]
    assert len(set(rows)) == len(rows)


def test_batches_of_a_seed_do_not_change_from_release_to_release():
    assert BatchOrder(0, 10, 3).index(0, 2).tolist() == [[6, 3, 1], [5, 8, 7]]
    assert BatchOrder(0, 10, 3).probe(1).tolist() == [[4, 8, 5]]


def test_the_global_generator_is_left_alone():
    torch.manual_seed(1)
    expected = torch.randn(2)
    torch.manual_seed(1)
    BatchOrder(0, NUM, SIZE).index(0, 9)
    assert torch.equal(torch.randn(2), expected)


def test_the_probe_is_fixed_and_apart_from_training():
    order = BatchOrder(3, NUM, SIZE)
    probe_NB = order.probe(4)
    order.index(0, 30)
    assert probe_NB.shape == (4, SIZE)
    assert torch.equal(order.probe(4), probe_NB)
    assert torch.equal(BatchOrder(3, NUM, SIZE).probe(2), probe_NB[:2])
    assert not torch.equal(order.index(0, 4), probe_NB)
    assert order.probe(12).shape == (12, SIZE)


@pytest.mark.parametrize("size", [5, 6, 10**9])
def test_a_batch_of_everything_is_full_batch_training_in_order(size):
    order = BatchOrder(0, 5, size)
    assert order.batch_size == 5
    assert order.index(3, 6).tolist() == [[0, 1, 2, 3, 4]] * 3
    assert order.probe(2).tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("size", [0, -3, 2.5, "64", True, None])
def test_a_batch_size_below_one_is_refused(size):
    with pytest.raises(BadInput, match=rf"batch_size={size!r} is not allowed: use a whole num"):
        BatchOrder(0, NUM, size)


def test_a_negative_seed_is_refused():
    with pytest.raises(BadInput, match="seed=-1 is not allowed: use a whole number >= 0"):
        BatchOrder(-1, NUM, SIZE)
