"""Things of the user's own, named on the command line as `module:attribute`."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from stabsweep.errors import BadInput


def load(key: str, target: Any) -> Any:
    """What `module:attribute` names; modules of the working folder are found as well.

    Args:
        key: what the target was given for, for errors: `sampler.target`.
        target: `module:attribute`; the attribute may be dotted.

    Raises:
        BadInput: it has another form, or there is no such module or attribute.

    >>> load("model.target", "math:sqrt")(4.0)
    2.0
    """
    module_name, colon, path = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not (module_name and colon and path):
        raise BadInput(f"{key}={target!r} is not module:attribute, such as collections:Counter")
    here = os.getcwd()
    # A command that was installed does not look into the folder that it is called from. It stays,
    # since what is found there may import its neighbours as late as it is called.
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        found = importlib.import_module(module_name)
    except Exception as error:
        raise BadInput(
            f"{key}={target!r}: module {module_name} cannot be imported ({one_line(error)}); "
            "install it, or run where it lies"
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            public = [known for known in dir(found) if not known.startswith("_")]
            # A module may hold hundreds of names: only the nearest is worth reading.
            near = difflib.get_close_matches(name, public, n=1)
            hint = f"; did you mean {module_name}:{near[0]}?" if near else ""
            raise BadInput(f"{key}={target!r}: {module_name} has no {path}{hint}")
        found = getattr(found, name)
    return found


def make(key: str, target: Any, args: Any, kind: type, *positional: Any, **more: Any) -> Any:
    """Calls what a target names and checks what it gives.

    Args:
        key: the choice, for errors: `sampler`.
        target: `module:attribute` of a class, or of a function that makes one.
        args: its keyword arguments, a mapping or None.
        kind: what it must give.
        positional: what it is called with besides.
        more: keyword arguments of ours that `args` goes before.

    Raises:
        BadInput: the target cannot be loaded or called, or gives something else.
    """
    made: Callable[..., Any] = load(f"{key}.target", target)
    if args is None:
        args = {}
    if not isinstance(args, Mapping) or not all(isinstance(name, str) for name in args):
        raise BadInput(f"{key}.args={args!r} is no mapping: give keyword arguments")
    try:
        thing = made(*positional, **{**more, **args})
    except Exception as error:
        given = ", ".join(f"{name}={value!r}" for name, value in {**more, **args}.items())
        raise BadInput(
            f"{key}.target={target!r} cannot be called with ({given}): {one_line(error)}"
        ) from error
    if not isinstance(thing, kind):
        raise BadInput(
            f"{key}.target={target!r} gives {type(thing).__name__}: give a class that "
            f"extends {kind.__module__}.{kind.__qualname__}, or what makes one"
        )
    return thing


def parameters(called: Callable[..., Any]) -> list[str]:
    """Names of what a callable takes, in order; none where that cannot be known.

    >>> parameters(make)[:3]
    ['key', 'target', 'args']
    """
    try:
        return list(inspect.signature(called).parameters)
    except (TypeError, ValueError):
        return []


def one_line(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
