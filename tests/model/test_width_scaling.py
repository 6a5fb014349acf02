"""muP: what it asks for, that it is nothing at the base width, and that rates carry over."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from stabsweep import model, sweep
from stabsweep.engine import Cohort, Loop
from stabsweep.errors import BadInput
from stabsweep.records import Trial
from stabsweep.signature import Signature
from tests.laws import assert_close, assert_same, make_setup, make_trials, train

VECTOR = Signature("vector", num_inputs=5, num_outputs=3)
TOKENS = Signature("tokens", num_inputs=11, num_outputs=11, length=8, per_step=True)
ARGS = {
    "mlp": {"name": "mlp", "depth": 3, "width": 16},
    "transformer": {"name": "transformer", "depth": 1, "width": 16, "heads": 2},
}


def made(case, seed=0, **args):
    signature = VECTOR if case == "mlp" else TOKENS
    torch.manual_seed(seed)
    return model.build(signature=signature, **{**ARGS[case], **args})


def setup_of(case, rule, dtype=torch.float64, horizon=12, batch_size=6, **args):
    setup = make_setup(case, rule, dtype=dtype, horizon=horizon, batch_size=batch_size)
    signature = setup.task.signature
    given = {**ARGS[case], **args}
    return replace(setup, build_model=lambda: model.build(signature=signature, **given))


# ------------------------------------------------------------------------------ what it asks for


def test_an_mlp_asks_for_the_table():
    mlp = made("mlp", norm="layer", width_scaling="mup", base_width=4)
    asked = {"hidden.1.weight": 0.25, "readout.weight": 0.5}
    assert mlp.lr_scales(is_adaptive=True) == asked
    rest = {name for name, _ in mlp.named_parameters()} - set(asked) - {"readout.bias"}
    assert mlp.lr_scales(is_adaptive=False) == dict.fromkeys(rest, 4.0)


@pytest.mark.parametrize("tie", [False, True])
def test_a_transformer_asks_for_the_table(tie):
    given = {"width_scaling": "mup", "base_width": 64, "tie_embedding": tie, "qk_norm": True}
    transformer = made("transformer", **given)
    hidden = {
        f"blocks.0.{part}.weight" for part in ("attention.qkv", "attention.out", "up", "down")
    }
    asked = dict.fromkeys(hidden, 4.0) | ({} if tie else {"readout.weight": 2.0})
    assert transformer.lr_scales(is_adaptive=True) == asked
    rest = {name for name, _ in transformer.named_parameters()} - set(asked) - {"readout.bias"}
    assert transformer.lr_scales(is_adaptive=False) == dict.fromkeys(rest, 0.25)


@pytest.mark.parametrize("case", ARGS)
@pytest.mark.parametrize(
    "given", [{}, {"base_width": 8}, {"width_scaling": "mup", "base_width": 16}]
)
def test_nothing_is_asked_for_where_nothing_changes(case, given):
    module = made(case, **given)
    assert module.lr_scales(True) == module.lr_scales(False) == {}


def test_a_width_that_no_layer_has_changes_nothing():
    inputs = torch.randn(4, 5)
    line, plain = made("mlp", depth=1, width_scaling="mup", base_width=2), made("mlp", depth=1)
    assert torch.equal(line(inputs), plain(inputs))
    assert line.lr_scales(True) == line.lr_scales(False) == {}


def test_the_logits_of_an_mlp_are_divided_but_not_their_bias():
    mlp, plain = made("mlp", width_scaling="mup", base_width=4), made("mlp")
    inputs = torch.randn(4, 5)
    bias = mlp.readout.bias
    torch.testing.assert_close(mlp(inputs), (plain(inputs) - bias) / 2 + bias)


def test_the_attention_of_a_transformer_is_divided_by_the_width_of_a_head():
    scaled = made("transformer", width_scaling="mup", base_width=4).blocks[0].attention
    plain = made("transformer").blocks[0].attention
    # Logits are linear in the queries: ours by 1 / d_head, twice the root of which is 4.
    with torch.no_grad():
        plain.qkv.weight[:16] *= 1 / 2
        plain.qkv.bias[:16] *= 1 / 2
    x_BLD = torch.randn(3, 8, 16)
    torch.testing.assert_close(scaled(x_BLD), plain(x_BLD))


def test_a_tied_table_is_as_large_at_every_width():
    tables = [
        made("transformer", width=width, tie_embedding=True, width_scaling="mup", base_width=16)
        for width in (16, 256)
    ]
    bounds = [table.embedding.weight.abs().max().item() for table in tables]
    assert bounds == pytest.approx([0.25, 0.25], rel=0.05)
    assert [table.divisor for table in tables] == [1, 16]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"width_scaling": "mu"}, r"model\.width_scaling='mu' is not known: use one of mup, stand"),
        ({"width_scaling": True}, r"model\.width_scaling=True is not known"),
        ({"base_width": 0}, r"model\.base_width=0 is not allowed: use a whole number >= 1"),
    ],
)
@pytest.mark.parametrize("case", ARGS)
def test_names_the_argument_that_is_wrong(case, given, message):
    with pytest.raises(BadInput, match=message):
        made(case, **given)


# ------------------------------------------------------------------------------ in training


@pytest.mark.parametrize("rule", ["sgd", "adam", "muon"])
@pytest.mark.parametrize("case", ARGS)
@pytest.mark.parametrize("kind", [Cohort, Loop])
def test_at_the_base_width_it_is_bitwise_nothing(kind, case, rule):
    more = [{}] if case == "mlp" else [{"tie_embedding": True}, {"qk_norm": True, "norm": "post"}]
    trials = make_trials({"lr": 0.01}, {"lr": 0.003, "init": "xavier", "warmup_steps": 3})
    for args in more:
        plain = train(kind(setup_of(case, rule, torch.float32, **args), 2), trials)
        mup = {"width_scaling": "mup", "base_width": 16, **args}
        found = train(kind(setup_of(case, rule, torch.float32, **mup), 2), trials)
        assert_same(found, plain, bitwise=True)


@pytest.mark.parametrize("rule", ["sgd", "adamw", "muon"])
@pytest.mark.parametrize("case", ARGS)
def test_cohort_and_loop_agree(case, rule):
    setup = setup_of(case, rule, horizon=30, width_scaling="mup", base_width=4)
    trials = make_trials({"lr": 0.003}, {"lr": 0.01, "weight_decay": 0.3, "clip_norm": 0.5})
    together = train(Cohort(setup, 2), trials)
    for trial in trials:
        assert_close(together[trial.number], train(Loop(setup), [trial])[trial.number])


def moved(case, rule, width, lr, **args):
    """Root mean square by which the outputs change in four steps of a trial, over four seeds."""
    setup = setup_of(case, rule, horizon=4, batch_size=32, width=width, **args)
    build_model, modules, squares = setup.build_model, [], []
    setup = replace(setup, build_model=lambda: modules.append(build_model()) or modules[-1])
    batch = setup.task.batch(torch.arange(32))
    inputs = batch[0]
    for seed in range(4):
        trial = Trial(0, {"lr": lr}, seed)
        engine = Loop(setup)
        engine.admit([trial])
        module = modules[-1]
        before = module(inputs).detach()
        engine.advance(4)
        squares.append((module(inputs).detach() - before).square().mean())
    return math.sqrt(np.mean(squares))


@pytest.mark.parametrize("rule, lr", [("sgd", 0.01), ("adam", 1e-3), ("muon", 1e-3)])
@pytest.mark.parametrize("case", ["mlp", "transformer", "tied"])
def test_outputs_move_alike_at_every_width(case, rule, lr):
    # The coordinate check of arXiv 2203.03466, appendix D.1.
    tie = {"tie_embedding": True} if case == "tied" else {}
    case, width = ("mlp", 256) if case == "mlp" else ("transformer", 128)
    narrow, wide = moved(case, rule, 32, lr, **tie), moved(case, rule, width, lr, **tie)
    scaled = moved(case, rule, width, lr, width_scaling="mup", base_width=32, **tie)
    assert wide > 2 * narrow
    assert 1 / 1.5 < scaled / narrow < 1.5


def test_the_best_rate_carries_over_and_the_edge_stays_nearer():
    def found(width_scaling, widths):
        given = {"depth": 4, "activation": "tanh", "base_width": 32}
        result = sweep(
            {"name": "mlp", "width_scaling": width_scaling, **given},
            "digits",
            {"lr": {"low": 1e-3, "high": 1.0}, "width": {"values": widths, "to": "model"}},
            "adam",
            horizon=40,
            num_trials=13 * len(widths),
            seeds=1,
            device="cpu",
            watcher="off",
        )
        return [np.log10([row.best.lr, row.edge.lr]) for row in result.region.rows]

    narrow, wide = found("standard", [32, 256])
    (scaled,) = found("mup", [256])
    # The rates lie 0.25 decades apart.
    best, edge = np.abs(scaled - narrow)
    assert best < 0.3 and edge < 0.4
    best, edge = narrow - wide
    assert best > 0.4 and edge > 0.4
