from __future__ import annotations

import base64
import hashlib
import math
import re

import pytest

from stabsweep.report.run_page import MAX_EVENTS, render_run_page
from stabsweep.runlog import read_run
from stabsweep.verdict import judge
from tests.report.reader import PNG, Reader
from tests.runs import ABOUT, falling, line, write

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><style>*{}</style>&amp;\x1b]"


def page_of(folder, **more):
    run = read_run(folder)
    trace = run.trace()
    return render_run_page(run, None if trace is None else judge(trace), PNG, **more)


def test_the_page_says_what_happened_why_and_what_to_do(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(60))]
    lines[30] |= {"outcome": "skipped_not_finite", "loss": math.nan, "grad_norm": math.nan}
    lines[30]["events"] = [{"kind": "not_finite", "message": "batch[0] has 1 NaN."}]
    lines[40]["events"] = [{"kind": "logits", "message": "Logits of blocks.1 reached 55."}]
    lines[50]["layers"] = {"blocks.1": [0.5, 10.0, 0.02], "readout": [0.25, 5.0, 0.001]}
    read = Reader(
        page_of(
            write(tmp_path / "run", lines),
            also=[("Skipped", "1 of 60 attempts: 1 not finite")],
            environment={"python": {"version": "3.10.1"}, "git": {"commit": "abc", "dirty": True}},
            go_on={"From its last verified checkpoint": "stabsweep train resume=run"},
        )
    )
    for expected in (
        "1 batch skipped (not finite, attempt 30)",
        "attempt 30 (step 30)",
        "batch[0] has 1 NaN.",
        "Look at that batch.",
        "Normalise queries and keys",
        "blocks.1 0.5 0.5 2.0e-3 2.0e-3 10 logits",
        "readout 0.25 0.25 2.0e-4 2.0e-4 5 How to go on",
        "stabsweep train resume=run",
        "name: adamw",
        "python: 3.10.1",
        "commit: abc (changed)",
    ):
        assert expected in read.text


def test_hostile_text_stays_text_everywhere(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(40))]
    lines[5]["events"] = [{"kind": EVIL, "message": EVIL}, {"kind": "growth", "message": EVIL}]
    lines[10]["layers"] = {EVIL: [1.0, 1.0, 0.1], "": [1.0, 1.0, 0.1]}
    lines[10]["logits"] = {EVIL: 1.0}
    about = {"optimizer": EVIL, "model": {"name": EVIL}, EVIL: {EVIL: [EVIL]}}
    summary = {"stopped": EVIL, "predicted": {"text": EVIL, "folder": EVIL}}
    page = page_of(
        write(tmp_path / "run", lines, about, summary),
        also=[(EVIL, EVIL)],
        environment={"time": EVIL, "gpu": {"names": [EVIL]}, "git": EVIL},
        go_on={EVIL: EVIL},
    )
    read = Reader(page)
    assert "script" not in read.tags
    assert read.tags.count("style") == read.tags.count("img") == 1
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert "<script" not in page and "\x1b" not in page
    # The positive control: it did arrive, in each of its places.
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 10


def test_nothing_but_the_pages_own_style_is_allowed(tmp_path):
    page = page_of(write(tmp_path / "run", [line(0)]))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'" in page
    assert 'src="http' not in page and "href" not in page


def test_many_events_are_cut_and_counted(tmp_path):
    lines = [line(n) for n in range(0, 3 * MAX_EVENTS)]
    for n in range(0, len(lines), 2):
        lines[n]["events"] = [{"kind": "growth", "message": f"said at {n}."}]
    text = Reader(page_of(write(tmp_path / "run", lines))).text
    assert "The first and the last 100 of 300 (300 growth); all are in steps.jsonl." in text
    assert text.count("said at") == MAX_EVENTS and "said at 598." in text


def test_the_same_in_a_row_is_one_line(tmp_path):
    bad = {"loss": math.nan, "grad_norm": math.nan, "outcome": "skipped_not_finite"}
    lines = [line(n) | (bad if 4 <= n < 9 else {}) for n in range(12)]
    text = Reader(page_of(write(tmp_path / "run", lines))).text
    assert text.count("not finite attempts 4 to 8") == 1


@pytest.mark.parametrize("about", [ABOUT, {}])
def test_a_run_without_events_and_layers_has_a_page(tmp_path, about):
    text = Reader(page_of(write(tmp_path / "run", [line(0)], about, None))).text
    assert "Nothing: every attempt was a step." in text and "There is no summary" in text


def test_the_cure_of_an_event_is_its_own_where_the_guard_told_one(tmp_path):
    lines = [line(n, loss=v) for n, v in enumerate(falling(60))]
    lines[30]["events"] = [
        {"kind": "not_finite", "message": "A root of 0. Cure: bound it. Skipped."}
    ]
    write(tmp_path, lines)
    page = page_of(tmp_path)
    assert "bound it. Skipped.</td>" in page and "A root of 0.</td>" in page
    assert "Cure:" not in page
