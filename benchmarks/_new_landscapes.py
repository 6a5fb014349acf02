"""Landscapes that were written after the sampler was frozen: nothing was tuned on them."""

from __future__ import annotations

import numpy as np


def _step(rng, dx, dz):
    """Two plateaus."""
    at = 0.5 + dz / 2
    return (lambda z, c: -3 + dx + 1.6 / (1 + np.exp(-(z[:, 0] - at) / 0.08))), 1, 1, 0.0, None


def _valley(rng, dx, dz):
    """High at both ends, low between them."""
    return (lambda z, c: -2.8 + dx + 7 * (z[:, 0] - 0.45 - dz / 3) ** 2), 1, 1, 0.0, None


def _zigzag(rng, dx, dz):
    """Straight pieces of alternating slope."""
    knots = np.array([0, 0.3 + dz / 5, 0.55 + dz / 5, 0.8 + dz / 5, 1.0])
    heights = dx + np.array([-3.0, -1.6, -2.4, -1.2, -1.9])
    return (lambda z, c: np.interp(z[:, 0], knots, heights)), 1, 1, 0.0, None


def _noisy(sigma):
    def made(rng, dx, dz):
        edge, *_ = _valley(rng, dx, dz)
        return edge, 1, 1, sigma, None

    return made


def _kinds(sigma):
    """Three categories: a line, the same line higher and bent, a valley."""

    def made(rng, dx, dz):
        lift = rng.uniform(0.3, 0.9)

        def edge(z, c):
            line = -3.3 + dx + 1.8 * z[:, 0]
            bent = line + lift + 0.3 * np.sin(5 * z[:, 0] + dz)
            return np.choose(c, [line, bent, -1.8 + dx + 3 * (z[:, 0] - 0.6) ** 2])

        return edge, 1, 3, sigma, None

    return made


def _ridge(sigma):
    """Two axes: a ridge across, on a slope."""

    def made(rng, dx, dz):
        def edge(z, c):
            along = z[:, 0] + z[:, 1] - 1 - dz / 3
            return -2.6 + dx + 0.8 * z[:, 1] + 0.9 * np.exp(-((along / 0.4) ** 2))

        return edge, 2, 1, sigma, None

    return made


def _lake(rng, dx, dz):
    """A falling edge, and a tilted stable ellipse above it (4 % of the space)."""

    def edge(z, c):
        return -1.4 + dx - 1.2 * z[:, 0]

    def fails(x, z, c):
        u, v = (x + 0.1 - dx) / 0.55, (z[:, 0] - 0.55 - dz / 4) / 0.14
        inside = ((u + 0.4 * v) / 1.0) ** 2 + v**2 < 1
        return (x > edge(z, c)) & ~inside

    return edge, 1, 1, 0.0, fails


NEW = {
    "step": _step,
    "valley": _valley,
    "zigzag": _zigzag,
    "valley, noise 0.08": _noisy(0.08),
    "valley, noise 0.15": _noisy(0.15),
    "3 kinds": _kinds(0.0),
    "3 kinds, noise 0.08": _kinds(0.08),
    "ridge (2 axes)": _ridge(0.0),
    "ridge (2 axes), noise 0.08": _ridge(0.08),
    "lake": _lake,
}
