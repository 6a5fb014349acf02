"""What a guard does for those who build it into a framework."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from stabsweep import BadInput, GradientGuard
from stabsweep.guard.calls import Calls, Forward
from stabsweep.guard.cause import Facts
from stabsweep.guard.finding import BadTensor
from stabsweep.guard.live import LiveLine


class Parts(nn.Module):
    """A module that nobody calls: its loop calls `first`, the items of `rest`, and `count`."""

    class Count(nn.Module):
        num_calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.num_calls += 1
            return x

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 4)
        self.rest = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 1)])
        self.count = self.Count()

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(self.count(x))
        for part in self.rest:
            h = part(h)
        return h.pow(2).mean()


def test_the_parts_that_a_loop_calls_are_named_and_only_what_trains_is_repeated() -> None:
    model = Parts()
    with torch.no_grad():
        model.first.weight.fill_(1e30)
        model.rest[0][0].weight.fill_(1e30)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with GradientGuard(model, optimizer, progress="off") as guard:
        guard.step(model.loss(torch.ones(2, 3)))
        assert guard.diagnosis is not None and guard.diagnosis.module == "rest.0.0"
        # What the second part was given came from the first: the data are as they should be.
        assert guard.diagnosis.inputs == ()
        assert model.count.num_calls == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_call_that_leads_to_another_method_is_not_the_models() -> None:
    model = Parts()
    calls = Calls(model)
    model.forward = lambda x: model.loss(x)  # as Lightning does under DDP
    model(torch.ones(2, 3))
    assert len(calls) == 3 and calls.repeat(0).order == ("first",)
    calls.close()


def test_an_error_in_the_model_stays_that_error() -> None:
    class Failing(Parts):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    model = Failing()
    guard = GradientGuard(model, torch.optim.SGD(model.parameters(), lr=0.1), progress="off")
    with pytest.raises(ZeroDivisionError):
        model(torch.ones(2, 3))
    guard.close()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_counters_and_the_clippers_memory_go_on_in_another_guard() -> None:
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(x: float, **more) -> GradientGuard:
        guard = GradientGuard(model, optimizer, clipper="zclip", progress="off", **more)
        for _ in range(3):
            guard.step(model.loss(torch.full((2, 3), x)))
        guard.close()
        return guard

    kept = run(1.0).state_dict()
    again = run(1.0, resume=kept)
    assert (again.num_steps, again.num_attempts) == (6, 6)
    assert set(kept["clipper"]) == set(again.state_dict()["clipper"]) != set()
    with pytest.raises(BadInput, match="zclip|memory|state"):
        GradientGuard(model, optimizer, clip_norm=1.0, progress="off", resume=kept)


def test_what_is_unfit_is_said_in_words() -> None:
    model = Parts()
    guard = GradientGuard(model, torch.optim.SGD(model.parameters(), lr=0.1), progress="off")
    assert guard.unfit() == ""
    with torch.no_grad():
        model.first.bias[0] = math.nan
    assert "first.bias" in guard.unfit()
    guard.close()


def test_the_rank_that_saw_the_cause_is_heard() -> None:
    bad = BadTensor("w", 1, 0, 1)
    spread = Facts(1, True, {}, gradients=[bad])
    loss = Facts(1, False, {}, gradients=[bad], rank=1)
    module = Facts(1, False, {}, gradients=[bad], forward=Forward(module="a"), rank=2)
    assert [facts.num_clues for facts in (spread, loss, module)] == [0, 1, 2]


def test_events_alone_are_shown_beside_somebody_elses_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = LiveLine("events")
    assert not line.is_due
    line.say("something happened")
    assert capsys.readouterr().err == "something happened\n"
