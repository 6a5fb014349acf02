"""The page of a sweep in a real browser: it answers, opens what is clicked, and fetches nothing."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from stabsweep.numerals import loss, rate
from stabsweep.pick import find_pick
from stabsweep.records import CURVES
from stabsweep.region import find_region
from stabsweep.report import curve_codes
from stabsweep.report.style import STYLES, outcome
from stabsweep.space import Space
from tests.browser.conftest import write_page
from tests.report.conftest import STATES, make_records, make_sweep, make_trace

EVIL = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'&amp;"


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_opens_without_a_complaint(name, scheme, pages, open_page):
    path, region, pick = pages[name]
    page = open_page(path, color_scheme=scheme).ready()
    assert pick.reason in page.locator("header").inner_text()
    assert page.locator(".tiles").count() == (1 if pick.is_ok else 0)
    assert page.locator('[data-part="map"] canvas').count() == (1 if region.records else 0)
    listed = page.locator('[data-part="list"] [role=status]')
    if region.records:
        assert listed.inner_text().startswith(f"{len(region.records):,} of")


def test_without_a_script_the_answer_and_the_picture_are_there(whole, open_page):
    path, _, pick = whole
    page = open_page(path, java_script_enabled=False).page
    assert rate(pick.lr, down=True) in page.locator(".tiles").inner_text()
    assert page.locator("noscript img").first.is_visible()
    assert page.locator("section[hidden]").count() == 3
    assert page.locator("noscript table tbody tr").count() == 100


def test_narrow_pages_do_not_scroll_sideways(pages, open_page):
    for name in ("whole", "two_axes", "failed"):
        page = open_page(pages[name][0], viewport={"width": 390, "height": 800}).ready()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name


def test_a_trial_opens_with_its_verdict_its_evidence_and_its_command(whole, open_page):
    path, region, _ = whole
    page = open_page(path, "#trial=9").ready()
    record = next(record for record in region.records if record.trial == 9)
    said = page.locator('[data-part="detail"] [data-role=sentence]').inner_text()
    assert record.reason in said and f"seed {record.seed}." in said
    assert (
        f"Learning rate {rate(record.lr, digits=3)}, {record.point['warmup_steps']} warmup" in said
    )
    detail = page.locator('[data-part="detail"]')
    assert "stabsweep replay results/x trial=9" in detail.inner_text()
    for name in ("loss", "grad_norm", "update_ratio"):
        assert detail.locator(f'[data-curve="{name}"] path.curve').count() == 1
    page.locator('[data-part="list"] tbody tr').nth(3).click()
    detail.get_by_text("Trial 3", exact=False).first.wait_for()
    assert page.url.endswith("#trial=3")


def test_the_curves_are_those_of_the_record(pages, open_page):
    """Decoded by the page's own script, every value is as near as one byte allows."""
    for name in ("whole", "negative_losses"):
        path, region, _ = pages[name]
        page = open_page(path).ready()
        for record in region.records[::23]:
            at = f"data.trials.number.indexOf({record.trial})"
            # The script keeps its names to itself: the test runs it again beside the page.
            decoded = page.evaluate(f"(async () => {{ {decoder(page)} return curvesOf({at}); }})()")
            theirs = make_trace(record)
            for curve in curve_codes.SHOWN:
                held_to(decoded[curve]["values"], theirs[CURVES.index(curve)])


def decoder(page):
    """The data and the decoding part of the page's script, as a test can call them."""
    script = page.locator("script:not([id])").text_content()
    part = script.split("// 4_curves.js")[1].split("function endsOf")[0]
    return f"const data = JSON.parse(document.getElementById('data').textContent); {part}"


def held_to(ours, theirs):
    assert len(ours) == len(theirs)
    theirs = np.asarray(theirs, float)
    ours = np.array([math.nan if value is None else value for value in ours], float)
    is_finite = np.isfinite(theirs)
    assert np.array_equal(np.isfinite(ours), is_finite)
    ours, theirs = ours[is_finite], theirs[is_finite]
    if (theirs < 0).any():
        step = (theirs.max() - theirs.min()) / 252
        assert (np.abs(ours - theirs) <= 0.51 * step + 1e-12).all()
    else:
        step = np.log10(theirs.max() / theirs.min()) / 252
        assert (np.abs(np.log10(ours / theirs)) <= 0.51 * step + 1e-9).all()


def test_a_point_that_stands_for_several_steps_says_so(whole, tmp_path, open_page, monkeypatch):
    path, region, pick = whole
    said = "the least and the greatest value of every 6 steps"
    assert said not in open_page(path, "#trial=9").ready().locator("main").inner_text()
    monkeypatch.setattr(curve_codes, "MANY_TRIALS", 10)
    page = open_page(write_page(tmp_path / "few.html", region, pick), "#trial=9").ready()
    assert said in page.locator('[data-part="detail"]').inner_text()


def test_numbers_are_written_as_everywhere_else(whole, open_page):
    path, *_ = whole
    page = open_page(path).ready()
    script = page.locator("script:not([id])").text_content()
    part = script.split("/** As `numerals.rate`")[1].split("function tickText")[0]
    values = [1e-8, 0.00183, 0.0199, 0.0999, 0.1, 0.25, 0.999, 1, 12, 99.6, 999.4, 1000, 3.4e8]
    values += [-8.2, 2.4e18, 0.0213, 1.7834, 999.5]
    shown = "values.map((v) => [rate(v), rate(v, 3), lossText(v)])"
    found = page.evaluate(f"(values) => {{ /** {part} return {shown}; }}", values)
    for value, (ours, finer, text) in zip(values, found, strict=True):
        assert ours == rate(value)
        assert finer == rate(value, digits=3)
        assert text == loss(value)


def test_filters_count_what_is_left(pages, open_page):
    path, region, _ = pages["two_axes"]
    page = open_page(path).ready()
    status = page.locator('[data-part="list"] [role=status]')
    page.get_by_label("Seed", exact=True).select_option("1")
    left = [r for r in region.records if r.seed == 1]
    assert status.inner_text() == f"{len(left)} of {len(region.records)} trials"
    page.get_by_label("optimizer").select_option("adamw")
    left = [r for r in left if r.point["optimizer"] == "adamw"]
    assert status.inner_text() == f"{len(left)} of {len(region.records)} trials"
    page.locator(".legend button", has_text="diverged").click()
    left = [r for r in left if outcome(r) != "diverged"]
    assert status.inner_text() == f"{len(left)} of {len(region.records)} trials"
    page.get_by_role("searchbox").fill("collapsed")
    left = [r for r in left if outcome(r) == "collapsed"]
    assert status.inner_text() == f"{len(left)} of {len(region.records)} trials"
    page.get_by_label("Rows by").select_option(label="clip norm")
    assert page.locator('[data-part="map"] text.row').count() == 3


def test_the_list_sorts_and_turns_its_pages(whole, open_page):
    path, region, _ = whole
    page = open_page(path).ready()
    page.get_by_role("button", name="learning rate").click()
    page.get_by_role("button", name="learning rate").click()
    column = page.locator('[data-part="list"] tbody td:nth-child(2)')
    assert column.count() == 50
    rates = sorted((r.lr for r in region.records), reverse=True)
    assert column.first.inner_text() == rate(rates[0], digits=3)
    page.get_by_role("button", name="Next").click()
    assert "page 2 of 4" in page.locator('[data-part="list"]').inner_text()
    assert column.first.inner_text() == rate(rates[50], digits=3)


def test_the_saved_list_is_the_list(whole, open_page):
    path, region, _ = whole
    page = open_page(path).ready()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as CSV").click()
    rows = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
    assert waiting.value.suggested_filename == "trials.csv"
    assert [int(row["trial"]) for row in rows] == sorted(r.trial for r in region.records)
    first = region.records[0]
    assert float(rows[0]["lr"]) == first.lr
    assert float(rows[0]["final_loss"]) == pytest.approx(first.final_loss)


def test_the_keyboard_reaches_every_cell_and_says_what_it_is(whole, open_page):
    path, region, _ = whole
    page = open_page(path).ready()
    plot, readout = page.locator('[data-part="map"]'), page.locator('[data-part="readout"]')
    page.keyboard.press("Escape")
    plot.focus()
    page.keyboard.press("Home")
    row = next(row for row in region.rows if row.values == {"warmup_steps": 17})
    assert readout.inner_text().startswith(f"{rate(row.cells[0].lr, digits=3)} at 17 warmup steps:")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    above = next(row for row in region.rows if row.values == {"warmup_steps": 33})
    assert readout.inner_text().startswith(f"{rate(above.cells[1].lr, digits=3)} at 33 warmup")
    page.keyboard.press("Enter")
    listed = page.locator('[data-part="detail"] .chips button')
    assert listed.count() == len(above.cells[1].records)
    page.keyboard.press("Escape")
    page.get_by_text("Choose a cell of the map").wait_for()
    assert page.evaluate("document.activeElement.dataset.part") == "map"


def test_a_click_on_the_map_opens_the_cell_under_it(whole, open_page):
    path, region, _ = whole
    page = open_page(path).ready()
    box = page.locator('[data-part="map"]').bounding_box()
    page.mouse.click(box["x"] + box["width"] - 20, box["y"] + 30)
    row = max(region.rows, key=lambda row: row.values["warmup_steps"])
    said = page.locator('[data-part="detail"] [data-role=sentence]')
    said.get_by_text(f"{rate(row.cells[-1].lr, digits=3)} at").wait_for()


def test_copies_are_what_the_pick_says(whole, open_page):
    path, _, pick = whole
    opened = open_page(path, permissions=["clipboard-read", "clipboard-write"])
    page = opened.ready()
    for number, text in enumerate([repr(pick.lr), " ".join(pick.overrides())]):
        page.locator(".copies .copy").nth(number).click()
        page.locator(".copies .copy", has_text="Copied").nth(0).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == text


@pytest.mark.parametrize("bypass", [False, True])
def test_hostile_text_stays_text(bypass, tmp_path, open_page):
    """Also where the policy is switched off, which on its own would hide the mistake."""
    space = Space.parse(
        {"lr": {"low": 1e-4, "high": 1.0}, "optimizer": {"values": [EVIL, "adamw"]}}
    )
    records = [replace(r, reason=EVIL) for r in make_records(space, num_points=30)]
    records = [replace(r, state="failed", error=EVIL) if r.trial % 7 == 0 else r for r in records]
    region = find_region(space, records)
    pick = replace(find_pick(region), reason=EVIL, warnings=(EVIL,))
    path = write_page(tmp_path / "evil.html", region, pick, also=[("Note", EVIL)])
    page = open_page(path, "#trial=3", bypass_csp=bypass).ready()
    for number in (1, 7, 14):
        page.locator('[data-part="list"] tbody tr').nth(number).click()
        page.get_by_text(f"Trial {number}", exact=False).first.wait_for()
    page.get_by_role("searchbox").fill("<script>")
    assert page.title() != "owned"
    assert page.locator("main script, main img[src=x], main [onerror]").count() == 0
    # The control: it did arrive, as text.
    assert page.locator("main").inner_text().count("document.title='owned'") > 20


def test_the_control_would_be_owned(tmp_path, chromium):
    """The attack works where nothing is escaped and no policy stands: that test can fail."""
    path = tmp_path / "control.html"
    path.write_text(f"<title>calm</title><main>{EVIL}</main>")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.title() == "owned"
    context.close()


def test_the_policy_stops_what_is_not_ours(whole, chromium):
    path, *_ = whole
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator("body[data-ready=true]").wait_for()
    stopped = page.evaluate(
        """() => new Promise((resolve) => {
          addEventListener("securitypolicyviolation", (e) => resolve(e.effectiveDirective));
          const added = document.createElement("script");
          added.textContent = "document.title = 'owned'";
          document.body.append(added);
          setTimeout(() => resolve("nothing"), 2000);
        })"""
    )
    assert stopped == "script-src-elem" and page.title() != "owned"
    context.close()


def test_it_prints_on_light_paper(whole, open_page):
    path, *_ = whole
    page = open_page(path, color_scheme="dark").ready()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print", color_scheme="dark")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != "rgb(255, 255, 255)" and after == "rgb(255, 255, 255)"
    assert not page.locator(".controls").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_many_trials_are_ready_in_time(tmp_path, open_page):
    """Three times the budget of `benchmarks/page.py`, so that only a blunder fails here."""
    region, pick = make_sweep(num_points=1000)
    path = write_page(tmp_path / "many.html", region, pick)
    assert path.stat().st_size < 3 * 2e6
    page = open_page(path).ready()
    ready = page.evaluate("performance.getEntriesByType('navigation')[0].duration")
    assert ready < 3 * 500
    counted = page.locator('[data-part="list"] [role=status]').inner_text()
    assert re.match(r"[\d,]+ of 2,\d+ trials", counted)


def test_the_legend_names_every_outcome_with_its_count(pages, open_page):
    path, region, _ = pages["failed"]
    page = open_page(path).ready()
    for name in {outcome(record) for record in region.records}:
        count = sum(outcome(record) == name for record in region.records)
        assert page.locator(".legend button", has_text=f"{STYLES[name].label} {count}").count() == 1
