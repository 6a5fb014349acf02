import math

import pytest
import torch
from torch import nn

from stabsweep import sweep
from stabsweep.errors import BadInput
from stabsweep.model import INITS, MLP, RNN, Transformer, Vector, check_init, initialize
from stabsweep.signature import Signature

VECTOR = Signature("vector", num_inputs=200, num_outputs=10)
SEQUENCE = Signature("sequence", num_inputs=30, num_outputs=2, length=7)
TOKENS = Signature("tokens", num_inputs=50, num_outputs=50, length=16, per_step=True)
EVERY_INIT = ["default", *INITS, "normal(0.02)"]  # spectral needs a recurrent matrix


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
    assert torch.equal(first["readout.weight"], other["readout.weight"]) is (init == "zeros")


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


def radius(block):
    return torch.linalg.eigvals(block.double()).abs().max().item()


@pytest.mark.parametrize("cell, gates", [("tanh", 1), ("gru", 3), ("lstm", 4)])
def test_spectral_sets_the_radius_of_every_recurrent_matrix_and_leaves_the_rest_to_xavier(
    cell, gates
):
    def build():
        return RNN(SEQUENCE, cell=cell, hidden=40, depth=2)

    found = named(initialize(build, 0, "spectral(0.9)"))
    wider = named(initialize(build, 0, "spectral(0.9)", 2.0))
    other = named(initialize(build, 1, "spectral(0.9)"))
    for layer in range(2):
        name = f"recurrence.weight_hh_l{layer}"
        blocks = found[name].chunk(gates)
        assert [radius(block) for block in blocks] == pytest.approx([0.9] * gates, rel=1e-5)
        assert radius(wider[name].chunk(gates)[-1]) == pytest.approx(1.8, rel=1e-5)
        # By the circular law a normal matrix of deviation s has a radius of about s sqrt(H).
        assert blocks[0].std().item() * math.sqrt(40) == pytest.approx(0.9, rel=0.25)
        assert all(not torch.equal(blocks[0], block) for block in blocks[1:])
        assert not torch.equal(found[name], other[name])
    largest = found["recurrence.weight_ih_l0"].abs().max()
    assert 0.98 * math.sqrt(6 / 70) < largest <= math.sqrt(6 / 70)
    assert found["readout.weight"].abs().max() <= math.sqrt(6 / 42)
    assert not any(value.any() for name, value in found.items() if "bias" in name)


def test_spectral_carries_a_linear_state_as_its_radius_to_the_steps():
    def build():
        return RNN(SEQUENCE, hidden=30)

    for rho in (0.9, 1.1):
        w_HH = named(initialize(build, 3, f"spectral({rho})"))["recurrence.weight_hh_l0"].double()
        through_100, through_300 = (torch.linalg.matrix_power(w_HH, n) for n in (100, 300))
        growth = (through_300.norm() / through_100.norm()).item() ** (1 / 200)
        assert growth == pytest.approx(rho, rel=0.01)


def test_spectral_reads_torch_cells_and_says_what_it_cannot():
    found = named(initialize(lambda: nn.RNN(5, 12), 0, "spectral(1.5)"))
    assert radius(found["weight_hh_l0"]) == pytest.approx(1.5, rel=1e-5)
    with pytest.raises(BadInput, match=r"weight_hh_l0 has \(36, 12\): give its module num_stacked"):
        initialize(lambda: nn.GRU(5, 12), 0, "spectral(1.5)")
    with pytest.raises(BadInput, match=r"weight_hh\*\), and the model has none: use model=rnn"):
        initialize(mlp, 0, "spectral(0.9)")
    with pytest.raises(BadInput, match="the model has none"):
        check_init("spectral(0.9)", mlp())
    assert check_init("spectral(0.9)", RNN(SEQUENCE)) == check_init("spectral(0.9)")


def test_zeros_leaves_no_weight_and_keeps_the_norms():
    found = named(initialize(mlp, 4, "zeros", 3.0))
    for name, value in found.items():
        assert (value == (1 if name.startswith("norms") and name.endswith("weight") else 0)).all()


def test_from_zeros_a_linear_model_trains_and_a_hidden_layer_does_not():
    records = [
        sweep(
            {"name": "mlp", "depth": depth, "width": 8},
            "digits",
            {"lr": [0.1]},
            "sgd",
            init="zeros",
            horizon=40,
            num_trials=1,
            seeds=1,
            engine="loop",
            watcher="off",
        ).region.records[0]
        for depth in (1, 2)
    ]
    linear, hidden = records
    assert linear.verdict.is_learned and linear.final_loss < 0.3
    assert not hidden.verdict.is_learned
    assert hidden.final_loss == pytest.approx(hidden.blind_loss, abs=0.02)


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
        ("normally(1)", "malformed"),
        ("spectral", r"init='spectral' is malformed: write spectral\(0.95\), with any radius > 0"),
        ("spectral(0)", "malformed"),
        ("spectral(-0.9)", "malformed"),
        ("spectral(inf)", "malformed"),
        ("spectral(rho)", "malformed"),
        ("zero", "init='zero' is not known: .*did you mean zeros"),
        (None, "init=None is not known"),
    ],
)
def test_an_unknown_or_malformed_init_says_what_is_allowed(init, message):
    with pytest.raises(BadInput, match=message):
        check_init(init)


def test_check_init_returns_what_it_was_given():
    every = [*EVERY_INIT, "spectral(0.9)", "spectral( 1e-1 )"]
    assert [check_init(init) for init in every] == every
