"""Traces to judge: written by hand, and of real training that is small enough to run in a test."""

from __future__ import annotations

import math

import numpy as np

from stabsweep.records import Trace

T = 200


def make_trace(loss, start=None, blind=None, **curves) -> Trace:
    """A trace with that loss; the other curves are those of a quiet run."""
    loss = np.asarray(loss, float)
    quiet = {"grad_norm": 1.0, "clip_coef": 1.0, "update_ratio": 1e-3, "lr": 1e-2}
    arrays = {
        k: np.broadcast_to(curves.pop(k, v), loss.shape).astype(float) for k, v in quiet.items()
    }
    start = float(loss[0]) if start is None else start
    return Trace(
        loss, **arrays, initial_loss=start, blind_loss=blind, **{"horizon": len(loss), **curves}
    )


def train_quadratic(
    edge, curvatures=(1.0,), warmup_steps=0, clip_norm=math.inf, num_steps=T, seed=0
):
    """SGD on a quadratic whose largest curvature is 1, so that `edge` is eta lambda."""
    curvatures = np.asarray(curvatures)
    x = np.random.default_rng(seed).normal(size=len(curvatures))
    curves: list[tuple[float, ...]] = []
    for step in range(num_steps):
        lr = edge * min(1, (step + 1) / warmup_steps) if warmup_steps else edge
        grad = curvatures * x
        norm = float(np.linalg.norm(grad))
        coef = min(1.0, clip_norm / norm) if norm else 1.0
        size = float(np.linalg.norm(x))
        ratio = lr * coef * norm / size if size else math.nan
        curves.append((0.5 * float(grad @ x), norm, coef, ratio, lr))
        x = x - lr * coef * grad
    arrays = [np.array(curve) for curve in zip(*curves, strict=True)]
    return Trace(*arrays, float(arrays[0][0]), None, num_steps, warmup_steps)


def train_uv(c, width, num_steps=T, warmup_steps=0):
    """Gradient descent on f = u.v / sqrt(n), target 0, at eta lambda_0 = c."""
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=width), rng.normal(size=width)
    lr, root = c * width / (u @ u + v @ v), math.sqrt(width)
    curves: list[tuple[float, ...]] = []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(num_steps):
            rate = lr * min(1, (step + 1) / warmup_steps) if warmup_steps else lr
            f = u @ v / root
            size = math.sqrt(u @ u + v @ v)
            norm = abs(f) * size / root
            curves.append((f * f / 2, norm, 1.0, rate * norm / size, rate))
            if not math.isfinite(norm):
                break
            u, v = u - rate * f * v / root, v - rate * f * u / root
    arrays = [np.array(curve) for curve in zip(*curves, strict=True)]
    return Trace(*arrays, float(arrays[0][0]), None, num_steps, warmup_steps)


def train(net, read_batch, loss_of, optimizer, blind, clip_norm=math.inf, num_steps=T):
    """A plain torch loop that writes the five curves."""
    import torch

    weights = list(net.parameters())
    curves: list[tuple[float, ...]] = []
    with torch.no_grad():
        starts = [float(loss_of(net, *read_batch(10_000 + i))) for i in range(5)]
    for step in range(num_steps):
        optimizer.zero_grad()
        loss = loss_of(net, *read_batch(step))
        loss.backward()
        norm = math.sqrt(sum(float((w.grad.double() ** 2).sum()) for w in weights))
        coef = min(1.0, clip_norm / norm) if 0 < norm < math.inf else 1.0
        before = [w.detach().clone() for w in weights]
        for w in weights:
            w.grad.mul_(coef)
        optimizer.step()
        moved = sum(
            float(((w - b) ** 2).sum().detach()) for w, b in zip(weights, before, strict=True)
        )
        size = sum(float((b**2).sum()) for b in before)
        curves.append((loss.item(), norm, coef, math.sqrt(moved / size), 0.0))
        if not math.isfinite(loss.item() + norm):
            break
    arrays = [np.array(curve) for curve in zip(*curves, strict=True)]
    return Trace(*arrays, float(np.median(starts)), blind, num_steps)


def train_digits(name, lr, clip_norm=math.inf):
    import torch
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    x = torch.tensor((pixels - pixels.mean(0)) / (pixels.std(0) + 1e-6), dtype=torch.float32)
    y = torch.tensor(labels)
    torch.manual_seed(0)
    nn, layers = torch.nn, []
    for fan_in, fan_out in ((64, 128), (128, 128), (128, 128)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(128, 10))
    optimizer = {
        "sgd": lambda: torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9),
        "adamw": lambda: torch.optim.AdamW(net.parameters(), lr=lr),
    }[name]()

    def read_batch(step):
        rows = torch.randint(0, len(x), (64,), generator=torch.Generator().manual_seed(step))
        return x[rows], y[rows]

    def loss_of(net, x, y):
        return nn.functional.cross_entropy(net(x), y)

    return train(net, read_batch, loss_of, optimizer, math.log(10), clip_norm)


def train_adding(lr, length=10):
    import torch

    torch.manual_seed(0)
    rnn, head = torch.nn.RNN(2, 32, batch_first=True), torch.nn.Linear(32, 1)
    net = torch.nn.ModuleList([rnn, head])

    def read_batch(step):
        generator = torch.Generator().manual_seed(step)
        values = torch.rand(32, length, generator=generator)
        first = torch.randint(0, length // 2, (32,), generator=generator)
        second = torch.randint(length // 2, length, (32,), generator=generator)
        marks = torch.zeros(32, length)
        marks[torch.arange(32), first] = marks[torch.arange(32), second] = 1
        return torch.stack([values, marks], -1), (values * marks).sum(1)

    def loss_of(net, x, y):
        return ((head(rnn(x)[0][:, -1])[:, 0] - y) ** 2).mean()

    return train(net, read_batch, loss_of, torch.optim.AdamW(net.parameters(), lr=lr), 1 / 6)
