import io
import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest

from stabsweep.numerals import loss
from stabsweep.report import draw_report, save_figure
from stabsweep.report.stability_map import map_info
from stabsweep.space import Space
from stabsweep.theory import Theory

NAMES = (
    "whole scattered sobol two_axes one_strip interrupted no_records one_record one_seed pocket "
    "edge_not_reached none_safe failed nothing_learned all_failed insane_loss negative_losses"
).split()


@pytest.mark.parametrize("state", NAMES)
def test_every_state_can_be_drawn(states, load_trace, state):
    planned = 192 if state in ("interrupted", "no_records") else None
    load = load_trace if state in ("failed", "one_record") else None
    figure = draw_report(*states[state], "AdamW on transformer", load, planned)
    figure.savefig(io.BytesIO(), dpi=30)
    said = " ".join(text.get_text() for part in figure.subfigs for text in part.texts)
    assert said.startswith("AdamW on transformer: ")
    if state == "interrupted":
        assert "Only 40 of 192 trials were run." in said


@pytest.mark.parametrize("lr", [0.02, 1e-9, 1e9])
def test_the_edge_of_theory_is_a_labelled_line_where_it_is_on_the_map(states, lr):
    region, pick = states["whole"]
    figure = draw_report(region, pick, theory=Theory(region.rows[0].values, 1.0, lr, "2 / lambda"))
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert ("theory" in words) == (lr == 0.02)
    ends = [list(line.get_xdata()) for axes in figure.axes for line in axes.get_lines()]
    assert ([lr, lr] in ends) == (lr == 0.02)
    legends = [t.get_text() for a in figure.axes if (g := a.get_legend()) for t in g.get_texts()]
    assert ("edge of linear theory" in legends) == (lr == 0.02)


@pytest.mark.parametrize("state", ["whole", "sobol", "negative_losses", "edge_not_reached"])
def test_the_colour_bar_says_which_end_is_good(states, state):
    region, pick = states[state]
    figure = draw_report(region, pick)
    figure.draw_without_rendering()
    (bar,) = (axes for axes in figure.axes if axes.images)
    texts = {text.get_text(): text for text in bar.texts}
    good = next(text for text in texts if text.startswith("final loss: best "))
    bad = next(text for text in texts if text.endswith((" worst", " nothing")))
    (image,) = bar.images
    left, right = image.get_extent()[:2]
    assert texts[good].get_position()[0] < left < right < texts[bad].get_position()[0]
    assert (texts[good].get_ha(), texts[bad].get_ha()) == ("right", "left")
    shades = image.to_rgba(image.get_array())[0, :, :3].mean(axis=1)
    assert shades[0] < shades[-1], "the lowest loss is the darkest, on the left"
    best = map_info(region, pick).losses[0]
    assert f"best {loss(best)}" in good


def test_all_states_are_drawn(states):
    assert sorted(states) == sorted(NAMES)


def test_the_files_are_the_same_each_time_whatever_the_users_style(sweep, load_trace, tmp_path):
    for name, settings in (("a", {}), ("b", {"font.size": 30, "axes.grid": True})):
        (tmp_path / name).mkdir()
        with matplotlib.rc_context(settings):
            save_figure(draw_report(*sweep, "AdamW", load_trace), tmp_path / name)
    for name in ("map.png", "map.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg = (tmp_path / "a/map.svg").read_text(encoding="utf-8")
    assert len(svg) < 500_000
    words = " ".join(ElementTree.fromstring(svg).itertext())
    assert "AdamW: stable up to" in words and "warmup steps" in words
    assert not re.search(r"\b20\d\d-\d\d-\d\d", words)


def test_names_are_never_read_as_formulas_or_markup(tmp_path, load_trace):
    from tests.report.conftest import make_sweep  # noqa: PLC0415

    space = Space.parse(
        {
            "lr": {"low": 1e-5, "high": 1.0},
            "optimizer": {"values": ["$\\frac{a}{b$<b>&", "x" * 80, "日本\x1b\x00\ud800"]},
        }
    )
    region, pick = make_sweep(space=space, num_points=60)
    figure = draw_report(region, pick, "$x_{$ & <script>\x00", load_trace)
    _, path = save_figure(figure, tmp_path)
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    words = " ".join(root.itertext())
    assert "$\\frac{a}{b$<b>&" in words and "$x_{$ & <script>" in words
    assert not [node for node in root.iter() if node.tag.endswith("script")]


def test_a_large_sweep_stays_small_on_disk(tmp_path):
    from tests.report.conftest import make_sweep  # noqa: PLC0415

    space = Space.parse(
        {
            "lr": {"low": 1e-5, "high": 1.0},
            "optimizer": {"values": ["adamw", "sgd", "adam"]},
            "warmup_steps": {"values": [0, 5, 10, 20, 30, 40, 50]},
        }
    )
    region, pick = make_sweep(space=space, num_points=1200)
    _, path = save_figure(draw_report(region, pick), tmp_path)
    assert path.stat().st_size < 500_000
