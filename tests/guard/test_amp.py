"""Mixed precision: unscale once, skip right, tell overflow from failure; all on the CPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from stabsweep.errors import BadInput
from stabsweep.guard import Cause, GradientGuard, Outcome
from tests.guard.runs import NAN, batches, make_net, mse, same, weights


def scaler(**more: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **more)


def one_weight(gradient: list[float], lr: float = 1.0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(len(gradient)))
    return model, torch.optim.SGD(model.parameters(), lr)


def test_clipping_sees_the_true_gradient() -> None:
    """[0.3, 0.4] at scale 65536 has a norm of 0.5, not of 32768: nothing is clipped."""
    model, optimizer = one_weight([0.3, 0.4])
    guard = GradientGuard(model, optimizer, clip_norm=1.0, scaler=scaler(), progress="off")
    assert guard.step((model.weight * torch.tensor([0.3, 0.4])).sum()).is_stepped
    torch.testing.assert_close(model.weight.detach(), torch.tensor([-0.3, -0.4]))
    line = guard._attempts.journal.columns
    assert line["grad_norm"][0] == pytest.approx(0.5) and line["clip_coef"][0] == 1.0


def test_an_overflow_is_a_skip_of_the_scaler_and_no_failure() -> None:
    """The first iteration at a scale that is far too high: skipped, halved, then trained."""
    model, optimizer = one_weight([1.0])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    own = scaler(init_scale=2.0**127)
    guard = GradientGuard(
        model, optimizer, scaler=own, scheduler=scheduler, clip_norm=1.0, progress="off"
    )
    seen = [guard.step((model.weight * 4).sum()) for _ in range(4)]
    assert seen == [Outcome.SKIPPED_OVERFLOW] * 2 + [Outcome.STEPPED] * 2
    assert own.get_scale() == 2.0**125
    assert guard.num_steps == 2 and scheduler.last_epoch == 2
    assert guard.diagnosis is None and not guard.events
    verdict = guard.verdict()
    assert verdict is not None and verdict.overflows == 2


def test_the_next_iteration_works_after_a_skip() -> None:
    """A skip that calls neither step nor update makes the next unscale raise."""
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    own = scaler(init_scale=1024.0)
    guard = GradientGuard(net, optimizer, scaler=own, skip_outliers=10.0, progress="off")
    for batch in batches(40):
        assert guard.step(mse(net, batch)).is_stepped
    batch = next(batches(1))
    before = weights(net)
    assert guard.step(1e4 * mse(net, batch)) is Outcome.SKIPPED_OUTLIER
    assert same(before, weights(net)) and own.get_scale() == 1024.0
    assert guard.step(mse(net, batch)).is_stepped
    assert guard.step(mse(net, batch) * NAN) is Outcome.SKIPPED_NOT_FINITE
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.LOSS
    assert guard.step(mse(net, batch)).is_stepped


def test_a_second_unscale_is_refused() -> None:
    model, optimizer = one_weight([1.0])
    own = scaler()
    guard = GradientGuard(model, optimizer, scaler=own, progress="off")
    guard.backward(model.weight.sum())
    own.unscale_(optimizer)
    with pytest.raises(BadInput, match="leave unscaling to the guard"):
        guard.update()


def test_a_scale_that_collapses_stops_the_run() -> None:
    """Sixteen overflows of twenty: the loss still looks normal."""
    model, optimizer = one_weight([1.0])
    guard = GradientGuard(model, optimizer, scaler=scaler(init_scale=2.0**127), progress="off")
    seen = [guard.step(((model.weight + 1) * 4).sum())]
    while seen[-1] is not Outcome.STOPPED and len(seen) < 30:
        loss = ((model.weight + 1) * 1e38).sum() * 1e-38
        seen.append(guard.step(loss * 1e38))
    assert len(seen) == 16
    assert "the loss scale has collapsed to" in guard.reason
    assert "16 of the last 16 attempts overflowed" in guard.reason
    verdict = guard.verdict()
    assert verdict is not None and verdict.verdict.label == "diverged"


def test_a_scaler_that_is_switched_off_is_no_scaler() -> None:
    model, optimizer = one_weight([1.0])
    guard = GradientGuard(model, optimizer, scaler=scaler(enabled=False), progress="off")
    assert guard.step((model.weight * math.inf).sum()) is Outcome.SKIPPED_NOT_FINITE


def test_an_eps_that_float16_cannot_hold_is_said_before_and_after() -> None:
    """Weights of 1.0, a gradient of 0, eps 1e-8: NaN after the first update."""
    model = nn.Module()
    model.weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=False)
    guard = GradientGuard(model, optimizer, progress="off")
    guard.step((model.weight * 0).sum())
    assert "weight is float16, where eps=1e-08 is 0" in guard.events[0][2]
    assert not torch.isfinite(model.weight).any()
    assert guard.step((model.weight * 0).sum()) is Outcome.STOPPED
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.NUMERICS
    for dtype, eps in ((torch.float16, 1e-6), (torch.bfloat16, 1e-8), (torch.float32, 1e-8)):
        quiet = nn.Module()
        quiet.weight = nn.Parameter(torch.ones(4, dtype=dtype))
        own = torch.optim.Adam(quiet.parameters(), 1e-3, eps=eps)
        guard = GradientGuard(quiet, own, progress="off")
        guard.step((quiet.weight * 0).sum())
        assert not guard.events and torch.isfinite(quiet.weight).all()


def test_half_precision_overflow_is_found_under_autocast() -> None:
    """A product beyond 65504 in float16: the pass that is looked at again is autocast as well."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).float()

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), Wide())
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    guard = GradientGuard(net, optimizer, progress="off")
    x = torch.randn(8, 4)
    for size in (1.0, 1e5):
        with torch.autocast("cpu", torch.float16):
            loss = net[1](net[0](x)).mean() if size == 1 else net(x * 1e4).mean()
        outcome = guard.step(loss)
        if size == 1:
            assert outcome.is_stepped
            with torch.no_grad():
                net[1].linear.weight.mul_(1e3)
    assert outcome is Outcome.SKIPPED_NOT_FINITE
    assert guard.diagnosis is not None
    assert guard.diagnosis.cause is Cause.FORWARD
    assert guard.diagnosis.module == "1.linear"
