"""Going back: to the last verified checkpoint after a failure, or after a process was killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stabsweep.guard.checkpoint import Checkpoints
from stabsweep.guard.finding import BadTensor
from stabsweep.guard.ranks import Ranks
from stabsweep.guard.state import TrainingState
from stabsweep.numerals import plural, rate


class Recovery:
    """The checkpoints of a run, and the way back to them.

    Args:
        state: what a checkpoint consists of.
        checkpoints: where they lie; None: there are none.
        ranks: the first process writes and reads, all take part.
        factor: what a roll-back multiplies the learning rate with.
        most: how many roll-backs there may be.
        event: told of what happens, a kind and a message.

    Attributes:
        num_rollbacks: how many there were.
    """

    def __init__(
        self,
        state: TrainingState,
        checkpoints: Checkpoints | None,
        ranks: Ranks,
        factor: float,
        most: int,
        event: Callable[[str, str], None],
    ) -> None:
        self.num_rollbacks = 0
        self._state, self._checkpoints, self._ranks = state, checkpoints, ranks
        self._factor, self._most, self._event = factor, most, event

    def save(self, step: int, attempt: int) -> Path | None:
        """Writes a checkpoint, if weights and optimizer state are finite; None if not."""
        if self._checkpoints is None:
            return None
        unfit = self.unfit()
        if unfit is not None:
            self._event("checkpoint", f"no checkpoint at step {step}: {unfit} is not finite")
            return None
        states = self._state.take()
        path = None
        if self._ranks.is_first:
            counts = {"step": step, "attempt": attempt, "num_rollbacks": self.num_rollbacks}
            try:
                path = self._checkpoints.save({**counts, **states})
            except (OSError, RuntimeError) as error:
                # torch raises its own when a disk is full. Those before are as they were.
                why = getattr(error, "strerror", None) or str(error).split("\n")[0][:120]
                self._event("checkpoint", f"no checkpoint at step {step}: {why}")
        return path

    def unfit(self) -> BadTensor | None:
        """What of weights and optimizer state is not finite on a process; all must ask."""
        found = self._ranks.gather(self._state.unfit())
        return next((bad for bad in found if bad is not None), None)

    def adopt(self, step: int, num_rollbacks: int) -> None:
        """Goes on where somebody else has put everything back to."""
        self.num_rollbacks = num_rollbacks
        if self._checkpoints is not None and self._ranks.is_first:
            self._checkpoints.remove_after(step)

    def resume(self) -> tuple[int, int] | None:
        """Puts everything back as the last checkpoint has it; its step and attempt, if any."""
        found = self._load()
        if found is None:
            return None
        self._state.put(found)
        self.num_rollbacks = int(found["num_rollbacks"])
        return int(found["step"]), int(found["attempt"])

    def roll_back(self, why: str) -> tuple[int | None, str]:
        """Goes back to the last checkpoint with a lower rate.

        Args:
            why: the failure, in a sentence.

        Returns:
            the step that training goes on from, None when it must end; and a sentence.
        """
        if self.num_rollbacks >= self._most:
            again = plural(self.num_rollbacks, "roll-back")
            return None, f"{why} It is the same after {again} (max_rollbacks)."
        found = self._load()
        if found is None:
            return None, f"{why} There is no checkpoint to go back to."
        self._state.put(found)
        self.num_rollbacks += 1
        # A checkpoint that was written after a roll-back has its lower rate already.
        factor = self._factor ** (self.num_rollbacks - int(found["num_rollbacks"]))
        self._state.lower_rates(factor)
        step = int(found["step"])
        return step, f"{why} Back at step {step} with {rate(factor)} times its learning rate."

    def _load(self) -> dict | None:
        found = None
        if self._checkpoints is not None and self._ranks.is_first:
            found = self._checkpoints.load(lambda message: self._event("checkpoint", message))
        return self._ranks.first(found)
