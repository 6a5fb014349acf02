import numpy as np
import pytest

from stabsweep import report
from stabsweep.growth import find_growth

T = 120


def curve(model, precision, apart):
    here = np.linspace(2, 1, T)
    there = here + apart
    return report.DriftCurve(model, precision, here, there, find_growth(here, there), 1.3)


@pytest.fixture
def info():
    rng = np.random.default_rng(0)
    grown = 10 ** np.interp(np.arange(T), [20, 80], [-7, -2]) * rng.uniform(-1, 1, T)
    level = 1e-15 * rng.uniform(-1, 1, T)
    curves = [
        curve("mlp", "fp32", grown),
        curve("mlp", "fp64", level),
        curve("rnn", "fp32", 0 * level),
        curve("rnn", "fp64", 0 * level),
    ]
    return report.drift_info(curves, ("here and there", "It doubles."))


def test_a_panel_a_model_with_its_doubling_times(info):
    assert [panel.model for panel in info.panels] == ["mlp", "rnn"]
    grown, level = info.panels[0].lines
    # 60 steps of growth by five decades.
    assert grown.label in ("fp32: doubles every 3.5 steps", "fp32: doubles every 3.6 steps")
    assert level.label == "fp64"
    assert len(grown.fit) == 4 and level.fit == ()
    assert grown.fit[1][0] == pytest.approx(20, abs=6)
    assert info.panels[1].lines == () and info.panels[1].same == ("fp32", "fp64")


def test_what_is_equal_has_no_place_on_a_logarithmic_axis(info):
    low, high = info.range
    for line in info.panels[0].lines:
        assert len(line.steps) == len(line.differences) <= T
        assert all(low < value < high for value in line.differences)
    assert low < 1e-15 and high > 1.3


def test_it_is_drawn_also_where_nothing_differs(info, tmp_path):
    figure = report.draw_drift(info)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["mlp", "rnn"]
    assert figure.axes[0].get_yscale() == "log"
    assert "It doubles." in [text.get_text() for text in figure.texts]
    same = [curve("mlp", "fp32", 0.0), curve("rnn", "fp32", 0.0)]
    figure = report.draw_drift(report.drift_info(same, ("here", "Nothing.")))
    assert len(report.save_figure(figure, tmp_path, "drift")) == 2


def test_one_that_diverged_is_drawn_as_far_as_it_goes():
    apart = np.full(T, 1e-6)
    apart[100:] = np.nan
    info = report.drift_info([curve("mlp", "fp32", apart)], ("here", "It ends."))
    assert max(info.panels[0].lines[0].steps) == 99
    report.draw_drift(info)
