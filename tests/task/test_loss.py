import math

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional as F

from stabsweep.task._loss import cross_entropy, entropy, mean_squared_error


@pytest.mark.parametrize("shape", [(6,), (6, 5)])
def test_cross_entropy_equals_torch(shape):
    logits = torch.randn(*shape, 7, dtype=torch.float64) * 5
    labels = torch.randint(7, shape)
    expected = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_cross_entropy_of_large_logits_is_finite():
    loss = cross_entropy(torch.tensor([[1e4, -1e4]]), torch.tensor([1]))
    assert loss.item() == 2e4


def test_losses_can_be_stacked():
    logits = torch.randn(3, 6, 7, dtype=torch.float64)
    labels = torch.randint(7, (3, 6))
    found = vmap(grad(cross_entropy))(logits, labels)
    for k in range(3):
        torch.testing.assert_close(found[k], grad(cross_entropy)(logits[k], labels[k]))
    found = vmap(grad(mean_squared_error))(logits, logits - 1)
    torch.testing.assert_close(found, torch.full_like(logits, 2 / 42))


def test_mean_squared_error_has_no_half_and_does_not_broadcast():
    outputs = torch.tensor([[1.0], [2.0]])
    assert mean_squared_error(outputs, torch.zeros(2, 1)).item() == 2.5
    with pytest.raises(AssertionError):
        mean_squared_error(outputs, torch.zeros(2))


def test_entropy_is_in_nats_and_skips_absent_labels():
    assert entropy(torch.tensor([0, 1, 2, 3])) == pytest.approx(math.log(4))
    assert entropy(torch.tensor([5, 5])) == 0
    assert entropy(torch.tensor([[0, 0], [0, 9]])) == pytest.approx(0.5623351446)
