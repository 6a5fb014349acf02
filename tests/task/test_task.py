import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch.func import functional_call, grad, vmap

from stabsweep import model, task
from stabsweep.errors import BadInput

K, B = 3, 4
PAIRS = [
    ("mlp", "digits", {}),
    ("mlp", "sequential_digits", {"step": "row"}),
    ("mlp", "adding", {"num_examples": 50}),
    ("mlp", "regression", {}),
    ("fractal", "fractal", {}),
    ("mlp", "fractal", {"num_inputs": 3}),
    ("rnn", "sequential_digits", {"step": "row"}),
    ("rnn", "sequential_digits", {"step": "pixel"}),
    ("rnn", "adding", {"num_examples": 50}),
    ("rnn", "temporal_order", {"length": 10, "num_examples": 50}),
    ("transformer", "text", {"length": 16}),
    ("vector", "quadratic", {}),
    ("uv", "uv", {}),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model_name, task_name, args", PAIRS, ids=str)
def test_stacked_gradients_of_every_pair_equal_plain_ones(model_name, task_name, args):
    data = task.build(task_name, **args).to("cpu", torch.float64)
    modules = [
        model.initialize(lambda: model.build(model_name, data.signature), seed).double()
        for seed in range(K)
    ]
    stacked = {
        name: torch.stack([module.get_parameter(name).detach() for module in modules])
        for name, _ in modules[0].named_parameters()
    }
    orders = [task.BatchOrder(seed, data.num_examples, B) for seed in range(K)]
    inputs_KB, targets_KB = data.batch(torch.cat([order.index(5, 6) for order in orders]))

    def loss(parameters, inputs, targets):
        return data.criterion(functional_call(modules[0], parameters, (inputs,)), targets)

    found = vmap(grad(loss))(stacked, inputs_KB, targets_KB)
    for k, module in enumerate(modules):
        value = data.criterion(module(inputs_KB[k]), targets_KB[k])
        assert value.shape == ()
        expected = torch.autograd.grad(value, list(module.parameters()))
        for (name, _), gradient in zip(module.named_parameters(), expected, strict=True):
            torch.testing.assert_close(found[name][k], gradient, rtol=1e-10, atol=1e-12)


@pytest.fixture
def arguments(tmp_path):
    """Name -> arguments that the task needs, or that make it small."""
    path = tmp_path / "data.npz"
    np.savez(path, x=np.zeros((5, 3)), y=np.arange(5))
    return {
        "adding": {"num_examples": 50},
        "arrays": {"path": str(path)},
        "temporal_order": {"num_examples": 50},
        "user": {"target": "stabsweep.task:Digits"},
    }


@pytest.mark.parametrize("name", task.TASKS)
def test_a_task_keeps_the_promises_of_its_base(name, arguments):
    data = task.build(name, **arguments.get(name, {}))
    assert data.name == name and data.num_examples >= 1
    for shape in [(2,), (3, 2), (4, 3, 2)]:
        index = torch.randint(data.num_examples, shape)
        for tensor in data.batch(index):
            assert tensor.shape[: len(shape)] == shape
    inputs, _ = data.batch(torch.tensor([data.num_examples - 1]))
    signature = data.signature
    tail = {
        "vector": (signature.num_inputs,),
        "sequence": (signature.length, signature.num_inputs),
        "tokens": (signature.length,),
        "nothing": (),
    }[signature.kind]
    assert inputs.shape == (1, *tail)
    if signature.kind == "tokens":
        assert inputs.dtype == torch.int64


@pytest.mark.parametrize("name", task.TASKS)
def test_a_moved_task_is_a_copy_in_another_dtype_with_the_same_labels(name, arguments):
    data = task.build(name, **arguments.get(name, {}))
    moved = data.to("cpu", torch.float64)
    assert moved is not data and type(moved) is type(data)
    for key, value in vars(data).items():
        if isinstance(value, torch.Tensor):
            expected = torch.float64 if value.is_floating_point() else torch.int64
            assert getattr(moved, key).dtype == expected
            assert value.dtype in (torch.float32, torch.float64, torch.int64)
    index = torch.zeros(2, dtype=torch.int64)
    assert data.batch(index)[0].dtype in (torch.float32, torch.int64)
    assert moved.batch(index)[0].dtype in (torch.float64, torch.int64)


def test_every_file_without_an_underscore_is_a_task():
    files = Path(inspect.getfile(task)).parent.glob("[!_]*.py")
    assert {file.stem for file in files} == set(task.TASKS)
    assert all(make.__module__ == f"stabsweep.task.{key}" for key, make in task.TASKS.items())


@pytest.mark.parametrize("name", task.TASKS)
def test_its_config_file_holds_every_argument_with_its_default(name):
    conf = Path(__file__).parents[2] / "conf" / "task" / f"{name}.yaml"
    parameters = inspect.signature(task.TASKS[name]).parameters.values()
    defaults = {
        p.name: list(p.default) if isinstance(p.default, tuple) else p.default for p in parameters
    }
    if "args" in defaults:
        defaults["args"] = {}  # So that one can be added to it on the command line.
    assert yaml.safe_load(conf.read_text()) == {"name": name, **defaults}


def test_public_names_are_sorted():
    assert task.__all__ == sorted(task.__all__)


def test_an_unknown_task_or_argument_gets_a_suggestion():
    with pytest.raises(BadInput, match=r"task='digit' is not known.*did you mean digits"):
        task.build("digit")
    with pytest.raises(BadInput, match=r"task=text: argument='lenght' is not known.*mean length"):
        task.build("text", lenght=3)
