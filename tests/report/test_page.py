import base64
import hashlib
import re
from dataclasses import replace

import pytest

from stabsweep.numerals import rate
from stabsweep.pick import find_pick
from stabsweep.region import find_region
from stabsweep.report import conclusion, render_page, save_page
from stabsweep.space import Space
from tests.report.reader import PNG, Reader

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><style>*{}</style>&amp;\x00\x1b]"
REPRODUCE = {"Command": "python -m stabsweep model=mlp", "Config": {"optimizer": {"lr": 1}}}


@pytest.fixture
def hostile():
    from tests.report.conftest import make_records  # noqa: PLC0415

    space = Space.parse(
        {"lr": {"low": 1e-4, "high": 1.0}, "optimizer": {"values": [EVIL, "adamw"]}}
    )
    records = [
        replace(r, reason=EVIL, trace=EVIL, error=EVIL if r.trial % 7 == 0 else None)
        for r in make_records(space, num_points=30)
    ]
    records = [replace(r, state="failed") if r.error else r for r in records]
    region = find_region(space, records)
    return region, replace(find_pick(region), reason=EVIL, warnings=(EVIL,))


def test_the_page_says_the_answer_its_evidence_and_how_to_use_it(sweep):
    region, pick = sweep
    read = Reader(render_page(region, pick, PNG, "AdamW on transformer", 192, REPRODUCE, 42.0))
    assert conclusion(region, pick, "AdamW on transformer") in read.text.replace("\u2060", "")
    for expected in (
        pick.reason,
        " ".join(pick.overrides()),
        " ".join(pick.flags()),
        f"{rate(pick.edge['low'])} to {rate(pick.edge['high'])}",
        "The loss came down and stayed down.",
        "python -m stabsweep model=mlp",
        "It took 42 s.",
    ):
        assert expected in read.text
    assert ("href", "trials.csv") in read.attributes


def test_hostile_text_stays_text_everywhere(hostile):
    region, pick = hostile
    evil = {EVIL: {EVIL: EVIL}, "list": [EVIL], "text": EVIL}
    page = render_page(region, pick, PNG, EVIL, 999, evil)
    read = Reader(page)
    # The page's own two, its data and its script, and nothing else.
    assert read.tags.count("script") == page.count("<script") == 2
    assert read.tags.count("style") == read.tags.count("img") == 1
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert "onerror=alert(1)&gt;" in page
    assert "\x00" not in page and "\x1b" not in page
    # The positive control: it did arrive, in each of its places.
    assert read.text.count("alert(1)") > 50


def test_the_reader_of_these_tests_would_see_an_attack():
    read = Reader(f"<p>{EVIL}</p>")
    assert "script" in read.tags and ("onerror", "alert(1)") in read.attributes


def test_the_policy_allows_this_style_and_script_and_nothing_else(sweep):
    page = render_page(*sweep, PNG)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    for name in ("style", "script"):
        (text,) = re.findall(f"<{name}>(.*?)</{name}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    for rule in ("default-src 'none'", "img-src data:", "base-uri 'none'", "form-action 'none'"):
        assert rule in policy
    assert " style=" not in page


def test_nothing_is_fetched(sweep):
    read = Reader(render_page(*sweep, PNG))
    links = [value for name, value in read.attributes if name in ("src", "href")]
    assert sorted(link[:15] for link in links) == ["data:image/png;", "trials.csv"]
    assert "link" not in read.tags


def test_the_picture_is_there_with_words_for_those_who_cannot_see_it(sweep):
    read = Reader(render_page(*sweep, PNG))
    image = dict(read.attributes)
    assert base64.b64decode(image["src"].split(",")[1]) == PNG
    assert conclusion(*sweep) in image["alt"]


def test_every_state_has_a_page(states):
    for name, (region, pick) in states.items():
        text = Reader(render_page(region, pick, PNG, "x", 192)).text
        assert pick.reason in text, name
        assert ("Learning rate to use" in text) == pick.is_ok, name
        assert ("Hydra" in Reader(render_page(region, pick, PNG)).words) == pick.is_ok, name


def test_only_the_first_trials_are_listed(states):
    from tests.report.conftest import make_sweep  # noqa: PLC0415

    page = render_page(*make_sweep(num_points=300), PNG)
    assert "The first 100 of 600 trials" in page
    assert "All 90 trials" in render_page(*states["one_strip"], PNG)


def test_the_same_sweep_gives_the_same_page(sweep, tmp_path):
    assert render_page(*sweep, PNG) == render_page(*sweep, PNG)
    also = Reader(render_page(*sweep, PNG, also=[("Theory", f"lambda {EVIL}")]))
    assert "Theory lambda <script>" in also.text and also.tags.count("script") == 2
    assert "LR sensitivity" in also.text and "decades" in also.text
    path = save_page(tmp_path, render_page(*sweep, PNG, "日本 \ud800"))
    assert path.name == "report.html" and "日本" in path.read_text(encoding="utf-8")
