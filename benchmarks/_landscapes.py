"""Made-up edges of stability whose truth is known, with the noise and the steps of real ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from _new_landscapes import NEW

LOW, HIGH = -5.0, 1.0
TEST_ROWS = 64


@dataclass(frozen=True)
class Landscape:
    """Verdicts over log10 of the rate (LOW to HIGH), D axes in [0, 1] and categories.

    `edge` is where the first failure is met; `fails` the truth at any point, without noise.
    """

    name: str
    edge: Callable
    fails: Callable
    rng: np.random.Generator
    num_axes: int = 1
    num_categories: int = 1
    noise: float = 0.0

    def label(self, x, z, c):
        """Verdicts, and the steps to divergence of those that fail."""
        edge = self.edge(z, c)
        bad = self.fails(x, z, c)
        if self.noise:
            bad = self.rng.uniform(size=len(x)) < 1 / (1 + np.exp(-(x - edge) / self.noise))
        distance = np.maximum(np.abs(x - edge), 1e-9)
        steps = 30 / distance * np.exp(0.2 * self.rng.normal(size=len(x)))
        return bad, steps.clip(1, 1000)

    def test_places(self):
        if self.num_axes == 1:
            z = np.linspace(0, 1, TEST_ROWS)[:, None]
        else:
            side = np.linspace(0, 1, 16)
            z = np.stack(np.meshgrid(*[side] * self.num_axes), -1).reshape(-1, self.num_axes)
        c = np.repeat(np.arange(self.num_categories), len(z))
        return np.tile(z, (self.num_categories, 1)), c

    def error(self, guess) -> float:
        """Mean absolute error of an edge (a function of z and c) where the truth is in range."""
        z, c = self.test_places()
        truth = self.edge(z, c)
        inside = (truth > LOW) & (truth < HIGH)
        return float(np.abs(np.clip(guess(z, c), LOW, HIGH) - truth)[inside].mean())

    def wrong_area(self, fails) -> float:
        """Share of the space that a verdict (a function of x, z and c) gets wrong."""
        rng = np.random.default_rng(0)
        x, z = rng.uniform(LOW, HIGH, 20_000), rng.uniform(size=(20_000, self.num_axes))
        c = rng.integers(self.num_categories, size=len(x))
        return float((fails(x, z, c) != self.fails(x, z, c)).mean())


def _rough(rng):
    """Nine octaves of waves: an edge that is ragged at every scale."""
    phase, angle = rng.uniform(0, 2 * np.pi, 9), rng.uniform(0, np.pi, 9)

    def field(x, z):
        waves = [
            np.sin(2 * np.pi * 0.7 * 2.0**k * (x * np.cos(angle[k]) + z * np.sin(angle[k]))
                   + phase[k]) / 2 ** (0.5 * k)
            for k in range(9)
        ]  # fmt: skip
        return 0.1 * sum(waves) / 1.9

    return field


def _smooth(z):
    return -3.2 + 2.4 * (1 - np.exp(-z / 1.3))


def _corner(z):
    return -2 + np.maximum(0, 2 - z)


def make(name: str, seed: int) -> Landscape:
    """A landscape by its name, shifted at random so that no lattice is lucky; z spans 4."""
    rng = np.random.default_rng([1000 + seed, *name.encode()])
    dx, dz = rng.uniform(-0.25, 0.25), rng.uniform(-0.3, 0.3)
    if name in NEW:
        edge, num_axes, num_categories, noise, fails = NEW[name](rng, dx, dz)
        fails = fails or (lambda x, z, c: x > edge(z, c))
        return Landscape(name, edge, fails, _labels(name, seed), num_axes, num_categories, noise)
    base, noise = name[0], 0.08 if name.endswith("noise 0.08") else 0.0
    num_axes, num_categories = 1, 1
    if base in ("a", "f"):
        edge = lambda z, c: _smooth(4 * z[:, 0] + dz) + dx  # noqa: E731
    elif base == "b":
        edge = lambda z, c: _corner(4 * z[:, 0] + dz) + dx  # noqa: E731
    elif base == "c":

        def edge(z, c):
            u = 4 * z[:, 0] + dz
            return -1.9 + 0.25 * (u - 2) + 0.25 * np.sin(1.4 * u) + dx
    elif base == "e":
        num_categories = 3

        def edge(z, c):
            first = _smooth(4 * z[:, 0] + dz) + dx
            last = _corner(4 - 4 * z[:, 0] + dz) + dx - 1.2
            return np.choose(c, [first, 0.8 * first + 0.35, last])
    elif base == "g":
        num_axes = 2

        def edge(z, c):
            up = 1.6 * (1 - np.exp(-3 * z[:, 0] + dz))
            return -3 + dx + up + 1.2 / (1 + np.exp(8 * (z[:, 1] - 0.4 - dz / 3)))

    fails = lambda x, z, c: x > edge(z, c)  # noqa: E731
    if base == "c":

        def fails(x, z, c):
            u = 4 * z[:, 0] + dz
            return (x > edge(z, c)) & (((x - dx) / 0.4) ** 2 + ((u - 2.7) / 0.8) ** 2 >= 1)

    if base == "f":
        field, smooth = _rough(rng), edge
        fails = lambda x, z, c: x > smooth(z, c) + field(x, 4 * z[:, 0])  # noqa: E731
        first = np.linspace(LOW, HIGH, 3001)

        def edge(z, c):
            rough = first - smooth(z, c)[:, None] - field(first, 4 * z)
            return first[(rough > 0).argmax(1)]

    return Landscape(name, edge, fails, _labels(name, seed), num_axes, num_categories, noise)


def _labels(name: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([5000 + seed, *name.encode()])


OLD = (
    "a smooth", "b corner", "c island", "f rough", "a smooth, noise 0.08", "e 3 kinds",
    "e 3 kinds, noise 0.08", "g 2 axes", "g 2 axes, noise 0.08",
)  # fmt: skip
"""Landscapes that the sampler was tuned on."""


def crossing(counts, errors, goal: float = 0.05) -> float | None:
    """Trials after which a mean error stays below a goal, between two cohorts by the logarithm."""
    above = [k for k, error in enumerate(errors) if error >= goal]
    if not above:
        return float(counts[0])
    k = above[-1]
    if k == len(errors) - 1:
        return None
    share = math.log(errors[k] / goal) / math.log(errors[k] / errors[k + 1])
    return counts[k] + share * (counts[k + 1] - counts[k])
