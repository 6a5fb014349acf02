"""The guard as a callback of Lightning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stabsweep.adapter._parts import ForeignScaler
from stabsweep.adapter._takeover import Takeover
from stabsweep.adapter._watch import Watch
from stabsweep.errors import BadInput
from stabsweep.guard import GradientGuard

try:
    import lightning
    import lightning.pytorch as pl
    from lightning.pytorch.utilities.model_helpers import is_overridden
except ImportError as error:
    raise ImportError(
        f"LightningGuard needs Lightning ({error}): pip install 'stabsweep[lightning]'"
    ) from None

SHARDED = ("DeepSpeedStrategy", "FSDPStrategy", "ModelParallelStrategy", "XLAFSDPStrategy")
"""Strategies whose gradients do not lie whole on each process."""


class LightningGuard(pl.Callback):
    """Watches over `Trainer.fit`: one look and one clip a step, skips, roll-backs, an early end.

    ```python
    guard = LightningGuard(policy="rollback", log="runs/a")
    trainer = Trainer(callbacks=[guard], gradient_clip_val=1.0)
    trainer.fit(module, loader)
    ```

    The guard clips in the place of Lightning, with `gradient_clip_val` unless told otherwise, after
    unscaling and after everybody's `on_before_optimizer_step`. After a skip Lightning's optimizer
    finds no gradients, and schedulers with the interval `step` do not go on; Lightning's own
    `global_step` counts attempts, `guard.num_steps` updates. A checkpoint of Lightning's is not
    written while weights or optimizer state are not finite. A stop sets `trainer.should_stop`,
    whatever `min_epochs` says. After `fit` the last guard stays to be asked; a second `fit`, and
    one from a checkpoint of Lightning's, goes on with its counters and its log.

    It misleads as `GradientGuard` does, and where `training_step` calls the model by something
    other than its modules: then no layer is named.

    Args:
        options: those of `stabsweep.GradientGuard`, but for what Lightning has: `model`,
            `optimizer`, `scheduler`, `scaler`, `accumulate`, `resume`. `total_steps` is Lightning's
            estimate unless given.

    Raises:
        BadInput: an argument cannot be used; in `fit`: manual optimization, several optimizers,
            sharded gradients, a `configure_gradient_clipping` of the module's own.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._watch = Watch(options)
        self._takeover = Takeover()
        self._batch: Any = None
        self._fit: tuple[int, bool] = (-1, False)

    @property
    def guard(self) -> GradientGuard | None:
        """The guard of the current or the last `fit`: its diagnosis, events, verdict."""
        return self._watch.guard

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Makes the guard, and takes over clipping, schedulers and checkpoints."""
        self._takeover.undo()
        _check(trainer, pl_module)
        optimizer = trainer.optimizers[0]
        limit, kind = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        name = "value" if kind is not None and kind.value == "value" else "norm"
        steps = trainer.estimated_stepping_batches
        self._watch.begin(
            pl_module,
            optimizer,
            setting=f"gradient_clip_val={limit}",
            clipper={"name": name, f"clip_{name}": limit} if limit else None,
            schedulers=[config.scheduler for config in trainer.lr_scheduler_configs],
            scaler=_scaler(trainer, optimizer),
            accumulate=trainer.accumulate_grad_batches,
            total_steps=int(steps) if math.isfinite(steps) and steps > 0 else None,
            about={"framework": f"lightning {lightning.__version__}"},
        )
        self._fit = (-1, False)
        look = self._watch.look
        self._takeover.method(pl_module, "configure_gradient_clipping", lambda *_, **__: look())
        self._unless(
            pl_module,
            "lr_scheduler_step",
            lambda scheduler, metric: not self._may_step(trainer, scheduler),
        )
        self._unless(trainer, "save_checkpoint", self._is_unfit)
        for callback in trainer.checkpoint_callbacks:
            # Or a ModelCheckpoint would remove what it saved before.
            for name in ("_save_topk_checkpoint", "_save_last_checkpoint"):
                if hasattr(callback, name):
                    self._unless(callback, name, self._is_unfit)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Remembers the batch."""
        self._batch = batch

    def on_before_backward(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor
    ) -> None:
        """Tells the guard of the loss, as `training_step` returned it."""
        # Lightning has divided it by the batches of a step, and multiplied by the loss scale.
        value = loss.detach() * trainer.accumulate_grad_batches
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            value = value / scaler.scale(torch.ones_like(value))
        self._watch.note(value, self._batch)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *args: Any, **kwargs: Any
    ) -> None:
        """Ends the attempt: after the step and the schedulers, before a checkpoint."""
        self._batch = None
        guard = self._watch.guard
        if not self._watch.end() or guard is None:
            return
        scalars = {"grad_norm": guard.grad_norm, **self._watch.scalars()}
        pl_module.log_dict({f"stabsweep/{name}": value for name, value in scalars.items()})
        if guard.is_stopped:
            trainer.should_stop = True
            # A run that is lost is not to go on for these.
            self._takeover.value(trainer.fit_loop, "min_epochs", 0)
            self._takeover.value(trainer.fit_loop.epoch_loop, "min_steps", None)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Gives back what was taken over, after the last checkpoint."""
        self._end()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Gives back what was taken over."""
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """The guard's counters and its clipper's memory, for Lightning's checkpoint."""
        return self._watch.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on with the counters of a checkpoint, from the next `fit` on."""
        self._watch.go_on(state_dict)

    def _end(self) -> None:
        self._takeover.undo()
        self._watch.close()

    def _may_step(self, trainer: pl.Trainer, scheduler: Any) -> bool:
        configs = [c for c in trainer.lr_scheduler_configs if c.scheduler is scheduler]
        is_of_steps = any(c.interval == "step" and not c.reduce_on_plateau for c in configs)
        return self._watch.is_stepped or not is_of_steps

    def _is_unfit(self, *_: Any, **__: Any) -> bool:
        """Whether nothing is to be saved now; looked at once a step."""
        guard = self._watch.guard
        attempt = guard.num_attempts if guard is not None else -1
        if self._fit[0] != attempt:
            self._fit = (attempt, self._watch.unfit())
        return self._fit[1]

    def _unless(self, owner: Any, name: str, is_forbidden: Callable[..., bool]) -> None:
        """Makes a method do nothing where it is forbidden, by its own arguments."""
        original = self._takeover.method(
            owner,
            name,
            lambda *args, **kwargs: (
                None if is_forbidden(*args, **kwargs) else original(*args, **kwargs)
            ),
        )


def _scaler(trainer: pl.Trainer, optimizer: torch.optim.Optimizer) -> ForeignScaler | None:
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is None:
        return None
    # Lightning leaves unscaling to an optimizer that can do it itself, such as a fused one.
    is_left = getattr(optimizer, "_step_supports_amp_scaling", False)
    return ForeignScaler(scaler, lambda: scaler.unscale_(optimizer) if is_left else None)


def _check(trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
    """Nothing, if a guard can watch over this.

    Raises:
        BadInput: it cannot.
    """
    name, strategy = type(pl_module).__name__, type(trainer.strategy).__name__
    if not pl_module.automatic_optimization:
        raise BadInput(
            f"{name} optimizes by hand (automatic_optimization=False), where LightningGuard cannot "
            "know a step: use stabsweep.GradientGuard in its training_step"
        )
    if len(trainer.optimizers) != 1:
        raise BadInput(
            f"{name} has {len(trainer.optimizers)} optimizers, and LightningGuard watches over one"
        )
    if strategy in SHARDED:
        raise BadInput(
            f"strategy={strategy} shards the gradients, and LightningGuard needs them whole: use "
            "one device or DDP"
        )
    if is_overridden("configure_gradient_clipping", pl_module):
        raise BadInput(
            f"{name}.configure_gradient_clipping clips by itself, and LightningGuard would clip in "
            "its place: remove it, and give LightningGuard clip_norm=... or clipper=..."
        )


__all__ = ["LightningGuard"]
