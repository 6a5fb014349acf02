"""Models that are compiled: watched without being compiled again and again."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.optim.swa_utils import AveragedModel

from stabsweep.guard import Cause, GradientGuard, Outcome
from stabsweep.guard.wrapping import is_compiled, unwrapped
from tests.guard.runs import NAN, Training, batches, make_net, mse, same, weights


# Of torch's own, while it looks at a tensor to be compiled for.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_is_compiled_once(in_place: bool) -> None:
    """Close looks come and go at every third step; the graph stays."""
    torch._dynamo.reset()
    net, counter = make_net(), CompileCounter()
    if in_place:
        net.compile(backend=counter)
    model = net if in_place else torch.compile(net, backend=counter)
    assert is_compiled(model) and unwrapped(model) is net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    guard = GradientGuard(model, optimizer, clip_norm=1.0, watch_every=3, progress="off")
    outcomes = []
    for number, (x, y) in enumerate(batches(20)):
        if number == 12:
            x[3, 2] = NAN
        outcomes.append(guard.step(mse(model, (x, y)), (x, y)))
    # Once for the first step, and once more where torch finds that gradients are None by then.
    assert counter.frame_count <= 2
    assert [o for o in outcomes if not o.is_stepped] == [Outcome.SKIPPED_NOT_FINITE]
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.DATA
    assert [bad.name for bad in guard.diagnosis.gradients][0] == "0.weight"
    plain = Training()
    plain.run(20, {12: "data"})
    assert same(weights(plain.net), weights(net))
    torch._dynamo.reset()


def test_a_model_that_is_watched_can_be_copied_averaged_and_pickled(tmp_path: Path) -> None:
    """Weight averaging copies the model; what is copied is not watched."""
    training = Training(log=tmp_path / "run")
    training.run(3)
    averaged = AveragedModel(training.net)
    twin = copy.deepcopy(training.net)
    torch.save(training.net, tmp_path / "whole.pt")
    loaded = torch.load(tmp_path / "whole.pt", weights_only=False)
    x, _ = next(batches(1))
    for model in (averaged, twin, loaded):
        model.train()
        torch.testing.assert_close(model(x), training.net(x))
    assert len(training.guard._attempts._calls) == 3, "of the model itself alone"
    training.run(2)
    averaged.update_parameters(training.net)
    training.guard.close()
