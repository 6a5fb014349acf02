"""A result as the output of a notebook cell: the answer as text, then the picture."""

from __future__ import annotations

import base64
from html import escape

from matplotlib.figure import Figure

from stabsweep.pick import Pick
from stabsweep.region import Region
from stabsweep.report.conclusion import conclusion
from stabsweep.report.figure import png_bytes
from stabsweep.report.style import clean

PIXELS_PER_INCH = 100
"""A cell is narrower than the page, and a notebook carries each of its pictures as text."""


def render_cell(region: Region, pick: Pick, figure: Figure, subject: str = "") -> str:
    """The output as HTML, escaped and self-contained, without a script.

    The answer stands there as text too: some viewers drop pictures from a notebook that they do
    not trust.

    Args:
        region: what the trials say.
        pick: the recommendation.
        figure: the picture, as `draw_report` draws it.
        subject: what was swept, e.g. `AdamW on transformer`.
    """
    headline = _text(conclusion(region, pick, subject))
    use = f"<pre>{_text(' '.join(pick.overrides()))}</pre>" if pick.is_ok else ""
    image = base64.b64encode(png_bytes(figure, PIXELS_PER_INCH)).decode("ascii")
    return (
        f"<div><p><strong>{headline}</strong></p>{use}"
        f'<img alt="Stability map. {headline}" src="data:image/png;base64,{image}" '
        'style="max-width:100%"></div>'
    )


def _text(value: object) -> str:
    return escape(clean(value), quote=True)
