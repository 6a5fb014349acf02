"""A regular grid over the space."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from stabsweep.sampler._design import DesignSampler, spread
from stabsweep.space import Space


class Grid(DesignSampler):
    """Every row with the same learning rates, coarse to fine: a map that is readable at any time.

    Args:
        space: what is swept.
        num_trials: trials wanted in all; the grid is rounded up to full rows.
        seeds: seeds that every point is run with.
        seed: unused, a grid has nothing random.
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
        points = space.grid(math.ceil(num_trials / len(seeds)))
        rates = sorted({point["lr"] for point in points})  # type: ignore[type-var]
        turn = {rates[place]: rank for rank, place in enumerate(_coarse_to_fine(len(rates)))}
        entries = sorted(spread(points, seeds), key=lambda e: (seeds.index(e[2]), turn[e[1]["lr"]]))
        super().__init__(entries, done)


def _coarse_to_fine(num_places: int) -> list[int]:
    """The places 0 to n - 1, both ends first, so that any first part is spread over the whole.

    >>> _coarse_to_fine(6)
    [0, 5, 2, 1, 4, 3]
    """
    last = num_places - 1
    bits = max(last, 1).bit_length()
    halving = (int(f"{i:0{bits}b}"[::-1], 2) / 2**bits for i in range(2**bits))
    return list(dict.fromkeys([0, last, *(round(share * last) for share in halving)]))
