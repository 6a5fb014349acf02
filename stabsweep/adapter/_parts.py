"""Parts of a run that a framework owns and steps, in the shape in which a guard keeps them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class ForeignSchedulers:
    """Schedulers that a framework steps: here they are saved, put back and lowered alone.

    Args:
        schedulers: of one optimizer.
    """

    def __init__(self, schedulers: Sequence[Any]) -> None:
        # Under this name the guard finds what a roll-back lowers, as in torch's own chains.
        self._schedulers = list(schedulers)

    def step(self) -> None:
        """Nothing: the framework does it, and the adapter keeps it from doing so after a skip."""

    def state_dict(self) -> dict[str, Any]:
        """The states of all, by their place."""
        return {str(i): each.state_dict() for i, each in enumerate(self._schedulers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        for i, each in enumerate(self._schedulers):
            each.load_state_dict(state[str(i)])


class ForeignScaler:
    """A gradient scaler that a framework scales, steps and updates with.

    The framework calls `scaler.step` after a skip too. It makes the optimizer's step, which finds
    no gradients, or leaves it out if there was an overflow; the scale goes up or down as it should.

    Args:
        scaler: the framework's.
        unscale: brings the gradients to their true size, if the framework has not done it.
    """

    def __init__(self, scaler: Any, unscale: Callable[[], None]) -> None:
        self._scaler = scaler
        self._unscale = unscale

    def is_enabled(self) -> bool:
        """Whether it scales."""
        return self._scaler.is_enabled()

    def scale(self, outputs: Any) -> Any:
        """The outputs times the loss scale."""
        return self._scaler.scale(outputs)

    def get_scale(self) -> float:
        """The loss scale."""
        return self._scaler.get_scale()

    def unscale_(self, optimizer: Any) -> None:
        """Brings the gradients to their true size, once."""
        self._unscale()

    def update(self) -> None:
        """Nothing: the framework does it."""

    def state_dict(self) -> dict[str, Any]:
        """The scaler's."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Gives a state to the scaler."""
        self._scaler.load_state_dict(state)
