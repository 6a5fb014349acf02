"""What goes into a model and what must come out: the handshake of task and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Signature:
    """The shapes that a task hands to a model and expects back.

    Attributes:
        kind: `vector`: inputs (B, num_inputs) float; `sequence`: (B, length, num_inputs) float;
            `tokens`: (B, length) integers in [0, num_inputs); `nothing`: the task has no data and
            reads the model's `num_outputs` parameters themselves; `arrays`: (B, ...) float with
            `num_inputs` numbers an example, such as images; `batches`: whatever the task's own
            loss reads, and the other fields say nothing.
        num_inputs: features a vector or a step has, or the size of the vocabulary.
        num_outputs: numbers the model returns, an example or (with `per_step`) a step.
        length: steps of a sequence; 1 for `vector` and `nothing`.
        per_step: outputs are (B, length, num_outputs) instead of (B, num_outputs).
    """

    kind: Literal["vector", "sequence", "tokens", "nothing", "arrays", "batches"]
    num_inputs: int
    num_outputs: int
    length: int = 1
    per_step: bool = False
