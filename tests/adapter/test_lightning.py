"""The guard in the real Lightning, on the CPU."""

from __future__ import annotations

import importlib
import logging
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from stabsweep import BadInput, Outcome

pytestmark = [
    # Lightning's own, whenever it looks at a loader: torch has renamed what it asks for.
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    # Our loaders have no workers, on purpose: the data are twelve small tensors.
    pytest.mark.filterwarnings("ignore:The '.*dataloader' does not have many workers"),
    # The data set is shorter than Lightning's default interval of logging.
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    # A second fit writes beside what the first wrote.
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]

pl = importlib.import_module("lightning.pytorch")
LightningGuard = importlib.import_module("stabsweep.adapter.lightning").LightningGuard
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

STEPS = 12
MARK = 50.0
"""An input from which the second part of the module makes what is not finite."""


class Numbers(Dataset):
    def __init__(self, nan_at: tuple[int, ...] = (), mark_at: tuple[int, ...] = ()) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = 3 * torch.randn(STEPS, 4, 8, generator=generator)
        self.y = torch.randn(STEPS, 4, 1, generator=generator)
        self.x[list(nan_at), 1, 2] = math.nan
        self.x[list(mark_at), 0, 0] = MARK

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[i], self.y[i]


class Fragile(nn.Module):
    """A layer whose output is infinite for an input beyond `MARK - 1`, though it is finite."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / (x.abs().amax() < MARK - 1).float()


class Module(pl.LightningModule):
    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.ModuleList([nn.Linear(8, 8), Fragile()])
        self.head = nn.Sequential(nn.Tanh(), nn.Linear(16, 1))
        self.lr = lr
        self.seen: list[tuple[float, dict[str, torch.Tensor]]] = []
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        h = self.body[1](x + self.body[0](x))
        loss = nn.functional.mse_loss(self.head(h), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def on_train_batch_end(self, *_: Any) -> None:
        optimizer = self.trainer.optimizers[0]
        state = {name: value.clone() for name, value in self.state_dict().items()}
        for i, kept in optimizer.state_dict()["state"].items():
            state.update({f"{i}.{name}": value.clone() for name, value in kept.items()})
        self.seen.append((optimizer.param_groups[0]["lr"], state))


def fit(module: Any, data: Any = None, *callbacks: Any, **more: Any) -> Any:
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary"), False)
    given = {"logger": False, "max_epochs": 1, "enable_checkpointing": False, **quiet, **more}
    ckpt_path = given.pop("ckpt_path", None)
    trainer = pl.Trainer(accelerator="cpu", callbacks=list(callbacks), **given)
    # The path is of our own making.
    trainer.fit(
        module,
        DataLoader(data or Numbers(), batch_size=None),
        ckpt_path=ckpt_path,
        weights_only=False,
    )
    return trainer


def guarded(**options: Any) -> Any:
    return LightningGuard(**{"progress": "off", **options})


def is_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def rates(module: Module) -> list[float]:
    return [round(module.lr / lr - 1) for lr, _ in module.seen]


@pytest.mark.parametrize(
    "more",
    [
        {"gradient_clip_val": 0.3},
        {"gradient_clip_val": 0.02, "gradient_clip_algorithm": "value"},
        {"gradient_clip_val": 0.3, "accumulate_grad_batches": 5},
        {"gradient_clip_val": 0.3, "precision": "bf16-mixed"},
        {},
    ],
    ids=["norm", "value", "accumulated", "bf16", "unclipped"],
)
def test_a_run_without_incidents_is_that_of_lightning_alone_to_the_last_bit(more: dict) -> None:
    alone, watched, guard = Module(), Module(), guarded()
    fit(alone, **more)
    fit(watched, None, guard, **more)
    assert is_same(alone.seen[-1][1], watched.seen[-1][1])
    assert [lr for lr, _ in alone.seen] == [lr for lr, _ in watched.seen]
    assert guard.guard.num_steps == math.ceil(STEPS / more.get("accumulate_grad_batches", 1))
    assert (guard.guard.clip_share > 0.5) == ("gradient_clip_val" in more)


def test_a_batch_that_is_not_finite_changes_nothing_and_is_named() -> None:
    module, guard = Module(), guarded()
    fit(module, Numbers(nan_at=(5,)), guard, gradient_clip_val=1.0)
    assert is_same(module.seen[4][1], module.seen[5][1])
    assert not is_same(module.seen[5][1], module.seen[6][1])
    assert rates(module) == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11]
    found = guard.guard.diagnosis
    assert found.cause.label == "data" and found.inputs[0].name == "batch[0]"
    assert [(at, kind) for at, kind, _ in guard.guard.events] == [
        (0, "clipping"),
        (5, "not_finite"),
    ]
    assert (guard.guard.num_steps, guard.guard.num_attempts) == (STEPS - 1, STEPS)


def test_a_layer_that_overflows_is_named_though_only_parts_of_the_module_are_called() -> None:
    module, guard = Module(), guarded()
    fit(module, Numbers(mark_at=(7,)), guard, gradient_clip_val=1.0)
    assert guard.guard.diagnosis.module == "body.1"
    assert guard.guard.diagnosis.cause.label == "forward"
    assert guard.guard.diagnosis.inputs == ()


def test_losses_are_those_of_training_step_and_a_window_is_one_attempt() -> None:
    module, guard = Module(), guarded()
    fit(module, Numbers(nan_at=(7,)), guard, accumulate_grad_batches=3)
    assert (guard.guard.num_steps, guard.guard.num_attempts) == (3, 4)
    assert guard.guard.diagnosis.micro_batch == 1
    means = torch.tensor(module.losses).reshape(4, 3).mean(dim=1)
    lines = guard.guard._attempts.journal.columns["loss"]
    torch.testing.assert_close(
        torch.as_tensor(lines, dtype=torch.float32), means, equal_nan=True, rtol=1e-6, atol=0
    )


def test_a_step_without_a_loss_is_no_attempt() -> None:
    class Choosy(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 3 else super().training_step(batch, batch_idx)

    module, guard = Choosy(), guarded()
    with pytest.warns(UserWarning, match="returned `None`"):
        fit(module, None, guard)
    assert guard.guard.num_attempts == guard.guard.num_steps == STEPS - 1


def test_a_stop_ends_fit_at_once_whatever_min_epochs_says() -> None:
    module, guard = Module(), guarded(policy="stop")
    trainer = fit(module, Numbers(nan_at=(5,)), guard, max_epochs=3, min_epochs=2)
    assert len(module.seen) == 6 and trainer.should_stop
    assert "not finite" in guard.guard.reason
    assert is_same(module.seen[4][1], module.seen[5][1])
    assert trainer.fit_loop.min_epochs == 2


def test_a_rollback_restores_all_and_lowers_the_rate(tmp_path: Path) -> None:
    module = Module()
    guard = guarded(policy="rollback", log=tmp_path, checkpoint_every=4, tensorboard=False)
    fit(module, Numbers(mark_at=(6,)), guard)
    assert is_same(module.seen[3][1], module.seen[6][1])
    assert module.seen[6][0] == pytest.approx(module.seen[3][0] / 2)
    # The schedule goes on from there, at half its height.
    assert module.seen[7][0] == pytest.approx(module.seen[4][0] / 2)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        "step-00000000.pt",
        "step-00000004.pt",
        "step-00000008.pt",
    ]


def test_lightning_saves_no_weights_that_are_not_finite_and_keeps_what_it_saved(
    tmp_path: Path,
) -> None:
    class Broken(Module):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if self.trainer.global_step == 8:
                with torch.no_grad():
                    self.head[1].weight.fill_(math.nan)

    module, guard = Broken(), guarded(policy="warn")
    saver = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=3, save_last=True)
    trainer = fit(module, None, guard, saver, enable_checkpointing=True)
    assert {path.name for path in tmp_path.iterdir()} == {"epoch=0-step=6.ckpt", "last.ckpt"}
    for path in tmp_path.iterdir():
        kept = torch.load(path, weights_only=False)["state_dict"]
        assert all(bool(value.isfinite().all()) for value in kept.values())
    assert any(kind == "checkpoint" for _, kind, _ in guard.guard.events)
    # After fit the trainer is its own master.
    trainer.save_checkpoint(tmp_path / "after.ckpt")
    assert (tmp_path / "after.ckpt").exists()


def test_counters_and_log_go_on_from_a_checkpoint_of_lightning(tmp_path: Path) -> None:
    def run(epochs: int, **more: Any) -> tuple[Any, Any]:
        module = Module()
        guard = guarded(log=tmp_path / "log", tensorboard=False)
        return module, (guard, fit(module, Numbers(nan_at=(5,)), guard, max_epochs=epochs, **more))

    _, (_, trainer) = run(1)
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    _, (guard, _) = run(2, ckpt_path=tmp_path / "first.ckpt")
    assert (guard.guard.num_steps, guard.guard.num_attempts) == (2 * STEPS - 2, 2 * STEPS)
    lines = guard.guard._attempts.journal.columns
    assert list(lines["attempt"]) == list(range(2 * STEPS))


def test_a_gradient_scaler_stays_lightnings_and_its_overflows_are_told_from_failures() -> None:
    def half(**options: Any) -> tuple[Module, Any, Any]:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=4)
        precision = pl.plugins.precision.MixedPrecision("16-mixed", "cpu", scaler)
        module, guard = Module(), guarded(**options)
        fit(module, Numbers(nan_at=(9,)), guard, plugins=[precision], max_epochs=4)
        return module, guard, scaler

    module, guard, scaler = half(clip_norm=1.0)
    columns = guard.guard._attempts.journal.columns
    assert columns.outcomes[0] == Outcome.SKIPPED_OVERFLOW.label
    assert columns.outcomes.count(Outcome.SKIPPED_NOT_FINITE.label) == 4
    assert columns.outcomes.count(Outcome.STEPPED.label) > STEPS
    stepped = columns.outcomes.index(Outcome.STEPPED.label)
    # The true size, not that times the loss scale.
    assert columns["grad_norm"][stepped] < 100 and columns["loss"][stepped] < 100
    assert scaler.get_scale() < 2.0**24
    skipped = columns.outcomes.index(Outcome.SKIPPED_NOT_FINITE.label)
    assert is_same(module.seen[skipped - 1][1], module.seen[skipped][1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sixteen_bits_on_a_gpu() -> None:
    module, guard = Module(), guarded()
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger"), False)
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=1,
        precision="16-mixed",
        gradient_clip_val=0.3,
        max_epochs=2,
        enable_checkpointing=False,
        callbacks=[guard],
        **quiet,
    )
    trainer.fit(module, DataLoader(Numbers(nan_at=(9,)), batch_size=None))
    assert guard.guard.num_attempts == 2 * STEPS
    assert guard.guard.num_steps <= 2 * STEPS - 2
    assert all(bool(value.isfinite().all()) for value in module.state_dict().values())


def test_the_loggers_are_told() -> None:
    module, guard = Module(), guarded()
    trainer = fit(module, Numbers(nan_at=(3,)), guard, gradient_clip_val=0.1, log_every_n_steps=1)
    told = {name: float(value) for name, value in trainer.callback_metrics.items()}
    assert told["stabsweep/num_skipped"] == 1
    assert told["stabsweep/clip_share"] == pytest.approx(11 / 12)
    assert told["stabsweep/grad_norm"] > 0.1


class ByHand(Module):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Two(ByHand):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.body, self.head)]


class OwnClipping(Module):
    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("module", "words"),
    [(ByHand, "by hand"), (Two, "by hand"), (OwnClipping, "configure_gradient_clipping")],
)
def test_what_it_cannot_watch_over_is_refused_in_a_line(module: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        fit(module(), None, guarded())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"polcy": "skip"}, "did you mean policy"),
        ({"policy": "skp"}, "policy='skp'"),
        ({"clip_norm": -1}, "clip_norm"),
        ({"accumulate": 2}, "the framework has it"),
        ({"policy": "rollback"}, "log=DIR"),
        ({"progress": "bar"}, "progress='bar'"),
    ],
)
def test_arguments_are_checked_when_they_are_given(options: dict, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        LightningGuard(**options)


def test_an_error_in_training_leaves_nothing_behind() -> None:
    class Failing(Module):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise ZeroDivisionError
            return super().training_step(batch, batch_idx)

    module, guard = Failing(), guarded(clip_norm=1.0)
    with pytest.raises(ZeroDivisionError):
        fit(module, None, guard)
    assert "configure_gradient_clipping" not in vars(module)
    assert "lr_scheduler_step" not in vars(module)
    assert not any(part._forward_hooks for part in module.modules())


def test_without_lightning_the_import_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stabsweep.adapter.lightning")
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(ImportError, match=r"pip install 'stabsweep\[lightning\]'"):
        importlib.import_module("stabsweep.adapter.lightning")
