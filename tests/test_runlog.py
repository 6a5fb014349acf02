"""The lines of a run: raw, whole, and the later one where an attempt was repeated."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stabsweep.errors import BadInput
from stabsweep.records import Verdict
from stabsweep.runlog import Columns, RunLog, is_run, read_run
from stabsweep.verdict import judge


def line(attempt: int, step: int, outcome: str = "stepped", **more: Any) -> dict[str, Any]:
    values = {"loss": 1.0, "grad_norm": 0.5, "clip_coef": 1.0, "lr": 0.1}
    return {"attempt": attempt, "step": step, "outcome": outcome, **values, **more}


def write(folder: Path, lines: list[dict[str, Any]], **about: Any) -> None:
    log = RunLog(folder, about, {}, go_on=True)
    for one in lines:
        log.append(one)
    log.close({"steps": len(lines)})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_kept_as_it_was(bad: float, tmp_path: Path) -> None:
    """One NaN among ten losses: neither repaired, nor a word that other readers refuse."""
    outcomes = ["stepped"] * 4 + ["skipped_not_finite"] + ["stepped"] * 5
    lines = [
        line(n, n - (n > 4), outcome, loss=bad if n == 4 else 1.0 / (n + 1))
        for n, outcome in enumerate(outcomes)
    ]
    write(tmp_path, lines)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    texts = (tmp_path / "steps.jsonl").read_text().splitlines()
    plain = [json.loads(text, parse_constant=refuse) for text in texts]
    assert plain[4]["loss"] is None and plain[4]["not_finite"] == {"loss": str(bad)}
    run = read_run(tmp_path)
    loss = run.columns["loss"]
    assert loss[4] == bad or math.isnan(bad)
    assert [math.isfinite(value) for value in loss] == [n != 4 for n in range(10)]
    trace = run.trace()
    assert trace is not None and trace.num_steps == 9


def test_a_torn_line_is_left_out_and_cut_off(tmp_path: Path) -> None:
    write(tmp_path, [line(0, 0), line(1, 1)])
    path = tmp_path / "steps.jsonl"
    path.write_text(path.read_text() + '{"attempt": 2, "st')
    assert len(read_run(tmp_path).columns) == 2
    write(tmp_path, [line(2, 2)])
    assert [json.loads(text)["attempt"] for text in path.read_text().splitlines()] == [0, 1, 2]


def test_a_resumed_run_repeats_and_what_followed_is_gone(tmp_path: Path) -> None:
    write(tmp_path, [line(n, n, loss=1.0) for n in range(8)])
    write(tmp_path, [line(5, 5, loss=2.0, resumed=True), line(6, 6, loss=2.0)])
    columns = read_run(tmp_path).columns
    assert columns["loss"].tolist() == [1.0] * 5 + [2.0] * 2


def test_what_a_roll_back_undid_is_no_part_of_the_trace() -> None:
    columns = Columns()
    for attempt, (outcome, step) in enumerate(
        [
            *[("stepped", n) for n in range(6)],
            ("rolled_back", 6),
            ("skipped_overflow", 3),
            ("stepped", 3),
            ("stepped", 4),
            ("skipped_not_finite", 5),
            ("stepped", 5),
        ]
    ):
        columns.append(line(attempt, step, outcome))
    assert columns.path().tolist() == [0, 1, 2, 7, 8, 9, 11]


def test_a_run_that_ended_with_a_nan_is_judged_so() -> None:
    columns = Columns()
    for n in range(20):
        columns.append(line(n, n, loss=1.0 / (n + 1), update_ratio=1e-3))
    columns.append(line(20, 20, "stopped", loss=math.nan, grad_norm=math.nan))
    whole, failed = columns.trace(), columns.trace(failed=True)
    assert whole is not None and judge(whole).verdict is Verdict.CONVERGED
    assert failed is not None and judge(failed).verdict is Verdict.DIVERGED
    assert Columns().trace() is None


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    assert not is_run(tmp_path)
    with pytest.raises(BadInput, match=r"holds no run: there is no steps\.jsonl"):
        read_run(tmp_path)
    (tmp_path / "steps.jsonl").write_text("hello\nworld\n")
    with pytest.raises(BadInput, match="line 1 is not a line of a run"):
        read_run(tmp_path)
    occupied = tmp_path / "file"
    occupied.write_text("")
    with pytest.raises(BadInput, match="cannot write to log="):
        RunLog(occupied / "a", {}, {})
