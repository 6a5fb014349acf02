import pytest
import torch

from stabsweep.errors import BadInput
from stabsweep.model import build
from stabsweep.model.vector import Vector
from stabsweep.signature import Signature


def test_is_its_own_output_whatever_the_inputs():
    vector = Vector(Signature("nothing", num_inputs=0, num_outputs=4))
    assert vector(torch.zeros(7)) is vector.theta
    assert vector.theta.shape == (4,)


def test_starts_at_a_standard_normal():
    torch.manual_seed(0)
    theta = Vector(Signature("nothing", num_inputs=0, num_outputs=20_000)).theta.detach()
    assert abs(theta.mean().item()) < 0.03
    assert abs(theta.std().item() - 1) < 0.02


def test_it_takes_no_argument():
    signature = Signature("nothing", num_inputs=0, num_outputs=4)
    with pytest.raises(BadInput, match="model=vector takes no argument: leave width away"):
        build("vector", signature, width=3)
