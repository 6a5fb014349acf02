import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task.adding import Adding


@pytest.mark.parametrize("length", [2, 3, 20])
def test_the_target_is_the_sum_of_the_two_marked_numbers_one_in_each_half(length):
    task = Adding(length=length, num_examples=50)
    inputs_NLD, targets_N1 = task.batch(torch.arange(50))
    assert inputs_NLD.shape == (50, length, 2)
    for number_mark_LD, target in zip(inputs_NLD.tolist(), targets_N1, strict=True):
        marked = [step for step, (_, mark) in enumerate(number_mark_LD) if mark == 1]
        assert len(marked) == 2 and marked[0] < length // 2 <= marked[1]
        assert all(0 <= number < 1 and mark in (0, 1) for number, mark in number_mark_LD)
        assert target.item() == pytest.approx(sum(number_mark_LD[step][0] for step in marked))


def test_blind_loss_is_what_the_best_constant_leaves():
    task = Adding()
    targets = task.batch(torch.arange(task.num_examples))[1]
    best = targets.mean().expand_as(targets)
    assert task.criterion(best, targets).item() == pytest.approx(task.blind_loss, rel=1e-5)
    assert task.criterion(best + 0.05, targets) > task.blind_loss
    assert task.blind_loss == pytest.approx(1 / 6, rel=0.03)


def test_the_data_depend_on_their_own_seed_alone():
    torch.manual_seed(0)
    first = Adding(num_examples=9)
    torch.manual_seed(1)
    assert torch.equal(first.inputs_NLD, Adding(num_examples=9).inputs_NLD)
    assert not torch.equal(first.inputs_NLD, Adding(num_examples=9, seed=1).inputs_NLD)


@pytest.mark.parametrize(
    "args, message",
    [
        ({"length": 1}, "task.length=1 is not allowed: use a whole number >= 2"),
        ({"num_examples": 0}, "task.num_examples=0 is not allowed"),
        ({"seed": -1}, "task.seed=-1 is not allowed: use a whole number >= 0"),
        ({"seed": 2**64}, "task.seed=18446744073709551616 is not allowed"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        Adding(**args)
