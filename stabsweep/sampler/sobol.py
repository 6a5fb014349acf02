"""Sobol points: even cover of the space at any number of points."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from stabsweep.sampler._design import DesignSampler, spread
from stabsweep.space import Space


class Sobol(DesignSampler):
    """Scrambled Sobol points: spread more evenly than random ones, without a grid's rows.

    Args:
        space: what is swept.
        num_trials: trials wanted in all, rounded up to whole points.
        seeds: seeds that every point is run with.
        seed: of the scrambling.
        done: indices of the design that are not handed out again.

    References:
        Owen 1998 (scrambling); computed by `scipy.stats.qmc`.
    """

    def __init__(
        self,
        space: Space,
        num_trials: int,
        seeds: Sequence[int],
        seed: int = 0,
        done: Collection[int] = (),
    ) -> None:
        from scipy.stats import qmc  # Half a second, which no other design needs.

        num_points = math.ceil(num_trials / len(seeds))
        sequence = qmc.Sobol(len(space.axes), scramble=True, rng=seed)
        # The sequence is balanced at powers of two only; its first points serve as well.
        shares = sequence.random_base2(max(num_points - 1, 1).bit_length())[:num_points]
        super().__init__(spread([space.at(row) for row in shares.tolist()], seeds), done)
