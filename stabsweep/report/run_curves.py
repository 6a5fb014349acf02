"""The curves of a guarded run over its attempts, and what happened, as plain numbers.

The drawer is `draw_run`. Long curves are thinned; what happened and what was not finite never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stabsweep.numerals import loss, rate, share
from stabsweep.records import Array
from stabsweep.report._axes import axis_ends
from stabsweep.report.run_conclusion import run_conclusion, run_remarks
from stabsweep.report.run_events import is_bad, kinds_of
from stabsweep.report.run_layers import HeatInfo, heat_infos
from stabsweep.report.sample_traces import MAX_SPAN, thinned
from stabsweep.report.stability_map import LOG_SPAN
from stabsweep.report.style import clean
from stabsweep.runlog import OF_PATH, Run
from stabsweep.verdict import Judgement

MAX_POINTS = 800
"""Points of a drawn curve."""

MAX_BUCKETS = 400
"""Cells of the strip of clipped steps."""

MAX_NAME = 20
"""Letters of a layer's name that fit beside a panel; its end is what tells layers apart."""

NEAR = 10.0
"""How far above the highest rate of the run an edge may lie and still be drawn. Ours: a decade;
what is farther is only said, or the schedule would be pressed to the ground."""


@dataclass(frozen=True)
class Line:
    """One curve: attempts and values, thinned; NaN where it is broken."""

    attempts: tuple[float, ...]
    values: tuple[float, ...]
    name: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel of curves.

    Attributes:
        key: what it shows: a curve's name, `logits` or `scale`.
        title: the same in words.
        lines: what training consists of now.
        aside: what was skipped or undone and was finite; a point each, thinned.
        range: ends of the axis, and whether it is logarithmic.
        above: attempts whose value lies beyond the upper end.
        levels: values to compare with, and their words.
        note: what else is said of it, in a line.
        is_stepped: whether it keeps its value from attempt to attempt.
        before: the same curve of an earlier time, to compare with; None without one.
    """

    key: str
    title: str
    lines: tuple[Line, ...]
    aside: Line
    range: tuple[float, float, bool]
    above: tuple[float, ...] = ()
    levels: tuple[tuple[float, str], ...] = ()
    note: str = ""
    is_stepped: bool = False
    before: Line | None = None


@dataclass(frozen=True)
class ClipInfo:
    """Where clipping engaged: the share of clipped steps between two attempts."""

    edges: tuple[float, ...]
    shares: tuple[float, ...]
    share: float


@dataclass(frozen=True)
class RunInfo:
    """All that the picture of a run shows.

    Attributes:
        title: the outcome in one sentence.
        remarks: what to know besides, a sentence each.
        range: the first and the last attempt.
        lanes: kind of event -> attempts, every one.
        bad: first and last attempt of each row of attempts that were not finite, every one.
        undone: first and last attempt of what a rollback took back.
        stopped: the attempt at which the guard stopped it; None if it did not.
        panels: the curves, from top to bottom.
        clip: where clipping engaged; None where nothing was clipped.
        heats: the heat maps of the layers.
        noun: what is counted along the axis.
    """

    title: str
    remarks: tuple[str, ...]
    range: tuple[int, int]
    lanes: Mapping[str, tuple[int, ...]]
    bad: tuple[tuple[int, int], ...]
    undone: tuple[tuple[int, int], ...]
    stopped: int | None
    panels: tuple[Panel, ...]
    clip: ClipInfo | None
    heats: tuple[HeatInfo, ...]
    noun: str = "attempt"


def run_info(run: Run, judged: Judgement | None) -> RunInfo:
    """The numbers of the picture of a run.

    Args:
        run: its folder.
        judged: the verdict; None where no step was made.
    """
    columns = run.columns
    attempts = columns["attempt"].astype(int)
    ends = (int(attempts[0]), int(attempts[-1])) if len(attempts) else (0, 0)
    path = columns.path()
    undone = _undone(run, attempts, path)
    clip = _clip(run, attempts, path, judged)
    panels = [_loss(run, path, undone), _grad_norm(run, path, undone, clip)]
    panels += [
        _curve(run, "update_ratio", "Update over\nweights", path, undone),
        _rate(run, path, undone),
    ]
    return RunInfo(
        run_conclusion(run, judged),
        tuple(run_remarks(run, judged)),
        ends,
        {kind: tuple(where) for kind, where in kinds_of(columns).items()},
        tuple(_spans(attempts[is_bad(columns)])),
        undone,
        ends[1] if run.failed else None,
        tuple(panels + _logits(run) + _scale(run)),
        clip,
        tuple(heat_infos(run)),
    )


def _spans(attempts: Array) -> list[tuple[int, int]]:
    """First and last of each row of successive numbers."""
    if not len(attempts):
        return []
    cuts = np.flatnonzero(np.diff(attempts) != 1) + 1
    return [(int(part[0]), int(part[-1])) for part in np.split(attempts, cuts)]


def _undone(run: Run, attempts: Array, path: Array) -> tuple[tuple[int, int], ...]:
    """What was stepped and is no part of the training any more, up to the rollback behind it."""
    outcomes = run.columns.outcomes
    is_kept = np.zeros(len(attempts), bool)
    is_kept[path] = True
    lost = [n for n, name in enumerate(outcomes) if name == "stepped" and not is_kept[n]]
    backs = [n for n, name in enumerate(outcomes) if name == "rolled_back"]
    found: list[tuple[int, int]] = []
    for row, place in zip(lost, np.searchsorted(backs, lost), strict=True):
        # Without a rollback behind it, a run was taken up again at an earlier state.
        back = backs[place] if place < len(backs) else row
        first, last = int(attempts[row]), int(attempts[back])
        if found and first == found[-1][1] + 1 and back == row:
            found[-1] = found[-1][0], last
        elif not found or first > found[-1][1]:
            found.append((first, last))
    return tuple(found)


def line_of(attempts: Array, values: Array, breaks: tuple[tuple[int, int], ...] = ()) -> Line:
    """A curve as it is drawn: thinned, broken where it has no number and where much was undone."""
    values = np.where(np.isfinite(values), values, np.nan)
    rows, kept = thinned(values, MAX_POINTS)
    at, kept = attempts[rows].astype(float), np.asarray(kept, float)
    for first, _ in breaks:
        place = int(np.searchsorted(at, first))
        at, kept = np.insert(at, place, first), np.insert(kept, place, np.nan)
    return Line(tuple(at.tolist()), tuple(kept.tolist()))


def _curve(
    run: Run, key: str, title: str, path: Array, undone: tuple[tuple[int, int], ...]
) -> Panel:
    """A panel of one of the curves: its path, what lies aside, and an axis for the path."""
    values, attempts = run.columns[key], run.columns["attempt"]
    main = values[path]
    outcomes = np.array(run.columns.outcomes)
    # What was undone was trained; a batch that was skipped may lie anywhere.
    trained = values[np.isin(outcomes, OF_PATH)]
    known = trained[np.isfinite(trained)]
    beside = np.setdiff1d(np.arange(len(values)), path)
    beside = beside[np.isfinite(values[beside])]
    if key == "update_ratio":
        # What was skipped moved nothing: that is no measurement.
        main = np.where(outcomes[path] == "stepped", main, np.nan) if len(path) else main
        beside, known = beside[values[beside] > 0], known[known > 0]
    elif key == "lr" and len(path):
        # The rate of a batch that was skipped says nothing.
        beside = beside[outcomes[beside] == "stepped"]
    shown = known if len(known) else values[beside]
    if len(shown) and shown[0] > 0 and shown.min() >= 0:
        shown = np.clip(shown, shown[0] / MAX_SPAN, shown[0] * MAX_SPAN)
    if key == "lr":
        ends = axis_ends([0.0, float(shown.max())] if len(shown) else [0.0, 1.0], False)
    elif len(shown):
        is_wide = shown.min() > 0 and shown.max() > LOG_SPAN * shown.min()
        ends = axis_ends([float(shown.min()), float(shown.max())], bool(is_wide))
    else:
        ends = (0.0, 1.0, False)
    inside = np.concatenate([path, beside]).astype(int)
    above = np.sort(inside[np.isfinite(values[inside]) & (values[inside] > ends[1])])
    rows, kept = thinned(values[beside], MAX_POINTS)
    aside = Line(tuple(attempts[beside][rows].tolist()), tuple(kept.tolist()))
    line = line_of(attempts[path], main, undone)
    return Panel(key, title, (line,), aside, ends, tuple(attempts[above].tolist()))


def _loss(run: Run, path: Array, undone: tuple[tuple[int, int], ...]) -> Panel:
    panel = _curve(run, "loss", "Loss", path, undone)
    low, high, _ = panel.range
    blind = run.about.get("blind_loss")
    levels = ()
    if isinstance(blind, int | float) and low < blind < high:
        levels = ((float(blind), f"knows nothing (blind), {loss(float(blind))}"),)
    return replace(panel, levels=levels)


def _grad_norm(
    run: Run, path: Array, undone: tuple[tuple[int, int], ...], clip: ClipInfo | None
) -> Panel:
    panel = _curve(run, "grad_norm", "Gradient\nnorm", path, undone)
    if clip is None:
        return replace(panel, note="nothing clipped")
    norm, coef = run.columns["grad_norm"][path], run.columns["clip_coef"][path]
    is_clipped = (coef < 1) & np.isfinite(norm * coef)
    # One limit for all shows as one norm after clipping; another rule has no line to draw.
    after = (norm * coef)[is_clipped]
    levels = ()
    if len(after) and after.max() < 1.01 * after.min():
        levels = ((float(np.median(after)), f"clipped at {rate(float(np.median(after)))}"),)
    note = f"before clipping; {share(clip.share)} of steps clipped"
    return replace(panel, levels=levels, note=note)


def _clip(run: Run, attempts: Array, path: Array, judged: Judgement | None) -> ClipInfo | None:
    is_clipped = run.columns["clip_coef"][path] < 1
    if judged is None or not is_clipped.any():
        return None
    parts = np.array_split(np.arange(len(path)), min(len(path), MAX_BUCKETS))
    edges = [float(attempts[path[part[0]]]) for part in parts]
    shares = [float(is_clipped[part].mean()) for part in parts]
    return ClipInfo((*edges, float(attempts[path[-1]]) + 1), tuple(shares), judged.clip_share)


def _rate(run: Run, path: Array, undone: tuple[tuple[int, int], ...]) -> Panel:
    panel = _curve(run, "lr", "Learning\nrate", path, undone)
    high = max((v for v in panel.lines[0].values if v == v), default=0.0)
    predicted = run.summary.get("predicted")
    if not isinstance(predicted, Mapping) or not high:
        return panel
    levels, notes = [], []
    for key, word in (("edge_lr", "edge of the map"), ("safe_lr", "safe edge")):
        value = predicted.get(key)
        if not isinstance(value, int | float) or value <= 0:
            continue
        if value <= NEAR * high:
            levels.append((float(value), f"{word}, {rate(value)}"))
        else:
            notes.append(f"{word} {rate(value)}, far above")
    ends = panel.range
    if levels:
        # With room for the words above the uppermost.
        ends = axis_ends([0.0, 1.35 * max(v for v, _ in levels), panel.range[1]], False)
    return replace(panel, levels=tuple(levels), note="; ".join(notes), range=ends)


def _logits(run: Run) -> list[Panel]:
    """The largest attention logit of every layer; no panel where none was looked at."""
    tables = {clean(name): table for name, table in run.logits.items() if len(table)}
    if not tables:
        return []
    lines = []
    for name, table in tables.items():
        line = line_of(table[:, 0], table[:, 1])
        lines.append(Line(line.attempts, line.values, name))
    known = np.concatenate([table[:, 1] for table in tables.values()])
    known = known[np.isfinite(known)]
    note = ""
    if len(known):
        ends = axis_ends([0.0, float(known.max())], False)
        if known.min() > 0 and known.max() > LOG_SPAN * known.min():
            ends = axis_ends([float(known.min()), float(known.max())], True)
        top = max(tables, key=lambda name: np.nan_to_num(tables[name][-1, 1], nan=np.inf))
        name = top if len(top) <= MAX_NAME else "..." + top[3 - MAX_NAME :]
        note = f"last {rate(tables[top][-1, 1])} in {name}"
        note += " (dark: first layer)" if len(tables) > 1 else ""
    else:
        ends = (0.0, 1.0, False)
    return [Panel("logits", "Attention\nlogits", tuple(lines), Line((), ()), ends, note=note)]


def _scale(run: Run) -> list[Panel]:
    """The loss scale; no panel without a scaler."""
    if not len(run.scales):
        return []
    attempts, values = run.scales.T
    known = values[np.isfinite(values) & (values > 0)]
    is_moving = len(known) and known.max() > known.min()
    ends = axis_ends(known.tolist() or [1.0], bool(is_moving))
    note = f"from {rate(values[0])} to {rate(values[-1])}"
    line = line_of(attempts, values)
    return [Panel("scale", "Loss\nscale", (line,), Line((), ()), ends, note=note, is_stepped=True)]
