"""The report of a guarded run as one self-contained HTML page that opens from a disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stabsweep.numerals import rate
from stabsweep.report._document import chip, document, escaped, given, picture, table
from stabsweep.report.run_conclusion import run_conclusion, run_remarks
from stabsweep.report.run_events import Event, event_style, events_of
from stabsweep.report.run_layers import LayerLine, layer_lines
from stabsweep.runlog import Run
from stabsweep.verdict import Judgement

MAX_EVENTS = 200
"""Events listed on the page, the first and the last of them; all are in `steps.jsonl`."""

MAX_LAYERS = 500
"""Layers listed on the page, those with a flag first."""

_GLYPHS = {"x": "×", "v": "▼", "|": "❘", "<": "◀", ">": "▶", "s": "■", ".": "·"}
"""Marker in the picture -> the character that resembles it."""


def render_run_page(
    run: Run,
    judged: Judgement | None,
    png: bytes,
    also: Sequence[tuple[str, str]] = (),
    environment: Mapping[str, Any] | None = None,
    go_on: Mapping[str, str] | None = None,
) -> str:
    """The page as text.

    Args:
        run: its folder.
        judged: the verdict; None where no step was made.
        png: the picture, as written by `save_figure`.
        also: what else is known: a word and a text each.
        environment: as `stabsweep.environment.take` returns it.
        go_on: what a reader may do next -> the words to type.
    """
    headline = run_conclusion(run, judged)
    body = [f"<h1>{escaped(headline)}</h1>"]
    if judged is not None:
        body.append(f"<p>{chip(judged.verdict.label)}. {escaped(judged.reason)}</p>")
    body += [f'<p class="warn">{escaped(remark)}</p>' for remark in run_remarks(run, judged)]
    body += [f"<p><b>{escaped(word)}</b> {escaped(words)}</p>" for word, words in also]
    alt = f"Curves, events and layers of the run. {headline}. The tables below say the same."
    body.append(picture(png, alt))
    body += _events(events_of(run))
    body += _layers(layer_lines(run))
    body += given(go_on or {}, "How to go on")
    asked = {"run.yaml": run.about, "Environment": essentials(environment or {})}
    body += given({name: value for name, value in asked.items() if value}, "What was asked")
    return document(headline, "\n".join(body))


def _events(events: Sequence[Event]) -> list[str]:
    if not events:
        return ["<h2>What happened</h2>", "<p>Nothing: every attempt was a step.</p>"]
    shown, half = list(events), MAX_EVENTS // 2
    note = ""
    if len(events) > MAX_EVENTS:
        shown = [*events[:half], *events[-half:]]
        counts = Counter(event_style(event.kind).label for event in events)
        kinds = ", ".join(f"{count:,} {label}" for label, count in counts.items())
        note = (
            f"The first and the last {half} of {len(events):,} ({kinds}); all are in steps.jsonl."
        )
    body = []
    for event in shown:
        style = event_style(event.kind)
        # What the guard found out of this very event says more than what holds of its kind.
        cause, _, cure = event.message.partition(" Cure: ")
        body.append(
            f"<tr><td>{_GLYPHS.get(style.marker, '·')} {escaped(style.label)}</td>"
            f'<td>{escaped(event.where)}</td><td class="text">{escaped(cause)}</td>'
            f'<td class="text">{escaped(cure or style.cure or "–")}</td></tr>'
        )
    return [
        "<h2>What happened</h2>",
        *([f'<p class="quiet">{escaped(note)}</p>'] if note else []),
        *table(("what", "where", "cause", "cure"), body),
    ]


def _layers(lines: Sequence[LayerLine]) -> list[str]:
    if not lines:
        return []
    note = (
        "At the last look of each layer, in forward order; the largest of all looks beside it. "
        "Update over weights: by how much of its norm a step moves it. Flags: what warned of the "
        "layer by its name, and what its numbers show."
    )
    shown = lines
    if len(lines) > MAX_LAYERS:
        flagged = sorted(range(len(lines)), key=lambda n: (not lines[n].flags, n))[:MAX_LAYERS]
        shown = [lines[n] for n in sorted(flagged)]
        note += f" {MAX_LAYERS} of {len(lines):,}, those with a flag among them."
    body = []
    for line in shown:
        numbers = (line.grad_norm, line.peak_grad_norm, line.update_ratio, line.peak_ratio)
        cells = "".join(f"<td>{escaped(_number(v))}</td>" for v in (*numbers, line.weight_norm))
        flags = ", ".join(line.flags)
        kind = ' class="pick"' if flags else ""
        body.append(
            f"<tr{kind}><td>{escaped(line.name or 'model')}</td>{cells}"
            f'<td class="text">{escaped(flags)}</td></tr>'
        )
    head = (
        "layer", "gradient norm", "largest", "update over weights", "largest", "weight norm",
        "flags",
    )  # fmt: skip
    return ["<h2>Layers</h2>", f'<p class="quiet">{note}</p>', *table(head, body)]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else rate(value)


def essentials(environment: Mapping[str, Any]) -> dict[str, str]:
    """What of an environment a reader asks first; what is not known is left out."""

    def at(*keys: str) -> Any:
        value: Any = environment
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    names = at("gpu", "names")
    commit = at("git", "commit")
    found = {
        "time": at("time"),
        "python": at("python", "version"),
        "torch": at("torch", "version"),
        "cuda": at("torch", "cuda"),
        "system": " ".join(str(at("platform", key) or "") for key in ("system", "release")).strip(),
        "cpu": at("cpu", "model"),
        "threads": at("threads", "torch"),
        "gpu": ", ".join(map(str, names)) if isinstance(names, list) else None,
        "commit": f"{commit}{' (changed)' if at('git', 'dirty') else ''}" if commit else None,
    }
    return {key: str(value) for key, value in found.items() if value}
