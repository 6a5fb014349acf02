# stabsweep model=user model.target=examples.encoder:Net task=user task.target=examples.encoder:data
"""Batches and a loss of one's own, known to this file alone, for a `nn.TransformerEncoder`.

It learns to tell whether a row of symbols holds more of the first two than of the others. Rows have
different lengths, which a mask tells. Trials train side by side; with dropout they would train one
by one, and the run would say so.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from stabsweep import Batches

LENGTH, SYMBOLS = 12, 5


class Net(nn.Module):
    """Embedding, two layers of `nn.TransformerEncoder`, and the mean over what is no padding."""

    def __init__(self, width: int = 32, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, width)
        self.position = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=dropout, batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.readout = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, is_padding: Tensor) -> Tensor:
        """Scores (B, 2) of rows of symbols (B, L)."""
        x = self.embedding(tokens) + self.position
        x = self.encoder(x, src_key_padding_mask=is_padding)
        weight = (~is_padding).to(x.dtype).unsqueeze(-1)
        return self.readout((x * weight).sum(1) / weight.sum(1))


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The mean loss of a batch: one number. It may read the model and the batch as it likes."""
    scores = model(batch["tokens"], batch["is_padding"])
    return F.cross_entropy(scores, batch["label"])


def data(batch_size: int = 32, num_rows: int = 2000) -> Batches:
    """The batches, each of any structure, from whatever can be iterated.

    `return loader, loss` would do as well; `blind_loss` is what a model reaches that never looks at
    its input: half of the rows have each label.
    """
    rows = [_row() for _ in range(num_rows)]
    loader = DataLoader(rows, batch_size, shuffle=True)  # type: ignore[arg-type]
    return Batches(loader, loss, blind_loss=math.log(2))


def _row() -> dict[str, Tensor]:
    """A row of the symbols 1 to 4, padded with 0: are there more of 1 and 2 than of 3 and 4?"""
    length = 2 * int(torch.randint(2, LENGTH // 2, ())) + 1
    tokens = F.pad(torch.randint(1, SYMBOLS, (length,)), (0, LENGTH - length))
    label = ((tokens == 1) | (tokens == 2)).sum() > length // 2
    return {"tokens": tokens, "is_padding": tokens == 0, "label": label.long()}
