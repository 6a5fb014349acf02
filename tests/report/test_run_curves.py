from __future__ import annotations

import math

import numpy as np
import pytest

from stabsweep.report.draw_run import draw_run
from stabsweep.report.figure import save_figure
from stabsweep.report.run_curves import MAX_POINTS, run_info
from stabsweep.runlog import read_run
from stabsweep.verdict import judge
from tests.runs import ABOUT, falling, line, train, write


def info_of(folder):
    run = read_run(folder)
    trace = run.trace()
    return run_info(run, None if trace is None else judge(trace))


def panel(info, key):
    (found,) = [panel for panel in info.panels if panel.key == key]
    return found


def event(kind, message="said"):
    return [{"kind": kind, "message": message}]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run") / "a")


def test_a_real_run_is_told_as_it_was(trained):
    info = info_of(trained)
    assert info.title.startswith("adamw on mlp: converged at 0.")
    assert "2 batches skipped (not finite, attempts 40 to 41)" in info.title
    assert info.bad == ((40, 41),)
    assert [p.key for p in info.panels] == ["loss", "grad_norm", "update_ratio", "lr", "scale"]
    scale = panel(info, "scale")
    assert scale.lines[0].values[0] > scale.lines[0].values[-1] and scale.is_stepped
    assert info.lanes["not_finite"] == (40, 41) and info.lanes["overflow"][0] == 0
    # An overflow is no loss of the run's, and its infinite norm no height of the curve.
    assert info.range == (0, 119) and info.stopped is None
    assert panel(info, "grad_norm").range[1] < 100
    names = [heat.names for heat in info.heats]
    assert names[0] == names[1] and names[0][-1] == "readout"
    assert all(np.isfinite(heat.values).any() and not heat.bad.any() for heat in info.heats)


def test_it_is_drawn_and_saved_without_a_date(trained, tmp_path):
    info = info_of(trained)
    paths = save_figure(draw_run(info), tmp_path, "run")
    assert [path.name for path in paths] == ["run.png", "run.svg"]
    assert paths[0].read_bytes()[:4] == b"\x89PNG"
    svg = paths[1].read_text()
    assert "not finite (2)" in svg and "Loss" in svg and "readout" in svg and "<dc:date>" not in svg
    assert len(svg) < 500_000


def test_where_it_rolled_back_to_is_known_and_what_was_undone_lies_aside(tmp_path):
    losses = falling(100)
    lines = [line(n, loss=losses[n]) for n in range(60)]
    lines += [line(60, 60, "rolled_back", loss=9.0, events=event("rollback"))]
    lines += [line(n, n - 21, loss=losses[n - 21]) for n in range(61, 121)]
    info = info_of(write(tmp_path / "run", lines))
    assert info.undone == ((40, 60),)
    assert info.lanes == {"rollback": (60,)}
    assert "rolled back once (attempt 60)" in info.title
    loss = panel(info, "loss")
    assert set(range(40, 61)) == set(loss.aside.attempts)
    # The curve is broken there: no line leads from what was kept over what was undone.
    gap = loss.lines[0].values[loss.lines[0].attempts.index(40)]
    assert math.isnan(gap)


def test_a_second_rollback_that_goes_further_back_takes_both(tmp_path):
    lines = [line(n) for n in range(20)] + [line(20, 20, "rolled_back")]
    lines += [line(n, n - 6) for n in range(21, 30)] + [line(30, 24, "rolled_back")]
    lines += [line(n, n - 21) for n in range(31, 50)]
    info = info_of(write(tmp_path / "run", lines))
    assert info.undone == ((10, 20), (21, 30))


def test_a_run_taken_up_again_at_an_earlier_state_has_undone_what_followed(tmp_path):
    lines = [line(n) for n in range(30)] + [line(n, n - 10) for n in range(30, 50)]
    assert info_of(write(tmp_path / "run", lines)).undone == ((20, 29),)


def test_a_last_rollback_has_a_mark_though_nothing_tells_how_far_it_went(tmp_path):
    lines = [*(line(n) for n in range(30)), line(30, 30, "rolled_back")]
    info = info_of(write(tmp_path / "run", lines))
    assert info.undone == () and info.lanes == {"rollback": (30,)}


def test_what_was_skipped_is_off_the_scale_and_no_end_of_an_axis(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(50))]
    lines.append(line(50, 50, "skipped_outlier", loss=1e5, grad_norm=1e6))
    lines.append(line(51, 50, loss=0.5))
    info = info_of(write(tmp_path / "run", lines))
    assert panel(info, "loss").range[1] < 4 and panel(info, "loss").above == (50,)
    assert panel(info, "grad_norm").above == (50,) and info.lanes == {"outlier": (50,)}


def test_clipping_is_a_share_a_level_and_a_strip(tmp_path):
    lines = [line(n, grad_norm=4.0 if n < 25 else 0.5) for n in range(100)]
    lines = [one | {"clip_coef": min(1.0, 1.0 / one["grad_norm"])} for one in lines]
    info = info_of(write(tmp_path / "run", lines))
    assert info.clip is not None and info.clip.share == 0.25
    assert info.clip.shares == (1.0,) * 25 + (0.0,) * 75
    assert panel(info, "grad_norm").levels == ((1.0, "clipped at 1"),)
    assert "25% of steps clipped" in panel(info, "grad_norm").note
    assert "clipped 25% of the steps" in info.title


def test_a_rule_of_clipping_without_one_limit_has_no_level(tmp_path):
    lines = [line(n, grad_norm=2.0 + n, clip_coef=0.5) for n in range(30)]
    info = info_of(write(tmp_path / "run", lines))
    assert panel(info, "grad_norm").levels == () and info.clip is not None


def test_long_runs_are_thinned_but_no_event_and_nothing_that_was_not_finite(tmp_path):
    num = 20_000
    losses = falling(num)
    lines = [line(n, loss=v) for n, v in enumerate(losses)]
    for n in range(7, num, 501):
        lines[n] = line(n, n, "skipped_not_finite", loss=math.nan, grad_norm=math.nan)
    for n in range(11, num, 173):
        lines[n]["events"] = event("growth")
    lines[12_345]["loss"] = 77.0
    info = info_of(write(tmp_path / "run", lines))
    loss = panel(info, "loss").lines[0]
    assert len(loss.values) <= MAX_POINTS and 77.0 in loss.values
    assert info.bad == tuple((n, n) for n in range(7, num, 501))
    assert info.lanes["growth"] == tuple(range(11, num, 173))
    assert len(info.lanes["not_finite"]) == len(info.bad)


def test_a_number_that_is_not_finite_shows_even_if_nobody_called_it_an_event(tmp_path):
    lines = [line(n, loss=math.inf if n == 5 else 1.0) for n in range(10)]
    info = info_of(write(tmp_path / "run", lines))
    assert info.bad == ((5, 5),) and info.lanes == {"not_finite": (5,)}
    assert info.title.startswith("adamw on mlp: diverged at step 5")


@pytest.mark.parametrize(
    "lines, title",
    [
        ([line(0)], "adamw on mlp: "),
        (
            [line(n, 0, "skipped_not_finite", math.nan, grad_norm=math.nan) for n in range(4)],
            "adamw on mlp: nothing was trained: all 4 attempts were skipped",
        ),
        (
            [line(n, 0, "skipped_not_finite", math.nan, grad_norm=math.nan) for n in range(3)]
            + [line(3, 0, "stopped", math.nan, grad_norm=math.nan, events=event("stopped"))],
            "adamw on mlp: stopped at attempt 3, not finite from the first step on",
        ),
        ([line(n, loss=0.0, grad_norm=0.0, update_ratio=0.0, lr=0.0) for n in range(9)], "adamw"),
        ([line(n, loss=-3.0 - n) for n in range(9)], "adamw on mlp: "),
        ([line(n, loss=10.0 ** (40 * n)) for n in range(8)], "adamw on mlp: diverged"),
    ],
    ids=["one line", "all nan", "stopped at once", "zeros", "negative", "runaway"],
)
def test_any_run_has_a_picture(tmp_path, lines, title):
    info = info_of(write(tmp_path / "run", lines))
    assert info.title.startswith(title)
    paths = save_figure(draw_run(info), tmp_path, "run")
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_run_without_summary_says_so(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(60))]
    info = info_of(write(tmp_path / "run", lines, summary=None))
    assert info.title.endswith(" so far")
    assert "There is no summary: the run was killed, or is still going on." in info.remarks


def test_an_end_in_skips_alone_is_said(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(60))]
    bad = {"loss": math.nan, "grad_norm": math.nan}
    lines += [line(n, 60, "skipped_not_finite", **bad) for n in range(60, 70)]
    info = info_of(write(tmp_path / "run", lines, summary={"steps": 60}))
    assert "The last 10 attempts were all skipped: the run is stuck there." in info.remarks


@pytest.mark.parametrize("edge, is_drawn", [(0.05, True), (0.9, False)])
def test_what_a_map_said_lies_beside_the_rate_where_it_is_near(tmp_path, edge, is_drawn):
    told = {"edge_lr": edge, "text": "The map says so."}
    lines = [line(n, loss=v) for n, v in enumerate(falling(30))]
    info = info_of(write(tmp_path / "run", lines, summary={"predicted": told}))
    rate = panel(info, "lr")
    assert [v for v, _ in rate.levels] == ([edge] if is_drawn else [])
    assert ("far above" in rate.note) is not is_drawn
    assert (rate.range[1] > edge) is is_drawn and rate.range[0] == 0


def test_logits_of_every_layer_are_lines_of_one_panel(tmp_path):
    lines = [line(n) for n in range(30)]
    for n in range(0, 30, 10):
        lines[n]["logits"] = {"a.attention": 2.0 + n, "b.attention": 1.0}
    info = info_of(write(tmp_path / "run", lines))
    logits = panel(info, "logits")
    assert [one.name for one in logits.lines] == ["a.attention", "b.attention"]
    assert logits.lines[0].values == (2.0, 12.0, 22.0)
    assert "last 22 in a.attention" in logits.note


def test_words_of_a_subject_may_be_anything(tmp_path):
    about = ABOUT | {"optimizer": {"target": "my.rules:Lion"}, "model": "torch.nn.Linear"}
    info = info_of(write(tmp_path / "run", [line(0)], about))
    assert info.title.startswith("Lion on Linear: ")
    info = info_of(write(tmp_path / "none", [line(0)], {}))
    assert info.title[0].isupper()
