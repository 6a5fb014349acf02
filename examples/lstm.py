# stabsweep model=user model.target=examples.lstm:LSTM task=sequential_digits task.step=row
"""A classifier of sequences: the digits, read row by row.

PyTorch cannot stack `nn.LSTM` on a CPU, so trials train one by one, and the run says so. The model
`model=rnn model.cell=lstm` is the same net in a form that stacks.
"""

from __future__ import annotations

from torch import Tensor, nn

from stabsweep.signature import Signature


class LSTM(nn.Module):
    """An LSTM whose last state is read out; `signature` tells the shapes of the task."""

    def __init__(self, signature: Signature, hidden: int = 32) -> None:
        super().__init__()
        self.lstm = nn.LSTM(signature.num_inputs, hidden, batch_first=True)
        self.readout = nn.Linear(hidden, signature.num_outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """Scores (B, 10) of sequences (B, L, D)."""
        states, _ = self.lstm(rows)
        return self.readout(states[:, -1])
