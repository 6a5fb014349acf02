"""The report as one self-contained HTML page that opens from a disk without a network.

Everything that comes from a config, a record or an error is escaped; the policy in the head
allows nothing but this page's own style and embedded pictures, so there is no script at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from stabsweep.numerals import duration, loss, rate, share, span
from stabsweep.pick import Pick
from stabsweep.records import Record
from stabsweep.region import Region, Row
from stabsweep.report.conclusion import (
    clip_share,
    conclusion,
    picked_row,
    proof_text,
    remarks,
    row_label,
    value_text,
)
from stabsweep.report.style import STYLES, clean, count_outcomes, outcome, sentence
from stabsweep.report.summary import counted, saved

MAX_TRIALS = 500
"""Trials listed on the page; all of them are in `trials.csv`."""

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --quiet: #5a5a5a; --line: #d5d5d5;
  --paper: #fff; --box: #f4f6f8; --warn: #fff3cd; --warn-ink: #5c4400; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --quiet: #a5a5a5; --line: #444;
  --paper: #16181b; --box: #22262b; --warn: #43370d; --warn-ink: #ffe9a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 76rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p { margin: .4rem 0; max-width: 52rem; }
.quiet { color: var(--quiet); }
.warn { background: var(--warn); color: var(--warn-ink); padding: .5rem .8rem;
  border-radius: .4rem; }
pre { background: var(--box); padding: .7rem .9rem; border-radius: .4rem; overflow-x: auto;
  user-select: all; white-space: pre-wrap; margin: .4rem 0; }
figure { margin: 1rem 0; }
img { width: 100%; height: auto; background: #fff; border-radius: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
td.text { white-space: normal; min-width: 18rem; }
tr.pick td { font-weight: 700; }
.chip { display: inline-block; min-width: 1.5em; text-align: center; border-radius: .25rem;
  border: 1px solid var(--line); }
""" + "\n".join(
    f".{name} {{ background: {style.colour}; color: {style.ink}; }}"
    for name, style in STYLES.items()
)


def render_page(
    region: Region,
    pick: Pick,
    png: bytes,
    subject: str = "",
    num_planned: int | None = None,
    reproduce: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    also: Iterable[tuple[str, str]] = (),
) -> str:
    """The page as text.

    Args:
        region: what the trials say.
        pick: the recommendation.
        png: the picture, as written by `save_figure`.
        subject: what was swept, e.g. `AdamW on transformer`.
        num_planned: trials that the sweep was to run.
        reproduce: heading -> text or mapping: the command, the config, the versions.
        seconds: how long the sweep took.
        also: what else is known: a word and a text each.
    """
    headline = conclusion(region, pick, subject)
    reason = f"{pick.reason} {proof_text(pick)}"
    body = [f"<h1>{_text(headline)}</h1>", f"<p>{_text(reason)}</p>"]
    body += [
        f'<p class="warn">{_text(remark)}</p>' for remark in remarks(region, pick, num_planned)
    ]
    body += [f"<p><b>{_text(word)}</b> {_text(text)}</p>" for word, text in also]
    if pick.is_ok:
        body += [
            '<p class="quiet">Arguments for a Hydra script, and for an argparse script:</p>',
            f"<pre>{_text(' '.join(pick.overrides()))}</pre>",
            f"<pre>{_text(' '.join(pick.flags()))}</pre>",
        ]
    image = base64.b64encode(png).decode("ascii")
    alt = (
        f"Stability map, final losses and sample traces. {headline}. The tables below say the same."
    )
    body.append(f'<figure><img alt="{_text(alt)}" src="data:image/png;base64,{image}"></figure>')
    body += _rows(region, pick)
    body += _legend(region, seconds)
    body += _trials(region)
    body += _reproduce(reproduce or {})
    return _document(headline, "\n".join(body))


def save_page(folder: str | Path, page: str) -> Path:
    """Writes the page as `report.html` and returns its path."""
    path = Path(folder) / "report.html"
    # A lone surrogate, from a file name that is not UTF-8, must not stop the report.
    path.write_text(page, encoding="utf-8", errors="replace", newline="\n")
    return path


def _document(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _rows(region: Region, pick: Pick) -> list[str]:
    if not region.rows:
        return []
    names = " · ".join(axis.name for axis in region.space.row_axes) or "row"
    chosen = picked_row(region, pick)
    head = (
        names, "edge", "95% interval", "safe edge", "usable edge", "good band", "window", "decades",
        "best", "loss at best", "LR sensitivity", "clipped steps",
    )  # fmt: skip
    body = []
    for number, row in enumerate(region.rows):
        kind = ' class="pick"' if number == chosen else ""
        cells = "".join(f"<td>{_text(cell)}</td>" for cell in _row_cells(row))
        body.append(f"<tr{kind}>{cells}</tr>")
    note = (
        "Edge: half of the trials fail there. Safe edge: 5% fail, for the worst seed. Usable edge: "
        "above it more than half of what can be learned is lost. Good band: within a tenth of the "
        "best. Window: from too slow to the usable edge, and how many decades that is. LR "
        "sensitivity: how much worse than the best the rates of the row end on average (Wortsman "
        "et al. 2023); another range gives another number. Clipped steps: of the trials that held. "
        "The pick's row is bold."
    )
    return ["<h2>Where the edge is</h2>", f'<p class="quiet">{note}</p>', *_table(head, body)]


def _row_cells(row: Row) -> list[str]:
    edge = row.edge
    status = {
        "above": f"not reached, above {rate(edge.low)}",
        "below": f"below {rate(edge.high)}: nothing held",
        "unknown": "nothing judged",
    }
    return [
        row_label(row) or "all",
        status.get(edge.status, rate(edge.lr)),
        _span((edge.low, edge.high) if edge.status == "found" else None),
        rate(edge.safe_lr),
        rate(row.usable_lr),
        _span(row.good_band),
        _span(row.window),
        "–" if row.window_decades is None else f"{row.window_decades:.1f}",
        rate(row.best.lr if row.best else None),
        loss(row.best.loss if row.best else None),
        loss(row.lr_sensitivity),
        share(clip_share(row)),
    ]


def _legend(region: Region, seconds: float | None) -> list[str]:
    if not region.records:
        return []
    body = [
        f'<tr><td><span class="chip {name}">{STYLES[name].glyph}</span> {STYLES[name].label}</td>'
        f'<td>{count}</td><td class="text">{_text(sentence(name))}</td></tr>'
        for name, count in count_outcomes(region.records).items()
    ]
    cost = f"Trials {counted(region.records)}. Pruned: {saved(region.records)}."
    cost += f" It took {duration(seconds)}." if seconds is not None else ""
    return [
        "<h2>What happened</h2>",
        f'<p class="quiet">{_text(cost)}</p>',
        *_table(("verdict", "trials", "what it means"), body),
    ]


def _trials(region: Region) -> list[str]:
    if not region.records:
        return []
    axes = [axis.name for axis in region.space]
    shown = region.records[:MAX_TRIALS]
    head = ("trial", *axes, "seed", "verdict", "final loss", "steps", "why")
    body = [f"<tr>{_trial_cells(record, axes)}</tr>" for record in shown]
    some = f"The first {len(shown)} of" if len(shown) < len(region.records) else "All"
    link = '<a href="trials.csv">trials.csv</a>'
    note = f"{some} {len(region.records)} trials; for other programs: {link}."
    return ["<h2>Trials</h2>", f'<p class="quiet">{note}</p>', *_table(head, body)]


def _trial_cells(record: Record, axes: Iterable[str]) -> str:
    name = outcome(record)
    chip = f'<span class="chip {name}">{STYLES[name].glyph}</span> {STYLES[name].label}'
    point = [
        rate(record.lr) if axis == "lr" else value_text(record.point.get(axis)) for axis in axes
    ]
    before = "".join(f"<td>{_text(v)}</td>" for v in (record.trial, *point, record.seed))
    steps = f"{record.steps} of {record.horizon}"
    why = record.error or record.reason
    return (
        f"{before}<td>{chip}</td><td>{loss(record.final_loss)}</td><td>{_text(steps)}</td>"
        f'<td class="text">{_text(why)}</td>'
    )


def _reproduce(reproduce: Mapping[str, Any]) -> list[str]:
    found = ["<h2>How to reproduce</h2>"] if reproduce else []
    for heading, value in reproduce.items():
        text = "\n".join(_lines(value)) if isinstance(value, Mapping) else _multiline(value)
        found.append(f"<p>{_text(heading)}</p><pre>{escape(text)}</pre>")
    return found


def _lines(values: Mapping[str, Any], indent: str = "") -> Iterable[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{clean(key)}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{clean(key)}: {clean(value)}"


def _multiline(value: Any) -> str:
    return "\n".join(clean(line) for line in str(value).splitlines())


def _table(head: Iterable[str], body: Iterable[str]) -> list[str]:
    cells = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    return [
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>',
        *body,
        "</tbody></table></div>",
    ]


def _span(ends: tuple[float | None, float | None] | None) -> str:
    return "–" if ends is None else span(*ends)


def _text(value: object) -> str:
    return escape(clean(value), quote=True)
