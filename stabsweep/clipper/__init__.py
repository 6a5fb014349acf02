"""Clippers of gradients: a limit on the whole, on entries, on units, or one that is learned."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

from stabsweep.clipper._base import Clipper, Twin, l2_norm
from stabsweep.clipper.agc import AGC
from stabsweep.clipper.autoclip import AutoClip
from stabsweep.clipper.norm import Norm, clip_coefficient
from stabsweep.clipper.value import Value
from stabsweep.clipper.zclip import ZClip
from stabsweep.errors import unknown
from stabsweep.limits import check_value

CLIPPERS: Mapping[str, type[Clipper]] = {
    cls.name: cls for cls in (Norm, Value, AGC, AutoClip, ZClip)
}
"""Every choice of `clipper=`."""

HYPERPARAMETERS = tuple(name for cls in CLIPPERS.values() for name in cls.defaults)
"""The numbers of all of them; each belongs to one."""


def build(name: str, **given: Any) -> tuple[Clipper, dict[str, float]]:
    """A clipper and its hyperparameters.

    Args:
        name: one of `CLIPPERS`.
        given: hyperparameters other than the defaults, and flags of the clipper's own.

    Raises:
        BadInput: an unknown name, or a value out of range.

    >>> build("zclip", clip_z=3)[1]
    {'clip_z': 3.0, 'clip_alpha': 0.97}
    >>> build("norm")[1]
    {'clip_norm': inf}
    """
    if not isinstance(name, str) or name not in CLIPPERS:
        raise unknown("clipper", name, CLIPPERS)
    cls = CLIPPERS[name]
    flags = inspect.signature(cls).parameters
    for key in given:
        if key not in cls.defaults and key not in flags:
            raise unknown(f"clipper.{name} key", key, [*cls.defaults, *flags])
    values = {
        key: check_value(key, given.get(key, default), f"clipper.{key}")
        for key, default in cls.defaults.items()
    }
    hyper = {key: math.inf if value is None else float(value) for key, value in values.items()}
    return cls(**{key: given[key] for key in flags if key in given}), hyper


__all__ = [
    "CLIPPERS",
    "HYPERPARAMETERS",
    "Clipper",
    "Twin",
    "build",
    "clip_coefficient",
    "l2_norm",
]
