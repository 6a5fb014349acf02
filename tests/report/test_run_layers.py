from __future__ import annotations

import math

import numpy as np
import pytest

from stabsweep.report.run_layers import MAX_COLUMNS, MAX_ROWS, group_names, heat_infos, layer_lines
from stabsweep.runlog import read_run
from tests.runs import line, write


def run_of(folder, looks, events=(), outcomes=()):
    """A run that looked at its layers at every tenth attempt."""
    lines = [line(n) for n in range(10 * len(looks))]
    for number, layers in enumerate(looks):
        lines[10 * number]["layers"] = layers
    for attempt, name in outcomes:
        lines[attempt]["outcome"] = name
    lines[-1]["events"] = [{"kind": kind, "message": message} for kind, message in events]
    return read_run(write(folder, lines))


def test_rows_are_layers_in_forward_order_and_columns_are_looks(tmp_path):
    looks = [{"z.in": [3.0, 10.0, 0.1], "a.out": [4.0, 5.0, 0.5]}] * 3
    norms, ratios = heat_infos(run_of(tmp_path / "r", looks))
    assert norms.names == ratios.names == ("z.in", "a.out")
    assert norms.edges == (0, 10, 20, 30)
    assert norms.values.tolist() == [[3.0] * 3, [4.0] * 3]
    assert ratios.values == pytest.approx(np.array([[0.01] * 3, [0.1] * 3]))


def test_what_is_not_finite_is_marked_and_colours_nothing(tmp_path):
    looks = [{"a": [1.0, 1.0, 0.1]}, {"a": [math.nan, 1.0, 0.1]}, {"a": [2.0, math.nan, 0.1]}]
    norms, ratios = heat_infos(run_of(tmp_path / "r", looks))
    assert norms.bad.tolist() == [[False, True, False]]
    assert np.isnan(norms.values).tolist() == [[False, True, False]]
    assert ratios.bad.tolist() == [[False, False, True]]
    assert norms.range == (1.0, 2.0)


def test_an_attempt_that_made_no_step_has_no_update(tmp_path):
    looks = [{"a": [1.0, 1.0, 0.1]}, {"a": [1.0, 1.0, 0.0]}, {"a": [1.0, 1.0, 0.2]}]
    run = run_of(tmp_path / "r", looks, outcomes=[(10, "skipped_outlier")])
    norms, ratios = heat_infos(run)
    assert norms.values.tolist() == [[1.0] * 3]
    assert ratios.values[0, [0, 2]].tolist() == [0.1, 0.2] and np.isnan(ratios.values[0, 1])


def test_many_layers_are_taken_together_by_their_blocks_and_norms_add_up(tmp_path):
    names = [f"blocks.{n}.{part}" for n in range(12) for part in ("q", "k", "v", "o")]
    looks = [{name: [3.0, 2.0, 0.4] for name in names}]
    norms, ratios = heat_infos(run_of(tmp_path / "r", looks))
    assert norms.names == tuple(f"blocks.{n}" for n in range(12)) and norms.num_layers == 48
    assert norms.values[:, 0] == pytest.approx([6.0] * 12)
    assert ratios.values[:, 0] == pytest.approx([0.2] * 12)


@pytest.mark.parametrize("names", [
    [f"h.{n}.{p}" for n in range(96) for p in ("a", "b", "c")],
    [f"layer{n}" for n in range(333)],
    ["a.b.c", "a"],
    [""],
    [],
])  # fmt: skip
def test_every_layer_has_one_row_whatever_the_names(names):
    groups = group_names(names)
    assert [name for group in groups.values() for name in group] == names
    assert len(groups) <= MAX_ROWS
    assert len(groups) >= min(len(names), 2)


def test_many_looks_are_taken_together_and_the_largest_shows(tmp_path):
    looks = [{"a": [1.0, 1.0, 0.1]} for _ in range(2 * MAX_COLUMNS + 7)]
    looks[301] = {"a": [50.0, 1.0, 0.1]}
    looks[302] = {"a": [math.inf, 1.0, 0.1]}
    norms, _ = heat_infos(run_of(tmp_path / "r", looks))
    assert norms.values.shape == (1, MAX_COLUMNS) and len(norms.edges) == MAX_COLUMNS + 1
    assert np.nanmax(norms.values) == 50.0 and norms.bad.sum() == 1


def test_a_table_has_the_last_look_the_peak_and_what_was_said(tmp_path):
    looks = [
        {"blocks.1": [9.0, 2.0, 0.2], "blocks.10.fc": [1.0, 1.0, 0.1], "dead": [1.0, 1.0, 0.1]},
        {"blocks.1": [3.0, 2.0, 0.1], "blocks.10.fc": [math.nan, 1.0, 0.1], "dead": [0.0, 1, 0]},
    ]
    events = [("logits", "Logits of blocks.1 have grown."), ("growth", "blocks.10.fc.weight grew")]
    one, ten, dead = layer_lines(run_of(tmp_path / "r", looks, events))
    assert (one.grad_norm, one.peak_grad_norm, one.weight_norm) == (3.0, 9.0, 2.0)
    assert (one.update_ratio, one.peak_ratio) == (0.05, 0.1)
    assert one.flags == ("logits",)
    assert ten.flags == ("growth", "gradient not finite") and math.isnan(ten.grad_norm)
    assert dead.flags == ("no gradient",)


@pytest.mark.parametrize(
    "message, is_named",
    [
        ("Gradient norm 3 is large.", False),
        ("The layer norm is dead.", True),
        ("`norm` is dead.", True),
        ("norm.weight is not finite.", True),
        ("blocks.0.norm.weight is not finite.", False),
    ],
)
def test_a_layer_of_one_word_is_not_any_word(tmp_path, message, is_named):
    run = run_of(tmp_path / "r", [{"norm": [1.0, 1.0, 0.1]}], [("dead", message)])
    assert layer_lines(run)[0].flags == (("dead layer",) if is_named else ())


def test_without_layers_there_is_nothing(tmp_path):
    run = read_run(write(tmp_path / "r", [line(0)]))
    assert heat_infos(run) == [] and layer_lines(run) == []
