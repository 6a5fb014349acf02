import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.task.digits import Digits
from stabsweep.task.sequential_digits import SequentialDigits


@pytest.mark.parametrize("step, shape", [("pixel", (64, 1)), ("row", (8, 8))])
def test_it_holds_the_same_digits_step_by_step(step, shape):
    task, index = SequentialDigits(step), torch.tensor([[3, 5], [0, 1796]])
    assert (task.signature.kind, task.signature.length) == ("sequence", shape[0])
    assert task.signature.num_inputs == shape[1]
    inputs, labels = task.batch(index)
    vectors, expected = Digits().batch(index)
    assert inputs.shape == (2, 2, *shape)
    assert torch.equal(inputs.flatten(2), vectors) and torch.equal(labels, expected)
    assert task.blind_loss == Digits().blind_loss


def test_an_unknown_step_is_refused():
    with pytest.raises(BadInput, match="task.step='pixels' is not known.*mean pixel"):
        SequentialDigits("pixels")  # type: ignore[arg-type]
