"""The guard: the order of a step, what is skipped, and what it says of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stabsweep.errors import BadInput
from stabsweep.guard import Cause, GradientGuard, Outcome, TrainingStopped
from tests.guard.runs import INF, NAN, Training, batches, make_net, mse, same, weights

OPTIMIZERS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr),
    "foreach": lambda p, lr: torch.optim.AdamW(p, lr=lr, foreach=True),
    "groups": lambda p, lr: torch.optim.AdamW([{"params": [q], "lr": lr} for q in p]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_without_incidents_is_the_plain_loop_bit_by_bit(name: str) -> None:
    net = make_net()
    optimizer = OPTIMIZERS[name](net.parameters(), 1e-2)
    for batch in batches(40):
        optimizer.zero_grad()
        mse(net, batch).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    watched = Training(OPTIMIZERS[name])
    assert set(watched.run(40)) == {Outcome.STEPPED}
    assert same(weights(net), weights(watched.net))


@pytest.mark.parametrize(
    ("where", "cause", "named"),
    [
        ("data", Cause.DATA, "batch[0] (1 NaN of 64 entries"),
        ("target", Cause.DATA, "batch[1] (1 Inf of 16 entries"),
        ("forward", Cause.FORWARD, "first in 2 (Middle): output (128 Inf of 128 entries"),
        ("gradient", Cause.GRADIENT, "gradient of 3.weight"),
    ],
)
def test_a_failure_is_named_and_leaves_no_trace(where: str, cause: Cause, named: str) -> None:
    """As if the batch had not been there: weights and moments, bit by bit."""
    broken, whole = Training(), Training()
    outcomes = broken.run(20, {12: where})
    assert outcomes[12] is Outcome.SKIPPED_NOT_FINITE
    assert outcomes[:12] + outcomes[13:] == [Outcome.STEPPED] * 19
    found = broken.guard.diagnosis
    assert found is not None and found.cause is cause
    assert named in str(found)
    assert broken.guard.num_steps == 19 and broken.guard.num_attempts == 20
    for number, batch in enumerate(batches(20)):
        if number != 12:
            whole.guard.step(mse(whole.net, batch))
    assert same(weights(broken.net), weights(whole.net))
    for one, other in zip(
        broken.optimizer.state.values(), whole.optimizer.state.values(), strict=True
    ):
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_the_first_bad_layer_is_found_backward_too() -> None:
    """The square root of zero: finite forward, infinite slope; parameters in their order."""

    class Root(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.sqrt(inputs * 0)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5), Root(), nn.Linear(5, 1))
    guard = GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), progress="off")
    x = torch.randn(8, 3)
    net[2] = nn.Identity()
    assert guard.step(net(x).mean()).is_stepped
    net[2] = Root()
    assert guard.step(net(x).mean()) is Outcome.SKIPPED_NOT_FINITE
    found = guard.diagnosis
    assert found is not None and found.cause is Cause.GRADIENT and found.module is None
    assert [bad.name for bad in found.gradients] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert all(bad.share == 1 for bad in found.gradients)


def test_gradients_are_tested_before_they_are_clipped() -> None:
    """[NaN, 1] and [2]: torch's clipping makes all of them NaN, so that nothing can be named."""
    for bad in (NAN, INF):
        one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
        model = nn.Module()
        model.one, model.other = one, other
        optimizer = torch.optim.SGD([one, other], 1.0)
        guard = GradientGuard(model, optimizer, clip_norm=1.0, policy="warn", progress="off")
        loss = (one * torch.tensor([bad, 1.0])).sum() + 2 * other.sum()
        # The product of a zero weight and an infinity is not finite either: so is the loss.
        guard.backward(loss)
        guard.before_step()
        assert torch.equal(one.grad[1], torch.tensor(1.0)) and float(other.grad) == 2.0
        assert guard.diagnosis is not None
        assert [found.name for found in guard.diagnosis.gradients] == ["one"]


def test_a_norm_that_float32_cannot_square_is_clipped_right() -> None:
    """Two entries of 1e20: torch reads an infinite norm and clips all to nothing."""
    weight = nn.Parameter(torch.zeros(2))
    model = nn.Module()
    model.weight = weight
    guard = GradientGuard(model, torch.optim.SGD([weight], 1.0), clip_norm=1.0, progress="off")
    assert guard.step((weight * 1e20).sum()).is_stepped
    torch.testing.assert_close(weight.detach(), torch.full((2,), -(0.5**0.5)))
    assert guard._attempts.journal.columns["grad_norm"][0] == pytest.approx(2**0.5 * 1e20)


def test_norms_and_coefficients_are_those_before_clipping(tmp_path: Path) -> None:
    """1.22 against a limit of 1 is clipped, 0.15 is not; the share is told."""
    weight = nn.Parameter(torch.zeros(1))
    model = nn.Module()
    model.weight = weight
    with GradientGuard(
        model, torch.optim.SGD([weight], 1.0), clip_norm=1.0, log=tmp_path, tensorboard=False
    ) as guard:
        for size in (1.22, 0.15):
            guard.step(weight.sum() * size)
    columns = guard._attempts.journal.columns
    assert columns["grad_norm"] == pytest.approx([1.22, 0.15])
    assert columns["clip_coef"] == pytest.approx([1 / 1.22, 1.0])
    assert (columns["clip_coef"] < 1).tolist() == [True, False]
    assert guard.close()["clip_share"] == 0.5


def test_a_skip_is_bounded() -> None:
    training = Training(max_consecutive_skips=3)
    outcomes = training.run(20, dict.fromkeys(range(10, 20), "data"))
    skipped = [Outcome.SKIPPED_NOT_FINITE] * 2
    assert outcomes == [*[Outcome.STEPPED] * 10, *skipped, Outcome.STOPPED]
    assert "3 attempts in a row were skipped (max_consecutive_skips)" in training.guard.reason
    with pytest.raises(TrainingStopped, match="in a row"):
        training.run(1)


def test_skips_with_steps_in_between_are_not_in_a_row() -> None:
    training = Training(max_consecutive_skips=3)
    training.run(20, dict.fromkeys((2, 3, 5, 6, 8, 9), "data"))
    assert not training.guard.is_stopped and training.guard.num_steps == 14


def test_the_scheduler_goes_on_after_steps_alone() -> None:
    training = Training(
        make_scheduler=lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5**step)
    )
    training.run(4, {1: "data", 2: "gradient"})
    assert training.guard.num_steps == 2
    assert training.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 4)


def test_policies(tmp_path: Path) -> None:
    stopped = Training(policy="stop")
    assert stopped.run(20, {5: "forward"})[-1] is Outcome.STOPPED and len(stopped.outcomes) == 6
    warned = Training(policy="warn")
    assert set(warned.run(8, {5: "gradient"})) == {Outcome.STEPPED}
    assert any(not torch.isfinite(w).all() for w in weights(warned.net))
    assert [kind for _, kind, _ in warned.guard.events][0] == "not_finite"


def test_weights_that_are_lost_stop_a_run_that_can_only_skip() -> None:
    training = Training(policy="skip")
    training.run(3)
    with torch.no_grad():
        training.net[3].weight[0, 0] = NAN
    assert training.run(3)[-1] is Outcome.STOPPED
    assert "The weights are lost: no skip can heal them" in training.guard.reason
    assert "weight 3.weight (1 NaN of 8 entries" in training.guard.reason


def test_nothing_trained_yet_is_not_the_learning_rate() -> None:
    """A fully masked sequence, say: not finite at step 0 whatever the rate."""
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    optimizer = torch.optim.SGD(attention.parameters(), 1e-3)
    guard = GradientGuard(attention, optimizer, progress="off")
    x = torch.randn(2, 5, 8)
    is_padding = torch.tensor([[False] * 5, [True] * 5])
    # With the weights asked for, the second sample's are NaN; the loss is of the first alone.
    output, _ = attention(x, x, x, key_padding_mask=is_padding, need_weights=True)
    assert guard.step(output[0].pow(2).mean()) is Outcome.SKIPPED_NOT_FINITE
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.START
    assert "Not the learning rate" in str(guard.diagnosis)


def test_a_rate_beyond_the_edge_is_called_so() -> None:
    training = Training(torch.optim.SGD, lr=30.0, clip_norm=None)
    training.run(300)
    found = training.guard.diagnosis
    assert found is not None and found.cause is Cause.LEARNING_RATE, found
    assert "had grown from" in str(found) or "moved the weights" in str(found)


def test_the_loss_function_is_told_from_the_model() -> None:
    net = make_net()
    guard = GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), progress="off")
    x, _ = next(batches(1))
    assert guard.step(net(x).pow(2).mean()).is_stepped
    guard.step(torch.log(net(x).pow(2) * 0).mean())
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.LOSS


def test_gradients_accumulate_as_in_one_batch() -> None:
    """Four batches of 16 are one of 64; the steps, and the scheduler's, are those of windows."""
    one, many = make_net(), make_net()
    x, y = (torch.cat(parts) for parts in zip(*batches(8), strict=True))
    guards = [
        GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), accumulate=n, progress="off")
        for net, n in ((one, 1), (many, 4))
    ]
    for half in range(2):
        guards[0].step(mse(one, (x[half * 64 : half * 64 + 64], y[half * 64 : half * 64 + 64])))
    seen = [guards[1].step(mse(many, batch)) for batch in batches(8)]
    assert seen == ([Outcome.ACCUMULATED] * 3 + [Outcome.STEPPED]) * 2
    assert guards[1].num_steps == guards[1].num_attempts == 2
    for a, b in zip(weights(one), weights(many), strict=True):
        torch.testing.assert_close(a, b)


def test_a_window_that_is_not_full_can_be_stepped_and_a_bad_batch_in_it_is_named() -> None:
    net = make_net()
    guard = GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), accumulate=4, progress="off")
    for number, (x, y) in enumerate(batches(6)):
        if number == 5:
            x[0, 0] = NAN
        guard.step(mse(net, (x, y)), (x, y))
    assert guard.num_attempts == 1
    assert guard.update() is Outcome.SKIPPED_NOT_FINITE
    assert guard.diagnosis is not None and guard.diagnosis.micro_batch == 1
    assert "batch 2 of 2 of window 1 (after 1 step)" in guard.events[-1][2]


def test_an_outlier_is_skipped_where_that_is_asked_for() -> None:
    training = Training(skip_outliers=20.0, clip_norm=None)
    training.run(60)
    before = weights(training.net)
    batch = next(batches(1))
    assert training.guard.step(1e4 * mse(training.net, batch)) is Outcome.SKIPPED_OUTLIER
    assert same(before, weights(training.net))
    assert training.guard.step(mse(training.net, batch)).is_stepped


def test_sparse_embeddings_and_shared_weights_are_watched() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(10, 4, sparse=True)
    tied = nn.Linear(4, 4, bias=False)
    model = nn.ModuleDict({"table": table, "one": tied, "two": tied})
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    guard = GradientGuard(model, optimizer, clip_norm=1e-3, progress="off")
    index = torch.tensor([1, 1, 3])
    before = table.weight.detach().clone()
    assert guard.step(tied(tied(table(index))).pow(2).sum()).is_stepped
    moved = table.weight.detach() - before
    assert moved[[1, 3]].abs().sum() > 0 and moved[[0, 2]].abs().sum() == 0
    total = math.sqrt(float(moved.pow(2).sum() + (tied.weight.grad is not None)))
    assert total <= 0.1 * 1e-3 * 1.01
    assert guard.step((table(index) * NAN).sum()) is Outcome.SKIPPED_NOT_FINITE
    assert guard.diagnosis is not None
    assert [bad.name for bad in guard.diagnosis.gradients] == ["table.weight"]
    # Of a tied weight one name is watched; the last finite values of the table are as they were.
    assert list(guard._attempts.parameters()) == ["table.weight", "one.weight"]


def test_the_forward_pass_that_is_looked_at_again_changes_nothing() -> None:
    """Dropout draws as before, BatchNorm's statistics and the generators stay as they are."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    guard = GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), progress="off")
    x, y = next(batches(1))
    guard.step(mse(net, (x, y)))
    loss = mse(net, (x, y)) * NAN
    buffers = [b.clone() for b in net.buffers()]
    state = torch.get_rng_state()
    assert guard.step(loss) is Outcome.SKIPPED_NOT_FINITE
    assert same(buffers, list(net.buffers()))
    assert torch.equal(state, torch.get_rng_state())
    assert guard.diagnosis is not None and guard.diagnosis.cause is Cause.LOSS


def test_checks_that_lie_apart_find_a_failure_later_and_go_back(tmp_path: Path) -> None:
    training = Training(policy="rollback", check_every=4, checkpoint_every=5, log=tmp_path, lr=1e-2)
    outcomes = training.run(20, {9: "gradient"})
    assert outcomes[9] is Outcome.STEPPED, "nobody looked"
    assert outcomes[12] is Outcome.ROLLED_BACK
    assert training.guard.num_steps == 5 + 7
    assert all(torch.isfinite(w).all() for w in weights(training.net))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"clip_norm": 0.0}, "clip_norm=0.0 is out of range"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 is out of range"),
        ({"clip_norm": 1.0, "clipper": "agc"}, "are two clippers: give one"),
        ({"policy": "mend"}, "policy='mend' is not known"),
        ({"policy": "rollback"}, "needs a folder for its checkpoints: give log=DIR"),
        ({"policy": "skip", "check_every": 10}, "nothing can be skipped: use policy=rollback"),
        ({"accumulate": 0}, "accumulate=0 is not allowed"),
        ({"skip_outliers": 0.5}, "skip_outliers=0.5 is not allowed: use a number > 1"),
        ({"progress": "loud"}, "progress='loud' is not known"),
        ({"objects": {"loader": [1]}}, "objects['loader']=list has no state_dict"),
        ({"scheduler": "cosine"}, "scheduler=str has no step"),
        ({"scaler": 1.0}, "scaler=float is no torch.amp.GradScaler"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line(given: dict[str, Any], said: str) -> None:
    net = make_net()
    with pytest.raises(BadInput) as caught:
        GradientGuard(net, torch.optim.SGD(net.parameters(), 0.1), **given)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_optimizers_and_losses_of_other_kinds_are_refused() -> None:
    net = make_net()
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for optimizer, said in (
        ([sgd], "make one guard for each optimizer"),
        ({"a": sgd}, "make one guard for each optimizer"),
        (torch.optim.LBFGS(net.parameters()), "needs a closure"),
    ):
        with pytest.raises(BadInput, match=said):
            GradientGuard(net, optimizer)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="needs a validation loss"):
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd)
        GradientGuard(net, sgd, scheduler=plateau)
    guard = GradientGuard(net, sgd, progress="off")
    x, y = next(batches(1))
    for loss in (1.0, net(x), mse(net, (x, y)).detach()):
        with pytest.raises(BadInput, match="is no scalar that depends on the parameters"):
            guard.step(loss)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no parameter of the optimizer has a gradient"):
        guard.step(make_net()(x).mean())


def test_sharded_parameters_are_refused() -> None:
    class FullyShardedDataParallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

    model = FullyShardedDataParallel()
    with pytest.raises(BadInput, match=r"supports whole parameters \(single process, DDP\)"):
        GradientGuard(model, torch.optim.SGD(model.parameters(), 0.1))


@pytest.mark.parametrize("policy", ["skip", "stop", "rollback"])
def test_a_loss_that_cannot_come_back_is_said_by_the_judge_of_the_sweeps(
    policy: str, tmp_path: Path
) -> None:
    """Far above its start and growing, yet finite."""
    training = Training(
        torch.optim.SGD, lr=1.0, total_steps=100, policy=policy, log=tmp_path, clip_norm=None
    )
    net = training.net
    training.run(10)
    outcomes, kinds = [], []
    expected = {"skip": "lost", "stop": "stopped", "rollback": "rollback"}[policy]
    for number, (x, y) in enumerate(batches(60)):
        outcomes.append(training.guard.step(mse(net, (x, y + 1e5 * 2.0**number))))
        kinds = [kind for _, kind, _ in training.guard.events]
        if expected in kinds:
            break
    assert expected in kinds
    # The early warning has come before.
    assert kinds[0] == "update_ratio"
    message = next(m for _, kind, m in training.guard.events if kind == expected)
    assert message.startswith("Loss stayed above 1.0e6 times its start")
    last = {"skip": Outcome.STEPPED, "stop": Outcome.STOPPED, "rollback": Outcome.ROLLED_BACK}
    assert outcomes[-1] is last[policy]
