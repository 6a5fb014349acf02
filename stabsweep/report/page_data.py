"""What the script of a sweep's page is given: plain numbers and words, no HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from stabsweep.numerals import rate
from stabsweep.pick import Pick
from stabsweep.records import Array, Record
from stabsweep.region import Region
from stabsweep.report import curve_codes
from stabsweep.report.conclusion import setting, value_text
from stabsweep.report.loss_curves import loss_info
from stabsweep.report.stability_map import MapInfo, map_info
from stabsweep.report.style import DARK, LOSS_COLOURS, ON_SCALE, STYLES, clean, outcome, sentence
from stabsweep.theory import Theory


def page_data(
    region: Region,
    pick: Pick,
    theory: Theory | None = None,
    load_trace: Callable[[Record], Array | None] | None = None,
    replay: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that the script shows, as JSON takes it.

    Trials are columns, in the order of rows and rates, so that neighbours are alike; words that
    many share stand once, under `words`, and are named by their place there.

    Args:
        region: what the trials say.
        pick: the recommendation.
        theory: the edge of linear theory.
        load_trace: reads a record's curves; without it there are none to look at.
        replay: what to type before and after the number of a trial to run it again.
    """
    info = map_info(region, pick, theory)
    trials = _Trials(region, info)
    losses = loss_info(region, pick)
    horizon = max((record.horizon for record in region.records), default=0)
    blocks = []
    if load_trace is not None and any(record.trace for record in region.records):
        blocks = curve_codes.pack(trials.records, load_trace, horizon)
    return {
        "outcomes": [
            {
                "name": name,
                "label": style.label,
                "colour": style.colour,
                "dark": DARK.get(style.colour),
                "ink": style.ink,
                "glyph": style.glyph,
                "isHatched": bool(style.hatch),
                "onScale": name in ON_SCALE,
                "sentence": sentence(name),
            }
            for name, style in STYLES.items()
        ],
        "axes": [clean(axis.name) for axis in region.space.row_axes],
        "rows": _rows(info),
        "rowAxis": info.axis,
        "lrRange": info.lr_range,
        "scale": {
            "colours": LOSS_COLOURS,
            "ends": info.losses,
            "isLog": info.log_loss,
            "badEnd": info.bad_end,
        },
        "losses": {
            "range": losses.loss_range,
            "isLog": losses.log_loss,
            "blind": losses.blind,
            "initial": losses.initial,
        },
        "isScattered": info.is_scattered,
        "pick": _pick(info, pick),
        "trials": trials.columns,
        "words": trials.words,
        "horizon": horizon,
        "curves": {
            "names": curve_codes.SHOWN,
            "perBlock": curve_codes.BLOCK,
            "numValues": curve_codes.num_values(
                horizon, curve_codes.num_buckets(len(region.records))
            ),
            "blocks": blocks,
        },
        "replay": replay,
    }


def as_json(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a `script` element: nothing in it can end that, or begin another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


class _Trials:
    """The trials as columns, and the words that these name."""

    def __init__(self, region: Region, info: MapInfo) -> None:
        by_number = {record.trial: record for record in region.records}
        self.words: list[str] = []
        self._places: dict[str, int] = {}
        self.records: list[Record] = []
        self.columns: dict[str, list[Any]] = {
            name: []
            for name in (
                "number", "row", "cell", "lr", "seed", "outcome", "loss", "steps",
                "why", "at", "axes",
            )
        }  # fmt: skip
        names = list(STYLES)
        axes = [axis.name for axis in region.space.row_axes]
        for at, row in enumerate(info.rows):
            for place, cell in enumerate(row.cells):
                for record in (by_number[number] for number in cell.trials):
                    self.records.append(record)
                    values = {name: record.point.get(name) for name in axes}
                    found = {
                        "number": record.trial,
                        "row": at,
                        "cell": place,
                        "lr": record.lr,
                        "seed": record.seed,
                        "outcome": names.index(outcome(record)),
                        "loss": _finite(record.final_loss),
                        "steps": record.steps,
                        "why": self._place(clean(record.error or record.reason)),
                        "at": self._place(setting(values)),
                        "axes": [self._place(value_text(value)) for value in values.values()],
                    }
                    for name, value in found.items():
                        self.columns[name].append(value)

    def _place(self, word: str) -> int:
        if word not in self._places:
            self._places[word] = len(self.words)
            self.words.append(word)
        return self._places[word]


def _rows(info: MapInfo) -> list[dict[str, Any]]:
    """The rows from the bottom of the map to its top."""
    found = []
    for row in info.rows:
        edge = row.edge
        found.append(
            {
                "label": row.label,
                "cells": [[cell.lr, cell.low, cell.high] for cell in row.cells],
                "edge": {
                    "status": edge.status,
                    "lr": edge.lr,
                    "low": edge.low,
                    "high": edge.high,
                    "safe": edge.safe_lr,
                },
                "theory": row.theory_lr,
            }
        )
    return found


def _pick(info: MapInfo, pick: Pick) -> dict[str, Any] | None:
    if info.pick is None or pick.lr is None:
        return None
    return {
        "row": info.pick.row,
        "lr": pick.lr,
        "text": rate(pick.lr, down=True),
        "edge": info.pick.edge_lr,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
