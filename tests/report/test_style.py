from itertools import combinations

import numpy as np
import pytest

from stabsweep.records import Record, Verdict
from stabsweep.report.style import LOSS_COLOURS, ON_SCALE, STYLES, clean, count_outcomes, sentence

# Machado, Oliveira, Fernandes 2009, severity 1.0; applied to linear RGB.
VISIONS = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def lab(colours, vision):
    """CIELAB (D65) of hex colours as a kind of vision sees them."""
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(VISIONS[vision]), 0, 1)
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
    xyz = linear @ np.transpose(to_xyz) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = f.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], 1)


def loss_scale(num=21):
    ends = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in LOSS_COLOURS])
    at = np.linspace(0, len(ends) - 1, num)
    rgb = np.stack([np.interp(at, range(len(ends)), ends[:, i]) for i in range(3)], 1)
    return ["#" + "".join(f"{round(v):02X}" for v in row) for row in rgb]


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_coloured_outcomes_can_be_told_apart(vision):
    colours = {s.colour for s in STYLES.values() if not s.hatch}
    seen = lab(sorted(colours), vision)
    assert len(seen) == 8
    # 2.3 is just noticeable; 18 is what the worst pair of the searched set has in CIELAB.
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 18


@pytest.mark.parametrize("vision", VISIONS)
def test_a_failed_cell_never_looks_like_a_loss(vision):
    scale = lab(loss_scale(), vision)
    failed = [s.colour for name, s in STYLES.items() if name not in ON_SCALE and not s.hatch]
    distance = np.linalg.norm(scale[:, None] - lab(failed, vision), axis=-1)
    assert distance.min() > 15


@pytest.mark.parametrize("vision", VISIONS)
def test_the_loss_scale_gets_steadily_lighter(vision):
    assert (np.diff(lab(loss_scale(), vision)[:, 0]) > 0).all()


def test_every_verdict_has_a_style_and_a_sentence():
    assert {verdict.label for verdict in Verdict} == set(STYLES) - {"failed"}
    assert all(sentence(name).endswith(".") for name in STYLES)


@pytest.mark.parametrize("what", ["glyph", "letter", "marker", "label"])
def test_outcomes_differ_without_colour(what):
    assert len({getattr(style, what) for style in STYLES.values()}) == len(STYLES)


def test_an_error_is_counted_apart_from_its_verdict():
    records = [
        Record(0, {"lr": 0.1}, 0, Verdict.INVALID, state="failed"),
        Record(1, {"lr": 0.1}, 0, Verdict.DIVERGED),
        Record(2, {"lr": 0.1}, 0, Verdict.INVALID),
    ]
    assert count_outcomes(records) == {"diverged": 1, "invalid": 1, "failed": 1}


def test_clean_keeps_a_terminal_and_xml_safe():
    assert clean("a\x1b[31m\nb\x00é日") == "a [31m b é日"
    assert clean("abcdefgh", 6) == "abc..."
