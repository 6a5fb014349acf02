import math

import pytest
import torch
from torch import nn

from stabsweep import model, task
from stabsweep.model import find_spectrum


def spectrum_of(rho, cell="tanh", length=20, input_gain=1.0, num_layers=1):
    data = task.build("adding", length=length, num_examples=64)
    batch = data.batch(torch.arange(64))

    def build():
        return model.build("rnn", data.signature, cell=cell, hidden=128, depth=num_layers)

    module = model.initialize(build, 0, f"spectral({rho})")
    with torch.no_grad():
        module.recurrence.weight_ih_l0.mul_(input_gain)
    return find_spectrum(module, lambda module: data.loss(module, batch))


@pytest.mark.parametrize("rho", [0.7, 0.9, 1.0, 1.2])
@pytest.mark.parametrize("length", [10, 40])
def test_with_small_activations_the_gradient_goes_as_the_radius_to_the_steps(rho, length):
    found = spectrum_of(rho, length=length, input_gain=1e-6)
    assert found.radius == pytest.approx(rho, rel=1e-5)
    assert found.num_steps == length
    assert found.linear == pytest.approx(rho ** (length - 1), rel=1e-4)
    # A step: the mean growth of a Gaussian matrix lies a few per cent below its radius.
    assert found.ratio ** (1 / (length - 1)) == pytest.approx(rho, rel=0.08)


def test_tanh_damps_it_and_relu_halves_its_square():
    small, usual = (spectrum_of(1.2, length=40, input_gain=gain).ratio for gain in (1e-6, 1.0))
    assert usual < 0.1 * small
    # Half of the units pass: the norm shrinks by sqrt(2) a step.
    relu = spectrum_of(1.2, "relu", length=40)
    assert relu.ratio < relu.linear / 2 ** (39 / 4)


def test_the_ratio_is_that_of_gradients_by_the_states():
    data = task.build("adding", length=6, num_examples=8)
    batch = data.batch(torch.arange(8))
    module = model.initialize(lambda: model.build("rnn", data.signature), 0, "spectral(1.1)")
    x_BLD, y_B1 = batch
    w_ih, w_hh, b_ih, b_hh = module.recurrence.parameters()
    states, h_BH = [], torch.zeros(8, 64)
    for step in range(6):
        h_BH = torch.tanh(x_BLD[:, step] @ w_ih.mT + b_ih + h_BH @ w_hh.mT + b_hh)
        h_BH.retain_grad()
        states.append(h_BH)
    (module.readout(h_BH) - y_B1).square().mean().backward()
    expected = states[0].grad.norm() / states[-1].grad.norm()
    found = find_spectrum(module, lambda module: data.loss(module, batch))
    assert found.ratio == pytest.approx(expected.item(), rel=1e-4)
    assert not module.recurrence._forward_hooks


def test_of_several_layers_it_is_the_last():
    found = spectrum_of(0.8, length=5, num_layers=2)
    assert found.radius == pytest.approx(0.8, rel=1e-5) and 0 < found.ratio < 1


def test_what_overflows_has_no_ratio():
    assert not math.isfinite(spectrum_of(3.0, "relu", length=150).ratio)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_cells_with_gates_have_none(cell):
    assert spectrum_of(0.9, cell, length=5) is None


def test_other_models_have_none():
    assert find_spectrum(nn.Linear(2, 2), lambda module: torch.zeros(())) is None
