"""The models: small networks to find the edge on, one a file, each built from a signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from stabsweep.errors import BadInput, unknown
from stabsweep.model._init import INITS, check_init, initialize
from stabsweep.model._spectral import Spectrum, find_spectrum
from stabsweep.model.fractal import Fractal
from stabsweep.model.mlp import MLP
from stabsweep.model.rnn import RNN
from stabsweep.model.transformer import Transformer
from stabsweep.model.user import from_target
from stabsweep.model.uv import UV
from stabsweep.model.vector import Vector
from stabsweep.signature import Signature

__all__ = [
    "Fractal",
    "INITS",
    "MLP",
    "MODELS",
    "RNN",
    "Spectrum",
    "Transformer",
    "UV",
    "Vector",
    "build",
    "check_init",
    "find_spectrum",
    "from_target",
    "initialize",
]

MODELS: Mapping[str, Callable[..., nn.Module]] = {
    "fractal": Fractal,
    "mlp": MLP,
    "rnn": RNN,
    "transformer": Transformer,
    "user": from_target,
    "uv": UV,
    "vector": Vector,
}
"""Every model that `model=<name>` can ask for."""


def build(name: str, signature: Signature, **args: Any) -> nn.Module:
    """A new model with torch's default weights, drawn from the global generator.

    Args:
        name: one of `MODELS`.
        signature: the shapes that the task hands over and expects back.
        args: the model's own keyword arguments, as in its config file.

    Raises:
        BadInput: unknown name or argument, a value of the wrong type or out of range, or a task
            that the model cannot read.
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    allowed = [key for key in inspect.signature(MODELS[name]).parameters if key != "signature"]
    for key in args:
        if key not in allowed:
            if not allowed:
                raise BadInput(f"model={name} takes no argument: leave {key} away")
            raise unknown(f"model={name}: argument", key, allowed)
    return MODELS[name](signature, **args)
