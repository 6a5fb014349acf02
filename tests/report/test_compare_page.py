from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

import pytest

from stabsweep.environment.difference import diff
from stabsweep.region import find_region
from stabsweep.report.compare_page import render_compare_page
from stabsweep.shift import find_shifts
from stabsweep.space import Space
from tests.report.conftest import make_records, make_sweep
from tests.report.reader import PNG, Reader

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><style>*{}</style>&amp;\x1b]"


def page_of(shifts, a=None, b=None, **more):
    known = {"names": ("sgd on mlp", "adam on mlp"), "picks": {}, "differences": {}, **more}
    return render_compare_page(
        shifts, PNG, environments=diff(a or {}, b or {}, ("A", "B")), **known
    )


def test_the_page_says_which_edges_moved_and_what_differs(states):
    region, _ = states["whole"]
    # Below its edges: none is met.
    lower = [r for r in make_records() if r.lr < 3e-3]
    (row, *_) = shifts = find_shifts(region, find_region(region.space, lower))
    page = page_of(
        shifts,
        {"threads": {"torch": 1}},
        {"threads": {"torch": 4}},
        picks={"Pick A": "lr=0.1", "Pick B": "none. No safe rate.", "": "told apart"},
        differences={"horizon": ("200", "50")},
        notes=["B: only 40 of 192 trials ran"],
    )
    read = Reader(page)
    edge = row.a.edge
    assert edge.status == "found"
    for expected in (
        "B: only 40 of 192 trials ran",
        "Pick B none. No safe rate.",
        "No safe rate. told apart",
        "horizon 200 50",
        "threads 1 4 the order of summation",
        "not met in B",
        "edge of A 95% interval edge of B 95% interval decades",
    ):
        assert expected in read.text, expected
    assert read.text.startswith("The edge was not met in B in all 4 rows")


def test_a_row_that_moved_is_bold_and_one_that_did_not_is_not(states):
    region, _ = states["two_axes"]
    lower = [replace(r, point={**r.point, "lr": r.lr / 10}) for r in region.records]
    moved = page_of(find_shifts(region, find_region(region.space, lower)))
    assert moved.count('class="pick"') == moved.count("<td>moved</td>") == 6
    assert Reader(moved).text.startswith("B's edge is 1.0 decades lower in all 6 rows")
    same = page_of(find_shifts(region, region))
    assert 'class="pick"' not in same and same.count("not distinguishable") > 6
    assert "Nothing: both were asked for the same." in same


def test_hostile_text_stays_text_everywhere():
    names = [EVIL, "sgd"]
    space = Space.parse(
        {"lr": {"low": 1e-5, "high": 1.0}, EVIL: {"values": names, "to": "optimizer"}}
    )
    region, _ = make_sweep(space=space, num_points=40)
    page = page_of(
        find_shifts(region, region),
        {"threads": {"torch": EVIL}, "git": {"commit": EVIL}, EVIL: {}, "variables": {EVIL: EVIL}},
        {"threads": {"torch": 4}, "git": {"commit": "abc"}, "variables": {}},
        names=(EVIL, EVIL),
        picks={EVIL: EVIL},
        differences={EVIL: (EVIL, EVIL)},
        notes=[EVIL],
    )
    read = Reader(page)
    assert "script" not in read.tags
    assert read.tags.count("style") == read.tags.count("img") == 1
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert "<script" not in page and "\x1b" not in page
    # The positive control: it did arrive, in each of its places.
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 12


@pytest.mark.parametrize("state", ["no_records", "one_record", "one_strip", "all_failed"])
def test_every_state_has_a_page_that_allows_nothing_but_its_style(states, state):
    region, _ = states[state]
    page = page_of(find_shifts(region, region))
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'" in page
    assert 'src="http' not in page and "href" not in page
