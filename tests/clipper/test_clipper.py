"""What holds for every clipper: stacked against its twin, each row for itself, and its file."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from stabsweep.clipper import CLIPPERS, HYPERPARAMETERS, build, l2_norm
from stabsweep.errors import BadInput
from stabsweep.limits import LIMITS

NUM_STEPS = 50
SHAPES = [
    ("embed.weight", (5, 3)),
    ("conv.weight", (2, 3, 2, 2)),
    ("conv.bias", (2,)),
    ("gain", ()),
    ("readout.weight", (3, 4)),
]
SIZE = sum(math.prod(shape) for _, shape in SHAPES)

ROWS = {
    "norm": [{}, {"clip_norm": 0.5}, {"clip_norm": 4.0}, {"clip_norm": 100.0}],
    "value": [{}, {"clip_value": 0.01}, {"clip_value": 0.3}, {"clip_value": 100.0}],
    "agc": [{}, {"clip_factor": 0.3}, {"clip_factor": 3.0}, {"clip_factor": 1e4}],
    "autoclip": [{}, {"clip_percentile": 50}, {"clip_percentile": 90}, {"clip_percentile": 99.9}],
    "zclip": [{}, {"clip_z": 0.5}, {"clip_z": 1.0, "clip_alpha": 0.5}, {"clip_alpha": 0.1}],
}
"""Clipper -> hyperparameters of the rows of one cohort."""


def gradient(row: int, step: int, dtype=torch.float64) -> torch.Tensor:
    """A gradient that wanders, with a spike at every eleventh step."""
    generator = torch.Generator().manual_seed(100 * row + step)
    size = 10.0 if step % 11 == 10 else 0.5 + 0.3 * math.sin(step + row)
    return size * torch.randn(SIZE, generator=generator, dtype=torch.float64).to(dtype)


def weights(row: int, dtype=torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(row)
    theta_P = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    theta_P[:3] = 0  # A unit that starts at zero.
    return theta_P.to(dtype)


def split(flat_P: torch.Tensor) -> dict[str, torch.Tensor]:
    parts = flat_P.split([math.prod(shape) for _, shape in SHAPES])
    return {name: part.reshape(shape) for (name, shape), part in zip(SHAPES, parts, strict=True)}


def column(values):
    return torch.tensor([[value] for value in values], dtype=torch.float64)


def parameters(theta_P: torch.Tensor, grad_P: torch.Tensor) -> dict[str, nn.Parameter]:
    grads, named = split(grad_P), {n: nn.Parameter(p.clone()) for n, p in split(theta_P).items()}
    for name, parameter in named.items():
        parameter.grad = grads[name].clone()
    return named


def stacked(name, rows, dtype=torch.float64, spoil=lambda row, step, grad_P: grad_P):
    """Clipped gradients and coefficients of some rows at once: (T, rows, P) and (T, rows)."""
    clipper, _ = build(name)
    clipper = clipper.laid_out([(n, torch.Size(shape)) for n, shape in SHAPES])
    hypers = [build(name, **ROWS[name][row])[1] for row in rows]
    hyper = {k: column(h[k] for h in hypers) for k in clipper.defaults}
    theta_KP = torch.stack([weights(row, dtype) for row in rows])
    state = clipper.new_state(theta_KP)
    grads, coefs = [], []
    for step in range(NUM_STEPS):
        grad_KP = torch.stack([spoil(row, step, gradient(row, step, dtype)) for row in rows])
        norm_K1 = l2_norm(grad_KP, dim=1, keepdim=True)
        step_K1 = torch.full((len(rows), 1), float(step)).double()
        grad_KP, coef_K1 = clipper.clip(grad_KP, theta_KP, norm_K1, state, hyper, step_K1)
        grads.append(grad_KP.clone())
        coefs.append(coef_K1[:, 0])
    return torch.stack(grads), torch.stack(coefs)


def plain(name, row, dtype=torch.float64, change=lambda step, twin: twin):
    """The same of one row from its twin: (T, P) and (T,)."""
    clipper, hyper = build(name, **ROWS[name][row])
    twin = clipper.twin(hyper)
    grads, coefs = [], []
    for step in range(NUM_STEPS):
        named = parameters(weights(row, dtype), gradient(row, step, dtype))
        total = l2_norm(torch.stack([l2_norm(p.grad) for p in named.values()]))
        coefs.append(twin.clip_(named, total))
        grads.append(torch.cat([p.grad.reshape(-1) for p in named.values()]))
        twin = change(step, twin)
    return torch.stack(grads), torch.stack(coefs)


CASES = [(name, row) for name, rows in ROWS.items() for row in range(len(rows))]


@pytest.mark.parametrize("name, row", CASES, ids=str)
def test_stacked_beside_others_it_is_its_twin_over_50_steps(name, row):
    found = stacked(name, range(len(ROWS[name])))
    for ours, theirs in zip(found, plain(name, row), strict=True):
        torch.testing.assert_close(ours[:, row], theirs, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", CLIPPERS)
def test_it_is_its_twin_in_float32(name):
    grads, coefs = stacked(name, range(len(ROWS[name])), torch.float32)
    assert grads.dtype == coefs.dtype == torch.float32
    for row in range(len(ROWS[name])):
        expected = plain(name, row, torch.float32)
        torch.testing.assert_close(grads[:, row], expected[0], rtol=1e-5, atol=0)
        torch.testing.assert_close(coefs[:, row], expected[1], rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", CLIPPERS)
def test_it_clips_now_and_then_and_says_what_is_left_of_the_norm(name):
    grads, coefs = stacked(name, range(len(ROWS[name])))
    before = torch.stack(
        [torch.stack([gradient(row, step) for row in range(4)]) for step in range(NUM_STEPS)]
    )
    left = l2_norm(grads, dim=2) / l2_norm(before, dim=2)
    torch.testing.assert_close(coefs, left, rtol=1e-12, atol=0)
    assert (coefs <= 1).all() and (coefs == 1).any() and (coefs < 1).any()
    # Where it says that nothing was clipped, nothing was.
    assert torch.equal(grads[coefs == 1], before[coefs == 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", CLIPPERS)
def test_what_is_not_finite_stays_in_its_row_and_is_not_remembered(name, bad):
    rows = range(len(ROWS[name]))

    def spoil(row, step, grad_P):
        if row == 1 and step in (3, 30):
            grad_P[7] = bad
        return grad_P

    calm, spoiled = stacked(name, rows), stacked(name, rows, spoil=spoil)
    others = [0, 2, 3]
    for ours, theirs in zip(spoiled, calm, strict=True):
        assert torch.equal(ours[:, others], theirs[:, others])
    # It goes on to clip, by norms that were finite.
    last = spoiled[1][31:, 1]
    assert last.isfinite().all() and (last < 1).any()
    if name not in ("autoclip", "zclip"):
        assert torch.equal(last, calm[1][31:, 1])
    if not (name == "value" and bad == math.inf):
        assert not spoiled[0][[3, 30], 1].isfinite().all(dim=1).any(), "the failure was hidden"


@pytest.mark.parametrize("name", ["autoclip", "zclip"])
def test_a_norm_that_is_not_finite_leaves_no_trace_in_a_memory(name):
    clipper, hyper = build(name)
    twins = clipper.twin(hyper), clipper.twin(hyper)
    for step in range(40):
        for twin in twins:
            total = gradient(0, step).norm()
            twin.clip_(parameters(weights(0), gradient(0, step)), total)
        for bad in (math.nan, math.inf):
            twins[1].clip_({}, torch.tensor(bad, dtype=torch.float64))
        for key, value in twins[0].state_dict().items():
            assert torch.equal(twins[1].state_dict()[key].nan_to_num(-1), value.nan_to_num(-1))


@pytest.mark.parametrize("name", CLIPPERS)
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-30, 1e150])
def test_a_finite_norm_never_gives_a_coefficient_that_is_none(name, size):
    for given in ROWS[name]:
        clipper, hyper = build(name, **given)
        twin = clipper.twin(hyper)
        for step in range(40):
            grad_P = size * gradient(0, step)
            named = parameters(weights(0), grad_P)
            coefficient = twin.clip_(named, grad_P.norm())
            assert 0 <= coefficient <= 1
            assert all(parameter.grad.isfinite().all() for parameter in named.values())


@pytest.mark.parametrize("name", CLIPPERS)
def test_its_twin_goes_on_from_a_checkpoint_bitwise(name, tmp_path):
    def saved(step, twin):
        if step != 28:
            return twin
        torch.save(twin.state_dict(), tmp_path / "state.pt")
        clipper, hyper = build(name, **ROWS[name][1])
        new = clipper.twin(hyper)
        new.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        return new

    for found, expected in zip(plain(name, 1, change=saved), plain(name, 1), strict=True):
        assert torch.equal(found, expected)


def test_a_saved_state_does_not_move_on_and_that_of_another_clipper_is_refused():
    twins = {name: build(name)[0].twin(build(name)[1]) for name in CLIPPERS}
    for twin in twins.values():
        twin.clip_(parameters(weights(0), gradient(0, 0)), gradient(0, 0).norm())
        kept = twin.state_dict()
        twin.clip_(parameters(weights(0), gradient(0, 1)), gradient(0, 1).norm())
        assert not kept or float(kept["count"]) == 1
    for name, twin in twins.items():
        for other in ("autoclip", "zclip"):
            if other != name:
                with pytest.raises(BadInput, match=r"clipper's state holds .*remembers ") as caught:
                    twin.load_state_dict(twins[other].state_dict())
                assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CLIPPERS)
def test_sparse_gradients_are_summed_and_their_entries_clipped(name):
    given = {"agc": {"clip_factor": 0.1, "exclude": []}, "norm": {"clip_norm": 0.5}}
    given |= {"value": {"clip_value": 0.7}}
    clipper, hyper = build(name, **given.get(name, {}))
    twins = clipper.twin(hyper), clipper.twin(hyper)
    torch.manual_seed(0)
    table = nn.Embedding(6, 3, sparse=True).double()
    dense = nn.Embedding(6, 3).double()
    dense.load_state_dict(table.state_dict())
    for step in range(30):
        index, coefficients = torch.tensor([1, 4, 1, step % 6]), []
        for twin, module in zip(twins, (table, dense), strict=True):
            module.zero_grad()
            (module(index) * (1.0 + (step % 7 == 6) * 9)).square().sum().backward()
            grad = module.weight.grad
            total = (grad.coalesce().values() if grad.is_sparse else grad).norm()
            coefficients.append(twin.clip_({"weight": module.weight}, total))
        torch.testing.assert_close(*coefficients, rtol=1e-12, atol=0)
        assert table.weight.grad.is_sparse
        torch.testing.assert_close(
            table.weight.grad.to_dense(), dense.weight.grad, rtol=1e-12, atol=1e-15
        )


@pytest.mark.parametrize("name", CLIPPERS)
def test_a_parameter_without_a_gradient_is_passed_over(name):
    clipper, hyper = build(name, **ROWS[name][1])
    named = {"a": nn.Parameter(torch.ones(3)), "b": nn.Parameter(torch.ones(3))}
    named["b"].grad = torch.full((3,), 100.0)
    clipper.twin(hyper).clip_(named, named["b"].grad.norm())
    assert named["a"].grad is None


# ------------------------------------------------------------------------------ build, conf


@pytest.mark.parametrize("name", CLIPPERS)
def test_its_config_file_holds_every_argument_with_its_default(name):
    conf = Path(__file__).parents[2] / "conf" / "clipper" / f"{name}.yaml"
    flags = {k: list(f.default) for k, f in inspect.signature(CLIPPERS[name]).parameters.items()}
    expected = {"name": name, **CLIPPERS[name].defaults, **flags}
    # It has been a key of its own since before there were clippers.
    expected.pop("clip_norm", None)
    assert yaml.safe_load(conf.read_text()) == expected


def test_every_number_of_a_clipper_has_a_limit_and_belongs_to_one():
    assert len(set(HYPERPARAMETERS)) == len(HYPERPARAMETERS)
    assert set(HYPERPARAMETERS) == {name for name in LIMITS if name.startswith("clip_")}


@pytest.mark.parametrize(
    "name, given, message",
    [
        ("nrom", {}, r"clipper='nrom' is not known: use one of .*did you mean norm"),
        (3, {}, r"clipper=3 is not known: use one of agc"),
        ("agc", {"clip_norm": 1}, r"clipper\.agc key='clip_norm' is not known: use one of clip_f"),
        ("norm", {"clip_norm": -1}, r"clipper\.clip_norm=-1 is out of range: use .*> 0"),
        ("value", {"clip_value": 0}, r"clipper\.clip_value=0 is out of range: use .*> 0"),
        ("value", {"clip_value": -2}, r"clipper\.clip_value=-2 is out of range"),
        ("value", {"clip_value": None}, r"clipper\.clip_value=None cannot be switched off"),
        ("agc", {"clip_factor": -0.1}, r"clipper\.clip_factor=-0\.1 is out of range"),
        ("agc", {"exclude": "head.*"}, r"clipper\.exclude='head\.\*' is no list of patterns: give"),
        ("autoclip", {"clip_percentile": 100}, r"clip_percentile=100 is out .*> 0 and < 100"),
        ("autoclip", {"clip_percentile": 0}, r"clip_percentile=0 is out of range"),
        ("zclip", {"clip_z": math.inf}, r"clipper\.clip_z=inf is out of range"),
        ("zclip", {"clip_alpha": 1}, r"clipper\.clip_alpha=1 is out of range: use .*> 0 and < 1"),
    ],
)
def test_what_cannot_be_built_says_why_in_one_line(name, given, message):
    with pytest.raises(BadInput, match=message) as caught:
        build(name, **given)
    assert "\n" not in str(caught.value)
