import pytest
import torch

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.task.uv import UV


def test_the_loss_is_half_the_square_of_the_one_output():
    task = UV().to("cpu", torch.float64)
    _, target = task.batch(torch.zeros(1, dtype=torch.int64))
    assert task.criterion(torch.tensor([-3.0]), target).item() == pytest.approx(4.5)
    assert task.criterion(torch.zeros(1), target).item() == 0


def test_it_has_no_data_and_no_blind_loss_and_reads_one_output():
    task = UV()
    assert task.blind_loss is None and task.num_examples == 1
    assert (task.signature.kind, task.signature.num_outputs) == ("nothing", 1)
    assert model.build("vector", task.signature)(torch.zeros(1)).shape == (1,)
    with pytest.raises(BadInput, match="model=mlp reads .*: use model=vector or uv, or a task"):
        model.build("mlp", task.signature)
