import time
from collections import Counter

import pytest

from stabsweep.progress import Progress
from stabsweep.records import Record, Verdict
from stabsweep.report.live_view import LiveView, _spread
from stabsweep.space import Space


def progress_of(region, done=None, **other):
    records = region.records[:done]
    row = region.best_row
    known = {"records": records, "counts": Counter(r.verdict for r in records)}
    if row and records:
        known |= {"best_lr": row.best.lr, "best_loss": row.best.loss, "edge_lr": row.edge.lr}
        known |= {"edge_low": row.edge.low, "edge_high": row.edge.high}
    return Progress(len(region.records) or 192, len(records), seconds=2.0, **known, **other)


def test_it_fits_80_by_12_and_says_what_matters(sweep):
    region, _ = sweep
    text = LiveView(region.space).render("AdamW", progress_of(region, 150, eta_seconds=7), 80, 3)
    lines = text.plain.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    for expected in ("AdamW", "3 s", "edge", "best", "converged", "150/192  78%", "eta 7 s"):
        assert expected in text.plain


@pytest.mark.parametrize("height", [3, 6, 8, 9, 12])
def test_whatever_the_height_the_last_line_says_how_far_it_has_come(sweep, height):
    region, _ = sweep
    view, progress = LiveView(region.space), progress_of(region)
    whole = view.render("AdamW", progress).plain.splitlines()
    lines = view.render("AdamW", progress, height=height).plain.splitlines()
    assert len(lines) <= height and lines[-1] == whole[-1] and lines[0] == whole[0]
    rows = [line for line in lines if "●" in line and "converged" not in line]
    room = height - 1 - (len(whole) - 7)
    # Without room for all of them the rows share one line: some would show half the space.
    assert len(rows) == (4 if height >= len(whole) else 1 if room > 0 else 0)
    assert view.render("AdamW", progress).plain.splitlines() == whole


def test_a_sweep_that_may_stop_by_itself_says_so():
    text = LiveView().render("x", Progress(144, 28, seconds=9.0, eta_seconds=60, may_stop=True))
    assert "28 of at most 144" in text.plain and "eta <1 min" in text.plain
    assert "%" not in text.plain


def test_the_map_shows_rows_from_the_top_and_failure_on_the_right(sweep):
    region, _ = sweep
    lines = LiveView(region.space).render("x", progress_of(region)).plain.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["50", "33", "17", "0"]
    assert all(line.rstrip().endswith("×") for line in lines[1:5])
    assert all("●" in line for line in lines[1:5])


def test_something_moves_before_the_first_trial_ends():
    view = LiveView()
    frames = {view.render("x", Progress(9, num_running=4), 80, k / 4).plain for k in range(8)}
    assert len(frames) == 8
    assert "4 trials in training" in view.render("x", Progress(9, num_running=4)).plain
    assert "starting" in view.render("x", Progress(9)).plain


@pytest.mark.parametrize("width", [20, 40, 200])
def test_any_width_works(states, width):
    for region, _ in states.values():
        text = LiveView(region.space).render("t" * 300, progress_of(region), width, 1.0)
        assert len(text.plain.splitlines()[0]) <= max(width, 30)


def test_ascii_where_there_is_nothing_else(states):
    for region, _ in states.values():
        text = LiveView(region.space, unicode=False).render("x", progress_of(region), 80, 1.0)
        assert text.plain.isascii()


def test_it_works_without_a_space_and_with_mixed_rows():
    records = [
        Record(n, {"lr": 10.0**-n, "clip_norm": v}, 0, Verdict.CONVERGED)
        for n, v in enumerate([None, "adamw", 0.5, 3])
    ]
    progress = Progress(9, 4, records=records, counts={Verdict.CONVERGED: 4})
    assert LiveView().render("x", progress).plain.count("\n") >= 6


def test_many_rows_share_one_line():
    space = Space.parse({"lr": {"low": 1e-4, "high": 1.0}, "warmup_steps": {"low": 0, "high": 99}})
    records = [Record(n, {"lr": 0.01, "warmup_steps": n}, 0, Verdict.CONVERGED) for n in range(40)]
    text = LiveView(space).render("x", Progress(40, 40, records=records), done=True)
    assert text.plain.count("●") == 5 + 1  # five columns of the map and the legend


def test_the_worse_outcome_wins_a_tie_and_gaps_stay_small():
    bins = [Counter() for _ in range(12)]
    bins[3].update({"converged": 2, "diverged": 2})
    assert _spread(bins) == [""] + ["diverged"] * 5 + [""] * 6


def test_names_are_not_markup():
    text = LiveView().render("[red]x[/red]\x1b[31m", Progress(1))
    assert "[red]x[/red]" in text.plain and "\x1b" not in text.plain


def test_a_frame_of_a_large_sweep_is_cheap(sweep):
    region, _ = sweep
    records = list(region.records) * 50
    view = LiveView(region.space)
    view.render("x", Progress(10_000, 1, records=records))
    began = time.perf_counter()
    for _ in range(20):
        view.render("x", Progress(10_000, 1, records=records))
    # Four frames a second; the limit is five times what a busy core needs.
    assert (time.perf_counter() - began) / 20 < 0.05


def test_trials_beyond_the_range_widen_the_map():
    space = Space.parse({"lr": {"low": 1e-3, "high": 1.0}})
    known = {"final_loss": 1.0, "horizon": 9}
    records = [Record(k, {"lr": lr}, 0, Verdict.CONVERGED, **known) for k, lr in enumerate((1, 99))]
    view = LiveView(space)
    assert view.render("x", Progress(2, 1, records=records[:1])).plain.split().count("10") == 0
    assert "10" in view.render("x", Progress(2, 2, records=records)).plain.split()
