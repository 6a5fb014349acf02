"""The guard as a callback of Hugging Face's `Trainer`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stabsweep.adapter._parts import ForeignScaler
from stabsweep.adapter._takeover import Takeover
from stabsweep.adapter._watch import Watch
from stabsweep.errors import BadInput
from stabsweep.guard import GradientGuard

try:
    import transformers
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_callback import ExportableState
except ImportError as error:
    raise ImportError(
        f"TransformersGuard needs transformers and accelerate ({error}): "
        "pip install 'stabsweep[transformers]'"
    ) from None


class TransformersGuard(TrainerCallback, ExportableState):
    """Watches over `Trainer.train`: one look and one clip a step, skips, roll-backs, an early end.

    ```python
    guard = TransformersGuard(policy="rollback", log="runs/a")
    trainer = Trainer(model, args, train_dataset=data, callbacks=[guard])
    trainer.train()
    ```

    The guard clips in the place of the trainer, with `max_grad_norm` (1 by default) unless told
    otherwise. It cannot wait for `on_pre_optimizer_step`: the trainer has clipped before that, by
    infinity where `max_grad_norm` is 0, and has spread what is not finite over all gradients. After
    a skip the optimizer finds no gradients, and the trainer is told that the step was skipped, so
    that its scheduler does not go on; `state.global_step` counts attempts, `guard.num_steps`
    updates. A checkpoint of the trainer's is not written while weights or optimizer state are not
    finite; `save_model` writes whatever there is. The loss in the trainer's log is repaired
    (`logging_nan_inf_filter`), that in the guard's is not. After `train` the last guard stays to be
    asked; a second `train`, and one from a checkpoint, goes on with its counters and its log.

    Args:
        options: those of `stabsweep.GradientGuard`, but for what the trainer has: `model`,
            `optimizer`, `scheduler`, `scaler`, `accumulate`, `resume`. `total_steps` and
            `warmup_steps` are the trainer's unless given.

    Raises:
        BadInput: an argument cannot be used; in `train`: sharded gradients, or an optimizer that
            steps within the backward pass.
    """

    def __init__(self, **options: Any) -> None:
        self._watch = Watch(options)
        self._takeover = Takeover()
        self._scaler: Any = None

    @property
    def guard(self) -> GradientGuard | None:
        """The guard of the current or the last `train`: its diagnosis, events, verdict."""
        return self._watch.guard

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Makes the guard, and takes over clipping."""
        self._takeover.undo()
        trainer = _calling_trainer()
        model = trainer.model_wrapped
        assert model is not None
        _check(trainer)
        if kept := _counters(state, type(self).__name__):
            self._watch.go_on(kept)
        optimizer, accelerator = _plain(trainer.optimizer), trainer.accelerator
        self._scaler = accelerator.scaler
        limit = args.max_grad_norm
        self._watch.begin(
            model,
            optimizer,
            setting=f"max_grad_norm={limit}",
            clipper={"name": "norm", "clip_norm": limit} if limit and limit > 0 else None,
            schedulers=[trainer.lr_scheduler],
            scaler=(
                ForeignScaler(self._scaler, accelerator.unscale_gradients) if self._scaler else None
            ),
            accumulate=args.gradient_accumulation_steps,
            total_steps=state.max_steps if state.max_steps > 0 else None,
            warmup_steps=args.get_warmup_steps(state.max_steps),
            about={"framework": f"transformers {transformers.__version__}"},
        )
        put = self._takeover.method
        step = put(trainer, "training_step", lambda *a, **k: self._note(trainer, step, a, k))
        clip = put(accelerator, "clip_grad_norm_", lambda *a, **k: self._clip(clip, a, k))
        log = put(trainer, "log", lambda logs, *a, **k: log(self._with_scalars(logs), *a, **k))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Looks at the gradients, where the trainer has measured and clipped nothing."""
        if self._watch.is_full:
            self._watch.look()

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Tells the trainer of a skip, so that its scheduler does not go on."""
        is_skipped = not self._watch.is_stepped
        if isinstance(optimizer, AcceleratedOptimizer) and (self._scaler is None or is_skipped):
            optimizer._is_overflow = is_skipped

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Ends the attempt: after the step and the scheduler, before a checkpoint."""
        guard = self._watch.guard
        self._watch.end()
        if guard is not None and guard.is_stopped:
            control.should_training_stop = True
        return self._without_unfit(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Keeps the trainer from saving what is not finite."""
        return self._without_unfit(control)

    def on_train_end(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Ends the watch and gives back what was taken over."""
        self._takeover.undo()
        if isinstance(optimizer, AcceleratedOptimizer) and self._scaler is None:
            optimizer._is_overflow = False
        self._watch.close()

    def state(self) -> dict[str, Any]:
        """The options and the guard's counters, for the trainer's checkpoint."""
        kept = self._watch.state_dict()
        if kept:
            memory = {
                name: [str(value.dtype).removeprefix("torch."), value.tolist()]
                for name, value in kept["clipper"].items()
            }
            kept = {**kept, "clipper": memory}
        plain = {k: v for k, v in self._watch.given.items() if _is_plain(v)}
        if "log" in self._watch.given and self._watch.given["log"] is not None:
            plain["log"] = str(self._watch.given["log"])
        return {"args": plain, "attributes": {"counters": kept}}

    def _note(self, trainer: Trainer, step: Any, args: Any, kwargs: Any) -> Tensor:
        """A backward pass of the trainer's; its loss is the share in that of the step."""
        loss = step(*args, **kwargs)
        batch = kwargs.get("inputs", args[1] if len(args) > 1 else None)
        self._watch.note(loss * trainer.current_gradient_accumulation_steps, batch)
        return loss

    def _clip(self, clip: Any, args: Any, kwargs: Any) -> Any:
        """In the place of the trainer's clipping, or of its measuring; the norm before."""
        if not self._watch.is_full:
            return clip(*args, **kwargs)
        self._watch.look()
        guard = self._watch.guard
        assert guard is not None
        return guard.grad_norm

    def _with_scalars(self, logs: Mapping[str, float]) -> dict[str, float]:
        return {**logs, **(self._watch.scalars() if "grad_norm" in logs else {})}

    def _without_unfit(self, control: Any) -> Any:
        if control.should_save and self._watch.unfit():
            control.should_save = False
        return control


def _calling_trainer() -> Trainer:
    """The trainer whose callback is running: a callback is told of everything but that."""
    frame: Any = sys._getframe()
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer):
            return found
        frame = frame.f_back
    raise BadInput(
        "TransformersGuard was called by something other than transformers.Trainer: in a loop of "
        "your own use stabsweep.GradientGuard"
    )


def _plain(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer below accelerate's wrapper."""
    while isinstance(optimizer, AcceleratedOptimizer):
        optimizer = optimizer.optimizer
    return optimizer


def _check(trainer: Trainer) -> None:
    """Nothing, if a guard can watch over this.

    Raises:
        BadInput: it cannot.
    """
    sharded = {"deepspeed": trainer.is_deepspeed_enabled, "fsdp": trainer.is_fsdp_enabled}
    for name, is_on in sharded.items():
        if is_on:
            raise BadInput(
                f"{name} shards the gradients, and TransformersGuard needs them whole: use one "
                "device or DDP"
            )
    name = getattr(trainer.args.optim, "value", trainer.args.optim)
    if name in ("lomo", "adalomo"):
        raise BadInput(
            f"optim={name!r} steps within the backward pass, where no gradient can be looked at: "
            "use another optimizer"
        )


def _counters(state: Any, name: str) -> dict[str, Any]:
    """A guard's counters in a trainer's state; empty where there are none."""
    found = (state.stateful_callbacks or {}).get(name) or {}
    found = found[0] if isinstance(found, list) else found
    kept = found.get("attributes", {}).get("counters") or {}
    if not kept:
        return {}
    memory = {
        key: torch.tensor(value, dtype=getattr(torch, kind))
        for key, (kind, value) in kept["clipper"].items()
    }
    return {**kept, "clipper": memory}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, str | int | float | bool)


__all__ = ["TransformersGuard"]
