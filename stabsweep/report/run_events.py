"""What happened in a guarded run besides training: how each kind is called, drawn and answered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stabsweep.numerals import plural
from stabsweep.records import Array
from stabsweep.report.style import INK, MUTED, STYLES, clean
from stabsweep.runlog import Columns, Run


@dataclass(frozen=True)
class EventStyle:
    """How one kind of event looks, and what is to be done.

    Attributes:
        label: its name for a reader.
        marker: the matplotlib marker.
        colour: hex colour; the markers and the names tell the kinds apart without it.
        cure: what a reader may do, in a sentence; empty where there is nothing to do.
        is_early: whether it warns of what has not happened yet.
    """

    label: str
    marker: str
    colour: str
    cure: str
    is_early: bool = False


_BAD, _WARN, _BACK = STYLES["diverged"].colour, "#8A6D00", STYLES["oscillating"].colour

EVENTS: Mapping[str, EventStyle] = {
    "not_finite": EventStyle(
        "not finite", "x", _BAD,
        "Look at that batch. If others do the same, lower the rate or lengthen the warmup.",
    ),
    "runaway": EventStyle(
        "ran away", "^", _BAD,
        "Lower the rate, or look at that layer: it went first.",
    ),
    "overflow": EventStyle(
        "overflow", "v", _BAD,
        "None now and then: that is how a scaler finds its scale. If they go on, use bfloat16.",
    ),
    "outlier": EventStyle(
        "outlier", "|", INK,
        "Look at that batch: one far from all others is often broken data.",
    ),
    "rollback": EventStyle(
        "rolled back", "<", _BACK,
        "If it comes again, go on with a lower rate from the start.",
    ),
    "update_ratio": EventStyle(
        "update ratio", ">", _WARN,
        "Lower the rate, or lengthen the warmup: the step grew before the loss did.", True,
    ),
    "growth": EventStyle(
        "growth", ">", _WARN,
        "Lower the rate or clip: what grows so is on its way out.", True,
    ),
    "clip": EventStyle(
        "clipping", ">", _WARN,
        "Raise clip_norm or lower the rate: clipping sets the length of the step now.", True,
    ),
    "logits": EventStyle(
        "logits", ">", _WARN,
        "Normalise queries and keys (qk_norm), or lower the rate of the attention.", True,
    ),
    "dead": EventStyle(
        "dead layer", ">", _WARN,
        "Look at the layer's activation and init: nothing flows through it.", True,
    ),
    "stuck": EventStyle(
        "stuck", ">", _WARN,
        "Find a rate that learns: python -m stabsweep sweeps for it.", True,
    ),
    "stopped": EventStyle(
        "stopped", "s", INK,
        "Start again from the last verified checkpoint, with the cause removed.",
    ),
    "checkpoint": EventStyle("checkpoint", ".", MUTED, ""),
    "note": EventStyle("note", ".", MUTED, ""),
}  # fmt: skip
"""Kind -> style, in the order in which they are shown: what is worst first."""

_OF_OUTCOME = {
    "skipped_not_finite": ("not_finite", "The loss or the gradient was not finite: no step."),
    "skipped_overflow": ("overflow", "The gradient overflowed at its loss scale: no step."),
    "skipped_outlier": ("outlier", "The gradient was far larger than those before: no step."),
    "rolled_back": ("rollback", "Back at an earlier state."),
    "stopped": ("stopped", "The training was stopped."),
}
"""Outcome -> the kind of event that it is, and what is said where its line says nothing."""


@dataclass(frozen=True)
class Event:
    """Something that happened, at one attempt or at some in a row.

    Attributes:
        kind: a key of `EVENTS`, or a word of a later version.
        attempt, last: the first and the last attempt.
        step: updates made before the first; None where that is not known.
        message: what the guard said, of the first.
    """

    kind: str
    attempt: int
    last: int
    step: int | None
    message: str

    @property
    def where(self) -> str:
        """Where it was: `attempt 120 (step 118)`, `attempts 80 to 95`."""
        if self.last > self.attempt:
            return f"attempts {self.attempt} to {self.last}"
        return f"attempt {self.attempt}" + ("" if self.step is None else f" (step {self.step})")


def event_style(kind: str) -> EventStyle:
    """How a kind of event looks; one that is not known here looks like a note with its own name."""
    plain = clean(kind, 24).replace("_", " ")
    return EVENTS.get(kind) or EventStyle(plain, ".", MUTED, "")


def is_bad(columns: Columns) -> Array:
    """(N,) whether loss or gradient were not finite; what a scaler left out is no such attempt."""
    overflowed = np.array([name == "skipped_overflow" for name in columns.outcomes], bool)
    loss, grad_norm = columns["loss"], columns["grad_norm"]
    return ~np.isfinite(loss) | (~np.isfinite(grad_norm) & ~overflowed)


def kinds_of(columns: Columns) -> dict[str, list[int]]:
    """Kind -> attempts where it happened, in the order of `EVENTS`: every one, none left out.

    What the outcomes say counts as well as what the events say, and a number that is not finite
    counts although nobody called it an event.
    """
    attempts = columns["attempt"].astype(int)
    found: dict[str, set[int]] = {}
    for attempt, kind, _ in columns.events:
        found.setdefault(kind, set()).add(attempt)
    for attempt, name in zip(attempts, columns.outcomes, strict=True):
        if name in _OF_OUTCOME:
            found.setdefault(_OF_OUTCOME[name][0], set()).add(int(attempt))
    bad = attempts[is_bad(columns)]
    if len(bad):
        found.setdefault("not_finite", set()).update(bad.tolist())
    order = [*EVENTS, *(kind for kind in found if kind not in EVENTS)]
    return {kind: sorted(found[kind]) for kind in order if kind in found}


def events_of(run: Run) -> list[Event]:
    """All that happened, in order; the same in a row of attempts is one event."""
    columns = run.columns
    steps = dict(zip(columns["attempt"].astype(int).tolist(), columns["step"], strict=True))
    said: dict[tuple[int, str], str] = {}
    for attempt, kind, message in columns.events:
        key = (attempt, kind)
        # Two layers may say the same thing of themselves at once.
        said[key] = f"{said[key]} {message}" if key in said else message
    plain = {kind: text for kind, text in _OF_OUTCOME.values()}
    plain["not_finite"] = "The loss or the gradient was not finite."
    found = []
    for kind, attempts in kinds_of(columns).items():
        open_event: Event | None = None
        for attempt in attempts:
            message = said.get((attempt, kind), plain.get(kind, ""))
            if open_event and attempt == open_event.last + 1 and kind != "rollback":
                first = open_event
                open_event = Event(kind, first.attempt, attempt, first.step, first.message)
                found[-1] = open_event
                continue
            step = steps.get(attempt, math.nan)
            known = int(step) if math.isfinite(step) else None
            open_event = Event(kind, attempt, attempt, known, message)
            found.append(open_event)
    return sorted(found, key=lambda event: event.attempt)


def first_bad(columns: Columns) -> str:
    """`non-finite at attempt 120 (loss nan), 2 in all`; empty where everything was finite."""
    rows = np.flatnonzero(is_bad(columns))
    if not len(rows):
        return ""
    row = rows[0]
    word, value = "loss", columns["loss"][row]
    if math.isfinite(value):
        word, value = "gradient norm", columns["grad_norm"][row]
    text = f"non-finite at attempt {int(columns['attempt'][row])} ({word} {value})"
    return f"{text}, {len(rows):,} in all" if len(rows) > 1 else text


def places(attempts: Sequence[int], most: int = 3) -> str:
    """Where something happened: `attempts 120, 351`; in words where there are many."""
    if len(attempts) == 1:
        return f"attempt {attempts[0]}"
    if len(attempts) == attempts[-1] - attempts[0] + 1:
        return f"attempts {attempts[0]} to {attempts[-1]}"
    shown = ", ".join(str(a) for a in attempts[:most])
    more = len(attempts) - most
    return f"attempts {shown}" + (f" and {more:,} more" if more > 0 else "")


def skips_of(columns: Columns) -> str:
    """`3 of 600 attempts: 2 not finite, 1 outlier`; empty where none was skipped."""
    counts = {
        EVENTS[kind].label: sum(name == outcome for name in columns.outcomes)
        for outcome, (kind, _) in _OF_OUTCOME.items()
        if outcome.startswith("skipped")
    }
    parts = [f"{count:,} {label}" for label, count in counts.items() if count]
    if not parts:
        return ""
    return f"{sum(counts.values()):,} of {plural(len(columns), 'attempt')}: {', '.join(parts)}"


def warnings_of(columns: Columns) -> list[str]:
    """What warned early, a line a kind: `update ratio: attempt 180`."""
    return [
        f"{event_style(kind).label}, {places(attempts)}"
        for kind, attempts in kinds_of(columns).items()
        if event_style(kind).is_early
    ]
