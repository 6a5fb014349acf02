"""The order of two marked symbols in a sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from stabsweep.limits import check_count
from stabsweep.signature import Signature
from stabsweep.task._base import Supervised
from stabsweep.task._loss import cross_entropy, entropy

NUM_MARKS, NUM_DISTRACTORS = 2, 4
"""Symbols that matter (the first codes), and symbols that do not."""


class TemporalOrder(Supervised):
    """The temporal order problem of Hochreiter & Schmidhuber 1997, for models with a memory.

    A sequence of one-hot symbols out of six: four distractors, and the marks X and Y, which stand
    at two random steps, one in the second tenth of the sequence and one in its fifth. The class is
    which marks they were, in their order: XX, XY, YX or YY. This is the variant of Pascanu et al.
    2013 (arXiv:1211.5063), of one length and without symbols for start and end: the last mark must
    be remembered over half of the length, the first one over more, amid distractors.

    The blind loss is the entropy of the data set's own labels, ln 4 = 1.386 for endlessly many
    examples. A model that counts the marks, but misses their order, comes down to ln 2 / 2 = 0.347.

    Args:
        length: steps of a sequence, at least 10.
        num_examples: at least 2.
        seed: of the data set, at least 0; trials of every seed share the data.

    Raises:
        BadInput: an argument is out of range.
    """

    name = "temporal_order"

    def __init__(self, length: int = 50, num_examples: int = 8192, seed: int = 0) -> None:
        check_count("task.length", length, low=10)
        check_count("task.num_examples", num_examples, low=2)
        check_count("task.seed", seed, low=0)
        self.num_examples = num_examples
        num_symbols = NUM_MARKS + NUM_DISTRACTORS
        self.signature = Signature("sequence", num_symbols, num_outputs=4, length=length)
        generator = torch.Generator().manual_seed(seed)

        def draw(low: int, high: int, *shape: int) -> Tensor:
            return torch.randint(low, high, shape, generator=generator)

        mark_N2 = draw(0, NUM_MARKS, num_examples, 2)
        tenths = ((length * tenth // 10, length * (tenth + 1) // 10) for tenth in (1, 4))
        step_N2 = torch.cat([draw(low, high, num_examples, 1) for low, high in tenths], 1)
        self.symbols_NL = draw(NUM_MARKS, num_symbols, num_examples, length)
        self.symbols_NL.scatter_(1, step_N2, mark_N2)
        self.labels_N = NUM_MARKS * mark_N2[:, 0] + mark_N2[:, 1]
        self.one_hot_DD = torch.eye(num_symbols)
        self.blind_loss = entropy(self.labels_N)

    def batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """One-hot symbols (..., B, L, 6) and labels (..., B), of examples (..., B)."""
        return self.one_hot_DD[self.symbols_NL[index]], self.labels_N[index]

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in nats of logits (B, 4) and labels (B,), a scalar."""
        return cross_entropy(outputs, targets)
