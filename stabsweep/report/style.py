"""How each outcome looks, in pictures, on the page and in the terminal: the one place for colours.

Colour alone fails somebody, so each outcome has a glyph and a word too. The colours were measured
in CAM02-UCS for normal vision and three full deficiencies (Machado et al. 2009): the worst pair of
verdicts is spiky and too slow, 17.4 apart; `degraded` was searched for and is 18.6 from its
nearest. The loss scale keeps 15.3 from every colour that may lie beside it on the map, and its
lightness rises steadily in all four kinds of vision. Plain Okabe-Ito is too close at this many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stabsweep.records import Record, Verdict

LOSS_COLOURS = ("#005A9E", "#2E8FCB", "#7CC3EC", "#DDF0FA")
"""The scale for the final loss of what learned: from the best (dark) to the blind loss (light)."""

INK, MUTED, FAINT, PAPER = "#1A1A1A", "#5A5A5A", "#C9C9C9", "#FFFFFF"
"""Text and lines, secondary text, hatches and frames, background."""

DARK = {"#000000": "#F2F2F2"}
"""Colour -> what takes its place on dark paper, where it could not be seen."""

HATCH = "#8A8A8A"
"""The hatch of an outcome that has no colour of its own."""

SIDES = (INK, "#8C2981")
"""A and B of a comparison: no hue of the map, apart in lightness too; A is hollow, B is filled."""


@dataclass(frozen=True)
class Style:
    """How one outcome looks.

    Attributes:
        label: its name for a reader.
        colour: hex colour; white for what says nothing about the learning rate.
        glyph: one character for terminals and pages.
        letter: the same where only ASCII can be written.
        marker: the matplotlib marker that resembles the glyph.
        hatch: the matplotlib hatch of its cells, for what is white.
    """

    label: str
    colour: str
    glyph: str
    letter: str
    marker: str
    hatch: str = ""

    @property
    def ink(self) -> str:
        """Black or white, whichever can be read on the colour."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else PAPER


STYLES: Mapping[str, Style] = {
    "converged": Style("converged", "#0072B2", "●", "c", "o"),
    "recovered": Style("recovered", "#56B4E9", "◆", "r", "D"),
    "spiky": Style("spiky", "#F0E442", "▲", "^", "^"),
    "too_slow": Style("too slow", "#BBBBBB", "·", ".", "."),
    "degraded": Style("degraded", "#E3A46E", "▼", "v", "v"),
    "oscillating": Style("oscillating", "#882255", "≈", "~", "d"),
    "collapsed": Style("collapsed", "#000000", "■", "#", "s"),
    "diverged": Style("diverged", "#D55E00", "×", "x", "x"),
    "invalid": Style("invalid input", PAPER, "?", "?", "$?$", "...."),
    "peak_not_reached": Style("peak not reached", PAPER, "○", "o", "$o$", "|||"),
    "cut_short": Style("cut short", PAPER, "/", "/", "$/$", "////"),
    "failed": Style("error", PAPER, "!", "!", "$!$", "xxxx"),
}
"""Outcome -> style, from what learned to what says nothing; see `outcome`."""

ON_SCALE = ("converged", "recovered", "spiky")
"""Outcomes that the map colours by their final loss."""


def outcome(record: Record) -> str:
    """The key in `STYLES`: the verdict's label, or `failed` for a trial that ended in an error."""
    return "failed" if record.state == "failed" else record.verdict.label


def count_outcomes(records: Iterable[Record]) -> dict[str, int]:
    """How many records have each outcome, in the order of `STYLES`, without zeros."""
    counts = dict.fromkeys(STYLES, 0)
    for record in records:
        counts[outcome(record)] += 1
    return {name: count for name, count in counts.items() if count}


def sentence(name: str) -> str:
    """What an outcome means, in one sentence."""
    if name == "failed":
        return "The trial ended in an error and says nothing about its learning rate."
    return Verdict[name.upper()].value


def clean(text: object, most: int | None = None) -> str:
    """Any text on one line, without characters that a terminal would obey or XML forbids.

    Args:
        text: what to show.
        most: characters to keep; a longer text ends in three dots.
    """
    line = "".join(char if char.isprintable() else " " for char in str(text))
    return line if most is None or len(line) <= most else line[: most - 3] + "..."
