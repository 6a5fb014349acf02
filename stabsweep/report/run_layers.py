"""The layers of a guarded run as plain numbers: heat maps over the attempts, and a table."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stabsweep.records import Array
from stabsweep.report.run_events import event_style
from stabsweep.report.style import clean
from stabsweep.runlog import Run

MAX_ROWS = 40
"""Rows of a heat map; more layers are taken together by the begin of their names."""

FEW = 0.25
"""Share of the rows that must be left, or else neighbours are taken together. Ours."""

MAX_COLUMNS = 300
"""Columns of a heat map; more looks are taken together, and the largest is shown."""

SPAN = 1e6
"""Factor that the colours span at most: what lies lower is as good as nothing."""


@dataclass(frozen=True)
class HeatInfo:
    """One heat map: a row a layer in forward order, a column a look.

    Attributes:
        title: what it shows.
        names: of the rows.
        edges: (C + 1,) attempts between which the columns lie.
        values: (R, C), NaN where there is nothing to show.
        bad: (R, C) whether one of them was not finite.
        range: ends of the colours, logarithmic.
        num_layers: layers that the rows stand for.
    """

    title: str
    names: tuple[str, ...]
    edges: tuple[float, ...]
    values: Array
    bad: Array
    range: tuple[float, float]
    num_layers: int


@dataclass(frozen=True)
class LayerLine:
    """One layer in the table: its last look, its largest numbers, and what was said of it.

    Attributes:
        name: of the layer.
        grad_norm, weight_norm, update_ratio: at the last look at which it was looked at.
        peak_grad_norm, peak_ratio: the largest finite ones of all looks; NaN without any.
        flags: kinds of events that name it, and what its numbers show.
    """

    name: str
    grad_norm: float
    weight_norm: float
    update_ratio: float
    peak_grad_norm: float
    peak_ratio: float
    flags: tuple[str, ...]


def group_names(names: Sequence[str], most: int = MAX_ROWS) -> dict[str, list[str]]:
    """Row -> its layers, in forward order: each by itself, or by as much of their names as fits.

    Where a little less of the names leaves next to nothing, as with fifty blocks of one parent,
    neighbours are taken together instead.

    >>> list(group_names(["a.0.x", "a.0.y", "a.1.x", "b"], 3))
    ['a.0', 'a.1', 'b']
    >>> list(group_names([f"h.{n}.{p}" for n in range(5) for p in "xy"], 4))
    ['h.0 to 1', 'h.2 to 3', 'h.4']
    """
    deepest = max((name.count(".") for name in names), default=0) + 1
    groups: dict[str, list[str]] = {}
    finer: dict[str, list[str]] = {}
    for depth in range(deepest, 0, -1):
        groups = {}
        for name in names:
            groups.setdefault(".".join(name.split(".")[:depth]), []).append(name)
        if len(groups) <= most:
            break
        finer = groups
    if not finer or FEW * most < len(groups) <= most:
        return groups
    heads = list(finer)
    size = -(-len(heads) // most)
    found = {}
    for first in range(0, len(heads), size):
        part = heads[first : first + size]
        parent, _, last = part[-1].rpartition(".")
        is_one_parent = part[0].rpartition(".")[0] == parent
        label = part[0] if len(part) == 1 else f"{part[0]} to {last if is_one_parent else part[-1]}"
        found[label] = [name for head in part for name in finer[head]]
    return found


def heat_infos(run: Run) -> list[HeatInfo]:
    """Gradient norm and update over weights of every layer; none where no layer was looked at.

    Of a replay the size of the outputs as well.
    """
    if not run.layers:
        return []
    attempts = np.unique(np.concatenate([table[:, 0] for table in run.layers.values()]))
    groups = group_names(list(run.layers))
    moved = moved_at(run)
    stacks = []
    for names in groups.values():
        # (layers of the row, looks, 3): what was not looked at is NaN, and seen is False.
        whole = np.full((len(names), len(attempts), 3), np.nan)
        seen = np.zeros((len(names), len(attempts)), bool)
        for number, name in enumerate(names):
            table = run.layers[name]
            at = np.searchsorted(attempts, table[:, 0])
            whole[number, at], seen[number, at] = table[:, 1:4], True
        stacks.append((whole, seen))
    is_still = ~np.isin(attempts, moved)
    shown = tuple(clean(name) or "model" for name in groups)
    maps = []
    for title, ratio in (("Gradient norm by layer", False), ("Update over weights by layer", True)):
        rows = [_row(whole, seen & ~(ratio & is_still), ratio) for whole, seen in stacks]
        values, bad = zip(*rows, strict=True)
        maps.append(_heat(title, shown, attempts, np.array(values), np.array(bad), len(run.layers)))
    return maps + ([_output_heat(run, attempts)] if run.outputs else [])


def _output_heat(run: Run, attempts: Array) -> HeatInfo:
    """The largest output of every layer that was seen to have one."""
    groups = group_names([name for name in run.layers if name in run.outputs])
    values = np.full((len(groups), len(attempts)), np.nan)
    bad = np.zeros(values.shape, bool)
    for row, names in enumerate(groups.values()):
        for name in names:
            table = run.outputs[name]
            at = np.searchsorted(attempts, table[:, 0])
            values[row, at] = np.fmax(values[row, at], table[:, 1])
            bad[row, at] |= ~np.isfinite(table[:, 1])
    values[bad] = np.nan
    shown = tuple(clean(name) or "model" for name in groups)
    return _heat("Largest output by layer", shown, attempts, values, bad, len(run.outputs))


def moved_at(run: Run) -> Array:
    """The attempts that made a step: of any other the update is no measurement."""
    is_stepped = np.array([name == "stepped" for name in run.columns.outcomes], bool)
    return run.columns["attempt"][is_stepped]


def _row(whole: Array, seen: Array, is_ratio: bool) -> tuple[Array, Array]:
    """(C,) values of a row, and whether one of its layers had one that was not finite."""
    columns = (2, 1) if is_ratio else (0,)
    bad = np.any(seen & ~np.isfinite(whole[:, :, columns]).all(axis=2), axis=0)
    # The norm of tensors taken together is the root of the sum of their squares, here without
    # the overflow of a square.
    known = np.where(np.isfinite(whole), whole, 0.0)
    norms = [np.hypot.reduce(known[:, :, c], axis=0) for c in columns]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = norms[0] / norms[1] if is_ratio else norms[0]
    return np.where(seen.any(axis=0) & ~bad, value, np.nan), bad


def _heat(
    title: str, names: tuple[str, ...], attempts: Array, values: Array, bad: Array, num_layers: int
) -> HeatInfo:
    if len(attempts) > MAX_COLUMNS:
        parts = np.array_split(np.arange(len(attempts)), MAX_COLUMNS)
        known = np.where(np.isfinite(values), values, -np.inf)
        values = np.stack([known[:, part].max(axis=1) for part in parts], axis=1)
        values = np.where(np.isfinite(values), values, np.nan)
        bad = np.stack([bad[:, part].any(axis=1) for part in parts], axis=1)
        attempts = attempts[[part[0] for part in parts]]
    widths = np.diff(attempts)
    last = float(np.median(widths)) if len(widths) else 1.0
    edges = (*attempts.tolist(), float(attempts[-1]) + last)
    known = values[np.isfinite(values) & (values > 0)]
    high = float(known.max()) if len(known) else 1.0
    low = max(float(np.quantile(known, 0.01)), high / SPAN) if len(known) else 0.1
    return HeatInfo(title, names, edges, values, bad, (min(low, 0.5 * high), high), num_layers)


def layer_lines(run: Run) -> list[LayerLine]:
    """The table of layers, in forward order."""
    found = []
    said = dict.fromkeys((kind, message) for _, kind, message in run.columns.events)
    moved = moved_at(run)
    for name, table in run.layers.items():
        named = _names(name)
        grad, weight = table[-1, 1:3]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = (table[:, 3] / table[:, 2])[np.isin(table[:, 0], moved)]
        flags = [event_style(kind).label for kind, message in said if named.search(message)]
        if not np.isfinite(table[:, 1]).all():
            flags.append("gradient not finite")
        if not np.isfinite(table[:, 2]).all():
            flags.append("weights not finite")
        if grad == 0:
            flags.append("no gradient")
        last = float(ratios[-1]) if len(ratios) else math.nan
        peaks = _peak(table[:, 1]), _peak(ratios)
        kinds = tuple(dict.fromkeys(flags))
        found.append(LayerLine(name, float(grad), float(weight), last, *peaks, kinds))
    return found


def _names(layer: str) -> re.Pattern[str]:
    """Finds a layer by its whole name, by that of its weight, or by a part it belongs to.

    `blocks.1` is not named by `blocks.10`, but `blocks.1.qkv` belongs to what `blocks.1` names.
    A name of one word, such as `norm`, may be any word of a sentence: it counts in quotes, after
    the word layer, or with its weight.
    """
    parts = layer.split(".")
    whole = [re.escape(".".join(parts[:depth])) for depth in range(2, len(parts) + 1)]
    if whole:
        return re.compile(rf"(?<![\w.])({'|'.join(whole)})(\.(weight|bias))?(?!\w|\.\w)")
    name = re.escape(layer) or "$^"
    quoted = rf"[`'\"]{name}[`'\"]"
    return re.compile(rf"{quoted}|\blayer {name}\b|(?<![\w.]){name}\.(weight|bias)\b")


def _peak(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else math.nan
