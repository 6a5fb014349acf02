from __future__ import annotations

import json

import pytest

from stabsweep import compare
from stabsweep.errors import BadInput
from stabsweep.records import Record, Verdict
from stabsweep.result import Result
from stabsweep.space import Space
from tests.report.reader import Reader

SPACE = {"lr": {"low": 1e-3, "high": 10.0}, "warmup_steps": [0, 10]}


def result(edges, space=SPACE, num_planned=None, **config):
    """A sweep of two seeds whose rows have their edge just below the given rates."""
    records = []
    for row, edge in edges.items():
        for lr in (10 ** (k / 4) for k in range(-12, 5)):
            point = {"lr": lr} if row is None else {"lr": lr, "warmup_steps": row}
            held = lr < edge
            for seed in (0, 1):
                records.append(
                    Record(
                        len(records),
                        point,
                        seed,
                        Verdict.CONVERGED if held else Verdict.DIVERGED,
                        steps=10,
                        horizon=10,
                        initial_loss=2.0,
                        final_loss=1.0 - lr / 100 if held else None,
                    )
                )
    known = {
        "model": "mlp",
        "optimizer": {"name": "sgd", "momentum": 0.9},
        "warmup_steps": 0,
        "clip_norm": None,
        "schedule": "constant",
        "init": "default",
        "init_gain": 1.0,
        "margin_decades": 0.2,
        "num_planned": num_planned or len(records),
        **config,
    }
    return Result.find(Space.parse(space), records, known)


def test_the_edge_that_moved_is_named_with_what_was_asked_differently(tmp_path):
    a = result({0: 1.1, 10: 1.1})
    b = result({0: 0.11, 10: 1.1}, optimizer={"name": "sgd", "momentum": 0.99})
    found = compare(a, b)
    assert found.conclusion == (
        "B's edge is 1.0 decades lower at 0 warmup steps; not distinguishable at 10 warmup steps"
    )
    assert found.can_tell
    assert found.differences == {"optimizer.momentum": (0.9, 0.99)}
    assert found.names == (
        "sgd on mlp optimizer.momentum=0.9",
        "sgd on mlp optimizer.momentum=0.99",
    )
    text = found.summary()
    assert all(len(line) <= 80 for line in text.splitlines())
    for part in ("-1.00  moved", "Pick A   lr=", "optimizer.momentum: 0.9 -> 0.99", "usable A"):
        assert part in text
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [row["says"] for row in plain["rows"]] == ["moved", "not distinguishable"]
    assert plain["rows"][0]["decades"] == pytest.approx(-1, abs=0.01)
    assert plain["rows"][0]["usable_decades"] == pytest.approx(-1)
    assert plain["a"]["pick"]["lr"] == a.pick.lr
    paths = found.save(tmp_path / "new" / "folder")
    assert [p.name for p in paths] == ["compare.html", "compare.png", "compare.svg"]
    read = Reader(paths[0].read_text(encoding="utf-8"))
    for expected in (
        "-1.00 moved",
        "optimizer.momentum 0.9 0.99",
        "Nothing differs that can change numbers",
        f"Pick A lr={a.pick.lr}",
    ):
        assert expected in read.text
    assert read.text.startswith(found.conclusion)
    assert read.tags.count("img") == 1


def test_a_sweep_and_itself_differ_in_nothing():
    a = result({0: 1.1, 10: 0.3})
    found = compare(a, a)
    assert found.differences == {} and found.pick_decades == 0
    assert "Differ   in nothing" in found.summary() and "the same rate" in found.summary()
    assert "not distinguishable in any of the 2 rows" in found.summary()


def test_rows_of_one_side_and_missing_trials_are_said():
    a, b = result({0: 1.1, 10: 1.1}), result({10: 1.1}, num_planned=99)
    text = compare(a, b).summary()
    assert "only in A" in text and "B: only 34 of 99 trials ran" in text


def test_nothing_in_common_tells_nothing():
    found = compare(result({0: 1.1}), result({10: 1.1}))
    assert not found.can_tell and found.conclusion == "A and B have no row in common"
    nothing = result({})
    assert not compare(nothing, nothing).can_tell
    assert compare(nothing, nothing).summary() and compare(nothing, nothing).plot()


def test_one_strip_has_no_rows_to_name():
    space = {"lr": SPACE["lr"]}
    found = compare(result({None: 1.1}, space), result({None: 0.11}, space))
    assert found.conclusion == "B's edge is 1.0 decades lower"


def test_other_axes_and_a_folder_in_the_way_are_bad_input(tmp_path):
    a = result({0: 1.1})
    with pytest.raises(BadInput, match="same axes"):
        compare(a, result({None: 1.1}, {"lr": SPACE["lr"]}))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match="choose another out=DIR"):
        compare(a, a).save(tmp_path / "file")
