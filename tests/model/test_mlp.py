import pytest
import torch
from torch import nn

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.model.mlp import MLP
from stabsweep.signature import Signature

VECTOR = Signature("vector", num_inputs=5, num_outputs=3)


@pytest.mark.parametrize("depth, sizes", [(1, [5, 3]), (2, [5, 7, 3]), (4, [5, 7, 7, 7, 3])])
def test_depth_counts_the_weight_matrices(depth, sizes):
    mlp = MLP(VECTOR, depth=depth, width=7)
    shapes = [tuple(p.shape) for p in mlp.parameters() if p.ndim == 2]
    assert shapes == [(b, a) for a, b in zip(sizes, sizes[1:], strict=False)]


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
@pytest.mark.parametrize("norm", ["none", "layer"])
def test_equals_the_sequential_of_its_layers(activation, norm):
    mlp = MLP(VECTOR, depth=3, width=7, activation=activation, norm=norm).double()
    act = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}[activation]
    layers = []
    for linear, between in zip(mlp.hidden, mlp.norms, strict=True):
        layers += [linear, between, act()]
    inputs = torch.randn(4, 5, dtype=torch.float64)
    assert torch.equal(mlp(inputs), nn.Sequential(*layers, mlp.readout)(inputs))
    assert sum(isinstance(part, nn.LayerNorm) for part in mlp.modules()) == 2 * (norm == "layer")


def test_first_weights_are_those_of_torch_layers():
    torch.manual_seed(3)
    mlp = MLP(VECTOR, depth=2, width=7)
    torch.manual_seed(3)
    layers = [nn.Linear(5, 7), nn.Linear(7, 3)]
    assert torch.equal(mlp.hidden[0].weight, layers[0].weight)
    assert torch.equal(mlp.readout.bias, layers[1].bias)


def test_flattens_a_sequence():
    mlp = MLP(Signature("sequence", num_inputs=2, num_outputs=3, length=4))
    inputs_BLD = torch.randn(6, 4, 2)
    assert mlp(inputs_BLD).shape == (6, 3)
    assert torch.equal(mlp(inputs_BLD), mlp(inputs_BLD.reshape(6, 8)))


@pytest.mark.parametrize(
    "args, message",
    [
        ({"depth": 0}, "model.depth=0 is not allowed: use a whole number >= 1"),
        ({"depth": 2.5}, "model.depth=2.5 is not allowed"),
        ({"depth": True}, "model.depth=True is not allowed"),
        ({"width": "wide"}, "model.width='wide' is not allowed"),
        ({"activation": "relo"}, r"model.activation='relo' is not known: .* \(did you mean relu"),
        ({"activation": ["relu"]}, r"model.activation=\['relu'\] is not known"),
        ({"norm": "batch"}, "model.norm='batch' is not known: use one of layer, none"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        model.build("mlp", VECTOR, **args)


def test_refuses_an_output_per_step():
    with pytest.raises(BadInput, match="use model=rnn"):
        MLP(Signature("sequence", 2, 3, length=4, per_step=True))
