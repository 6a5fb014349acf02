"""Recurrent networks: plain tanh and ReLU, GRU and LSTM."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep.limits import check_count
from stabsweep.model._check import check_choice, check_kind
from stabsweep.signature import Signature

Cell: TypeAlias = Callable[[Tensor, Tensor, Tensor | None, Tensor], list[Tensor]]
"""Hidden states, one (B, H) a step, of projected inputs (L, B, G*H), and of the recurrent weight
(G*H, H), its bias (G*H) unless that is in the inputs, and the first state (B, H). Time comes first,
so that what a step reads lies in one piece."""


def _plain(activation: Callable[[Tensor], Tensor]) -> Cell:
    def states(x_LBG: Tensor, w_GH: Tensor, b_G: Tensor | None, h_BH: Tensor) -> list[Tensor]:
        found = []
        for x_BG in x_LBG.unbind(0):
            h_BH = activation(x_BG + h_BH @ w_GH.mT)
            found.append(h_BH)
        return found

    return states


def _gru(x_LBG: Tensor, w_GH: Tensor, b_G: Tensor | None, h_BH: Tensor) -> list[Tensor]:
    found = []
    for x_BG in x_LBG.unbind(0):
        x_reset, x_keep, x_new = x_BG.chunk(3, -1)
        # The reset gate acts after the product, so its bias cannot join the inputs' beforehand.
        h_reset, h_keep, h_new = F.linear(h_BH, w_GH, b_G).chunk(3, -1)
        reset, keep = (x_reset + h_reset).sigmoid(), (x_keep + h_keep).sigmoid()
        new_BH = (x_new + reset * h_new).tanh()
        h_BH = new_BH + keep * (h_BH - new_BH)
        found.append(h_BH)
    return found


def _lstm(x_LBG: Tensor, w_GH: Tensor, b_G: Tensor | None, h_BH: Tensor) -> list[Tensor]:
    found, c_BH = [], h_BH
    for x_BG in x_LBG.unbind(0):
        enter, forget, new, leave = (x_BG + h_BH @ w_GH.mT).chunk(4, -1)
        c_BH = forget.sigmoid() * c_BH + enter.sigmoid() * new.tanh()
        h_BH = leave.sigmoid() * c_BH.tanh()
        found.append(h_BH)
    return found


CELLS: Mapping[str, tuple[int, bool, Cell]] = {
    "gru": (3, False, _gru),
    "lstm": (4, True, _lstm),
    "relu": (1, True, _plain(F.relu)),
    "tanh": (1, True, _plain(torch.tanh)),
}
"""Cell -> how many (H, H) blocks its recurrent weight stacks, whether its two biases may be added
beforehand, and how it steps."""


class Recurrence(nn.Module):
    """A stack of recurrent layers, equal to torch's RNN, GRU or LSTM with `batch_first`.

    Torch's own modules have no batching rule for every cell and device, so the steps are written
    out here; the parameters have the same names, shapes, order and first draws. All steps' inputs
    are projected in one product, and are unbound rather than indexed: the backward pass of
    indexing would be quadratic in the length.
    """

    def __init__(self, cell: str, num_inputs: int, hidden: int, depth: int) -> None:
        super().__init__()
        num_gates, self.adds_biases, self.states = CELLS[cell]
        self.hidden, self.depth = hidden, depth
        self.num_stacked: dict[str, int] = {}
        for layer in range(depth):
            for name, shape in (
                (f"weight_ih_l{layer}", (num_gates * hidden, hidden if layer else num_inputs)),
                (f"weight_hh_l{layer}", (num_gates * hidden, hidden)),
                (f"bias_ih_l{layer}", (num_gates * hidden,)),
                (f"bias_hh_l{layer}", (num_gates * hidden,)),
            ):
                self.register_parameter(name, nn.Parameter(torch.empty(shape)))
                self.num_stacked[name] = num_gates
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, x_BLD: Tensor) -> list[Tensor]:
        """The last layer's hidden states of inputs (B, L, num_inputs), one (B, H) a step."""
        h_BH = x_BLD.new_zeros(len(x_BLD), self.hidden)
        found: list[Tensor] = []
        for layer in range(self.depth):
            w_ih, w_hh, b_ih, b_hh = (
                getattr(self, f"{name}_l{layer}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            x_LBD = torch.stack(found) if layer else x_BLD.transpose(0, 1)
            if self.adds_biases:
                b_ih, b_hh = b_ih + b_hh, None
            found = self.states(F.linear(x_LBD, w_ih, b_ih), w_hh, b_hh, h_BH)
        return found


class RNN(nn.Module):
    """A stack of recurrent layers and a linear readout from the last step, or from every step.

    Plain cells (Elman 1990) have the narrowest window of all: their gradient grows or vanishes
    exponentially with the length (Pascanu et al. 2013, arXiv:1211.5063), so the edge moves with
    the clip norm. GRU: Cho et al. 2014, arXiv:1406.1078; LSTM: Hochreiter & Schmidhuber 1997.

    Args:
        signature: of kind `sequence`.
        cell: `tanh`, `relu`, `gru` or `lstm`.
        hidden: units of a layer, at least 1.
        depth: number of layers, at least 1.

    Raises:
        BadInput: an argument is out of range, or the task gives something else.
    """

    def __init__(
        self,
        signature: Signature,
        *,
        cell: Literal["tanh", "relu", "gru", "lstm"] = "tanh",
        hidden: int = 64,
        depth: int = 1,
    ) -> None:
        super().__init__()
        check_kind("rnn", signature, "sequence")
        check_choice("cell", cell, tuple(CELLS))
        check_count("model.hidden", hidden)
        check_count("model.depth", depth)
        self.per_step = signature.per_step
        self.recurrence = Recurrence(cell, signature.num_inputs, hidden, depth)
        self.readout = nn.Linear(hidden, signature.num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs (B, num_outputs), or (B, L, num_outputs) per step, of inputs (B, L, D)."""
        states = self.recurrence(inputs)
        return self.readout(torch.stack(states, 1) if self.per_step else states[-1])
