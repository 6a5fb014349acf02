"""Muon against torch's own, the singular vectors it should find, and AdamW for the rest."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from stabsweep.engine import PRECISIONS, Cohort, Loop, build
from stabsweep.errors import BadInput
from stabsweep.model.transformer import Transformer
from stabsweep.optimizer import build as build_rule
from stabsweep.optimizer.muon import COEFFICIENTS, PlainMuon, orthogonal
from stabsweep.records import Trial
from stabsweep.signature import Signature
from tests.laws import CASES, NAN, POINTS, assert_same, make_setup, make_trials, train

SHAPES = [
    ("embedding.weight", torch.Size((5, 3))),
    ("first.weight", torch.Size((3, 4))),
    ("first.bias", torch.Size((3,))),
    ("conv.weight", torch.Size((2, 1, 3))),
    ("second.weight", torch.Size((6, 2))),
    ("readout.weight", torch.Size((2, 2))),
]
HIDDEN = ("first.weight", "second.weight")
ROWS = [
    {},
    {"momentum": 0.0, "weight_decay": 0.0},
    {"momentum": 0.5, "beta1": 0.5, "beta2": 0.9, "eps": 1e-2, "weight_decay": 0.5},
]
SIZES = [shape.numel() for _, shape in SHAPES]
NUM_STEPS = 50
HAS_MUON = hasattr(torch.optim, "Muon")


def column(values):
    return torch.tensor([[value] for value in values], dtype=torch.float64)


def first_weights(row):
    generator = torch.Generator().manual_seed(row)
    return torch.randn(sum(SIZES), generator=generator, dtype=torch.float64)


def gradient(theta, step):
    index = torch.arange(theta.shape[-1], dtype=theta.dtype)
    return torch.sin(3 * theta + 0.7 * step + index) + 0.3 * theta * torch.cos(index)


def rate(row, step):
    return 0.02 * (row + 1) * min(1, (step + 1) / 10) * (1 + 0.1 * math.sin(step))


def stacked(rows, nesterov=True, dtype=torch.float64):
    """The weights of some rows after each step of the stacked rule: (T, rows, P)."""
    rule = build_rule("muon", nesterov=nesterov)[0].laid_out(SHAPES)
    hypers = [build_rule("muon", **ROWS[row])[1] for row in rows]
    hyper = {key: column(h[key] for h in hypers) for key in rule.defaults}
    theta_KP = torch.stack([first_weights(row) for row in rows]).to(dtype)
    state, path = rule.new_state(theta_KP), []
    for step in range(NUM_STEPS):
        lr_K1, step_K1 = column(rate(r, step) for r in rows), column(step for _ in rows)
        grad_KP = gradient(theta_KP, step)
        theta_KP = theta_KP + rule.delta(theta_KP, grad_KP, state, hyper, lr_K1, step_K1)
        path.append(theta_KP)
    return torch.stack(path)


def parameters_of(row, dtype=torch.float64):
    """The parameters of one row, by name."""
    parts = first_weights(row).to(dtype).split(SIZES)
    pairs = zip(SHAPES, parts, strict=True)
    return {name: torch.nn.Parameter(part.clone().view(shape)) for (name, shape), part in pairs}


def flat(parameters):
    return torch.cat([p.detach().reshape(-1) for p in parameters.values()])


def path_of(row, make, dtype=torch.float64):
    """The weights of one row after each step of optimizers from `torch.optim`."""
    parameters, path = parameters_of(row, dtype), []
    optimizers = make(parameters)
    for step in range(NUM_STEPS):
        grads = gradient(flat(parameters), step).split(SIZES)
        for p, grad in zip(parameters.values(), grads, strict=True):
            p.grad = grad.view(p.shape)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate(row, step)
            optimizer.step()
        path.append(flat(parameters))
    return torch.stack(path)


def from_torch(row, nesterov=True, dtype=torch.float64):
    """torch's own Muon for the hidden matrices and its AdamW for the rest."""
    given = build_rule("muon", **ROWS[row])[1]

    def make(parameters):
        hidden = [parameters[name] for name in HIDDEN]
        rest = [p for name, p in parameters.items() if name not in HIDDEN]
        decay, betas = given["weight_decay"], (given["beta1"], given["beta2"])
        return [
            torch.optim.Muon(
                hidden,
                weight_decay=decay,
                momentum=given["momentum"],
                nesterov=nesterov,
                adjust_lr_fn="match_rms_adamw",
            ),
            torch.optim.AdamW(rest, weight_decay=decay, betas=betas, eps=given["eps"]),
        ]

    return path_of(row, make, dtype)


def from_twin(row, nesterov=True, dtype=torch.float64):
    rule, hyper = build_rule("muon", nesterov=nesterov, **ROWS[row])
    return path_of(row, lambda parameters: [rule.twin(parameters, hyper)], dtype)


# ------------------------------------------------------------------------------ the rule


needs_muon = pytest.mark.skipif(not HAS_MUON, reason="torch.optim.Muon is new in torch 2.9")
alone_and_beside = pytest.mark.parametrize("rows", [[0], [1], [2], [0, 1, 2]], ids=str)
either_nesterov = pytest.mark.parametrize("nesterov", [False, True])


@needs_muon
@either_nesterov
@alone_and_beside
def test_it_agrees_with_torch_when_torch_does_not_round(rows, nesterov, monkeypatch):
    found = stacked(rows, nesterov)
    # All else of torch's code stays as it is; only the cast to bfloat16 is left out.
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    for place, row in enumerate(rows):
        expected = from_torch(row, nesterov)
        torch.testing.assert_close(found[:, place], expected, rtol=1e-10, atol=1e-10)


@needs_muon
def test_it_agrees_with_torch_to_the_digits_of_bfloat16():
    # A few steps: later the two follow gradients of weights that rounding has set apart.
    found, expected = stacked([0])[:10, 0], from_torch(0)[:10]
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


@either_nesterov
@alone_and_beside
def test_it_agrees_with_its_twin_over_50_steps(rows, nesterov):
    found = stacked(rows, nesterov)
    for place, row in enumerate(rows):
        expected = from_twin(row, nesterov)
        torch.testing.assert_close(found[:, place], expected, rtol=1e-10, atol=1e-10)


def test_it_agrees_with_its_twin_in_float32():
    found = stacked([0, 1, 2], dtype=torch.float32)
    for row in range(3):
        expected = from_twin(row, dtype=torch.float32)
        assert found.dtype == expected.dtype == torch.float32
        torch.testing.assert_close(found[:, row], expected, rtol=1e-3, atol=1e-3)


def test_all_but_hidden_matrices_get_adamw():
    given = build_rule("muon", **ROWS[2])[1]

    def make(parameters):
        betas = given["beta1"], given["beta2"]
        return [
            torch.optim.AdamW(
                parameters.values(),
                betas=betas,
                eps=given["eps"],
                weight_decay=given["weight_decay"],
            )
        ]

    expected, found = path_of(2, make)[0], stacked([2])[0, 0]
    pairs = zip(SHAPES, expected.split(SIZES), found.split(SIZES), strict=True)
    for (name, _), ours, theirs in pairs:
        assert torch.allclose(ours, theirs, rtol=1e-12) == (name not in HIDDEN), name


@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (5, 5), (1, 6), (6, 1)], ids=str)
def test_a_step_keeps_the_singular_vectors_and_evens_out_the_values(shape):
    matrices_KMN = torch.randn(3, *shape, dtype=torch.float64)
    u, s, v = torch.linalg.svd(matrices_KMN, full_matrices=False)
    a, b, c = COEFFICIENTS
    s = s / matrices_KMN.norm(dim=(1, 2))[:, None]
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    found = orthogonal(matrices_KMN)
    torch.testing.assert_close(found, u @ s.diag_embed() @ v, rtol=0, atol=1e-10)
    # The iteration begins at the norm, so a value of a hundredth of it or more is near 1.
    assert ((s > 0.6) & (s < 1.25)).all()


def test_a_step_is_as_long_as_those_of_adamw():
    # arXiv 2502.16982, section 2.2: root mean square 0.2 at full rank, whatever the shape.
    for shape in ((64, 64), (32, 128), (128, 32)):
        rule, hyper = build_rule("muon", weight_decay=0.0)
        rule = rule.laid_out([("w", torch.Size(shape))])
        theta_KP = torch.zeros(1, math.prod(shape))
        grad_KP = 1e-3 * torch.randn(1, math.prod(shape))
        columns = {key: column([value]) for key, value in hyper.items()}
        state = rule.new_state(theta_KP)
        found = rule.delta(theta_KP, grad_KP, state, columns, column([1.0]), column([0]))
        assert found.square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)


def test_each_buffer_holds_what_it_serves_and_nothing_else():
    state = build_rule("muon")[0].laid_out(SHAPES).new_state(torch.zeros(3, sum(SIZES)))
    num_hidden = sum(shape.numel() for name, shape in SHAPES if name in HIDDEN)
    widths = {name: buffer.shape for name, buffer in state.items()}
    assert widths.pop("momentum_buffer") == (3, num_hidden)
    assert set(widths.values()) == {(3, sum(SIZES) - num_hidden)}


@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[1:2]], ids=["mixed", "matrices alone"])
def test_a_nan_stays_in_its_row(shapes):
    rule, defaults = build_rule("muon")
    rule = rule.laid_out(shapes)
    size = sum(shape.numel() for _, shape in shapes)
    theta_KP = torch.stack([first_weights(row)[:size] for row in range(3)])
    hyper = {key: column([value] * 3) for key, value in defaults.items()}
    lr_K1, step_K1, grad_KP = column([1.0] * 3), column([0] * 3), gradient(theta_KP, 0)
    calm = rule.delta(theta_KP, grad_KP.clone(), rule.new_state(theta_KP), hyper, lr_K1, step_K1)
    grad_KP[1] = math.nan
    before = theta_KP.clone()
    found = rule.delta(theta_KP, grad_KP, rule.new_state(theta_KP), hyper, lr_K1, step_K1)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2]], calm[[0, 2]])
    assert torch.equal(theta_KP, before)


def test_a_gradient_of_zero_is_no_step():
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4)), torch.zeros(2, 3, 4))
    theta = torch.nn.Parameter(torch.ones(3, 4))
    theta.grad = torch.zeros(3, 4)
    rule, hyper = build_rule("muon", weight_decay=0.0)
    rule.twin({"w": theta}, hyper).step()
    assert torch.equal(theta, torch.ones(3, 4))


# ------------------------------------------------------------------------------ what is hidden


def hidden_of(parameters, **flags):
    rule = build_rule("muon", **flags)[0]
    return {name for name, p in parameters if rule.is_hidden(name, p.shape)}


def test_embeddings_and_readout_are_not_hidden():
    tokens = Signature("tokens", 11, 11, length=8, per_step=True)
    found = hidden_of(Transformer(tokens, depth=1, width=8, heads=2).named_parameters())
    parts = ("attention.qkv", "attention.out", "up", "down")
    assert found == {f"blocks.0.{part}.weight" for part in parts}


def test_the_names_that_are_excluded_can_be_given():
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    named = list(layers.named_parameters())
    assert hidden_of(named) == {"0.weight", "2.weight"}
    assert hidden_of(named, exclude=["2.*"]) == {"0.weight"}
    usual = [("lm_head.weight", named[0][1]), ("attention.heads.0.weight", named[0][1])]
    assert hidden_of(usual) == {"attention.heads.0.weight"}


@pytest.mark.parametrize("exclude", ["readout.*", 3, [3], None])
def test_what_is_no_list_of_patterns_is_refused(exclude):
    with pytest.raises(BadInput, match=r"optimizer\.exclude=.* is no list of patterns") as caught:
        build_rule("muon", exclude=exclude)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------ in engines


def test_a_model_without_matrices_is_trained_by_adamw_alone():
    points = [{"lr": 0.01}, {"lr": 0.03, "beta1": 0.5, "weight_decay": 0.3}]
    trials = make_trials(*points)
    expected = train(Cohort(make_setup("vector", "adamw", weight_decay=0.1), 2), trials)
    assert_same(train(Cohort(make_setup("vector", "muon"), 2), trials), expected, bitwise=True)


@pytest.mark.parametrize("case", CASES)
def test_company_and_a_neighbours_nan_change_nothing(case):
    setup = make_setup(case, "muon", dtype=torch.float32)
    trials = make_trials(*POINTS["muon"])
    together = train(Cohort(setup, 8), trials)
    for trial in trials:
        assert_same(train(Cohort(setup, 1), [trial]), together, bitwise=True)
    beside = train(Cohort(setup, 8), [Trial(NAN.number, {"lr": 1e38}, 0), *trials])
    del beside[NAN.number]
    assert_same(beside, together, bitwise=True)


def test_it_trains_with_nothing_but_bfloat16():
    setup = make_setup("mlp", "muon", horizon=30)
    data = setup.task.to(setup.device, torch.bfloat16)
    setup = replace(setup, task=data, precision=PRECISIONS["bf16_pure"])
    trials = make_trials({"lr": 0.01}, {"lr": 0.02})
    engine, why = build("auto", setup, trials, 4)
    assert isinstance(engine, Cohort), why
    together = train(engine, trials)
    for trial in trials:
        alone = train(Loop(setup), [trial])[trial.number]
        found = together[trial.number]
        assert found["loss"][-1] < 0.97 * found["loss"][0]
        assert found["loss"] == pytest.approx(alone["loss"], rel=0.1)


def test_the_twin_is_one_optimizer_whose_rates_reach_both_rules():
    parameters = parameters_of(0)
    rule, hyper = build_rule("muon")
    twin = rule.twin(parameters, hyper)
    assert isinstance(twin, PlainMuon)
    groups = [[p.shape for p in group["params"]] for group in twin.param_groups]
    assert groups[0] == [dict(SHAPES)[name] for name in HIDDEN]
    assert len(groups[1]) == len(SHAPES) - len(HIDDEN)
