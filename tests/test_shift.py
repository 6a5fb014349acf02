from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from stabsweep.edge import Edge
from stabsweep.errors import BadInput
from stabsweep.records import Record, Verdict
from stabsweep.region import Row, find_region
from stabsweep.shift import Shift, find_shifts
from stabsweep.space import Space

LOW = Edge("found", 0.01, 0.008, 0.02)
HIGH = Edge("found", 0.1, 0.05, 0.2)
WIDE = Edge("found", 0.1, 0.015, 0.2)
ABOVE, BELOW, UNKNOWN = Edge("above", low=0.5), Edge("below", high=1e-3), Edge("unknown")
ABOVE_LOW = Edge("above", low=0.015)


def shift(a, b):
    rows = [None if edge is None else Row({}, (), edge) for edge in (a, b)]
    return Shift({}, *rows)


@pytest.mark.parametrize(
    "a, b, says, decades, least",
    [
        (LOW, HIGH, "moved", 1.0, None),
        (HIGH, LOW, "moved", -1.0, None),
        (LOW, WIDE, "not distinguishable", 1.0, None),
        (LOW, ABOVE, "moved", None, math.log10(50)),
        (ABOVE, LOW, "moved", None, -math.log10(50)),
        (LOW, BELOW, "moved", None, -1.0),
        (BELOW, ABOVE, "moved", None, math.log10(500)),
        (ABOVE, BELOW, "moved", None, -math.log10(500)),
        (LOW, ABOVE_LOW, "not met in B", None, None),
        (ABOVE_LOW, LOW, "not met in A", None, None),
        (ABOVE, ABOVE_LOW, "not met in either", None, None),
        (UNKNOWN, LOW, "not judged", None, None),
        (None, LOW, "only in B", None, None),
        (LOW, None, "only in A", None, None),
    ],
)
def test_what_a_row_says(a, b, says, decades, least):
    found = shift(a, b)
    assert found.says == says
    assert found.decades == (None if decades is None else pytest.approx(decades))
    assert found.least_decades == (None if least is None else pytest.approx(least))
    assert found.is_decided == (says in ("moved", "not distinguishable"))


def region(space, rows, edge=0.1):
    """Two seeds at five rates of each row, stable below the edge."""
    points = [{"lr": 10.0**k, **row} for row in rows for k in (-3, -2, -1.5, -0.5, 0)]
    records = [
        Record(
            number,
            point,
            seed,
            Verdict.CONVERGED if point["lr"] < edge else Verdict.DIVERGED,
            steps=10,
            horizon=10,
            initial_loss=2.0,
            final_loss=1.0 if point["lr"] < edge else None,
        )
        for number, (point, seed) in enumerate((p, s) for p in points for s in (0, 1))
    ]
    return find_region(Space.parse(space), records)


def test_rows_are_matched_by_their_values_and_none_is_lost():
    lr = {"low": 1e-3, "high": 1.0}
    a = region({"lr": lr, "clip_norm": [0.3, 1.0]}, [{"clip_norm": 0.3}, {"clip_norm": 1.0}])
    b = region(
        {"lr": lr, "clip_norm": [0.1 * 3, None]},
        [{"clip_norm": 0.1 * 3}, {"clip_norm": None}],
    )
    found = [(s.values["clip_norm"], s.says) for s in find_shifts(a, b)]
    assert found == [(0.3, "not distinguishable"), (1.0, "only in A"), (None, "only in B")]


def test_the_order_of_the_axes_does_not_matter():
    lr, rows = {"low": 1e-3, "high": 1.0}, [{"clip_norm": 1.0, "warmup_steps": 5}]
    a = region({"lr": lr, "clip_norm": [1.0], "warmup_steps": [5]}, rows)
    b = region({"lr": lr, "warmup_steps": [5], "clip_norm": [1.0]}, rows)
    (found,) = find_shifts(a, b)
    assert found.a is not None and found.b is not None and found.decades == 0.0
    assert found.usable_decades == 0.0


def test_other_axes_are_bad_input():
    lr = {"low": 1e-3, "high": 1.0}
    a = region({"lr": lr}, [{}])
    b = region({"lr": lr, "clip_norm": [1.0]}, [{"clip_norm": 1.0}])
    with pytest.raises(BadInput, match="A sweeps lr and B sweeps lr, clip_norm"):
        find_shifts(a, b)
    assert find_shifts(a, SimpleNamespace(space=a.space, rows=()))[0].says == "only in A"
