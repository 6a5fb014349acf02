"""A task of the user's own, by its target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from stabsweep.errors import BadInput
from stabsweep.target import make
from stabsweep.task._base import Task
from stabsweep.task._batches import Batches, seeded


def from_target(*, target: str | None = None, args: Mapping[str, Any] | None = None) -> Task:
    """The task that a target makes: batches and a loss, or a `Task`.

    The target is a class or a function. It is called once, under a fixed seed of the global
    generators, and gives one of

    - a pair `(loader, loss)`: see `Batches`;
    - an object that can be iterated for batches and has a method `loss(model, batch)`, and
      perhaps a number `blind_loss`;
    - a `Task`, such as `Batches(loader, loss, blind_loss=2.3)`.

    Args:
        target: `module:attribute`, such as `my_data:batches`.
        args: its keyword arguments.

    Raises:
        BadInput: there is no target, or it cannot be called or gives something else.
    """
    if target is None:
        raise BadInput(
            "task=user needs task.target=module:attribute, such as task.target=my_data:batches"
        )
    with seeded():
        made = make("task", target, args, object)
    if isinstance(made, tuple) and len(made) == 2:
        made = Batches(*made)
    elif not isinstance(made, Task):
        if not isinstance(made, Iterable) or not callable(getattr(made, "loss", None)):
            raise BadInput(
                f"task.target={target!r} gives {type(made).__name__}: give (loader, loss), or what "
                "can be iterated for batches and has a method loss(model, batch), or a Task"
            )
        made = Batches(made, made.loss, blind_loss=getattr(made, "blind_loss", None))  # type: ignore[reportAttributeAccessIssue]
    with suppress(AttributeError):
        # What the reader typed, so that errors name it.
        made.name = "user"
    return made
