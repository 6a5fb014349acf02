"""All that a training run consists of: taken apart for a checkpoint, verified, put back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stabsweep.errors import BadInput
from stabsweep.guard.checkpoint import (
    find_unfit,
    generator_states,
    load_into,
    restore_generators,
    tensors_of,
)
from stabsweep.guard.finding import BadTensor, find_bad
from stabsweep.guard.ranks import Ranks
from stabsweep.guard.wrapping import unwrapped

RATES = ("lr", "initial_lr", "max_lr", "min_lr")
"""What a group may hold of its learning rate: torch's own keys, and its one-cycle schedule's."""


class TrainingState:
    """Model, optimizer, scheduler, scaler, clipper and whatever else has a `state_dict`.

    Args:
        parts: name -> object with `state_dict` and `load_state_dict`; `model` and `optimizer` are
            verified, the others are kept as they are.
        ranks: the processes that train together: each has random numbers of its own.

    Raises:
        BadInput: a part has no state.
    """

    VERIFIED = ("model", "optimizer")

    def __init__(self, parts: Mapping[str, Any], ranks: Ranks) -> None:
        for name, part in parts.items():
            if not all(callable(getattr(part, m, None)) for m in ("state_dict", "load_state_dict")):
                raise BadInput(
                    f"objects[{name!r}]={type(part).__name__} has no state_dict and "
                    "load_state_dict: give what has both, such as a stateful data loader"
                )
        self._parts = dict(parts)
        self._ranks = ranks
        # The -inf of a mask, say, which is as it should be.
        buffers = {"model": dict(unwrapped(parts["model"]).named_buffers())}
        self._allowed = [name for name, buffer in tensors_of(buffers) if find_bad(name, buffer)]

    def unfit(self) -> BadTensor | None:
        """What of weights and optimizer state is not finite, the first; None when all is well."""
        states = {name: self._state(name) for name in self.VERIFIED}
        return find_unfit(states, self._allowed)

    def take(self) -> dict[str, Any]:
        """The states of all parts, and of every process's random numbers."""
        states: dict[str, Any] = {name: self._state(name) for name in self._parts}
        states["generators"] = self._ranks.gather(generator_states())
        return states

    def put(self, states: Mapping[str, Any]) -> None:
        """Puts back what `take` returned.

        Raises:
            BadInput: it is the state of something else.
        """
        for name, part in self._parts.items():
            if name not in states:
                raise BadInput(f"the checkpoint has no {name}: it is of a run without one")
            load_into(unwrapped(part) if name == "model" else part, states[name], name)
        own = states["generators"]
        restore_generators(own[min(self._ranks.rank, len(own) - 1)])

    def lower_rates(self, factor: float) -> None:
        """Multiplies every learning rate, now and in what the scheduler makes of it later."""
        for group in self._parts["optimizer"].param_groups:
            for key in RATES:
                if key in group:
                    group[key] = group[key] * factor
        for scheduler in _schedulers(self._parts.get("scheduler")):
            for key in ("base_lrs", "_last_lr"):
                if hasattr(scheduler, key):
                    setattr(scheduler, key, [rate * factor for rate in getattr(scheduler, key)])

    def _state(self, name: str) -> Any:
        part = self._parts[name]
        return (unwrapped(part) if name == "model" else part).state_dict()


def _schedulers(scheduler: Any) -> Iterator[Any]:
    """A scheduler and those that it chains."""
    if scheduler is not None:
        yield scheduler
        for inner in getattr(scheduler, "_schedulers", ()):
            yield from _schedulers(inner)
