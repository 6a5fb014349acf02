import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from stabsweep.errors import BadInput
from stabsweep.task import digits
from stabsweep.task.digits import Digits


def test_blind_loss_is_the_entropy_of_the_labels():
    shares = np.unique(load_digits().target, return_counts=True)[1] / 1797
    task = Digits()
    assert task.blind_loss == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-12)
    assert task.blind_loss < math.log(10)
    # The best blind logits are the log frequencies, and reach exactly this loss.
    logits_ND = torch.from_numpy(np.log(shares)).expand(1797, -1)
    assert task.criterion(logits_ND, task.labels_N).item() == pytest.approx(task.blind_loss)


def test_pixels_are_standardised_together():
    inputs_ND, _ = Digits().batch(torch.arange(1797))
    assert inputs_ND.dtype == torch.float32
    assert inputs_ND.mean().item() == pytest.approx(0, abs=1e-5)
    assert inputs_ND.std().item() == pytest.approx(1, abs=1e-5)
    assert inputs_ND.abs().max() < 2


def test_a_batch_has_the_leading_shape_of_its_index():
    inputs, labels = Digits().batch(torch.tensor([[3, 5], [0, 1796]]))
    assert inputs.shape == (2, 2, 64)
    assert labels.tolist() == load_digits().target[[[3, 5], [0, 1796]]].tolist()


def test_the_file_is_read_as_scikit_learn_reads_it(monkeypatch):
    read = digits._read()
    monkeypatch.setattr(digits.Path, "is_file", lambda path: False)
    for found in (read, digits._read()):
        for ours, theirs in zip(found, load_digits(return_X_y=True), strict=True):
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


def test_without_scikit_learn_one_line_says_so(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install scikit-learn"):
        digits.Digits()
