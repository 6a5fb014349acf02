"""The one exception that is written for the reader."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """Something that the user gave cannot be used; the message is one complete line.

    It names the key, echoes the value, says what is allowed and what to do. The command line
    prints it without a traceback and exits with 2.
    """


def unknown(what: str, value: object, allowed: Iterable[str]) -> BadInput:
    """The error for a name that is not among the allowed ones, with the nearest as a suggestion.

    Args:
        what: the key that the value was given for, e.g. `"optimizer"`.
        value: what was given.
        allowed: the names that would have been fine.

    >>> str(unknown("optimizer", "adamm", ["adam", "sgd"]))
    "optimizer='adamm' is not known: use one of adam, sgd (did you mean adam?)"
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return BadInput(f"{what}={value!r} is not known: use one of {', '.join(names)}{hint}")
