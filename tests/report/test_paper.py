import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib.text
import pytest
from cycler import cycler
from matplotlib.figure import Figure
from PIL import Image

from stabsweep.report._axes import without_glyph_warnings
from stabsweep.report.draw_key import num_columns, text_points
from stabsweep.report.paper import PAPER_SETTINGS, WIDTHS, draw_paper, save_paper
from stabsweep.space import Space
from tests.report.conftest import STATES, make_sweep

NAMES = ["map", "loss_by_lr", "traces", "verdicts"]


def words(figure: Figure) -> list[matplotlib.text.Text]:
    return [t for t in figure.findobj(matplotlib.text.Text) if t.get_text() and t.get_visible()]


@pytest.mark.parametrize("state", sorted(STATES))
def test_every_state_has_its_figures_and_nothing_is_cut_off(states, load_trace, state):
    figures = draw_paper(*states[state], "AdamW on transformer", load_trace)
    has_traces = state not in ("no_records", "all_failed")
    assert list(figures) == [name for name in NAMES if has_traces or name != "traces"]
    for name, one in figures.items():
        one.figure.draw_without_rendering()
        assert one.figure.get_figwidth() == WIDTHS["single"] and one.caption.endswith(".")
        width, height = one.figure.bbox.size
        # matplotlib keeps texts that no panel shows, of ticks beyond its ends.
        for text in [t for axes in one.figure.axes for t in axes.texts] + [
            t for legend in one.figure.legends for t in legend.get_texts()
        ]:
            box = text.get_window_extent()
            inside = -1 <= box.x0 and box.x1 <= width + 1 and -1 <= box.y0 and box.y1 <= height + 1
            assert inside, (name, text.get_text(), box)
            assert 6.9 <= text.get_fontsize() <= 9, (name, text.get_text())


def test_files_have_the_size_of_the_column_text_that_can_be_edited_and_no_date(
    sweep, load_trace, tmp_path
):
    for width, inches in WIDTHS.items():
        folder = tmp_path / width
        folder.mkdir()
        paths = save_paper(draw_paper(*sweep, "AdamW", load_trace, width=width), folder)
        expected = [f"{name}.{form}" for name in NAMES for form in ("pdf", "svg", "png")]
        assert [path.name for path in paths] == [*expected, "captions.txt"]
        for name in NAMES:
            with Image.open(folder / f"{name}.png") as image:
                assert image.width == pytest.approx(300 * inches, abs=1)
            pdf = (folder / f"{name}.pdf").read_bytes()
            (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)
            assert float(box) == pytest.approx(72 * inches, abs=0.01)
            assert b"/Type0" in pdf and b"/Type3" not in pdf and b"CreationDate" not in pdf
            svg = (folder / f"{name}.svg").read_text(encoding="utf-8")
            assert len(svg) < 500_000 and not re.search(r"\b20\d\d-\d\d-\d\d", svg)
            said = " ".join(ElementTree.fromstring(svg).itertext())
            assert {"map": "edge: half fail", "verdicts": "share of trials"}.get(name, "") in said


SCRIPT = """
import sys
from pathlib import Path
from stabsweep.report.paper import draw_paper, save_paper
from tests.report.conftest import make_sweep, make_trace
save_paper(draw_paper(*make_sweep(), "AdamW", make_trace), Path(sys.argv[1]))
"""


def test_another_process_writes_the_same_bytes(sweep, load_trace, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    others = {"font.size": 30, "axes.grid": True, "axes.prop_cycle": cycler(color=["#E24A33"])}
    with matplotlib.rc_context(others):
        paths = save_paper(draw_paper(*sweep, "AdamW", load_trace), tmp_path / "here")
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "there")], check=True)
    assert paths
    for path in paths:
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_twenty_thousand_trials_stay_small(load_trace, tmp_path):
    space = Space.parse(
        {
            "lr": {"low": 1e-5, "high": 1.0},
            "optimizer": {"values": ["adamw", "sgd", "adam"]},
            "warmup_steps": {"values": [0, 20, 40, 50]},
        }
    )
    region, pick = make_sweep(space=space, num_points=10_000)
    assert len(region.records) >= 20_000 and len(region.rows) == 12
    for path in save_paper(draw_paper(region, pick, "", load_trace), tmp_path):
        assert path.stat().st_size < 500_000, path.name


def test_names_stay_text_and_leave_the_picture_its_room(load_trace, tmp_path):
    names = ["$\\frac{a}{b$<b>&", "x" * 80, "日本\x1b\x00\ud800"]
    space = Space.parse({"lr": {"low": 1e-5, "high": 1.0}, "optimizer": {"values": names}})
    region, pick = make_sweep(space=space, num_points=60)
    figures = draw_paper(region, pick, "$x_{$ & <script>\x00", load_trace)
    with without_glyph_warnings():
        figures["map"].figure.draw_without_rendering()
    assert figures["map"].figure.axes[0].get_position().width > 0.55
    save_paper(figures, tmp_path)
    for name in NAMES:
        root = ElementTree.fromstring((tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
        assert not [node for node in root.iter() if node.tag.endswith("script")]
    svg = (tmp_path / "loss_by_lr.svg").read_text(encoding="utf-8")
    assert "$\\frac{a}{b$<b>&" in " ".join(ElementTree.fromstring(svg).itertext())
    said = (tmp_path / "captions.txt").read_text(encoding="utf-8")
    assert "$x_{$ & <script>" in said and "\x00" not in said


def test_a_caption_says_the_answer_the_numbers_and_the_marks(states, load_trace):
    said = {n: one.caption for n, one in draw_paper(*states["whole"], "AdamW", load_trace).items()}
    assert said["map"].startswith("AdamW: stable up to ")
    assert "192 trials, 2 seeds, 200 steps each." in said["map"]
    assert "box: its 95% interval" in said["map"] and "Star: the recommended rate" in said["map"]
    assert "from the lowest to the highest of 2 seeds" in said["loss_by_lr"]
    assert "3.1 (blind), 4.58 (untrained)" in said["loss_by_lr"]
    assert "too slow (lr " in said["traces"] and "Dashed: the loss" in said["traces"]
    assert "by warmup steps and by seed; n = 192 trials." in said["verdicts"]
    one = draw_paper(*states["one_seed"], "", load_trace)
    assert "One seed, so there is no band." in one["loss_by_lr"].caption
    cut = draw_paper(*states["interrupted"], "", load_trace, num_planned=192)
    assert "40 of 192 planned trials" in cut["map"].caption
    none = draw_paper(*states["none_safe"])["map"].caption
    assert "o safe learning rate" in none and "Star" not in none and "Solid line" not in none


def test_a_legend_takes_as_many_columns_as_fit():
    size = PAPER_SETTINGS["font.size"]
    labels = ["diverged (17)"] * 5
    wide = text_points(labels[0], size)
    assert wide == pytest.approx(13 * 0.55 * size, rel=0.2)
    assert num_columns(labels, 1000, size) == 5
    assert num_columns(labels, 4.9 * wide, size) == 3, "two rows of three, not of four and one"
    assert num_columns(labels, 10, size) == 1
