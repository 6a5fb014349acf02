"""The picture of a replayed trial, in plain numbers: that of a run, beside what the sweep kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stabsweep.records import CURVES, Array
from stabsweep.report.run_curves import Panel, RunInfo, line_of, run_info
from stabsweep.runlog import Run
from stabsweep.verdict import Judgement

SHOWN = ("loss", "grad_norm")
"""Curves that are drawn beside those of the sweep: the others follow from them."""


def replay_info(
    run: Run, judged: Judgement, stored: Array | None, title: str, remarks: Sequence[str]
) -> RunInfo:
    """The numbers of the picture of a replayed trial; `draw_run` draws it.

    Args:
        run: what was seen this time.
        judged: its verdict.
        stored: (5, T) curves that the sweep has kept, in the order of `CURVES`; None without them.
        title: what to conclude.
        remarks: what to know besides, a sentence each.
    """
    info = run_info(run, judged)
    panels = info.panels
    if stored is not None:
        kept = stored[:, : len(run.columns)]
        panels = tuple(_beside(panel, kept) for panel in panels)
    # That it ends with what was not finite is a matter of course here.
    lanes = {kind: where for kind, where in info.lanes.items() if kind != "stopped"}
    more = {"title": title, "remarks": tuple(remarks), "panels": panels, "lanes": lanes}
    return replace(info, **more, noun="step")


def _beside(panel: Panel, stored: Array) -> Panel:
    """A panel of loss or gradient norm with the curve of the first time under it."""
    if panel.key not in SHOWN:
        return panel
    values = stored[CURVES.index(panel.key)]
    return replace(panel, before=line_of(np.arange(len(values)), values))
