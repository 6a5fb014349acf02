"""One thing that a check of the environment found, and its cure."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "info"]

LEVELS: tuple[Level, ...] = ("error", "warning", "info")
"""From worst to mildest: an error makes numbers wrong or unrepeatable, or stops the run; a warning
may; an info is good to know."""


MAX_REASON = 200
"""How many letters of another program's complaint are told: NumPy's own fills a screen."""


def shortened(reason: str) -> str:
    """Another program's complaint on one line, its end left away where it is long.

    >>> shortened("ImportError: no   IMPORTANT: read this")
    'ImportError: no IMPORTANT: read this'
    """
    return textwrap.shorten(reason, MAX_REASON, placeholder=" ...")


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        level: one of `LEVELS`.
        what: what it is about, in a word.
        message: what was found, in a sentence.
        cure: what to do; empty where nothing needs to be done.
    """

    level: Level
    what: str
    message: str
    cure: str = ""

    def __str__(self) -> str:
        cure = f" -> {self.cure}" if self.cure else ""
        return f"{self.level:8} {self.what}: {self.message}{cure}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return asdict(self)
