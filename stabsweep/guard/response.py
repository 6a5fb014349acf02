"""What is done about an attempt that went wrong, by policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stabsweep.guard.cause import Cause, Diagnosis
from stabsweep.guard.outcome import Outcome
from stabsweep.guard.recovery import Recovery
from stabsweep.numerals import plural
from stabsweep.verdict import scale_collapse


class Response:
    """Chooses between passing over, going back and ending; counts skips and remembers the end.

    Args:
        policy: one of `stabsweep.guard.options.POLICIES`.
        max_skips: skips in a row after which training ends.
        recovery: the way back.
        event: told of what happens, a kind and a message.

    Attributes:
        reason: why training has ended; empty while it goes on.
        num_skips: attempts in a row that were passed over.
        back_at: step that the last roll-back went to.
    """

    def __init__(
        self, policy: str, max_skips: int, recovery: Recovery, event: Callable[[str, str], None]
    ) -> None:
        self.reason, self.num_skips, self.back_at = "", 0, 0
        self._policy, self._max_skips = policy, max_skips
        self._recovery, self._event = recovery, event

    def to_hit(self, diagnosis: Diagnosis, where: str, is_scaled: bool) -> Outcome:
        """To a loss or a gradient that is not finite.

        Data that are not finite are passed over whatever the policy, but for `stop` and `warn`:
        going back would only meet them again. Weights that are not finite no skip can heal.

        Args:
            diagnosis: what was found out.
            where: the attempt, in words.
            is_scaled: whether a gradient scaler makes the step: it skips this one anyway.
        """
        what = "Gradient" if diagnosis.is_loss_finite else "Loss"
        why = f"{what} of {where} not finite. {diagnosis}"
        if self._policy == "warn" and not is_scaled:
            self._event("not_finite", why)
            return Outcome.STEPPED
        if self._policy == "stop":
            return self._stop(why)
        is_hopeless = bool(diagnosis.weights)
        if self._policy == "rollback" and (is_hopeless or diagnosis.cause is not Cause.DATA):
            return self._go_back(why)
        if is_hopeless:
            return self._stop(f"{why} The weights are lost: no skip can heal them.")
        return self._skip(Outcome.SKIPPED_NOT_FINITE, "not_finite", why)

    def to_overflow(self, where: str, scale: float, skipped: Sequence[bool]) -> Outcome:
        """To a gradient that left the format at its loss scale.

        Args:
            where: the attempt, in words.
            scale: the loss scale.
            skipped: which of the last attempts overflowed, this one included.
        """
        if scale_collapse(np.array(skipped, bool)) is not None:
            why = (
                f"{where[0].upper()}{where[1:]}: the loss scale has collapsed to {scale:g}: "
                f"{sum(skipped)} of the last {len(skipped)} attempts overflowed. Cure: lower the "
                "learning rate, or compute in bfloat16 or float32."
            )
            if self._policy == "warn":
                self._event("overflow", why)
            else:
                return self._go_back(why) if self._policy == "rollback" else self._stop(why)
        # Some are how a scaler finds its scale: not worth a line each.
        return Outcome.SKIPPED_OVERFLOW

    def to_outlier(self, why: str) -> Outcome:
        """To a gradient that is far larger than those before."""
        return self._skip(Outcome.SKIPPED_OUTLIER, "outlier", f"{why[0].upper()}{why[1:]}")

    def to_lost(self, why: str) -> Outcome | None:
        """To a loss that cannot become good any more; None: it is said, and training goes on."""
        if self._policy == "stop":
            return self._stop(why)
        if self._policy == "rollback":
            return self._go_back(why)
        self._event("lost", f"{why} Cure: lower the learning rate, and start again.")
        return None

    def stepped(self) -> None:
        """A step was made: what was skipped before is over."""
        self.num_skips = 0

    def _skip(self, outcome: Outcome, kind: str, why: str) -> Outcome:
        self.num_skips += 1
        if self.num_skips >= self._max_skips:
            again = plural(self.num_skips, "attempt")
            why = f"{again} in a row were skipped (max_consecutive_skips). The last: {why}"
            return self._go_back(why) if self._policy == "rollback" else self._stop(why)
        self._event(kind, f"{why} Skipped.")
        return outcome

    def _go_back(self, why: str) -> Outcome:
        step, message = self._recovery.roll_back(why)
        if step is None:
            return self._stop(message)
        self.back_at, self.num_skips = step, 0
        self._event("rollback", message)
        return Outcome.ROLLED_BACK

    def _stop(self, why: str) -> Outcome:
        self.reason = why
        self._event("stopped", f"{why} Training is stopped.")
        return Outcome.STOPPED
