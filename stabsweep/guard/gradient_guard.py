"""The guard of a real training run: it owns the order of a step, and what is done when it fails."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.guard import options
from stabsweep.guard.attempts import Attempts
from stabsweep.guard.cause import Diagnosis
from stabsweep.guard.checkpoint import Checkpoints
from stabsweep.guard.journal import Journal
from stabsweep.guard.live import LiveLine
from stabsweep.guard.outcome import Outcome, TrainingStopped
from stabsweep.guard.ranks import Ranks
from stabsweep.guard.recovery import Recovery
from stabsweep.guard.response import Response
from stabsweep.guard.state import TrainingState
from stabsweep.verdict import Judgement


class GradientGuard:
    """Watches over training: one call makes a step, or says why there was none.

    `step(loss)` owns the order: backward, unscale once, check, clip once, step, scaler update,
    scheduler. The scheduler and `num_steps` go on after a step alone. What is not
    finite is found before clipping spreads it, named (module, parameters, batch, cause), and dealt
    with by the `policy`.

    ```python
    guard = stabsweep.GradientGuard(model, optimizer, clip_norm=1.0, log="runs/a")
    for batch in loader:
        loss = loss_fn(model(batch.x), batch.y)
        outcome = guard.step(loss, batch)
    guard.close()
    ```

    A loop that must keep its own backward pass calls `note(loss)`, and `update()` in the place of
    unscaling, clipping and stepping; one whose framework steps by itself calls `before_step()` and
    `after_step()` around it.

    It misleads about what it does not see: a batch that is finite but absurd, a model that keeps a
    state outside its buffers. It supports one process and DDP, whole (not sharded) gradients.

    Args:
        model: the module that the loop calls; also one wrapped by DDP or compiled.
        optimizer: with one group of parameters or several.
        clip_norm: limit of the global gradient norm; None: no clipping.
        clipper: another way to clip, see `stabsweep.clipper`: a name, or `{"name": "zclip", ...}`.
        policy: `skip` passes over an attempt that is not finite, `rollback` goes back to the last
            verified checkpoint with a lower rate (data that is not finite is skipped all the same),
            `stop` ends training, `warn` says so and steps all the same, as without a guard.
        scheduler: stepped after every step, and after no skip.
        scaler: a `torch.amp.GradScaler`. Nobody else may unscale.
        accumulate: batches of one step; the loss of each is divided by it.
        log: folder for the lines, the checkpoints and the summary of the run.
        resume: goes on with the last checkpoint in `log`, where there is one; or the `state_dict`
            of an earlier guard, where somebody else has put back model, optimizer and all.
        total_steps: updates that the run is to make, if known: for the verdict and the terminal.
        initial_loss, blind_loss: loss before training, and of the best predictor that ignores its
            input, if known: for the verdict.
        warmup_steps: updates until the peak rate: for the verdict.
        check_every: attempts between two looks at whether all is finite; 1 looks before every
            step. In between the host does not wait for the device.
        watch_every: attempts between two close looks: layer by layer, how far weights move.
        max_consecutive_skips: after so many skips in a row training is stopped.
        skip_outliers: skip a step whose norm is more than so many times the median of the last 128.
            It shortens no recovery where updates grew before the gradient did.
        checkpoint_every: steps between two checkpoints; None: 100 for `rollback`, else none.
        keep: how many checkpoints are kept.
        rollback_factor: what a roll-back multiplies the learning rate with.
        max_rollbacks: after so many training is stopped.
        objects: name -> anything else with `state_dict` and `load_state_dict` that belongs into a
            checkpoint, such as a stateful loader: then data go back too.
        tensorboard: whether scalars go there; None: where it is installed and `log` is given.
        progress: `auto`, `live`, `plain`, `events` or `off`.
        about: more plain values that `run.yaml` is to keep.

    Raises:
        BadInput: an argument cannot be used.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        clip_norm: float | None = None,
        clipper: str | Mapping[str, Any] | None = None,
        policy: str = "skip",
        scheduler: Any = None,
        scaler: Any = None,
        accumulate: int = 1,
        log: str | Path | None = None,
        resume: bool | Mapping[str, Any] = False,
        total_steps: int | None = None,
        initial_loss: float | None = None,
        blind_loss: float | None = None,
        warmup_steps: int = 0,
        check_every: int = 1,
        watch_every: int = 10,
        max_consecutive_skips: int = 20,
        skip_outliers: float | None = None,
        checkpoint_every: int | None = None,
        keep: int = 3,
        rollback_factor: float = 0.5,
        max_rollbacks: int = 3,
        objects: Mapping[str, Any] | None = None,
        tensorboard: bool | None = None,
        progress: str = "auto",
        about: Mapping[str, Any] | None = None,
    ) -> None:
        given = dict(locals())
        options.check_model(model, optimizer, scheduler, scaler)
        options.check_counts(accumulate=accumulate)
        options.check_values(given)
        twin, clipping = options.make_clipper(clip_norm, clipper)
        self._accumulate = accumulate
        # One that is switched off passes everything through.
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        asked = {
            "model": type(model).__name__,
            "optimizer": type(optimizer).__name__,
            "clipper": clipping,
            "policy": policy,
            "total_steps": total_steps,
            "initial_loss": initial_loss,
            "blind_loss": blind_loss,
            "warmup_steps": warmup_steps,
            "accumulate": accumulate,
            **(about or {}),
        }
        ranks = Ranks()
        folder = Path(log) if log is not None else None
        live = LiveLine(progress if ranks.is_first else "off", total_steps)
        journal = Journal(folder if ranks.is_first else None, asked, live, tensorboard)
        own = {"scheduler": scheduler, "scaler": self._scaler, **(objects or {})}
        parts = {"model": model, "optimizer": optimizer, "clipper": twin}
        parts.update({name: part for name, part in own.items() if part is not None})
        recovery = Recovery(
            TrainingState(parts, ranks),
            Checkpoints(folder / "checkpoints", keep) if folder else None,
            ranks,
            rollback_factor,
            max_rollbacks,
            journal.event,
        )
        if isinstance(resume, Mapping):
            found = (int(resume["num_steps"]), int(resume["num_attempts"]))
            recovery.adopt(found[0], int(resume["num_rollbacks"]))
            twin.load_state_dict(resume["clipper"])
        else:
            found = recovery.resume() if resume else None
        journal.open((found or (0, 0))[1] if resume else None)
        self._attempts = Attempts(
            model,
            optimizer,
            scheduler,
            self._scaler,
            twin,
            ranks,
            journal,
            Response(policy, max_consecutive_skips, recovery, journal.event),
            recovery,
            check_every,
            watch_every,
            checkpoint_every or (100 if policy == "rollback" else None),
            skip_outliers,
            total_steps,
            *(found or (0, 0)),
        )
        if policy == "rollback" and (found is None or isinstance(resume, Mapping)):
            self.save()
        # A loop that forgets to close has its summary all the same.
        self._close = weakref.finalize(self, self._attempts.close)

    # ------------------------------------------------------------------------- for a plain loop

    def step(self, loss: Tensor, batch: Any = None) -> Outcome:
        """Backward, and at the end of a window the update.

        Args:
            loss: a scalar that depends on the parameters.
            batch: what it was computed from, any structure: looked at when something is not finite.

        Raises:
            TrainingStopped: training was stopped before.
            BadInput: the loss is no scalar, or depends on no parameter.
        """
        self.backward(loss, batch)
        return (
            self.update() if len(self._attempts.losses) >= self._accumulate else Outcome.ACCUMULATED
        )

    def backward(self, loss: Tensor, batch: Any = None) -> None:
        """The gradient of one batch, added to those of its window; arguments as those of `step`."""
        self._refuse_when_stopped()
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            is_tensor = isinstance(loss, Tensor)
            what = f"shape {[*loss.shape]}" if is_tensor else type(loss).__name__
            raise BadInput(
                f"loss ({what}) is no scalar that depends on the parameters: give the mean over "
                "the batch, computed with gradients on"
            )
        part = loss / self._accumulate if self._accumulate > 1 else loss
        (self._scaler.scale(part) if self._scaler else part).backward()
        self.note(loss, batch)

    def note(self, loss: Tensor, batch: Any = None) -> None:
        """Tells of a loss whose backward pass a framework makes by itself."""
        self._attempts.losses.append(loss.detach().reshape(()))
        self._attempts.batches.append(batch)

    def update(self) -> Outcome:
        """The update of a window, also of one that is not full: unscale, check, clip, step.

        Raises:
            TrainingStopped: training was stopped before.
            BadInput: there is no gradient, or somebody else has unscaled it.
        """
        if self.before_step().is_stepped:
            if self._scaler:
                self._scaler.step(self._attempts.optimizer)
            else:
                self._attempts.optimizer.step()
        return self.after_step()

    # -------------------------------------------------------------------------- for a framework

    def before_step(self) -> Outcome:
        """Looks at the gradients and clips them; `STEPPED` says that the step is to be made.

        After any other outcome there are no gradients any more, so that a framework which steps
        all the same changes nothing.
        """
        self._refuse_when_stopped()
        return self._attempts.begin()

    def after_step(self) -> Outcome:
        """What belongs to a step after it: scaler, scheduler, counters, the line of the log."""
        return self._attempts.end()

    # ------------------------------------------------------------------------ what can be asked

    @property
    def num_steps(self) -> int:
        """Updates that were made."""
        return self._attempts.num_steps

    @property
    def num_attempts(self) -> int:
        """Attempts at a step that have ended: batches, or windows of them."""
        return self._attempts.num_attempts

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What was found out about the last attempt that was not finite."""
        return self._attempts.diagnosis

    @property
    def events(self) -> list[tuple[int, str, str]]:
        """All that happened: attempt, kind, message."""
        return list(self._attempts.journal.columns.events)

    @property
    def grad_norm(self) -> Tensor | None:
        """Gradient norm of the last attempt before clipping, a scalar on its device."""
        return self._attempts.norm

    @property
    def clip_share(self) -> float:
        """Share of the last 200 attempts whose gradient was clipped."""
        return self._attempts.journal.clip_share

    @property
    def reason(self) -> str:
        """Why training was stopped; empty while it goes on."""
        return self._attempts.response.reason

    @property
    def is_stopped(self) -> bool:
        """Whether training was stopped."""
        return bool(self.reason)

    def verdict(self) -> Judgement | None:
        """What training did so far, by the judge of the sweeps; None before the first step."""
        self._attempts.entries.fetch()
        return self._attempts.journal.judge(failed=self.is_stopped)

    def unfit(self) -> str:
        """What of weights and optimizer state is not finite, in words; empty when all is.

        It reads them all. With several processes all must ask.
        """
        found = self._attempts.recovery.unfit()
        return "" if found is None else str(found)

    def event(self, kind: str, message: str) -> None:
        """Writes down something that happened around the guard, and shows it."""
        self._attempts.journal.event(kind, message)

    def state_dict(self) -> dict[str, Any]:
        """The counters and the clipper's memory, for `resume` of a later guard."""
        return {
            "num_steps": self.num_steps,
            "num_attempts": self.num_attempts,
            "num_rollbacks": self._attempts.recovery.num_rollbacks,
            "clipper": self._attempts.clipper.state_dict(),
        }

    def save(self) -> Path | None:
        """Writes a checkpoint into `log`, verified finite; None where there is nothing to keep."""
        return self._attempts.save()

    def close(self, **more: Any) -> dict[str, Any]:
        """Ends the watch: hooks off the model, the summary written and returned.

        Args:
            more: plain values that belong into the summary.
        """
        self._close.detach()
        return self._attempts.close(**more)

    def __enter__(self) -> GradientGuard:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _refuse_when_stopped(self) -> None:
        if self.reason:
            raise TrainingStopped(self.reason)
