"""The training loop of a user: plain PyTorch at its fastest, one trial at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep.engine import Setup
from stabsweep.engine._base import trained
from stabsweep.model.rnn import RNN
from stabsweep.model.transformer import Attention
from stabsweep.optimizer._schedule import learning_rates
from stabsweep.records import Trial
from stabsweep.task import BatchOrder

TRIED_STEPS = 30
"""Steps of each way to write the loop, of which the fastest is taken."""


class FusedAttention(nn.Module):
    """The attention of our Transformer by `scaled_dot_product_attention`, with its weights."""

    def __init__(self, ours: Attention) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = ours.heads, ours.qkv, ours.out

    def forward(self, x_BLD: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x_BLD).chunk(3, -1)
        )
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(read.transpose(1, 2).flatten(2))


class TorchRNN(nn.Module):
    """Our RNN by `nn.RNN`, with its weights."""

    def __init__(self, ours: RNN) -> None:
        super().__init__()
        cells = ours.recurrence
        width = cells.weight_ih_l0.shape[1]  # type: ignore[union-attr,index]
        self.rnn = nn.RNN(width, cells.hidden, cells.depth, batch_first=True)
        self.rnn.load_state_dict(cells.state_dict())
        self.readout = ours.readout

    def forward(self, inputs: Tensor) -> Tensor:
        return self.readout(self.rnn(inputs)[0][:, -1])


class UserLoop:
    """Trains one trial of a setup; see `ways` for the choices that there are.

    Args:
        setup: model, data, optimizer and lengths.
        trial: what is trained.
        kernel: `foreach` or `fused`, of the optimizer.
        by_torch: whether a recurrent model is `nn.RNN`, else our cells.
    """

    def __init__(self, setup: Setup, trial: Trial, kernel: str, by_torch: bool) -> None:
        self.setup = setup
        module = setup.new_module(trial)
        hyper = {name: setup.number(trial, name) for name in setup.optimizer.defaults}
        for name, part in list(module.named_modules()):
            if isinstance(part, Attention):
                module.set_submodule(name, FusedAttention(part))
        if isinstance(module, RNN) and by_torch:
            module = TorchRNN(module).to(setup.device)
        self.module = module
        twin = setup.optimizer.twin(dict(trained(module)), hyper)
        known = {k: v for k, v in twin.defaults.items() if k not in ("foreach", "fused")}
        known.pop("decoupled_weight_decay", None)
        self.optimizer = type(twin)(module.parameters(), **known, **{kernel: True})
        self.clip_norm = setup.number(trial, "clip_norm")
        self.order = BatchOrder(trial.seed, setup.task.num_examples, setup.batch_size)
        peak, warmup = (np.array(setup.number(trial, n)) for n in ("lr", "warmup_steps"))
        steps = np.arange(setup.horizon)
        self.lr_T = learning_rates(steps, peak, warmup, setup.horizon, setup.schedule)
        self.step = 0

    def advance(self, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The next steps' losses and gradient norms; the host waits for the device at the end."""
        setup, parameters = self.setup, list(self.module.parameters())
        stop = min(self.step + num_steps, setup.horizon)
        losses, norms = [], []
        for index_B, lr in zip(
            self.order.index(self.step, stop), self.lr_T[self.step : stop], strict=True
        ):
            for group in self.optimizer.param_groups:
                group["lr"] = float(lr)
            self.optimizer.zero_grad()
            loss = setup.task.loss(self.module, setup.task.batch(index_B.to(setup.device)))
            loss.backward()
            norms.append(nn.utils.clip_grad_norm_(parameters, self.clip_norm, foreach=True))
            self.optimizer.step()
            losses.append(loss.detach())
        self.step = stop
        return torch.stack(losses).cpu().numpy(), torch.stack(norms).cpu().numpy()


def ways(setup: Setup) -> Iterator[dict]:
    """Every way to write the loop for a setup's model."""
    by_torch = (True, False) if isinstance(setup.build_model(), RNN) else (False,)
    for kernel, torchs in itertools.product(("foreach", "fused"), by_torch):
        yield {"kernel": kernel, "by_torch": torchs}


def fastest(setup: Setup, trial: Trial) -> dict:
    """The way that takes the least time."""
    times = {}
    for way in ways(setup):
        loop = UserLoop(setup, trial, **way)
        loop.advance(5)
        began = time.perf_counter()
        loop.advance(TRIED_STEPS)
        times[time.perf_counter() - began] = way
    return times[min(times)]
