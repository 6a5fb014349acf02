"""Models and tasks as a sweep makes them: from a name, a target or a Python object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from stabsweep import model as models
from stabsweep import optimizer as optimizers
from stabsweep import task as tasks
from stabsweep.engine import Setup, is_out_of_memory
from stabsweep.errors import BadInput
from stabsweep.limits import CHOICES, LIMITS
from stabsweep.plan._arguments import named
from stabsweep.space import ARGUMENTS
from stabsweep.target import load, one_line, parameters
from stabsweep.task import BatchOrder, Task


def with_arguments(choice: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A choice with more arguments: its own, or those of its target where it has one."""
    if "target" not in choice:
        return {**choice, **more}
    return {**choice, "args": {**(choice.get("args") or {}), **more}} if more else dict(choice)


def with_receivers(space: Any, given: Mapping[str, Any]) -> Any:
    """A space in which an axis that only the model, the task or the optimizer knows goes to it.

    So `width: [64, 128]` needs no `to: model` where the model takes a width.

    Args:
        space: as given; anything but a mapping is returned as it is.
        given: the arguments of a sweep.

    Raises:
        BadInput: a target cannot be loaded.
    """
    if not isinstance(space, Mapping):
        return space
    completed = dict(space)
    for name, axis in space.items():
        if name in LIMITS or name in CHOICES or axis is None:
            continue
        axis = axis if isinstance(axis, Mapping) else {"values": axis}
        to = next((key for key in ARGUMENTS if name in _parameters(key, given[key])), None)
        if to and not axis.get("to"):
            completed[name] = {**axis, "to": to}
    return completed


_ROOMS = {"model": models.MODELS, "task": tasks.TASKS, "optimizer": optimizers.OPTIMIZERS}


def _parameters(key: str, given: Any) -> Collection[str]:
    """Names of the arguments that a model, task or optimizer takes, as far as they are known."""
    called = given
    if isinstance(given, str | Mapping):
        choice = named(key, given)
        target = choice.get("target")
        called = (
            _ROOMS[key].get(choice["name"]) if target is None else load(f"{key}.target", target)
        )
    if not callable(called):
        return ()
    return set(parameters(called)) - {"signature", "target", "args"}


def make_task(given: Any, more: Mapping[str, Any]) -> Task:
    """The task that was asked for, on the CPU in float32.

    Args:
        given: a name, `{"name": ..., **arguments}`, or a `Task`.
        more: arguments that an axis gives.

    Raises:
        BadInput: there is no such task, or it cannot be made so.
    """
    if isinstance(given, tuple | list):
        raise BadInput(
            f"task is a {type(given).__name__}: give stabsweep.Batches(loader, loss), a Task or a "
            "name"
        )
    if isinstance(given, Task):
        for key in more:
            raise BadInput(f"space.{key}.to=task has no effect on a task that is a Python object")
        made = given
    else:
        made = tasks.build(**with_arguments(named("task", given), more))
    if not isinstance(getattr(made, "num_examples", None), int):
        raise BadInput(
            f"task={type(made).__name__} has no num_examples: set it to how many examples an index "
            "of `batch` may name"
        )
    return made


def model_builder(given: Any, task: Task, more: Mapping[str, Any]) -> Callable[[], nn.Module]:
    """What makes a new model for a task.

    Args:
        given: a name, `{"name": ..., **arguments}`, or a callable that returns a module.
        task: gives the shapes.
        more: arguments that an axis gives.

    Raises:
        BadInput: it is none of these.
    """
    if isinstance(given, nn.Module):
        raise BadInput(
            f"model={type(given).__name__}(...) is one module, but every trial needs a new one: "
            f"give a function that makes it, lambda: {type(given).__name__}(...)"
        )
    if callable(given):
        return lambda: _called(given, more)
    chosen = with_arguments(named("model", given), more)
    return lambda: models.build(signature=task.signature, **chosen)


def _called(given: Callable[..., Any], more: Mapping[str, Any]) -> Any:
    try:
        return given(**more)
    except TypeError as error:
        if not more:
            raise
        names = ", ".join(more)
        raise BadInput(
            f"{_key(given)} cannot be called with {names}, which space gives it: {one_line(error)}"
        ) from error


def is_reference(given: Any) -> bool:
    """Whether a model is one of ours, whose arguments are known."""
    return isinstance(given, str | Mapping) and named("model", given)["name"] != "user"


def check_made(setup: Setup, given: Any, inits: list[str]) -> None:
    """Whether the model of a setup can be built and drawn, and answers its task.

    Args:
        setup: to be checked.
        given: the model as it was given, for errors.
        inits: all that a trial may start from.

    Raises:
        BadInput: it cannot, or does not.
    """
    key, device = _key(given), setup.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.no_grad():
        module = setup.build_model()
        if not isinstance(module, nn.Module):
            raise BadInput(f"{key} returns {module!r}: give a function that returns an nn.Module")
        for init in inits:
            models.check_init(init, module)
        names = [name for name, p in module.named_parameters() if p.requires_grad]
        if not names:
            raise BadInput(f"{key} has no parameter to train: set requires_grad on some")
        for pattern in setup.lr_scales.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise BadInput(
                    f"lr pattern {pattern!r} matches no parameter of {key}: it has "
                    f"{', '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
                )
        module.to(device=device, dtype=setup.dtype)
        order = BatchOrder(0, setup.task.num_examples, setup.batch_size)
        batch = setup.task.batch(order.index(0, 1)[0].to(device))
        try:
            loss = setup.loss(module, batch)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise BadInput(
                f"{key} fails on a batch of task={setup.task.name}, {_shapes(batch)} "
                f"({one_line(error)}): make it read and answer that"
            ) from error
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise BadInput(
            f"task={setup.task.name} gives a loss of {_shapes(loss)}: give one number, the mean "
            "over the batch"
        )


def check_optimizer(setup: Setup) -> None:
    """Whether an optimizer of the user's own can be made for the model, and takes a step.

    Raises:
        BadInput: it cannot: every trial would fail.
    """
    if setup.optimizer.stacks:
        return
    device = setup.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        module = setup.build_model().to(device=device, dtype=setup.dtype)
        named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        made = setup.optimizer.twin(named, {})
        for parameter in named.values():
            parameter.grad = torch.zeros_like(parameter)
        try:
            made.step()
        except Exception as error:
            raise BadInput(
                f"optimizer={setup.optimizer.name} cannot take a step ({one_line(error)}): trials "
                "call backward() and step(), with a dense gradient of every parameter"
            ) from error


def _key(given: Any) -> str:
    """How a reader knows the model that was given."""
    if isinstance(given, Mapping):
        given = given.get("target") or given.get("name")
    if not isinstance(given, str):
        given = getattr(given, "__name__", type(given).__name__)
    return f"model={given}"


def _shapes(batch: Any) -> str:
    """A batch with shapes in the place of its tensors."""
    shown = tree_map(lambda leaf: tuple(leaf.shape) if isinstance(leaf, Tensor) else leaf, batch)
    return " ".join(str(shown).split())[:200]
