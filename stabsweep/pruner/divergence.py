"""Stopping trials that cannot become stable any more."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import FrozenTrial

from stabsweep.verdict import reason_to_stop


class DivergencePruner(optuna.pruners.BasePruner):
    """An Optuna pruner that stops what has diverged, and nothing that may yet recover.

    Optuna's own pruners look at the best value so far, so a trial that was fine and then blew up
    goes on; and they prune at the first rise, where a catapult would come down again. This one asks
    `stabsweep.verdict.reason_to_stop`, the same judgement that gives the verdict.

    It reads what a study may know of a trial: its reported losses, and the user attributes
    `initial_loss`, `horizon`, `warmup_steps` and `blind_loss`. Without `initial_loss` the first
    report takes its place; without `horizon` the whole run counts as recent, and little but a loss
    that is not finite stops a trial.

    Args:
        wrapped: another pruner, asked when this one sees no reason to stop.
    """

    def __init__(self, wrapped: optuna.pruners.BasePruner | None = None) -> None:
        self.wrapped = wrapped

    def reason(self, trial: FrozenTrial) -> str | None:
        """Why the trial has diverged, or None."""
        reports = sorted(trial.intermediate_values.items())
        if not reports:
            return None
        steps, losses = zip(*reports, strict=True)
        return self.reason_of(steps, losses, trial.user_attrs)

    def reason_of(
        self, steps: Sequence[int], losses: Sequence[float], known: Mapping[str, Any]
    ) -> str | None:
        """The same from what was reported, at least once, and what is known of the trial."""
        return reason_to_stop(
            steps,
            losses,
            initial_loss=known.get("initial_loss", losses[0]),
            horizon=known.get("horizon", math.inf),
            warmup_steps=known.get("warmup_steps", 0),
            blind_loss=known.get("blind_loss"),
        )

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Whether to stop the trial now; see `optuna.pruners.BasePruner`."""
        if self.reason(trial) is not None:
            return True
        return self.wrapped is not None and self.wrapped.prune(study, trial)
