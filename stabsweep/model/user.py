"""A model of the user's own, by its target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from stabsweep.errors import BadInput
from stabsweep.signature import Signature
from stabsweep.target import load, make, parameters


def from_target(
    signature: Signature, *, target: str | None = None, args: Mapping[str, Any] | None = None
) -> nn.Module:
    """The module that a target makes: a class, or a function that returns an `nn.Module`.

    It is called anew for every trial, under the trial's seed, on the CPU. One that takes
    `signature` is told the shapes of the task.

    Args:
        signature: what the task hands over and expects back.
        target: `module:attribute`, such as `my_models:Net`.
        args: its keyword arguments.

    Raises:
        BadInput: there is no target, or it cannot be called or gives something else.
    """
    if target is None:
        raise BadInput(
            "model=user needs model.target=module:attribute, such as model.target=my_models:Net"
        )
    takes_signature = "signature" in parameters(load("model.target", target))
    own = {"signature": signature} if takes_signature else {}
    return make("model", target, args, nn.Module, **own)
