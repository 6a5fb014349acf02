# stabsweep model=user model.target=examples.tied:LanguageModel task=text
"""A language model of characters whose readout has the weights of its embedding.

A tied weight is drawn, trained and counted once, and stays tied in every trial.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stabsweep.signature import Signature


class LanguageModel(nn.Module):
    """The mean of the characters so far, through a hidden layer, predicts the next one."""

    def __init__(self, signature: Signature, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(signature.num_inputs, width)
        self.hidden = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.LayerNorm(width))
        self.readout = nn.Linear(width, signature.num_outputs, bias=False)
        self.readout.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores (B, L, V) of the character after each of tokens (B, L)."""
        x = self.embedding(tokens)
        steps = torch.arange(1, tokens.shape[1] + 1, device=x.device, dtype=x.dtype)
        past = x.cumsum(1) / steps.unsqueeze(-1)
        return self.readout(self.hidden(torch.cat([x, past], -1)))
