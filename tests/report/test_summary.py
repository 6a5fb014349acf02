from dataclasses import replace

import pytest

from stabsweep.numerals import rate
from stabsweep.report import summary
from stabsweep.report.summary import MAX_ROWS, edge_table, saved


def test_what_else_is_known_follows_the_answer(sweep):
    said = summary(*sweep, also=[("Theory", "2 / lambda = 3."), ("Advice", "Try warmup.")])
    assert "\nTheory   2 / lambda = 3.\nAdvice   Try warmup.\n\nTrials " in said


def test_it_says_edge_pick_margin_evidence_savings_and_files(sweep):
    region, pick = sweep
    said = summary(region, pick, "AdamW on transformer", 192, "out", 42.0)
    for expected in (
        f"AdamW on transformer: stable up to {rate(pick.edge['lr'])}",
        "Use      lr=0.004 warmup_steps=17",
        f"{pick.edge['lr'] / pick.lr:.2g}x below the edge",
        "95% interval",
        "192: 85 converged",
        "18 early, which saved 7% of the planned steps",
        "Took     42 s",
        "Files    out/ report.html map.png",
    ):
        assert expected in said


def test_it_fits_80_columns_in_ascii(states):
    for name, (region, pick) in states.items():
        said = summary(region, pick, "AdamW on transformer", 192, "results/a", 3.0)
        assert said.isascii(), name
        assert max(map(len, said.splitlines())) <= 80, name


def test_every_reason_and_remark_is_said(states):
    for region, pick in states.values():
        words = " ".join(summary(region, pick).split())
        assert " ".join(pick.reason.split()) in words
        assert all(" ".join(text.split()) in words for text in pick.warnings)


def test_the_table_marks_the_pick_and_aligns(sweep):
    lines = edge_table(*sweep)
    assert [line[0] for line in lines] == [" ", " ", ">", " ", " "]
    assert len({line.index("e-2" if "e-2" in line else "edge") for line in lines[1:]}) == 1


def test_a_long_table_shows_the_rows_around_the_pick():
    from stabsweep.space import Space  # noqa: PLC0415
    from tests.report.conftest import make_sweep  # noqa: PLC0415

    space = Space.parse(
        {"lr": {"low": 1e-4, "high": 1.0}, "warmup_steps": {"values": list(range(0, 60, 2))}}
    )
    lines = edge_table(*make_sweep(space=space, num_points=300))
    assert len(lines) == MAX_ROWS + 2
    assert any(line.startswith(">") for line in lines)
    assert "18 more rows in report.html" in lines[-1]


@pytest.mark.parametrize(
    ("states_and_steps", "expected"),
    [
        ([("complete", 100)] * 3, "none, every trial ran to its end"),
        ([("pruned", 10), ("complete", 100)], "1 early, which saved 45% of the planned steps"),
        ([("pruned", 100)] * 2, "2 early, which saved 0% of the planned steps"),
        ([], "none, every trial ran to its end"),
    ],
)
def test_what_pruning_saved(sweep, states_and_steps, expected):
    record = sweep[0].records[0]
    records = [replace(record, state=s, steps=n, horizon=100) for s, n in states_and_steps]
    assert saved(records) == expected


def test_names_are_printed_and_not_obeyed(sweep):
    region, pick = sweep
    said = summary(region, pick, "[red]x[/red] \x1b[31m", None, ["\x1b]0;title\x07"])
    assert "[red]x[/red]" in said and "\x1b" not in said and "\x07" not in said
