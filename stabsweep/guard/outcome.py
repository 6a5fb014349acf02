"""What became of an attempt at a step."""

from __future__ import annotations

import enum


class Outcome(enum.Enum):
    """What `GradientGuard.step` did; the value is the sentence that a reader sees.

    >>> Outcome.STEPPED.is_stepped, Outcome.SKIPPED_OVERFLOW.is_skipped
    (True, True)
    """

    STEPPED = "The optimizer made its step."
    ACCUMULATED = "The gradient was added to those before; the step comes at the window's end."
    SKIPPED_NOT_FINITE = "No step: the loss or the gradient was not finite."
    SKIPPED_OVERFLOW = "No step: the gradient overflowed at this loss scale, which is lowered."
    SKIPPED_OUTLIER = "No step: the gradient was far larger than those before."
    ROLLED_BACK = "Back at the last verified checkpoint, with a lower learning rate."
    STOPPED = "Training is over: the guard's `reason` says why."

    @property
    def label(self) -> str:
        """The word in files: the name in lower case."""
        return self.name.lower()

    @property
    def is_stepped(self) -> bool:
        """Whether the weights have moved: a scheduler and a step counter go on with it alone."""
        return self is Outcome.STEPPED

    @property
    def is_skipped(self) -> bool:
        """Whether the attempt was passed over: weights and optimizer state are as before."""
        return self.name.startswith("SKIPPED")


class TrainingStopped(RuntimeError):
    """A step was asked of a guard that has stopped the training; the message is its reason."""
