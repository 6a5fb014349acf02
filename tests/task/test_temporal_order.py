import math

import pytest
import torch

from stabsweep import sweep
from stabsweep.errors import BadInput
from stabsweep.task.temporal_order import TemporalOrder


@pytest.mark.parametrize("length", [10, 13, 50])
def test_the_class_is_the_order_of_the_two_marks_one_in_each_of_their_tenths(length):
    task = TemporalOrder(length=length, num_examples=200)
    inputs_NLD, labels_N = task.batch(torch.arange(200))
    assert inputs_NLD.shape == (200, length, 6)
    assert inputs_NLD.unique().tolist() == [0, 1] and (inputs_NLD.sum(2) == 1).all()
    for symbols, label in zip(inputs_NLD.argmax(2).tolist(), labels_N.tolist(), strict=True):
        first, second = (step for step, symbol in enumerate(symbols) if symbol < 2)
        assert length // 10 <= first < length // 5
        assert 4 * length // 10 <= second < length // 2
        assert (
            label == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}[symbols[first], symbols[second]]
        )
    assert set(labels_N.tolist()) == {0, 1, 2, 3}


def test_every_step_of_a_tenth_and_every_distractor_occurs():
    symbols_NL = TemporalOrder(num_examples=2000).symbols_NL
    marked = (symbols_NL < 2).any(0).nonzero().flatten().tolist()
    assert marked == [5, 6, 7, 8, 9, 20, 21, 22, 23, 24]
    assert torch.bincount(symbols_NL.flatten())[2:].min() > 20_000


def test_blind_loss_is_the_entropy_of_its_own_labels():
    task = TemporalOrder()
    _, labels_N = task.batch(torch.arange(task.num_examples))
    share_C = torch.bincount(labels_N).double() / task.num_examples
    logits_NC = share_C.log().expand(task.num_examples, -1)
    assert task.criterion(logits_NC, labels_N).item() == pytest.approx(task.blind_loss, abs=1e-12)
    assert math.log(4) - 1e-3 < task.blind_loss < math.log(4)


def test_the_data_depend_on_their_own_seed_alone():
    torch.manual_seed(0)
    first = TemporalOrder(num_examples=9)
    torch.manual_seed(1)
    assert torch.equal(first.symbols_NL, TemporalOrder(num_examples=9).symbols_NL)
    assert not torch.equal(first.symbols_NL, TemporalOrder(num_examples=9, seed=1).symbols_NL)


def test_a_gated_net_learns_it_and_a_rate_too_small_stays_blind():
    task = TemporalOrder(length=16)
    result = sweep(
        {"name": "rnn", "cell": "gru", "hidden": 32},
        task,
        {"lr": [1e-6, 2e-2]},
        "adam",
        horizon=150,
        num_trials=2,
        seeds=1,
        clip_norm=1.0,
        watcher="off",
    )
    blind, learned = sorted(result.region.records, key=lambda record: record.point["lr"])
    assert blind.final_loss == pytest.approx(task.blind_loss, abs=0.05)
    assert not blind.verdict.is_learned
    assert learned.verdict.is_learned and learned.final_loss < 0.1


@pytest.mark.parametrize(
    "args, message",
    [
        ({"length": 9}, "task.length=9 is not allowed: use a whole number >= 10"),
        ({"num_examples": 0}, "task.num_examples=0 is not allowed"),
        ({"seed": -1}, "task.seed=-1 is not allowed: use a whole number >= 0"),
        ({"seed": 2**64}, "task.seed=18446744073709551616 is not allowed"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        TemporalOrder(**args)
