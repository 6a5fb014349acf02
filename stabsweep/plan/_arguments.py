"""The forms in which an argument of a sweep may be given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from stabsweep.errors import BadInput, unknown
from stabsweep.limits import check_count

MAX_SEEDS = 10**6
"""Seeds that a count may ask for."""


def find_device(name: str) -> torch.device:
    """The device of a name; `auto` is a GPU when there is one.

    Raises:
        BadInput: there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise BadInput(f"device={name!r} is not known: use auto, cpu, cuda or cuda:N") from None
    count = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(device.type, 0)
    if (device.index or 0) >= count:
        here = ", ".join(["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))])
        raise BadInput(f"device={name!r} is not on this machine: use one of auto, {here}")
    return device


def find_seeds(given: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds 0, 1, ... for a count, or the seeds that were listed.

    Raises:
        BadInput: no seed, or one that is not a whole number >= 0.
    """
    if isinstance(given, Sequence) and not isinstance(given, str):
        for seed in given:
            check_count("seeds", seed, low=0)
        if not given:
            raise BadInput("seeds=[] is empty: give a count or a list of seeds")
        return tuple(dict.fromkeys(given))
    check_count("seeds", given, high=MAX_SEEDS)
    return tuple(range(given))  # type: ignore[arg-type]


def named(key: str, given: Any) -> dict[str, Any]:
    """A choice as `{"name": ..., **arguments}`, whether given so or as the name alone.

    Raises:
        BadInput: it is neither.
    """
    if isinstance(given, str):
        return {"name": given}
    if isinstance(given, Mapping) and isinstance(given.get("name"), str):
        return dict(given)
    raise BadInput(f"{key}={given!r} is not a choice: give a name, or {{name: ..., arguments}}")


def known(key: str, given: Any, names: Collection[str]) -> dict[str, Any]:
    """A choice, see `named`, among the names that there are.

    Raises:
        BadInput: it is none of them.
    """
    chosen = named(key, given)
    if chosen["name"] not in names:
        raise unknown(key, chosen["name"], names)
    return chosen


def optional_count(given: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number of at least 1; `default` for None.

    Raises:
        BadInput: it is something else.
    """
    if given[key] is None:
        return default
    check_count(key, given[key])
    return given[key]
