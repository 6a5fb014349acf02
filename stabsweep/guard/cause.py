"""Why a loss or a gradient was not finite: one cause of seven, with evidence and cure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stabsweep.evidence import DEFAULTS
from stabsweep.guard.calls import Forward
from stabsweep.guard.finding import BadTensor
from stabsweep.numerals import rate
from stabsweep.records import Array

LEAST_EPS = 6e-8
"""The smallest positive number of float16, rounded: a smaller eps is 0 there, and 0 / 0 is NaN."""

GROWTH = 10.0
"""How much larger than before a curve must be to have grown. Ours: batches differ by less."""

LOOK_BACK = 64
"""Steps before the failure that are looked at for growth. Ours: a run beyond its edge multiplies
its loss within some dozen steps; slower drifts are the early warnings' business."""


class Cause(enum.Enum):
    """Why an attempt was not finite; the value is the sentence that a reader sees."""

    DATA = "The data: an input or a target was not finite."
    START = "Not the learning rate: nothing had been trained yet. Look at input, init and model."
    LEARNING_RATE = "The learning rate: beyond the edge of stability, loss or steps grew before."
    NUMERICS = "The optimizer's numerics: a finite gradient made weights that are not finite."
    FORWARD = "The forward pass overflowed in one module, which clipping cannot prevent."
    LOSS = "The loss function: what the model returned was finite."
    GRADIENT = "The backward pass: the loss was finite, its gradient was not."

    @property
    def label(self) -> str:
        """The word in files: the name in lower case."""
        return self.name.lower()


CURES = {
    Cause.DATA: "clean the data, or keep policy=skip, which leaves such batches out",
    Cause.START: "look at the input, the initialisation and the masks, not at the learning rate",
    Cause.LEARNING_RATE: "lower the learning rate (stabsweep finds the edge), or warm up longer",
    Cause.NUMERICS: "keep float32 master weights, or raise eps",
    Cause.FORWARD: "bound or normalise what that module computes, or use fp32 there",
    Cause.LOSS: "use a stable form (log_softmax, with_logits), or an eps in logarithm and division",
    Cause.GRADIENT: "look for a root, a norm or a division at zero; what is finite is clipped",
}
"""What a reader can do about each."""


@dataclass(frozen=True)
class Diagnosis:
    """What a guard found out about an attempt that was not finite.

    Attributes:
        cause: see `Cause`.
        evidence: what was seen, in a sentence.
        module: the first module, in forward order, whose output was not finite.
        gradients: parameters whose gradient was not finite, in forward order.
        weights: parameters that are not finite themselves.
        inputs: what of the batch is not finite.
        is_loss_finite: whether the loss was.
        micro_batch: which batch of an accumulated window.
        rank: the process that saw it.
    """

    cause: Cause
    evidence: str
    module: str | None = None
    gradients: tuple[BadTensor, ...] = ()
    weights: tuple[BadTensor, ...] = ()
    inputs: tuple[BadTensor, ...] = ()
    is_loss_finite: bool = False
    micro_batch: int = 0
    rank: int = 0

    @property
    def cure(self) -> str:
        """What can be done about it."""
        return CURES[self.cause]

    def __str__(self) -> str:
        return f"{self.cause.value} Seen: {self.evidence}. Cure: {self.cure}."


@dataclass(frozen=True)
class Facts:
    """What can be looked at after a hit.

    Attributes:
        step: updates made so far.
        is_loss_finite: whether the loss was.
        curves: curve -> (N,) its last values, the attempt itself left out; NaN: not measured.
        gradients, weights, inputs: what of them is not finite.
        forward: the forward pass, repeated; None where it was not seen.
        micro_batch: which one it was.
        low_precision: name of a parameter in float16 whose optimizer's eps is 0 there, else "".
        rank: this process.
    """

    step: int
    is_loss_finite: bool
    curves: Mapping[str, Array]
    gradients: Sequence[BadTensor] = ()
    weights: Sequence[BadTensor] = ()
    inputs: Sequence[BadTensor] = ()
    forward: Forward | None = None
    micro_batch: int = 0
    low_precision: str = ""
    rank: int = 0

    @property
    def is_hit(self) -> bool:
        """Whether something was not finite on this process."""
        return bool(self.gradients) or not self.is_loss_finite

    @property
    def num_clues(self) -> int:
        """How much of it lies before the backward pass: input, module, loss."""
        is_module = self.forward is not None and self.forward.module is not None
        return bool(self.inputs) + is_module + (not self.is_loss_finite)


def diagnose(facts: Facts) -> Diagnosis:
    """The cause, from what was seen; the first line that holds decides.

    | # | what is seen | cause |
    |---|---|---|
    | 1 | a weight is not finite, in float16 with an eps of 0 there | numerics |
    | 2 | the input, or another part of the batch, is not finite | data |
    | 3 | no update was made yet | start |
    | 4 | loss, gradient or update grew tenfold before, within 64 steps | learning rate |
    | 5 | a weight is not finite though the last gradient was | numerics |
    | 6 | a module's output is not finite, its input is | forward |
    | 7 | the loss is not finite, the model's output is | loss |
    | 8 | the gradient is not finite, the loss is | gradient |

    It misleads where a batch is finite but absurd (a pixel of 1e30): that looks like 6 or 8. A rate
    so high that the very next loss is not finite shows no growth but a long step: that is 4 too.
    """
    evidence = _evidence(facts)
    growth = _growth(facts.curves)
    if facts.weights and facts.low_precision:
        cause = Cause.NUMERICS
        evidence = f"{facts.low_precision}; {evidence}"
    elif facts.inputs:
        cause = Cause.DATA
    elif facts.step == 0:
        cause = Cause.START
    elif growth:
        cause, evidence = Cause.LEARNING_RATE, f"{growth}; {evidence}"
    elif facts.weights:
        cause = Cause.NUMERICS
    elif facts.forward is not None and facts.forward.module is not None:
        cause = Cause.FORWARD
    else:
        cause = Cause.GRADIENT if facts.is_loss_finite else Cause.LOSS
    return Diagnosis(
        cause,
        evidence,
        facts.forward.module if facts.forward else None,
        tuple(facts.gradients),
        tuple(facts.weights),
        tuple(facts.inputs),
        facts.is_loss_finite,
        facts.micro_batch,
        facts.rank,
    )


def _evidence(facts: Facts) -> str:
    """The first place where something is not finite, as far forward as it was seen."""
    said, forward = [], facts.forward
    if facts.weights:
        said.append(f"weight {facts.weights[0]}")
    if facts.inputs:
        said.append(f"{facts.inputs[0]}")
    elif forward is not None and forward.module is not None:
        name = forward.module or "the model itself"
        where = f"first in {name} ({forward.kind})"
        said.append(
            f"{where}: {forward.outputs[0]} of inputs up to {rate(forward.largest)} in magnitude"
        )
    elif not facts.is_loss_finite:
        again = "could not be repeated" if forward is None or forward.error else "is finite"
        why = f" ({forward.error})" if forward is not None and forward.error else ""
        said.append(f"the loss was not finite; the forward pass {again}{why}")
    if facts.gradients and not facts.weights:
        first = facts.gradients[0]
        more = f" and {len(facts.gradients) - 1} more" if len(facts.gradients) > 1 else ""
        said.append(f"gradient of {first}{more}")
    if not said:
        said.append("the gradient was not finite on another rank or in a window")
    norms = facts.curves["grad_norm"]
    norms = norms[np.isfinite(norms)]
    if len(norms):
        said.append(
            f"last finite gradient norms {', '.join(rate(float(norm)) for norm in norms[-3:])}"
        )
    return "; ".join(said)


def _growth(curves: Mapping[str, Array]) -> str:
    """What grew before the failure, in words; nothing where nothing did."""
    steps = curves["update_ratio"]
    if len(steps) and steps[-1] > DEFAULTS.long_step:
        return f"the last step moved the weights by {rate(float(steps[-1]))} of their norm"
    for name, word in (("loss", "loss"), ("grad_norm", "gradient norm"), ("update_ratio", "step")):
        values: Array = curves[name][-LOOK_BACK:]
        values = values[np.isfinite(values)]
        if len(values) < 2:
            continue
        now, low = float(values[-1]), float(np.median(values[: max(len(values) // 2, 1)]))
        if now > GROWTH * low > 0:
            return f"the {word} had grown from {rate(low)} to {rate(now)}"
    return ""


def lost_eps(groups: Sequence[dict[str, Any]], names: Mapping[Any, str]) -> str:
    """What of an optimizer's numbers float16 cannot hold, in words; nothing where all is well.

    Args:
        groups: the optimizer's.
        names: parameter -> its name.
    """
    for group in groups:
        eps = group.get("eps")
        if eps is None or not 0 <= float(eps) < LEAST_EPS:
            continue
        for parameter in group["params"]:
            if parameter.dtype == torch.float16:
                name = names.get(parameter, "a parameter")
                return f"{name} is float16, where eps={float(eps):g} is 0"
    return ""
