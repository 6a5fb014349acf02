"""The tasks: data that trials are trained on, built in or the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from stabsweep.errors import unknown
from stabsweep.task._base import CannotStack, Supervised, Task
from stabsweep.task._batches import Batches
from stabsweep.task._order import BatchOrder
from stabsweep.task.adding import Adding
from stabsweep.task.arrays import Arrays
from stabsweep.task.digits import Digits
from stabsweep.task.fractal import Fractal
from stabsweep.task.quadratic import Quadratic
from stabsweep.task.regression import Regression
from stabsweep.task.sequential_digits import SequentialDigits
from stabsweep.task.temporal_order import TemporalOrder
from stabsweep.task.text import Text
from stabsweep.task.user import from_target
from stabsweep.task.uv import UV

__all__ = [
    "Adding",
    "Arrays",
    "BatchOrder",
    "Batches",
    "CannotStack",
    "Digits",
    "Fractal",
    "Quadratic",
    "Regression",
    "SequentialDigits",
    "Supervised",
    "TASKS",
    "Task",
    "TemporalOrder",
    "Text",
    "UV",
    "build",
    "from_target",
]

TASKS: Mapping[str, Callable[..., Task]] = {
    "adding": Adding,
    "arrays": Arrays,
    "digits": Digits,
    "fractal": Fractal,
    "quadratic": Quadratic,
    "regression": Regression,
    "sequential_digits": SequentialDigits,
    "temporal_order": TemporalOrder,
    "text": Text,
    "user": from_target,
    "uv": UV,
}
"""Every task that `task=<name>` can ask for."""


def build(name: str, **args: Any) -> Task:
    """The task, on the CPU in float32.

    Args:
        name: one of `TASKS`.
        args: the task's own keyword arguments, as in its config file.

    Raises:
        BadInput: unknown name or argument, or a value of the wrong type or out of range.
    """
    if name not in TASKS:
        raise unknown("task", name, TASKS)
    allowed = list(inspect.signature(TASKS[name]).parameters)
    for key in args:
        if key not in allowed:
            raise unknown(f"task={name}: argument", key, allowed)
    return TASKS[name](**args)
