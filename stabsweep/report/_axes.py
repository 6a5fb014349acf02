"""What all panels share: log ticks at real rates, the halo around a line, text taken literally."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.markers import TICKDOWN
from matplotlib.ticker import NullLocator

from stabsweep.numerals import rate
from stabsweep.report.style import FAINT, INK, LOSS_COLOURS, MUTED, PAPER

FONT_SIZE = 11.5
"""Points of a text in the sweep's picture, in which every other size here is thought."""

LOSS_MAP = LinearSegmentedColormap.from_list("stabsweep_loss", LOSS_COLOURS)
"""The colour map of final losses, from the best to the blind loss."""


def points(size: float) -> float:
    """A length in points that shrinks with the text, so that a paper's figure looks the same."""
    return size * matplotlib.rcParams["font.size"] / FONT_SIZE


def size_points(axes: Axes) -> tuple[float, float]:
    """Width and height of a panel in points; a guess until the figure has been laid out."""
    scale = 72 / axes.figure.dpi
    width, height = axes.bbox.width * scale, axes.bbox.height * scale
    return float(width), float(height)


@contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """A name in a script that the font lacks is drawn as boxes, which is no reason to shout."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def halo(width: float = 3.0) -> list[Any]:
    """A white rim, so that a line or a text can be read on any colour."""
    return [patheffects.withStroke(linewidth=points(width), foreground=PAPER)]


def log_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round learning rates between two ends: decades, with 3 x between when there is room.

    >>> log_ticks(1e-3, 1e-1), log_ticks(2e-3, 9e-3)
    ([0.001, 0.003, 0.01, 0.03, 0.1], [0.002, 0.005])
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{m}e{e}") for e in range(first, last + 1) for m in factors]
        ticks = [t for t in ticks if low * 0.999 <= t <= high * 1.001]
        if len(ticks) <= most:
            return ticks
    return ticks[:: math.ceil(len(ticks) / most)]


def lr_axis(axes: Axes, low: float, high: float, most: int = 6) -> None:
    """Makes x a log axis of learning rates with ticks at round rates."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = log_ticks(low, high, most)
    axes.set_xticks(ticks, [tick_text(t) for t in ticks], parse_math=False)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    minor = [m * 10.0**e for e in decades for m in range(1, 10)]
    short = math.log10(high / low) < 12
    minor = [m for m in minor if short and low <= m <= high and m not in ticks]
    axes.xaxis.set_minor_locator(NullLocator())
    # One line for all small ticks: as ticks each is measured and drawn on its own.
    axes.plot(
        minor, [0] * len(minor), ls="none", marker=TICKDOWN, ms=points(2.3), mew=points(0.6),
        color=MUTED, transform=axes.get_xaxis_transform(), clip_on=False, zorder=2.4,
    )[0].set_in_layout(False)  # fmt: skip


def tick_text(value: float) -> str:
    """A round number on an axis: `1e-3`, `0.3`."""
    text = rate(value)
    return text.replace(".0e", "e")


def loss_axis(axes: Axes, low: float, high: float, log: bool, headroom: float = 0.0) -> None:
    """Makes y an axis of losses from `low` to `high`, with an unlabelled share on top."""
    if log:
        axes.set_yscale("log")
        axes.set_ylim(low, high * (high / low) ** (headroom / (1 - headroom)))
        ticks: Sequence[float] = log_ticks(low, high, 5)
    else:
        axes.set_ylim(low, high + (high - low) * headroom / (1 - headroom))
        step = _round_step((high - low) / 4)
        count = math.floor(high / step) - math.ceil(low / step) + 1
        ticks = [float(f"{(math.ceil(low / step) + k) * step:.10g}") for k in range(count)]
    axes.set_yticks(ticks, [tick_text(t) if log else f"{t:g}" for t in ticks], parse_math=False)
    axes.set_yticks([], minor=True)


def axis_ends(values: Sequence[float], is_wide: bool) -> tuple[float, float, bool]:
    """Ends of an axis for some values, and whether it is logarithmic: where they differ widely.

    >>> low, high, is_log = axis_ends([1.0, 10.0], is_wide=True)
    >>> round(low, 2), round(high, 2), is_log
    (0.87, 11.48, True)
    """
    low, high = min(values), max(values)
    if low > 0 and is_wide:
        return low / (high / low) ** 0.06, high * (high / low) ** 0.06, True
    low = min(low, 0.0) if low < 0.5 * high else low
    pad = 0.06 * (high - low) or max(abs(high) * 0.1, 1e-9)
    return low - pad * (low != 0), high + pad, False


def _round_step(span: float) -> float:
    power = 10.0 ** math.floor(math.log10(span))
    return min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda step: abs(step - span))


def dress(axes: Axes, title: str = "") -> None:
    """The common look: thin frame, quiet ticks, a title at the left."""
    for side, spine in axes.spines.items():
        spine.set_color(MUTED if side in ("left", "bottom") else FAINT)
        spine.set_linewidth(points(0.8))
    axes.tick_params(colors=MUTED, labelcolor=INK, width=points(0.8))
    if title:
        # A height that is given is not looked for: nothing stands above a panel but its title.
        axes.set_title(title, loc="left", fontweight="bold", y=1.0, parse_math=False)
