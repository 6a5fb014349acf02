"""The closing words of a sweep, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from stabsweep.numerals import duration, loss, plural, rate, share, span
from stabsweep.pick import Pick
from stabsweep.records import Record
from stabsweep.region import Region, Row
from stabsweep.report.conclusion import (
    axis_label,
    conclusion,
    picked_row,
    proof_text,
    remarks,
    row_label,
)
from stabsweep.report.style import STYLES, clean, count_outcomes

WIDTH = 80
FILES = "report.html map.png map.svg pick.yaml trials.csv"
"""What a reader opens in a result folder, the most useful first."""

MAX_ROWS = 12
"""Rows of the table; the page has them all."""


def summary(
    region: Region,
    pick: Pick,
    subject: str = "",
    num_planned: int | None = None,
    folder: str | Path | None = None,
    seconds: float | None = None,
    notes: Sequence[str] = (),
    ending: str | None = None,
    also: Sequence[tuple[str, str]] = (),
    steps: Mapping[str, int] | None = None,
) -> str:
    """The answer, the edge of every row, the evidence, the warnings, the cost, the files.

    Plain text in ASCII as long as the names given are; to be printed, never read as markup.

    Args:
        region: what the trials say.
        pick: the recommendation.
        subject: what was swept, e.g. `AdamW on transformer`.
        num_planned: trials that the sweep was to run.
        folder: where the files are.
        seconds: how long the sweep took.
        notes: which engine ran and why, and what else the run had to say of itself.
        ending: why it ended where it did, in a sentence.
        also: what else is known: a word and a text each.
        steps: what the trials were for -> optimizer steps that this took.
    """
    blocks = [textwrap.fill(conclusion(region, pick, subject), WIDTH)]
    if region.rows:
        blocks.append("\n".join(edge_table(region, pick)))
    answer = [("Use", " ".join(pick.overrides()))] if pick.is_ok else []
    answer += [("Why" if pick.is_ok else "Why not", pick.reason)]
    answer += [("Tested", proof_text(pick))] if proof_text(pick) else []
    answer += [("Note", remark) for remark in remarks(region, pick, num_planned)]
    answer += also
    blocks.append("\n".join(entry(*words) for words in answer))
    cost = []
    if region.records:
        cost += [("Trials", counted(region.records)), ("Pruned", saved(region.records))]
    cost += [("Cost", spent(steps))] if steps else []
    short = [note.removeprefix("executor: ").removeprefix("engine ") for note in notes]
    cost += [("Engine", "; ".join(short))] if notes else []
    cost += [("Ended", ending)] if ending else []
    cost += [("Took", duration(seconds))] if seconds is not None else []
    cost += [("Files", f"{folder}/ {FILES}")] if folder is not None else []
    if cost:
        blocks.append("\n".join(entry(*words) for words in cost))
    return "\n\n".join(blocks)


def spent(steps: Mapping[str, int]) -> str:
    """What a sweep cost: `8,050 trial-steps: bracket 1,250, sweep 3,200, confirm 3,600`."""
    parts = ", ".join(f"{name} {number:,}" for name, number in steps.items())
    return f"{sum(steps.values()):,} trial-steps: {parts}"


def entry(word: str, text: str) -> str:
    """A word in the margin and a text beside it, folded to the width of the summary."""
    return textwrap.fill(
        clean(text), WIDTH, initial_indent=f"{word:9}", subsequent_indent=" " * 9,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def edge_table(region: Region, pick: Pick) -> list[str]:
    """One line a row, aligned: edge, interval, safe and usable edge, best rate; `>` is the pick."""
    chosen = picked_row(region, pick)
    head = ["", axis_label(region), "edge", "95% interval", "safe", "usable", "best", "loss"]
    table = [head]
    first = min(max((chosen or 0) - MAX_ROWS // 2, 0), max(len(region.rows) - MAX_ROWS, 0))
    shown = region.rows[first : first + MAX_ROWS]
    for number, row in enumerate(shown, first):
        mark = ">" if number == chosen else ""
        label = row_label(row).replace(" · ", " / ")
        table.append(
            [mark, textwrap.shorten(label, 24, placeholder="...") or label[:24], *_edges(row)]
        )
    head[1] = textwrap.shorten(head[1].replace(" · ", " / "), 24, placeholder="...")
    widths = [max(len(line[n]) for line in table) for n in range(len(head))]
    lines = []
    for line in table:
        cells = [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
        lines.append("  ".join([line[0].ljust(1), *(cell for cell in cells if cell)]).rstrip())
    if len(region.rows) > len(shown):
        lines.append(f"   ... {plural(len(region.rows) - len(shown), 'more row')} in report.html")
    return lines


def _edges(row: Row) -> list[str]:
    edge = row.edge
    known = {
        "found": [_rate(edge.lr), span(edge.low, edge.high)],
        "above": [f"> {_rate(edge.low)}", "not reached"],
        "below": [f"< {_rate(edge.high)}", "nothing held"],
    }
    best = row.best
    return [
        *known.get(edge.status, ["-", "not judged"]),
        _rate(edge.safe_lr),
        _rate(row.usable_lr),
        _rate(best.lr if best else None),
        loss(best.loss) if best else "-",
    ]


def counted(records: Iterable[Record]) -> str:
    """How many trials had each outcome: `192: 95 converged, 36 too slow, ...`."""
    counts = count_outcomes(records)
    words = ", ".join(f"{count} {STYLES[name].label}" for name, count in counts.items())
    return f"{sum(counts.values()):,}: {words}"


def saved(records: Sequence[Record]) -> str:
    """How many trials were pruned, and which share of the planned steps that saved."""
    planned = sum(record.horizon for record in records)
    run = sum(min(record.steps, record.horizon) for record in records)
    pruned = sum(record.state == "pruned" for record in records)
    if not pruned or not planned:
        return "none, every trial ran to its end"
    return f"{pruned} early, which saved {share(1 - run / planned)} of the planned steps"


def _rate(value: float | None) -> str:
    return "-" if value is None else rate(value)
