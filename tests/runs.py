"""Folders of guarded runs for tests: line by line, and by training a small net."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from stabsweep import environment
from stabsweep.runlog import SUMMARY, RunLog

ABOUT = {"optimizer": {"name": "adamw"}, "model": {"name": "mlp"}, "blind_loss": 2.3}
DONE = {"seconds": 1.5, "stopped": None}


def line(attempt, step=None, outcome="stepped", loss=1.0, **more):
    known = {"grad_norm": 0.5, "clip_coef": 1.0, "update_ratio": 1e-3, "lr": 1e-2}
    step = attempt if step is None else step
    return {
        "attempt": attempt, "step": step, "outcome": outcome, "loss": loss, **known, **more
    }  # fmt: skip


def write(folder: Path, lines, about=ABOUT, summary=DONE) -> Path:
    """The folder of a run; without a summary it is that of one that was killed."""
    log = RunLog(folder, about, {})
    for one in lines:
        log.append(one)
    log.close(summary or {})
    if summary is None:
        (folder / SUMMARY).unlink()
    return folder


def falling(num, start=2.5, end=0.5):
    rng = np.random.default_rng(0)
    return [
        end + (start - end) * math.exp(-5 * n / num) + 0.02 * rng.standard_normal()
        for n in range(num)
    ]


def train(folder: Path, num=120, bad=(40, 41), scale=4096.0) -> Path:
    """Trains an MLP on digits; some batches hold a NaN, and a loss scale overflows at first."""
    import torch

    from stabsweep import model as models
    from stabsweep import task as tasks

    torch.manual_seed(0)
    task = tasks.build("digits")
    net = models.build("mlp", task.signature)
    rule = torch.optim.AdamW(net.parameters(), lr=1e-3)
    layers = {n: list(m.parameters(recurse=False)) for n, m in net.named_modules()}
    layers = {n: ps for n, ps in layers.items() if ps}
    norm = lambda ts: float(torch.stack([t.detach().norm() for t in ts]).norm())  # noqa: E731
    about = {
        "optimizer": "adamw", "model": "mlp", "total_steps": num, "clip_norm": 1.0,
        "blind_loss": task.blind_loss,
    }  # fmt: skip
    log, step = RunLog(folder, about, environment.take()), 0
    for attempt in range(num):
        x, y = task.batch(torch.randint(task.num_examples, (16,)))
        if attempt in bad:
            x = x.clone()
            x[3] = math.nan
        rule.zero_grad()
        loss = task.criterion(net(x), y)
        loss.backward()
        weights = list(net.parameters())
        one = line(
            attempt, step, loss=float(loss.detach()), grad_norm=norm([p.grad for p in weights])
        )
        one |= {"scale": scale, "lr": 1e-3, "update_ratio": 0.0, "events": []}
        if not math.isfinite(one["loss"]):
            one["outcome"] = "skipped_not_finite"
            one["events"].append({"kind": "not_finite", "message": "batch[0] has a NaN."})
        elif max(float(p.grad.abs().max()) for p in weights) * scale > 300:
            one |= {"outcome": "skipped_overflow", "grad_norm": math.inf}
            scale /= 2
        else:
            one["clip_coef"] = min(1.0, 1.0 / one["grad_norm"])
            for weight in weights:
                weight.grad.mul_(one["clip_coef"])
            before = {n: [p.detach().clone() for p in ps] for n, ps in layers.items()}
            rule.step()
            step += 1
            moved = {
                n: norm([p - b for p, b in zip(layers[n], old, strict=True)])
                for n, old in before.items()
            }
            whole = math.hypot(*(norm(old) for old in before.values()))
            one["update_ratio"] = math.hypot(*moved.values()) / whole
            if attempt % 10 == 0:
                one["layers"] = {
                    n: [norm([p.grad for p in ps]), norm(before[n]), moved[n]]
                    for n, ps in layers.items()
                }
        log.append(one)
    log.close({"steps": step, "attempts": num, **DONE})
    return folder
