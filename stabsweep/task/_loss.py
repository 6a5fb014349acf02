"""The losses that tasks share; all may stand inside vmap and grad."""

from __future__ import annotations

import torch
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy in nats, a scalar; equal to torch's, and faster when stacked.

    Args:
        logits: (..., C).
        labels: (...) of int64 in [0, C).
    """
    return -torch.log_softmax(logits, -1).gather(-1, labels.unsqueeze(-1)).mean()


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean of the squared difference, without a factor 1/2, a scalar.

    Args:
        outputs: (..., C).
        targets: (..., C): the same shape, since broadcasting would hide a mistake.
    """
    assert outputs.shape == targets.shape, (outputs.shape, targets.shape)
    return (outputs - targets).square().mean()


def entropy(labels: Tensor) -> float:
    """Entropy in nats of the frequencies of labels: the cross entropy of the best blind guess.

    Args:
        labels: of int64 >= 0, any shape, at least one.
    """
    count_C = torch.bincount(labels.flatten()).double()
    share_C = count_C / count_C.sum()
    return -torch.xlogy(share_C, share_C).sum().item()
