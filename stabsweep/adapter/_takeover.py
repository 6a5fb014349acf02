"""Methods of a framework's objects, replaced while training lasts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_NONE = object()


class Takeover:
    """What was put in the place of something else, on single objects; `undo` puts all back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def method(self, owner: Any, name: str, replacement: Callable[..., Any]) -> Callable[..., Any]:
        """Replaces a method of one object.

        Args:
            owner: the object.
            name: of the method.
            replacement: takes the method's arguments.

        Returns:
            the method that was there.
        """
        original = getattr(owner, name)
        self.value(owner, name, functools.wraps(original)(replacement))
        return original

    def value(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute of one object."""
        self._before.append((owner, name, vars(owner).get(name, _NONE)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Puts everything back, the last first; a second call does nothing."""
        while self._before:
            owner, name, value = self._before.pop()
            if value is _NONE:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
