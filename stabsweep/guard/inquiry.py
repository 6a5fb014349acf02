"""What can be found out about an attempt that was not finite, on this process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from stabsweep.guard.calls import Calls, Forward
from stabsweep.guard.cause import Facts, lost_eps
from stabsweep.guard.finding import BadTensor, find_all_bad, tensors_in
from stabsweep.records import Array


def inquire(
    named: Mapping[str, nn.Parameter],
    groups: Sequence[dict[str, Any]],
    losses: Sequence[Tensor],
    batches: Sequence[Any],
    calls: Calls,
    curves: Mapping[str, Array],
    step: int,
    rank: int,
) -> Facts:
    """The facts about the attempt; it costs a forward pass and some waits for the device.

    Args:
        named: parameters with a gradient.
        groups: the optimizer's.
        losses: of the batches of the window.
        batches: what they were computed from, None where it was not given.
        calls: the forward passes of the window.
        curves: the last values of the run, see `Facts`.
        step: updates made so far.
        rank: this process.
    """
    gradients = find_all_bad((name, p.grad) for name, p in named.items() if p.grad is not None)
    weights = find_all_bad(named.items())
    is_bad = [not math.isfinite(float(loss)) for loss in losses]
    first = is_bad.index(True) if any(is_bad) else 0
    inputs = [bad for batch in batches for bad in find_all_bad(tensors_in(batch, "batch"))]
    for number in range(len(calls)):
        inputs += calls.inputs(number) if not inputs else []
    forward = None
    if len(calls) and not weights:
        # Several calls a batch, as of two views, or one: the failing one is among all of them.
        numbers = [first] if len(calls) == len(losses) else range(len(calls))
        forward = _first_bad([calls.repeat(number) for number in numbers])
        gradients = _in_order(gradients, forward)
    return Facts(
        step,
        not any(is_bad),
        curves,
        gradients,
        weights,
        inputs,
        forward,
        first,
        lost_eps(groups, {p: name for name, p in named.items()}),
        rank,
    )


def _first_bad(passes: Sequence[Forward]) -> Forward:
    return next((forward for forward in passes if forward.module is not None), passes[0])


def _in_order(gradients: list[BadTensor], forward: Forward) -> list[BadTensor]:
    """The gradients in the order in which the forward pass used their parameters."""
    order = {name: place for place, name in enumerate(forward.order)}
    return sorted(gradients, key=lambda bad: order.get(bad.name.rpartition(".")[0], len(order)))
