"""Early warnings: said when the cause shows, once, and not of what is well."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stabsweep.guard import GradientGuard
from stabsweep.guard.trends import Look, Trends
from tests.guard.runs import batches, make_net, mse


def read(looks: list[Look]) -> list[tuple[int, str]]:
    """The step and the kind of every warning."""
    trends = Trends()
    return [(step, warned.kind) for step, look in enumerate(looks) for warned in trends.read(look)]


def test_an_update_that_doubles_is_seen_before_norm_and_loss() -> None:
    """The update doubles at step 40, the norm at 42, the loss would at 44: the alarm is at 40."""
    looks = [
        Look(1.0 if k < 42 else 2.0, lr=0.1, update_ratio=1e-3 * (1 if k < 40 else 2))
        for k in range(44)
    ]
    assert read(looks) == [(40, "update_ratio")]


def test_a_warmup_and_a_schedule_are_no_growth() -> None:
    lrs = [*np.linspace(1e-5, 1e-2, 100), *np.linspace(1e-2, 1e-4, 100)]
    assert read([Look(1.0, lr=lr, update_ratio=lr * 0.3) for lr in lrs]) == []


def test_noise_is_no_growth() -> None:
    draw = np.random.default_rng(0)
    norms = np.exp(0.5 * draw.standard_normal(2000))
    assert read([Look(n, lr=0.1, update_ratio=1e-3 * n) for n in norms]) == []


def test_a_step_as_long_as_the_weights_is_said_at_once() -> None:
    """No past is needed for it; and between two close looks it is not over."""
    ratios = [2.1, *[math.nan] * 9] * 2 + [0.1, 2.1]
    looks = [Look(1.0, lr=0.1, update_ratio=ratio) for ratio in ratios]
    assert read(looks) == [(0, "update_ratio"), (21, "update_ratio")]
    assert read([Look(1.0, lr=0.1, update_ratio=0.5)]) == []


def test_one_hard_batch_is_no_growth() -> None:
    assert read([Look(20.0 if k == 40 else 1.0) for k in range(60)]) == []
    assert read([Look(20.0 if k in (40, 41) else 1.0) for k in range(60)]) == [(41, "growth")]


def test_values_that_are_zero_every_other_time_break_nothing() -> None:
    """The spread of their logarithms is wider than a float."""
    values = [1e-3 * (k % 2) for k in range(80)]
    assert read([Look(value, lr=0.1, update_ratio=value) for value in values]) == []


def test_norms_that_grow_are_said_once_and_again_after_they_were_calm() -> None:
    grow = [1.15**k for k in range(60)]
    looks = [Look(n) for n in [*[1.0] * 80, *grow, *[1.0] * 100, *grow]]
    seen = read(looks)
    assert [kind for _, kind in seen] == ["growth", "growth"]
    assert 90 <= seen[0][0] < 125 and 250 < seen[1][0] < 310


def test_clipping_on_most_steps_is_said() -> None:
    seen = read([Look(1.0, clip_coef=0.5 if k % 3 else 1.0) for k in range(300)])
    assert seen == [(99, "clip")]
    assert read([Look(1.0, clip_coef=0.5 if k % 3 == 0 else 1.0) for k in range(300)]) == []


def test_attention_logits_are_flagged_for_size_and_for_doubling() -> None:
    looks = [Look(1.0, logits={"a": 8.0, "b": 20.0}) for _ in range(10)]
    looks += [Look(1.0, logits={"a": 17.0, "b": 30.0}), Look(1.0, logits={"a": 17.0, "b": 55.0})]
    assert read(looks) == [(10, "logits"), (11, "logits")]
    assert read([Look(1.0, logits={"a": 2.0**k / 8}) for k in range(6)]) == []


def test_a_rate_that_has_decayed_may_leave_weights_as_they_are() -> None:
    lrs = [1.0] * 5 + [0.4] * 5
    looks = [Look(1.0, lr=lr, unmoved={"a": 0.0 if lr == 1 else 1.0}) for lr in lrs]
    assert read(looks) == []


def test_dead_layers_and_weights_that_stand_still() -> None:
    alive, dead = (0.1, 1.0, 1e-3), (0.0, 1.0, 0.0)
    looks = [Look(1.0, layers={"a": alive, "b": alive if k < 5 else dead}) for k in range(12)]
    assert read(looks) == [(7, "dead")]
    assert read([Look(1.0, unmoved={"a": 0.9995, "b": 0.99}) for _ in range(5)]) == [(2, "stuck")]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_poisons_no_window(value: float) -> None:
    """A NaN in a rolling window would disable its limit for as long as the window is."""
    looks = [Look(1.0, lr=0.1, update_ratio=1e-3) for _ in range(30)]
    looks.insert(20, Look(value, lr=0.1, update_ratio=value))
    looks += [Look(1.0, lr=0.1, update_ratio=4e-3)]
    assert read(looks) == [(31, "update_ratio")]


def run(net: nn.Module, optimizer: torch.optim.Optimizer, count: int, **more: Any) -> list[str]:
    dtype = next(net.parameters()).dtype
    guard = GradientGuard(net, optimizer, watch_every=1, progress="off", **more)
    for batch in batches(count, dtype):
        guard.step(mse(net, batch))
    return [f"{kind}: {message}" for _, kind, message in guard.events]


def test_a_real_bfloat16_run_whose_weights_stand_still_is_told_so() -> None:
    net = make_net(torch.bfloat16)
    said = run(net, torch.optim.SGD(net.parameters(), 1e-6), 10)
    assert [text.split(":")[0] for text in said] == ["stuck", "stuck"]
    assert "of the weights of 0 as they are: the updates are rounded away" in said[0]
    net = make_net(torch.bfloat16)
    assert run(net, torch.optim.SGD(net.parameters(), 0.1), 10) == []


def test_a_real_layer_without_a_gradient_is_named() -> None:
    net = make_net()
    net[1] = nn.ReLU()
    with torch.no_grad():
        net[0].bias.fill_(-100.0)
    said = run(net, torch.optim.SGD(net.parameters(), 1e-3), 10)
    assert len(said) == 1 and "0 gets no gradient at all: its units are dead" in said[0]


def test_a_logit_that_comes_and_goes_at_its_limit_is_said_once() -> None:
    draw = np.random.default_rng(0)
    values = [8.0] * 10 + list(18 + 3 * draw.standard_normal(100)) + [45.0] * 3
    looks = [Look(1.0, logits={"a": value}) for value in values]
    steps = [step for step, _ in read(looks)]
    assert len(steps) == 2 and 10 <= steps[0] < 30 and steps[1] == 110
