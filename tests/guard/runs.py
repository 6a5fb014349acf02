"""Small trainings to watch over: a net that can be made to fail in any place, and a plain loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.guard import GradientGuard, Outcome

NAN, INF = float("nan"), float("inf")


class Middle(nn.Module):
    """Passes its input on, or takes the logarithm of zero."""

    is_broken = False

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.log(inputs * 0) if self.is_broken else inputs


def make_net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), Middle(), nn.Linear(8, 1))
    return net.to(dtype)


def batches(count: int, dtype: torch.dtype = torch.float32) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        x = torch.randn(16, 4, generator=generator).to(dtype)
        yield x, x.sum(1, keepdim=True)


def mse(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return (net(batch[0]) - batch[1]).pow(2).mean()


class Training:
    """A net with its optimizer and guard; `run` trains it, and `break_at` makes a batch fail."""

    def __init__(
        self,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        lr: float = 1e-2,
        **options: Any,
    ) -> None:
        self.net = make_net()
        self.optimizer = optimizer(self.net.parameters(), lr=lr)
        options = {"clip_norm": 1.0, "tensorboard": False, "progress": "off", **options}
        if make := options.pop("make_scheduler", None):
            options["scheduler"] = make(self.optimizer)
        self.guard = GradientGuard(self.net, self.optimizer, **options)
        self.outcomes: list[Outcome] = []

    def run(self, count: int, break_at: dict[int, str] | None = None) -> list[Outcome]:
        for number, (x, y) in enumerate(batches(count)):
            where = (break_at or {}).get(number, "")
            if where == "data":
                x[3, 2] = NAN
            if where == "target":
                y[3] = INF
            middle = self.net[2]
            assert isinstance(middle, Middle)
            middle.is_broken = where == "forward"
            weight = self.net[3].weight
            hook = weight.register_hook(lambda g: g * INF) if where == "gradient" else None
            self.outcomes.append(self.guard.step(mse(self.net, (x, y)), (x, y)))
            if hook is not None:
                hook.remove()
            if self.outcomes[-1] is Outcome.STOPPED:
                break
        return self.outcomes


def weights(net: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Whether two lists of tensors are equal bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def lines_of(folder: Path) -> list[dict[str, Any]]:
    import json

    return [json.loads(text) for text in (folder / "steps.jsonl").read_text().splitlines()]
