"""A value in a snapshot that may lack it: another machine's, an older format's, a broken one's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Snapshot = Mapping[str, Any]
"""What `snapshot.take` returned, or what was read from a file."""


def look(snapshot: Snapshot, place: str) -> Any:
    """What stands at a dotted place, None where nothing does.

    A part that could not be read (`{"error": ...}`) has nothing in it but its reason.

    >>> look({"torch": {"cuda": "12.4"}}, "torch.cuda"), look({"torch": None}, "torch.cuda")
    ('12.4', None)
    """
    value: Any = snapshot
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def look_driver(snapshot: Snapshot) -> str:
    """The version in what a GPU's driver says of itself; empty where it tells none.

    >>> look_driver({"gpu": {"driver": "NVIDIA UNIX Open Kernel Module  570.86.15  Release Build"}})
    '570.86.15'
    """
    found = re.search(r"\b\d{3,}(\.\d+)+\b", look_text(snapshot, "gpu.driver"))
    return found[0] if found else ""


def look_list(snapshot: Snapshot, place: str) -> list[dict[str, Any]]:
    """The entries at a dotted place; none where they were not recorded, or could not be read."""
    value = look(snapshot, place)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def look_text(snapshot: Snapshot, place: str) -> str:
    """The text at a dotted place; empty where there is none."""
    value = look(snapshot, place)
    return value if isinstance(value, str) else ""
