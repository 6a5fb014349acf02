from dataclasses import replace

import pytest

from stabsweep.numerals import rate
from stabsweep.pick import CLIP_SHARE, Pick
from stabsweep.region import find_region
from stabsweep.report import conclusion
from stabsweep.report.conclusion import (
    clip_share,
    find_pocket,
    picked_row,
    proof_text,
    remarks,
    row_label,
    setting,
    value_text,
)
from stabsweep.space import Axis


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("whole", "stable up to {edge} at 17 warmup steps; pick {lr}, {margin:.1f} decades below"),
        ("one_strip", "stable up to {edge}; pick {lr}, {margin:.1f} decades below"),
        (
            "two_axes",
            "stable up to {edge} with sgd, clip norm 1; pick {lr}, {margin:.1f} decades below",
        ),
        (
            "edge_not_reached",
            "stable up to 2.5e-3 at 0 warmup steps, the highest rate tried; pick {lr}",
        ),
        ("none_safe", "no safe learning rate in 1.0e-5 to 1"),
        ("nothing_learned", "nothing learned at any learning rate in 1.0e-5 to 1"),
        ("all_failed", "nothing known, no trial in 1.0e-5 to 1 could be judged"),
        ("no_records", "nothing known yet, no trial was finished"),
    ],
)
def test_the_headline_is_the_answer(states, state, expected):
    region, pick = states[state]
    edge = rate(pick.edge["lr"] if pick.edge else None)
    expected = expected.format(edge=edge, lr=rate(pick.lr, down=True), margin=pick.margin_decades)
    assert conclusion(region, pick, "AdamW on transformer") == f"AdamW on transformer: {expected}"
    assert conclusion(region, pick) == expected[0].upper() + expected[1:]


def test_a_pick_that_has_moved_down_is_still_in_its_row(sweep):
    region, pick = sweep
    moved = replace(pick, lr=pick.lr / 1.7)
    assert picked_row(region, moved) == picked_row(region, pick) is not None
    assert "pick" in conclusion(region, moved)


def test_the_headline_cannot_carry_control_characters(sweep):
    assert "\x1b" not in conclusion(*sweep, "\x1b[31m red")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"warmup_steps": 50}, "50 warmup steps"),
        ({"optimizer": "adamw", "clip_norm": None}, "adamw, clip norm off"),
        ({"beta2": 0.999, "weight_decay": 1e-5}, "beta2 0.999, weight decay 1.0e-5"),
        ({"beta2": 0.99999, "weight_decay": 1.02e-5}, "beta2 0.99999, weight decay 1.02e-5"),
        ({"optimizer": "{0}{x}"}, "{0}{x}"),
        ({}, ""),
    ],
)
def test_a_row_in_words(values, expected):
    assert setting(values) == expected


def test_no_two_values_of_an_axis_have_one_label():
    values = [0.99, 0.999, 0.9999, 0.99999, 0.999999, 1.0, 1e-5, 1.01e-5, 12345.6, 12345.7]
    assert len({value_text(value) for value in values}) == len(values)
    for axis in ({"low": 1e-8, "high": 1.0}, {"low": 0.9, "high": 0.99999, "scale": "linear"}):
        grid = Axis.parse("weight_decay", axis).grid(1000)
        assert len({value_text(value) for value in grid}) == len(grid)


def test_a_row_that_is_a_bin_says_its_range(states):
    assert row_label(states["two_axes"][0].rows[2]) == "sgd · off"
    assert [row_label(row) for row in states["whole"][0].rows] == ["0", "17", "33", "50"]
    assert [row_label(row) for row in states["sobol"][0].rows][0].startswith("0 to ")


def test_the_picked_row_is_found(states):
    region, pick = states["whole"]
    assert region.rows[picked_row(region, pick)].values == {"warmup_steps": 17}
    assert picked_row(*states["none_safe"]) is None


def test_a_pocket_is_found_and_said(states):
    region, pick = states["pocket"]
    rates = find_pocket(region)
    assert len(rates) == 6
    assert all(0.12 < lr < 0.4 for lr in rates)
    assert any("pocket" in text for text in remarks(region, pick))


def test_one_noisy_failure_is_no_pocket(states):
    assert find_pocket(states["whole"][0]) == []
    assert find_pocket(states["one_seed"][0]) == []


def test_remarks_say_what_else_to_know(states):
    region, pick = states["failed"]
    said = remarks(region, pick)
    assert any(t.startswith("18 trials ended in an error, the first: out of <mem") for t in said)
    assert any("inside the warmup" in text for text in said)
    region, pick = states["interrupted"]
    assert sum("of 192 trials" in text for text in remarks(region, pick, 192)) == 1


def clipped(region, share):
    """The region with `share(record)` of each trial's steps clipped."""
    return find_region(region.space, [replace(r, clip_share=share(r)) for r in region.records])


def test_where_most_steps_are_clipped_the_axis_is_called_a_clip_axis(states):
    region, pick = states["two_axes"]
    region = clipped(region, lambda r: 0.9 if r.point["clip_norm"] == 0.25 else 0.4)
    rows = [row for row in region.rows if row.values["clip_norm"] == 0.25]
    held = [cell for row in rows for cell in row.cells if cell.num_stable]
    every = [cell for row in region.rows for cell in row.cells if cell.num_stable]
    (said,) = [text for text in remarks(region, pick) if "clip axis" in text]
    assert said == remarks(region, pick)[len(pick.warnings)]
    assert f"a clip axis at {len(held)} of {len(every)} rates that held" in said
    assert said.endswith(
        "where most steps were clipped: sgd, clip norm 0.25; adamw, clip norm 0.25."
    )


def test_failing_trials_do_not_make_it_a_clip_axis(states):
    region, pick = states["two_axes"]
    above = clipped(region, lambda r: 0.0 if r.verdict.is_stable else 1.0)
    assert not any("clip axis" in text for text in remarks(above, pick))
    assert {clip_share(row) for row in above.rows} == {0.0}
    half = clipped(region, lambda r: CLIP_SHARE)
    assert not any("clip axis" in text for text in remarks(half, pick))


def test_rows_beyond_the_second_are_counted(states):
    region, pick = states["two_axes"]
    said = remarks(clipped(region, lambda r: 1.0), pick)[0]
    assert said.endswith("; 4 more rows.")
    region, pick = states["one_strip"]
    assert remarks(clipped(region, lambda r: 1.0), pick)[0].endswith("most steps were clipped.")


def test_what_a_pick_went_through_is_told_with_what_failed():
    proofs = {"held": 11, "tests": 12, "failed": ["double the width: diverged"]}
    pick = Pick("ok", "Far below the edge.", 0.1, proofs=proofs)
    assert proof_text(pick) == (
        "Survives 11 of 12 runs that it was not chosen by. Failed: double the width: diverged."
    )
    assert proof_text(replace(pick, proofs={})) == proof_text(replace(pick, status="none")) == ""
