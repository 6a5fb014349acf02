"""The report of a sweep as one self-contained HTML page that opens from a disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stabsweep.numerals import duration, loss, rate, share, span
from stabsweep.pick import Pick
from stabsweep.records import Record
from stabsweep.region import Region, Row
from stabsweep.report._document import chip, document, escaped, given, picture, table
from stabsweep.report.answer import answer
from stabsweep.report.conclusion import (
    clip_share,
    conclusion,
    picked_row,
    proof_text,
    remarks,
    row_label,
    value_text,
)
from stabsweep.report.page_data import as_json, page_data
from stabsweep.report.sample_traces import LoadTrace
from stabsweep.report.style import count_outcomes, outcome, sentence
from stabsweep.report.summary import counted, saved
from stabsweep.theory import Theory

MAX_TRIALS = 100
"""Trials listed where the script does not run; all of them are in `trials.csv`."""

SCRIPT = "".join(
    f"// {path.name}\n{path.read_text(encoding='utf-8')}"
    for path in sorted((Path(__file__).parent / "script").glob("*.js"))
)
"""All of the page's script, in the order of its parts; none of its names is seen outside."""


def render_page(
    region: Region,
    pick: Pick,
    png: bytes,
    subject: str = "",
    num_planned: int | None = None,
    reproduce: Mapping[str, Any] | None = None,
    seconds: float | None = None,
    also: Iterable[tuple[str, str]] = (),
    theory: Theory | None = None,
    load_trace: LoadTrace | None = None,
    replay: tuple[str, str] | None = None,
) -> str:
    """The page as text.

    Without its script it still has the answer, the picture and the tables. With it the map can be
    asked: each cell for its trials, each trial for its curves and the evidence for its verdict.

    Args:
        region: what the trials say.
        pick: the recommendation.
        png: the picture, as written by `save_figure`.
        subject: what was swept, e.g. `AdamW on transformer`.
        num_planned: trials that the sweep was to run.
        reproduce: heading -> text or mapping: the command, the config, the versions.
        seconds: how long the sweep took.
        also: what else is known: a word and a text each.
        theory: the edge of linear theory.
        load_trace: reads a record's curves; without it the page has none.
        replay: what to type before and after the number of a trial to run it again.
    """
    headline = conclusion(region, pick, subject)
    reason = f"{pick.reason} {proof_text(pick)}"
    # A number must not break at its minus.
    title = escaped(headline).replace("e-", "e-\N{WORD JOINER}")
    body = [f"<header><h1>{title}</h1>", f"<p>{escaped(reason)}</p>"]
    noted = remarks(region, pick, num_planned)
    body += [f'<p class="warn">{escaped(remark)}</p>' for remark in noted]
    body += answer(region, pick)
    body += ["</header>", *_explorer(region, png, headline)]
    noted = [f"<p><b>{escaped(word)}</b> {escaped(words)}</p>" for word, words in also]
    body += ["<h2>What else is known</h2>", *noted] if noted else []
    body += _rows(region, pick)
    body += _legend(region, seconds)
    body += _trials(region)
    body += given(reproduce or {}, "How to reproduce")
    data = as_json(page_data(region, pick, theory, load_trace, replay))
    script = f'"use strict";\n{{\n{SCRIPT}}}\n'
    return document(headline, "\n".join(body), data, script)


def _explorer(region: Region, png: bytes, headline: str) -> list[str]:
    """Where the script puts the map and what belongs to it, and the picture for without it."""
    alt = (
        f"Stability map, final losses and sample traces. {headline}. The tables below say the same."
    )
    if not region.records:
        return [f"<noscript>{picture(png, alt)}</noscript>"]
    return [
        f"<noscript>{picture(png, alt)}</noscript>",
        "<section hidden><h2>Where training is stable</h2>",
        '<div class="controls" data-part="choices"></div>',
        '<div data-part="legend"></div><div class="split">',
        '<div><div data-part="map"></div>',
        '<p class="readout" data-part="readout" aria-live="polite"></p></div>',
        '<div class="detail" data-part="detail"></div></div></section>',
        '<section hidden><h2>Final loss by learning rate</h2><div data-part="losses"></div>',
        '<p class="quiet" data-part="losses-caption"></p></section>',
        "<section hidden><h2>By seed and optimizer</h2>",
        '<div data-part="multiples"></div></section>',
    ]


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
        cells = "".join(f"<td>{escaped(cell)}</td>" for cell in _row_cells(row))
        body.append(f"<tr{kind}>{cells}</tr>")
    note = (
        "Edge: half of the trials fail there. Safe edge: 5% fail, for the worst seed. Usable edge: "
        "above it more than half of what can be learned is lost. Good band: within a tenth of the "
        "best. Window: from too slow to the usable edge, and how many decades that is. LR "
        "sensitivity: how much worse than the best the rates of the row end on average (Wortsman "
        "et al. 2023); another range gives another number. Clipped steps: of the trials that held. "
        "The pick's row is bold."
    )
    return ["<h2>Where the edge is</h2>", f'<p class="quiet">{note}</p>', *table(head, body)]


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
        f"<tr><td>{chip(name)}</td>"
        f'<td>{count}</td><td class="text">{escaped(sentence(name))}</td></tr>'
        for name, count in count_outcomes(region.records).items()
    ]
    cost = f"Trials {counted(region.records)}. Pruned: {saved(region.records)}."
    cost += f" It took {duration(seconds)}." if seconds is not None else ""
    return [
        "<h2>What happened</h2>",
        f'<p class="quiet">{escaped(cost)}</p>',
        *table(("verdict", "trials", "what it means"), body),
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
    return [
        '<section><h2>Trials</h2><div data-part="list"></div>',
        f'<noscript><p class="quiet">{note}</p>{"".join(table(head, body))}</noscript></section>',
    ]


def _trial_cells(record: Record, axes: Iterable[str]) -> str:
    name = outcome(record)
    point = [
        rate(record.lr) if axis == "lr" else value_text(record.point.get(axis)) for axis in axes
    ]
    before = "".join(f"<td>{escaped(v)}</td>" for v in (record.trial, *point, record.seed))
    steps = f"{record.steps} of {record.horizon}"
    why = record.error or record.reason
    return (
        f"{before}<td>{chip(name)}</td><td>{loss(record.final_loss)}</td><td>{escaped(steps)}</td>"
        f'<td class="text">{escaped(why)}</td>'
    )


def _span(ends: tuple[float | None, float | None] | None) -> str:
    return "–" if ends is None else span(*ends)
