import inspect
from pathlib import Path

import pytest
import torch
import yaml
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.signature import Signature

K, B = 3, 4
SIGNATURES = {
    "vector": Signature("vector", 6, 5),
    "sequence": Signature("sequence", 2, 5, length=7),
    "sequence per step": Signature("sequence", 2, 5, length=7, per_step=True),
    "tokens": Signature("tokens", 5, 5, length=7, per_step=True),
    "nothing": Signature("nothing", 0, 5),
}
CASES = [
    ("mlp", {}, "vector"),
    ("mlp", {"activation": "tanh", "norm": "layer"}, "sequence"),
    ("mlp", {"activation": "gelu", "depth": 1}, "vector"),
    *[("rnn", {"cell": cell, "depth": 2}, "sequence") for cell in ("tanh", "relu", "gru", "lstm")],
    ("rnn", {"cell": "lstm"}, "sequence per step"),
    ("transformer", {}, "tokens"),
    ("transformer", {"norm": "post", "qk_norm": True}, "tokens"),
    ("transformer", {"tie_embedding": True}, "tokens"),
    ("vector", {}, "nothing"),
]


def inputs_KB(signature):
    shape = {"vector": (6,), "sequence": (7, 2), "tokens": (7,), "nothing": ()}[signature.kind]
    if signature.kind == "tokens":
        return torch.randint(5, (K, B, *shape))
    return torch.randn(K, B, *shape, dtype=torch.float64)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name, args, kind", CASES, ids=str)
def test_stacked_gradients_equal_plain_ones(name, args, kind):
    signature = SIGNATURES[kind]
    x_KB = inputs_KB(signature)
    modules = [
        model.initialize(lambda: model.build(name, signature, **args), seed).double()
        for seed in range(K)
    ]
    # One flat row a trial, as the engine keeps them: each parameter is a view of it.
    names = {key: parameter.shape for key, parameter in modules[0].named_parameters()}
    rows_KP = torch.stack(
        [
            torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
            for module in modules
        ]
    )

    def loss(row_P, x_B):
        views, at = {}, 0
        for key, shape in names.items():
            views[key] = row_P[at : at + shape.numel()].view(shape)
            at += shape.numel()
        outputs = functional_call(modules[0], views, (x_B,))
        return F.log_softmax(outputs, -1)[..., 1].square().mean()

    found_KP = vmap(grad(loss))(rows_KP, x_KB)
    for module, x_B, found_P in zip(modules, x_KB, found_KP, strict=True):
        value = F.log_softmax(module(x_B), -1)[..., 1].square().mean()
        plain = torch.autograd.grad(value, list(module.parameters()))
        expected_P = torch.cat([gradient.flatten() for gradient in plain])
        torch.testing.assert_close(found_P, expected_P, rtol=1e-10, atol=1e-12)


def test_every_file_without_an_underscore_is_a_model():
    files = Path(inspect.getfile(model)).parent.glob("[!_]*.py")
    assert {file.stem for file in files} == set(model.MODELS)
    assert all(cls.__module__ == f"stabsweep.model.{key}" for key, cls in model.MODELS.items())


@pytest.mark.parametrize("name", model.MODELS)
def test_its_config_file_holds_every_argument_with_its_default(name):
    conf = Path(__file__).parents[2] / "conf" / "model" / f"{name}.yaml"
    parameters = inspect.signature(model.MODELS[name]).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.name != "signature"}
    if "args" in defaults:
        defaults["args"] = {}  # So that one can be added to it on the command line.
    assert yaml.safe_load(conf.read_text())["model"] == {"name": name, **defaults}


def test_public_names_are_sorted():
    assert model.__all__ == sorted(model.__all__)


def test_an_unknown_model_or_argument_gets_a_suggestion():
    with pytest.raises(BadInput, match=r"model='transfomer' is not known.*did you mean transform"):
        model.build("transfomer", SIGNATURES["tokens"])
    with pytest.raises(BadInput, match=r"model=mlp: argument='widht' is not known.*mean width"):
        model.build("mlp", SIGNATURES["vector"], widht=3)
    with pytest.raises(BadInput, match="model=vector takes no argument: leave n away"):
        model.build("vector", SIGNATURES["nothing"], n=3)
