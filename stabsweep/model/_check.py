"""The checks that every model makes of its arguments and of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stabsweep.errors import BadInput, unknown
from stabsweep.signature import Signature

KINDS: Mapping[str, tuple[str, str]] = {
    "vector": ("vectors", "mlp"),
    "sequence": ("sequences", "rnn or mlp"),
    "tokens": ("tokens", "transformer"),
    "nothing": ("no data", "vector or uv"),
    "arrays": ("arrays of more dimensions", "mlp, or user for a model of your own"),
    "batches": ("batches of a form of its own", "user, with a model of your own"),
}
"""Kind of a signature -> what its task gives, in words, and the models that read it."""


def check_flag(key: str, value: object) -> None:
    """Nothing, if `value` is true or false.

    Raises:
        BadInput: it is something else.
    """
    if not isinstance(value, bool):
        raise BadInput(f"model.{key}={value!r} is not allowed: use true or false")


def check_choice(key: str, value: object, allowed: Sequence[str]) -> None:
    """Nothing, if `value` is one of the allowed names.

    Raises:
        BadInput: it is something else.
    """
    if value not in allowed:
        raise unknown(f"model.{key}", value, allowed)


def check_kind(model: str, signature: Signature, *reads: str) -> None:
    """Nothing, if the model reads what the task gives.

    Args:
        model: name of the model.
        signature: what the task gives.
        reads: the kinds that the model reads.

    Raises:
        BadInput: it reads something else; the message names a model that fits the task.
    """
    if signature.kind not in reads:
        wanted = " or ".join(KINDS[kind][0] for kind in reads)
        gives, fitting = KINDS[signature.kind]
        raise BadInput(
            f"model={model} reads {wanted}, but the task gives {gives}: "
            f"use model={fitting}, or a task that gives {wanted}"
        )
