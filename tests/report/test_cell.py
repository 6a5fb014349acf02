import base64
import io
import re
from dataclasses import replace
from html import unescape

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from stabsweep.report import conclusion, render_cell
from tests.report.test_page import EVIL, Reader


def test_the_answer_as_text_and_the_picture_beside_it(sweep):
    region, pick = sweep
    page = render_cell(region, pick, Figure(figsize=(2, 1)), "AdamW on transformer")
    headline = conclusion(region, pick, "AdamW on transformer")
    read = Reader(page)
    assert headline in read.text and " ".join(pick.overrides()) in read.text
    image = dict(read.attributes)
    assert headline in image["alt"]
    png = base64.b64decode(re.findall("base64,(.*)", image["src"])[0])
    assert matplotlib.image.imread(io.BytesIO(png)).shape[:2] == (100, 200)


def test_hostile_text_stays_text(sweep):
    region, pick = sweep
    pick = replace(pick, hyperparameters={**pick.hyperparameters, "init": EVIL})
    page = render_cell(region, pick, Figure(), EVIL)
    read = Reader(page)
    assert set(read.tags) == {"div", "p", "strong", "pre", "img"}
    assert {name for name, _ in read.attributes} == {"alt", "src", "style"}
    assert "\x00" not in page and "\x1b" not in page
    assert unescape(page).count("<script>") >= 2


@pytest.mark.parametrize("name", ["no_records", "none_safe", "failed"])
def test_without_a_pick_there_is_nothing_to_use(states, name):
    region, pick = states[name]
    page = render_cell(region, pick, Figure())
    assert ("<pre>" in page) == pick.is_ok and conclusion(region, pick) in unescape(page)
