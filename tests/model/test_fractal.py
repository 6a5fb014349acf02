import math

import pytest
import torch

from stabsweep import model, task
from stabsweep.errors import BadInput
from stabsweep.signature import Signature

SIXTEEN = Signature("vector", num_inputs=16, num_outputs=1)


def test_it_is_the_formula_of_its_docstring():
    module = model.initialize(lambda: model.build("fractal", SIXTEEN), 0)
    assert {n: tuple(p.shape) for n, p in module.named_parameters()} == {
        "input": (16, 16),
        "output": (1, 16),
    }
    x_BD = torch.randn(5, 16)
    for x_D, found in zip(x_BD, module(x_BD), strict=True):
        hidden_D = [math.tanh(math.sqrt(2 / 16) * z) for z in (module.input @ x_D).tolist()]
        expected = sum(w * h for w, h in zip(module.output[0].tolist(), hidden_D, strict=True)) / 16
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_its_weights_start_at_a_standard_normal_and_its_outputs_small():
    module = model.build("fractal", Signature("vector", num_inputs=200, num_outputs=1))
    assert module.input.std().item() == pytest.approx(1, abs=0.03)
    assert abs(module.input.mean().item()) < 0.03
    assert module(torch.randn(50, 200)).abs().max() < 0.3


def test_its_task_has_as_many_points_as_it_has_weights():
    data = task.build("fractal")
    module = model.build("fractal", data.signature)
    assert sum(p.numel() for p in module.parameters()) == data.num_examples == 272


def test_it_refuses_several_outputs():
    with pytest.raises(BadInput, match="model=fractal gives one output, but the task reads 10"):
        model.build("fractal", Signature("vector", 64, 10))
