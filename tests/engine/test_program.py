"""A traced program does what it was traced from: the same numbers, for any number of rows."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from stabsweep import model, task
from stabsweep.engine import _passes
from stabsweep.engine._program import MANY, Program, Programs

CASES = {
    "mlp": ({"name": "mlp", "depth": 3, "width": 10, "activation": "tanh"}, {"name": "digits"}),
    "mlp gelu, layer norm": (
        {"name": "mlp", "depth": 2, "width": 10, "activation": "gelu", "norm": "layer"},
        {"name": "digits"},
    ),
    "rnn": ({"name": "rnn", "hidden": 6, "depth": 2}, {"name": "adding", "length": 5}),
    "gru": ({"name": "rnn", "cell": "gru", "hidden": 6}, {"name": "adding", "length": 5}),
    "transformer": (
        {"name": "transformer", "depth": 1, "width": 8, "heads": 2},
        {"name": "text", "path": __file__, "length": 6},
    ),
    "fractal": ({"name": "fractal"}, {"name": "fractal", "num_inputs": 6}),
}


class Case:
    """A model with its loss, K rows of weights, and batches for them."""

    def __init__(self, build, data, dtype=torch.float64, num_rows=3):
        torch.manual_seed(0)
        self.data = data.to("cpu", dtype)
        self.module = build().to(dtype)
        self.shapes = [(name, p.shape) for name, p in self.module.named_parameters()]
        self.sizes = [shape.numel() for _, shape in self.shapes]
        self.theta_KP = 0.3 * torch.randn(num_rows, sum(self.sizes), dtype=dtype)
        index = torch.randint(0, self.data.num_examples, (num_rows, 4))
        self.batch_K = self.data.batch(index)
        self.gradient = vmap(grad_and_value(self.loss), in_dims=(0, None, 0))

    def loss(self, theta_P, _, batch):
        parts = zip(self.shapes, theta_P.split(self.sizes), strict=True)
        named = {name: part.view(shape) for (name, shape), part in parts}

        def outputs(inputs):
            return functional_call(self.module, named, (inputs,))

        return self.data.loss(outputs, batch)

    def program(self):
        return Program(self.gradient, self.theta_KP, {}, self.batch_K)


def case_of(name, **how):
    arguments, data = CASES[name]
    data = task.build(**data)
    return Case(lambda: model.build(signature=data.signature, **arguments), data, **how)


@pytest.mark.parametrize("name", CASES)
def test_it_gives_the_gradients_and_losses_of_what_it_was_traced_from(name):
    case = case_of(name)
    found = case.program()(case.theta_KP, {}, case.batch_K)
    for ours, theirs in zip(found, case.gradient(case.theta_KP, {}, case.batch_K), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


# torch's sigmoid rounds the last few numbers of a tensor otherwise, traced or not: no GRU here.
@pytest.mark.parametrize("name", sorted({*CASES} - {"gru"}))
def test_one_program_serves_any_number_of_rows_and_a_row_gives_the_same_in_each(name):
    case = case_of(name, dtype=torch.float32, num_rows=9)
    program = case.program()
    whole = program(case.theta_KP, {}, case.batch_K)
    for part in (slice(0, 1), slice(2, 4), slice(3, 9)):
        batch = tuple(tensor[part] for tensor in case.batch_K)
        some = program(case.theta_KP[part], {}, batch)
        for ours, theirs in zip(some, whole, strict=True):
            assert torch.equal(ours, theirs[part])


@pytest.mark.parametrize("name", CASES)
def test_it_changes_nothing_that_it_is_given(name):
    case = case_of(name)
    before = [tensor.clone() for tensor in (case.theta_KP, *case.batch_K)]
    program = case.program()
    first = [tensor.clone() for tensor in program(case.theta_KP, {}, case.batch_K)]
    again = program(case.theta_KP, {}, case.batch_K)
    assert all(map(torch.equal, first, again))
    assert all(map(torch.equal, before, (case.theta_KP, *case.batch_K)))


def test_it_has_fewer_operations_than_the_trace():
    case = case_of("rnn")
    traced = case.program()
    assert traced.num_operations < 0.7 * count_of_trace(case)


def test_a_layer_with_one_output_takes_no_product_backward():
    case = case_of("fractal")
    assert count_of_trace(case, "bmm") == 5
    # Two forward, and one gradient for each of the two weights.
    assert case.program().code.count("bmm.") == 4


@pytest.mark.parametrize(("small", "count"), [(1, 2), (1 << 20, 0)])
def test_only_large_products_are_made_where_they_are_gathered(monkeypatch, small, count):
    monkeypatch.setattr(_passes, "SMALL", small)
    case = case_of("fractal")
    program = case.program()
    assert program.code.count("bmm.out") == count
    found = program(case.theta_KP, {}, case.batch_K)
    for ours, theirs in zip(found, case.gradient(case.theta_KP, {}, case.batch_K), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def count_of_trace(case, name=""):
    """How many operations a trace has before anything is left out, in all or of a name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stabsweep.engine._program.simplify", lambda graph: None)
        program = case.program()
    return program.code.count(f"{name}.") if name else program.num_operations


def test_a_nan_stays_in_its_row():
    case = case_of("rnn")
    program = case.program()
    calm = [tensor.clone() for tensor in program(case.theta_KP, {}, case.batch_K)]
    case.theta_KP[1] = math.nan
    for ours, theirs in zip(program(case.theta_KP, {}, case.batch_K), calm, strict=True):
        assert ours[1].isnan().all()
        assert torch.equal(ours[::2], theirs[::2])


def test_numpy_gives_the_tangent_that_torch_gives(monkeypatch):
    case = case_of("rnn", dtype=torch.float32)
    monkeypatch.setattr(_passes, "_numpy_is_faster", lambda: False)
    theirs = case.program()
    monkeypatch.setattr(_passes, "_numpy_is_faster", lambda: True)
    ours = case.program()
    assert "tanh_into" in ours.code
    assert "tanh_into" not in theirs.code
    for one, other in zip(
        *(run(case.theta_KP, {}, case.batch_K) for run in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_a_multiple_of_the_rows_is_known_among_other_numbers():
    # Heads are rows as well for a product, and 257 is a prime of its own.
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(257, 64))

        def forward(self, inputs):
            heads = (inputs @ self.weight.mT).unflatten(-1, (257, 1))
            return (heads * heads.mT).sum(-1)[:, :10]

    case = Case(Odd, task.build("digits"))
    program = case.program()
    assert str(MANY) not in program.code
    found = program(case.theta_KP, {}, case.batch_K)
    torch.testing.assert_close(found[0], case.gradient(case.theta_KP, {}, case.batch_K)[0])


# ------------------------------------------------------------------------------ what is not traced


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.calls = 0

    def forward(self, inputs):
        return self.linear(inputs)


class Counts(Plain):
    """Warms up over its calls: another function at every step."""

    def forward(self, inputs):
        self.calls += 1
        return self.linear(inputs) * min(self.calls / 100, 1)


class Draws(Plain):
    def forward(self, inputs):
        return self.linear(inputs) * random.random()


class DrawsNumPy(Plain):
    def forward(self, inputs):
        return self.linear(inputs) * float(np.random.rand())


class NoRule(nn.Module):
    """`vmap` has no rule for an LSTM on a CPU, but a loop of its own."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.readout = nn.Linear(6, 10)

    def forward(self, inputs):
        return self.readout(self.lstm(inputs.view(-1, 8, 8))[0][:, -1])


# What the loop of torch's own says of itself, where there is no rule.
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    ("build", "why"),
    [
        (Counts, "it counts its steps, or draws numbers outside torch"),
        (Draws, "it counts its steps, or draws numbers outside torch"),
        (DrawsNumPy, "it counts its steps, or draws numbers outside torch"),
        (NoRule, "it cannot be traced (RuntimeError)"),
    ],
)
def test_what_depends_on_more_than_its_arguments_runs_as_it_is_written(build, why):
    # In float64 torch would spell the LSTM out.
    case = Case(build, task.build("digits"), torch.float32)
    programs = Programs(case.module, 1e-3)
    assert programs.find(case.gradient, case.theta_KP, {}, case.batch_K) is case.gradient
    assert programs.obstacle == why


def test_a_plain_model_is_traced_once_for_each_kind_of_batch():
    case = Case(Plain, task.build("digits"))
    programs = Programs(case.module, 1e-3)

    def find(num_examples):
        batch = tuple(tensor[:, :num_examples] for tensor in case.batch_K)
        return programs.find(case.gradient, case.theta_KP, {}, batch)

    assert isinstance(find(4), Program)
    assert find(4) is find(4)
    assert find(3) is not find(4)
    assert not programs.obstacle


def test_a_trace_that_gives_other_numbers_is_not_used(monkeypatch):
    case = Case(Plain, task.build("digits"))
    wrong = Program.__call__

    def doubled(self, *given):
        grad_KP, loss_K = wrong(self, *given)
        return 2 * grad_KP, loss_K

    monkeypatch.setattr(Program, "__call__", doubled)
    programs = Programs(case.module, 1e-3)
    assert programs.find(case.gradient, case.theta_KP, {}, case.batch_K) is case.gradient
    assert programs.obstacle == "what it does depends on values"
