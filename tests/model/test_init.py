import math

import pytest
import torch
from torch import nn

from stabsweep.errors import BadInput
from stabsweep.model import INITS, MLP, RNN, Transformer, Vector, check_init, initialize
from stabsweep.signature import Signature

VECTOR = Signature("vector", num_inputs=200, num_outputs=10)
SEQUENCE = Signature("sequence", num_inputs=30, num_outputs=2, length=7)
TOKENS = Signature("tokens", num_inputs=50, num_outputs=50, length=16, per_step=True)
EVERY_INIT = ["default", *INITS, "normal(0.02)"]


def mlp():
    return MLP(VECTOR, depth=3, width=300, norm="layer")


def named(module):
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("init", EVERY_INIT)
def test_depends_on_the_seed_alone_and_leaves_the_global_generator_alone(init):
    torch.manual_seed(11)
    expected = torch.randn(3)
    torch.manual_seed(11)
    first = named(initialize(mlp, 4, init))
    assert torch.equal(torch.randn(3), expected)
    again, other = named(initialize(mlp, 4, init)), named(initialize(mlp, 5, init))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["readout.weight"], other["readout.weight"])


def test_default_is_the_construction_under_the_seed():
    torch.manual_seed(4)
    expected = named(mlp())
    found = named(initialize(mlp, 4))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("init", EVERY_INIT)
def test_the_gain_multiplies_matrices_and_nothing_else(init):
    base, scaled = named(initialize(mlp, 4, init)), named(initialize(mlp, 4, init, 2.5))
    for name, parameter in base.items():
        factor = 2.5 if parameter.ndim >= 2 else 1
        torch.testing.assert_close(scaled[name], factor * parameter)


@pytest.mark.parametrize(
    "init, std",
    [
        ("xavier", math.sqrt(2 / 500)),
        ("kaiming", math.sqrt(2 / 200)),
        ("orthogonal", math.sqrt(1 / 300)),
        ("normal(0.02)", 0.02),
        ("normal(1e-3)", 0.001),
    ],
)
def test_each_init_has_its_deviation_and_no_bias(init, std):
    found = named(initialize(mlp, 0, init))
    weight = found["hidden.0.weight"]
    assert weight.shape == (300, 200)
    assert weight.std().item() == pytest.approx(std, rel=0.02)
    assert abs(weight.mean().item()) < std / 50
    biases = [value for name, value in found.items() if name.endswith("bias")]
    assert len(biases) == 5 and not any(bias.any() for bias in biases)
    assert all((found[name] == 1).all() for name in ("norms.0.weight", "norms.1.weight"))


def test_xavier_is_uniform_and_orthogonal_is_orthogonal():
    weight = named(initialize(mlp, 0, "xavier"))["hidden.0.weight"]
    assert weight.abs().max() <= math.sqrt(6 / 500)
    weight = named(initialize(mlp, 0, "orthogonal"))["hidden.0.weight"]
    torch.testing.assert_close(weight.mT @ weight, torch.eye(200), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cell, gates", [("tanh", 1), ("gru", 3), ("lstm", 4)])
def test_stacked_gates_are_drawn_one_by_one(cell, gates):
    def build():
        return RNN(SEQUENCE, cell=cell, hidden=40, depth=2)

    found = named(initialize(build, 0, "orthogonal"))
    blocks = found["recurrence.weight_hh_l1"].chunk(gates)
    for block in blocks:
        assert block.shape == (40, 40)
        torch.testing.assert_close(block @ block.mT, torch.eye(40), atol=1e-5, rtol=0)
    assert all(not torch.equal(blocks[0], other) for other in blocks[1:])
    assert not found["recurrence.bias_ih_l0"].any()

    largest = named(initialize(build, 0, "xavier"))["recurrence.weight_ih_l0"].abs().max()
    assert 0.98 * math.sqrt(6 / 70) < largest <= math.sqrt(6 / 70)


def test_queries_keys_and_values_are_drawn_one_by_one():
    found = named(initialize(lambda: Transformer(TOKENS, width=40), 0, "orthogonal"))
    for block in found["blocks.1.attention.qkv.weight"].chunk(3):
        torch.testing.assert_close(block @ block.mT, torch.eye(40), atol=1e-5, rtol=0)


@pytest.mark.parametrize("init", EVERY_INIT)
def test_a_tied_parameter_is_drawn_and_scaled_once(init):
    def build():
        return Transformer(TOKENS, tie_embedding=True)

    base, scaled = initialize(build, 0, init), initialize(build, 0, init, 3.0)
    assert scaled.readout.weight is scaled.embedding.weight
    torch.testing.assert_close(scaled.readout.weight, 3 * base.embedding.weight)


def test_an_embedding_is_drawn_as_the_readout_it_would_be():
    found = named(initialize(lambda: Transformer(TOKENS, width=64), 0, "kaiming"))
    assert found["embedding.weight"].std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)


def test_a_bare_vector_keeps_its_start():
    def build():
        return Vector(Signature("nothing", 0, 5))

    base, other = initialize(build, 0), initialize(build, 0, "normal(0.02)", 9.0)
    assert torch.equal(base.theta, other.theta)


def test_reads_modules_that_are_not_ours():
    module = initialize(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), 0, "kaiming")
    assert module[0].weight.std().item() == pytest.approx(math.sqrt(2 / 27), rel=0.15)
    assert (module[1].weight == 1).all()


@pytest.mark.parametrize(
    "init, message",
    [
        ("kaimin", r"init='kaimin' is not known: .*normal\(<std>\).*did you mean kaiming"),
        ("normal", r"init='normal' is malformed: write normal\(0.02\)"),
        ("normal()", "malformed"),
        ("normal(-1)", "malformed"),
        ("normal(0)", "malformed"),
        ("normal(nan)", "malformed"),
        ("normal(inf)", "malformed"),
        ("normal(0.02", "malformed"),
        ("normal(a)", "malformed"),
        (None, "init=None is not known"),
    ],
)
def test_an_unknown_or_malformed_init_says_what_is_allowed(init, message):
    with pytest.raises(BadInput, match=message):
        check_init(init)


def test_check_init_returns_what_it_was_given():
    assert [check_init(init) for init in EVERY_INIT] == EVERY_INIT
