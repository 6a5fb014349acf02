"""Draws the shares of verdicts that `verdict_shares` describes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from stabsweep.report._axes import dress, points, size_points
from stabsweep.report.draw_key import SMALL, Key, outcome_mark, text_points
from stabsweep.report.style import FAINT, HATCH, MUTED, PAPER, STYLES
from stabsweep.report.verdict_shares import ShareGroup, ShareInfo


def draw_verdicts(panels: Sequence[Axes], info: ShareInfo) -> None:
    """Draws one stacked bar for each optimizer, or value of another axis, and for each seed.

    What to conclude: how much of a sweep went into trials that taught something, and which way
    each optimizer fails. Seeds whose bars differ much mean that one seed would have told another
    story. It misleads about which optimizer is the more stable: the bars count the rates that were
    tried, and a sampler tries more of them near the edge.
    """
    for number, (axes, group) in enumerate(zip(panels, info.groups, strict=True)):
        axes.set_xlim(0, 1)
        axes.set_ylim(len(group.bars) - 0.45, -0.55)
        for place, bar in enumerate(group.bars):
            _draw_bar(axes, group, place)
            axes.text(
                1.015, place, f"{bar.num_trials:,}", transform=axes.get_yaxis_transform(),
                va="center", fontsize="small", color=MUTED,
            )  # fmt: skip
        labels = [bar.label for bar in group.bars]
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        if group.title:
            axes.set_ylabel(group.title, parse_math=False)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100%"])
        dress(axes)
        axes.tick_params(axis="y", length=0)
        is_last = number == len(panels) - 1
        if not is_last:
            axes.tick_params(axis="x", length=0, labelbottom=False)
        for side in ("top", "right", "left") if is_last else axes.spines:
            axes.spines[side].set_visible(False)
    if info.groups:
        panels[-1].set_xlabel("share of trials")
        panels[0].annotate(
            "trials", (1.015, 1), (0, points(2)), xycoords="axes fraction",
            textcoords="offset points", va="bottom", fontsize="small", color=MUTED,
        )  # fmt: skip


def verdict_key(info: ShareInfo) -> Key:
    """What the colours of the bars mean, with how many trials had each."""
    labels = [f"{STYLES[name].label} ({count:,})" for name, count in info.counts.items()]
    return [outcome_mark(name, on_scale=False) for name in info.counts], labels


def _draw_bar(axes: Axes, group: ShareGroup, place: int) -> None:
    bar = group.bars[place]
    wide, left = size_points(axes)[0], 0.0
    size = points(SMALL)
    for name, count in bar.counts.items():
        style = STYLES[name]
        share = count / bar.num_trials
        axes.barh(
            place, share, left=left, height=0.78, fc=style.colour, lw=points(0.8),
            ec=HATCH if style.hatch else PAPER, hatch=style.hatch,
        )  # fmt: skip
        # With its glyph a part is told apart in grey too; where there is no room, by its place.
        texts = [f"{style.glyph} {count:,}", f"{count:,}", style.glyph]
        fits = [t for t in texts if text_points(t, size) + 0.5 * size <= share * wide]
        if fits:
            box = {"fc": PAPER, "ec": FAINT, "pad": 0.5, "lw": 0} if style.hatch else None
            axes.text(
                left + share / 2, place, fits[0], ha="center", va="center_baseline",
                fontsize=size, color=style.ink, bbox=box, clip_on=True,
            )  # fmt: skip
        left += share
