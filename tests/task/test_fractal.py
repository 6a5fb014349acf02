import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task.fractal import Fractal


def test_inputs_and_targets_are_standard_normal():
    task = Fractal(num_inputs=100)
    inputs, targets = task.batch(torch.arange(task.num_examples))
    assert inputs.shape == (10_100, 100) and targets.shape == (10_100, 1)
    for values in (inputs, targets):
        assert values.mean().abs() < 0.03 and values.std().item() == pytest.approx(1, abs=0.03)


def test_the_points_are_as_many_as_weights_unless_told():
    assert Fractal().num_examples == 272
    assert Fractal(num_inputs=3).num_examples == 12
    assert Fractal(num_inputs=3, num_examples=5).num_examples == 5


def test_blind_loss_is_what_the_best_constant_leaves():
    task = Fractal()
    targets = task.batch(torch.arange(272))[1]
    best = targets.mean().expand_as(targets)
    assert task.criterion(best, targets).item() == pytest.approx(task.blind_loss, rel=1e-5)
    assert task.criterion(best + 0.05, targets) > task.blind_loss


def test_the_data_depend_on_their_own_seed_alone():
    torch.manual_seed(1)
    first = Fractal()
    torch.manual_seed(2)
    assert torch.equal(first.inputs_ND, Fractal().inputs_ND)
    assert not torch.equal(first.inputs_ND, Fractal(seed=1).inputs_ND)


@pytest.mark.parametrize(
    "args, message",
    [
        ({"num_inputs": 0}, "task.num_inputs=0 is not allowed: use a whole number >= 1"),
        ({"num_examples": 1}, "task.num_examples=1 is not allowed: use a whole number >= 2"),
        ({"seed": -1}, "task.seed=-1 is not allowed: use a whole number >= 0"),
        ({"seed": 2**64}, "task.seed=18446744073709551616 is not allowed: use a whole number"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        Fractal(**args)
