"""A guard inside a training framework: what is the same in all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.adapter._parts import ForeignScaler, ForeignSchedulers
from stabsweep.errors import BadInput, unknown
from stabsweep.guard import GradientGuard, Outcome, options

OWNED = ("self", "model", "optimizer", "scheduler", "scaler", "accumulate", "resume")
"""Arguments of a guard that the framework answers."""


class Watch:
    """The guard of one run, made when the framework has built all that it needs.

    A framework makes the backward pass and steps by itself. So the order is: `note` after every
    backward pass, `look` in the place of the framework's clipping, the framework's step, which
    finds no gradients where there is to be none, its scheduler, `end`.

    Args:
        given: arguments of `GradientGuard` that the user gave.

    Attributes:
        guard: of the current run, or of the last one; None before the first.
        outcome: of the last look; None where there was no gradient to look at.
        is_pending: whether there was a look that has not been ended.
        kept: counters of an earlier guard to go on from.

    Raises:
        BadInput: an argument is unknown, the framework's, or cannot be used.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        known = {
            name: parameter.default
            for name, parameter in inspect.signature(GradientGuard.__init__).parameters.items()
            if name not in OWNED
        }
        for name in given:
            if name in OWNED:
                raise BadInput(f"{name} is not for you to give: the framework has it already")
            if name not in known:
                raise unknown("argument", name, known)
        # The framework shows its own progress.
        self.given = {"progress": "events", **given}
        options.check_values({**known, **self.given})
        self.guard: GradientGuard | None = None
        self.outcome: Outcome | None = None
        self.is_pending = False
        self.kept: Mapping[str, Any] | None = None
        self._scaler: ForeignScaler | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._num_noted = self._num_skipped = 0

    @property
    def is_stepped(self) -> bool:
        """Whether the framework may go on as after a step."""
        return self.outcome is None or self.outcome.is_stepped

    @property
    def is_full(self) -> bool:
        """Whether a loss was noted that no look has answered yet."""
        return self._num_noted > 0 and not self.is_pending

    def begin(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        setting: str,
        clipper: Mapping[str, Any] | None,
        schedulers: Sequence[Any],
        scaler: ForeignScaler | None,
        accumulate: int,
        **known: Any,
    ) -> None:
        """Makes the guard.

        Args:
            model: as the framework calls it.
            optimizer: the one that has the parameters.
            setting: how the framework's own limit is written, such as `gradient_clip_val=0.5`.
            clipper: what that limit means as a clipper; None: there is none.
            schedulers: those that the framework steps.
            scaler: the framework's, if it has one.
            accumulate: batches of one step.
            known: arguments of the guard that the framework knows, unless the user gave them.
        """
        if self.guard is not None:
            self.guard.close()
            self.kept = self.kept or self.guard.state_dict()
        arguments = {**{k: v for k, v in known.items() if v is not None}, **self.given}
        is_free = "clip_norm" not in self.given and "clipper" not in self.given
        if clipper is not None and is_free:
            arguments["clipper"] = clipper
        self._scaler, self._optimizer = scaler, optimizer
        self.outcome, self.is_pending = None, False
        self._num_noted = self._num_skipped = 0
        self.guard = GradientGuard(
            model,
            optimizer,
            scheduler=ForeignSchedulers(schedulers) if schedulers else None,
            scaler=scaler,
            accumulate=accumulate,
            resume=self.kept if self.kept is not None else False,
            **arguments,
        )
        if clipper is not None:
            how = "with this limit" if is_free else "as you told it"
            self.guard.event("clipping", f"{setting} is off: the guard clips, {how}, once a step")
        self.kept = None

    def note(self, loss: Tensor, batch: Any) -> None:
        """Tells the guard of a backward pass that was made."""
        if self.guard is not None:
            self.guard.note(loss, batch)
            self._num_noted += 1

    def look(self) -> None:
        """Looks at the gradients, in the place of the framework's clipping.

        A window without a loss, as of a step that returned None, is passed over.
        """
        if self.guard is None or not self.is_full:
            self.outcome = None
            return
        self._num_noted = 0
        if self.guard.is_stopped:
            # The framework goes on to the end of something: nothing changes any more.
            assert self._optimizer is not None
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            self._optimizer.zero_grad(set_to_none=True)
            self.outcome = Outcome.STOPPED
            return
        self.outcome = self.guard.before_step()
        self.is_pending = True

    def end(self) -> bool:
        """What belongs to a step after it; whether there was one, or a skip."""
        if not self.is_pending or self.guard is None:
            return False
        self.is_pending = False
        self.outcome = self.guard.after_step()
        self._num_skipped += self.outcome.is_skipped
        return True

    def unfit(self) -> bool:
        """Whether the framework must not save: weights or optimizer state are not finite."""
        if self.guard is None:
            return False
        found = self.guard.unfit()
        if found:
            at = f"at step {self.guard.num_steps}"
            self.guard.event("checkpoint", f"no checkpoint {at}: {found} is not finite")
        return bool(found)

    def scalars(self) -> dict[str, float]:
        """What the framework's logger is told after a step."""
        assert self.guard is not None
        return {"clip_share": self.guard.clip_share, "num_skipped": float(self._num_skipped)}

    def state_dict(self) -> dict[str, Any]:
        """The guard's counters; what was loaded, before there is a guard."""
        if self.kept is not None or self.guard is None:
            return dict(self.kept or {})
        return self.guard.state_dict()

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Remembers what the next guard is to go on from."""
        self.kept = dict(state) or None

    def close(self) -> None:
        """Ends the watch over this run; a second call does nothing."""
        if self.guard is not None:
            self.guard.close()
