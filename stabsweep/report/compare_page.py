"""Two sweeps side by side as one self-contained HTML page that opens from a disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stabsweep.edge import Edge
from stabsweep.environment.difference import Change, Difference
from stabsweep.numerals import loss, rate, span
from stabsweep.region import Row
from stabsweep.report._document import document, escaped, picture, table
from stabsweep.report.conclusion import value_text
from stabsweep.report.edge_shifts import edge_text, moved_text, shift_sentence
from stabsweep.shift import MOVED, Shift


def render_compare_page(
    shifts: Sequence[Shift],
    png: bytes,
    names: tuple[str, str],
    picks: Mapping[str, str],
    differences: Mapping[str, tuple[str, str]],
    environments: Difference,
    notes: Iterable[str] = (),
) -> str:
    """The page as text.

    Args:
        shifts: how each row's edge differs.
        png: the picture, as written by `save_figure`.
        names: what A and B are.
        picks: word, or none -> the recommendation of each, and how far it moved.
        differences: key -> what the config of A and that of B say.
        environments: what differs between the machines.
        notes: what makes the comparison weaker than it looks.
    """
    headline = shift_sentence(shifts)
    body = [f"<h1>{escaped(headline)}</h1>"]
    sides = zip("AB", names, strict=True)
    body += [f"<p><b>{side}</b> {escaped(name)}</p>" for side, name in sides]
    body += [f'<p class="warn">{escaped(note)}</p>' for note in notes]
    for word, text in picks.items():
        lead = f"<b>{escaped(word)}</b> " if word else ""
        body.append(f"<p>{lead}{escaped(text)}</p>")
    alt = f"The edge of each row in A and in B. {headline}. The table below says the same."
    body.append(picture(png, alt))
    body += _edges(shifts)
    body += _uses(shifts)
    body += _configs(differences)
    body += _environments(environments)
    return document(headline, "\n".join(body))


def _edges(shifts: Sequence[Shift]) -> list[str]:
    if not shifts:
        return []
    note = (
        "Edge: half of the trials fail there. Decades: how far the edge of B lies from that of A. "
        "Moved: the two 95% intervals share nothing. Not distinguishable is no proof that they are "
        "equal: more learning rates or seeds make the intervals shorter. Rows that moved are bold."
    )
    body = []
    for shift in shifts:
        kind = ' class="pick"' if shift.says == MOVED else ""
        edges = [row.edge if row else None for row in (shift.a, shift.b)]
        cells = [_label(shift), *(t for edge in edges for t in (edge_text(edge), _interval(edge)))]
        body.append(f"<tr{kind}>{_cells([*cells, moved_text(shift), shift.says])}</tr>")
    head = (
        _axes(shifts), "edge of A", "95% interval", "edge of B", "95% interval", "decades", "",
    )  # fmt: skip
    return ["<h2>Which edges moved</h2>", f'<p class="quiet">{note}</p>', *table(head, body)]


def _uses(shifts: Sequence[Shift]) -> list[str]:
    if not shifts:
        return []
    note = (
        "Usable edge: above it more than half of what can be learned is lost. Best: the learning "
        "rate with the lowest final loss."
    )
    body = []
    for shift in shifts:
        rows = (shift.a, shift.b)
        moved = "–" if shift.usable_decades is None else f"{shift.usable_decades:+.2f}"
        cells = [_label(shift), *(rate(row.usable_lr if row else None) for row in rows), moved]
        cells += [_best(row) for row in rows]
        body.append(f"<tr>{_cells(cells)}</tr>")
    head = (_axes(shifts), "usable edge of A", "of B", "decades", "best of A", "best of B")
    return ["<h2>Usable and best rates</h2>", f'<p class="quiet">{note}</p>', *table(head, body)]


def _configs(differences: Mapping[str, tuple[str, str]]) -> list[str]:
    head = "<h2>What was asked differently</h2>"
    if not differences:
        return [head, "<p>Nothing: both were asked for the same.</p>"]
    body = [
        f'<tr><td>{escaped(key)}</td><td class="text">{escaped(a)}</td>'
        f'<td class="text">{escaped(b)}</td></tr>'
        for key, (a, b) in differences.items()
    ]
    return [head, *table(("key", "A", "B"), body)]


def _environments(found: Difference) -> list[str]:
    body = ["<h2>What they ran on</h2>"]
    if found.numeric:
        body += ["<p>What differs and can change numbers:</p>", *_changes(found.numeric)]
    else:
        body.append("<p>Nothing differs that can change numbers, as far as both tell.</p>")
    if found.code:
        versions = f"{found.code.a} in A, {found.code.b} in B"
        body.append(f"<p>The code itself differs: commit {escaped(versions)}.</p>")
    if found.others:
        body += ["<p>What differs and computes nothing:</p>", *_changes(found.others)]
    if found.untold:
        parts = ", ".join(found.untold)
        body.append(f'<p class="quiet">Told by one only, so not compared: {escaped(parts)}.</p>')
    return body


def _changes(changes: Sequence[Change]) -> list[str]:
    has_effects = any(change.effect for change in changes)
    body = []
    for change in changes:
        texts = [change.a, change.b, *([change.effect] if has_effects else [])]
        cells = "".join(f'<td class="text">{escaped(text)}</td>' for text in texts)
        body.append(f"<tr><td>{escaped(change.what)}</td>{cells}</tr>")
    return table(("what", "A", "B", *(["what it does"] if has_effects else [])), body)


def _axes(shifts: Sequence[Shift]) -> str:
    return " · ".join(name.replace("_", " ") for name in shifts[0].values) or "row"


def _label(shift: Shift) -> str:
    return " · ".join(value_text(value) for value in shift.values.values()) or "all"


def _interval(edge: Edge | None) -> str:
    return span(edge.low, edge.high) if edge is not None and edge.status == "found" else "–"


def _best(row: Row | None) -> str:
    if row is None or row.best is None:
        return "–"
    return f"{loss(row.best.loss)} at {rate(row.best.lr)}"


def _cells(texts: Iterable[str]) -> str:
    return "".join(f"<td>{escaped(text)}</td>" for text in texts)
