"""Sizes of tiles are tried on the steps that are to be done anyway, then the fastest is kept."""

from __future__ import annotations

import pytest
import torch

from stabsweep.engine._tiles import Tiles

CPU = torch.device("cpu")


def covered(parts, num_rows):
    """Whether the parts are all rows, each once and in order."""
    rows = [row for part in parts for row in range(part.start, part.stop)]
    return rows == list(range(num_rows))


def settle(tiles, num_rows, milliseconds):
    """Runs rungs until a size is chosen, at given times of a trial-step; how many they were."""
    for rung in range(100):
        if tiles.size is not None:
            return rung
        parts = []
        for part in tiles.parts(num_rows):
            size = part.stop - part.start
            tiles.timed(size, 10, milliseconds(size) / 1e3 * size * 10)
            parts.append(part)
        assert covered(parts, num_rows)
    raise AssertionError("no size is ever chosen")


@pytest.mark.parametrize("best", [1, 2, 4, 8, 16])
def test_the_fastest_size_is_kept(best):
    tiles = Tiles(CPU)
    rungs = settle(tiles, 24, lambda size: 1 + abs(size - best))
    assert tiles.size == best
    assert rungs <= 4
    parts = list(tiles.parts(24))
    assert covered(parts, 24)
    assert max(part.stop - part.start for part in parts) <= best


def test_a_size_is_judged_by_its_least_time():
    tiles, seen = Tiles(CPU), set()

    def once_slow(size):
        first = size not in seen
        seen.add(size)
        return (100 if first else 1) * (1 if size == 4 else 2)

    settle(tiles, 24, once_slow)
    assert tiles.size == 4


@pytest.mark.parametrize("num_rows", [1, 2, 3, 7, 24, 100])
def test_parts_are_of_one_size_as_nearly_as_can_be(num_rows):
    tiles = Tiles(CPU)
    tiles.size = 8
    sizes = [part.stop - part.start for part in tiles.parts(num_rows)]
    assert sum(sizes) == num_rows
    assert max(sizes) <= 8
    assert max(sizes) - min(sizes) <= 1


def test_a_gpu_trains_all_at_once():
    tiles = Tiles(torch.device("cuda"))
    for _ in range(3):
        assert list(tiles.parts(512)) == [slice(0, 512)]
        tiles.timed(512, 10, 0.5)
    assert tiles.size == 512
    assert tiles.milliseconds[512] == pytest.approx(0.5 / 512 / 10 * 1e3)
    assert list(tiles.parts(100)) == [slice(0, 100)]
