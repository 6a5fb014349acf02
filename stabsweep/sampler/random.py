"""Random points: each axis uniform on its scale."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from stabsweep.sampler._design import DesignSampler, spread
from stabsweep.space import Space


class Random(DesignSampler):
    """Independent uniform points: no lattice can be lucky or unlucky (Bergstra and Bengio 2012).

    Args:
        space: what is swept.
        num_trials: trials wanted in all, rounded up to whole points.
        seeds: seeds that every point is run with.
        seed: of the points themselves.
        done: indices of the design that are not handed out again.
    """

    def __init__(
        self,
        space: Space,
        num_trials: int,
        seeds: Sequence[int],
        seed: int = 0,
        done: Collection[int] = (),
    ) -> None:
        num_points = math.ceil(num_trials / len(seeds))
        shares = np.random.default_rng(seed).random((num_points, len(space.axes)))
        super().__init__(spread([space.at(row) for row in shares.tolist()], seeds), done)
