import pytest
import torch
from torch import nn

from stabsweep import model
from stabsweep.errors import BadInput
from stabsweep.model.rnn import RNN
from stabsweep.signature import Signature

SEQUENCE = Signature("sequence", num_inputs=3, num_outputs=2, length=7)
CELLS = ["tanh", "relu", "gru", "lstm"]


def torchs(cell, depth):
    sizes = {"input_size": 3, "hidden_size": 5, "num_layers": depth, "batch_first": True}
    if cell in ("tanh", "relu"):
        return nn.RNN(**sizes, nonlinearity=cell)
    return {"gru": nn.GRU, "lstm": nn.LSTM}[cell](**sizes)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_equals_torch_for_the_same_weights(cell, depth):
    rnn = RNN(SEQUENCE, cell=cell, hidden=5, depth=depth).double()
    oracle = torchs(cell, depth).double()
    oracle.load_state_dict(rnn.recurrence.state_dict())
    inputs_BLD = torch.randn(4, 7, 3, dtype=torch.float64)
    expected_BLH = oracle(inputs_BLD)[0]
    found_BLH = torch.stack(rnn.recurrence(inputs_BLD), 1)
    torch.testing.assert_close(found_BLH, expected_BLH, rtol=0, atol=1e-12)

    weight_BLH = torch.randn_like(expected_BLH)
    expected = torch.autograd.grad((expected_BLH * weight_BLH).sum(), list(oracle.parameters()))
    found = torch.autograd.grad((found_BLH * weight_BLH).sum(), list(rnn.recurrence.parameters()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", CELLS)
def test_first_weights_are_those_of_torch(cell):
    torch.manual_seed(5)
    rnn = RNN(SEQUENCE, cell=cell, hidden=5, depth=2)
    torch.manual_seed(5)
    oracle = torchs(cell, 2)
    names = [name for name, _ in rnn.recurrence.named_parameters()]
    assert names == [name for name, _ in oracle.named_parameters()]
    for ours, theirs in zip(rnn.recurrence.parameters(), oracle.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_reads_out_the_last_step_or_every_step():
    per_step = Signature("sequence", num_inputs=3, num_outputs=2, length=7, per_step=True)
    last, every = RNN(SEQUENCE), RNN(per_step)
    every.load_state_dict(last.state_dict())
    inputs_BLD = torch.randn(4, 7, 3)
    assert every(inputs_BLD).shape == (4, 7, 2)
    torch.testing.assert_close(every(inputs_BLD)[:, -1], last(inputs_BLD))


@pytest.mark.parametrize(
    "args, message",
    [
        ({"cell": "rnn"}, "model.cell='rnn' is not known: use one of gru, lstm, relu, tanh"),
        ({"hidden": 0}, "model.hidden=0 is not allowed"),
        ({"depth": -1}, "model.depth=-1 is not allowed"),
    ],
)
def test_names_the_argument_that_is_wrong(args, message):
    with pytest.raises(BadInput, match=message):
        model.build("rnn", SEQUENCE, **args)
