"""What a running sweep looks like in about twelve lines of text: a map that fills up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.text import Text

from stabsweep.numerals import duration, loss, plural, rate, span
from stabsweep.progress import Progress
from stabsweep.records import Record, Value
from stabsweep.report._axes import log_ticks, tick_text
from stabsweep.report.conclusion import value_text
from stabsweep.report.style import STYLES, clean, outcome
from stabsweep.space import Space

MAX_ROWS = 5
"""Rows of the map; with more of them all trials share one line."""

NUM_SCALE_LINES = 2
"""Below the rows: the marks and the rates."""

MAX_COLUMNS = 72

REACH = 2
"""Columns to each side that a trial colours when nothing is known there: less than it seems to
claim at 24 rates, and no gaps between them."""

SPINNERS = ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\")


class LiveView:
    """The lines that show a sweep while it runs.

    Cheap enough to be drawn four times a second: the records are looked at when there are new ones.

    Args:
        space: gives the ends of the map, which trials beyond them widen; without it they are read
            from the trials that have ended.
        unicode: whether the terminal can show more than ASCII.
    """

    def __init__(self, space: Space | None = None, unicode: bool = True) -> None:
        self.unicode = unicode
        self._space = space
        self._records: Sequence[Record] | None = None
        self._seen: list[tuple[tuple[Value, ...], float, str]] = []
        self._found_rows: dict[tuple[Value, ...], None] = {}
        self._found: Counter[str] = Counter()
        self._frame: tuple[float, float, int, int] | None = None
        self._bins: dict[tuple[Value, ...], list[Counter[str]]] = {}

    def render(
        self,
        title: str,
        progress: Progress,
        width: int = 80,
        seconds: float = 0.0,
        done: bool = False,
        height: int = 24,
    ) -> Text:
        """All lines as one text of at most `width` columns and `height` lines.

        Where there are too few lines the rows of the map share one, and then the map is cut: how
        far the sweep has come is the last thing to go.

        Args:
            title: what is swept.
            progress: how far it has come.
            width: columns of the terminal.
            seconds: time since the start, by the watcher's own clock: something has to move
                before the first trial ends.
            done: leave out what moves.
            height: lines of the terminal.
        """
        head = self._title(title, seconds, width, done)
        if progress.records is not self._records:
            self._look(progress.records)
        below = [self._stats(progress), *self._counts(progress, width)]
        if not done:
            below.append(self._bar(progress, width))
        below = [line for line in below if line.plain.strip()]
        room = max(height - 1 - len(below), 0)
        above = [line for line in self._map(progress, width, room) if line.plain.strip()]
        return Text("\n").join([head, *above[:room], *below[-max(height - 1, 1) :]])

    def _title(self, title: str, seconds: float, width: int, done: bool) -> Text:
        frames = SPINNERS[0 if self.unicode else 1]
        spin = "" if done else frames[int(seconds * 8) % len(frames)] + " "
        clock = duration(seconds)
        room = max(width - len(spin) - len(clock) - 3, 8)
        name = Text(clean(title), style="bold")
        name.truncate(room, overflow="ellipsis" if self.unicode else "crop")
        pad = " " * max(room - name.cell_len + 2, 1)
        return Text.assemble((spin, "cyan"), name, pad, (clock, "dim"))

    def _map(self, progress: Progress, width: int, room: int) -> list[Text]:
        ends = self._ends()
        if ends is None:
            return []
        rows = self._rows(min(MAX_ROWS, room - NUM_SCALE_LINES))
        labels = [" / ".join(value_text(value) for value in row) for row in rows]
        margin = min(max((len(label) for label in labels), default=0), 18)
        columns = max(min(width - margin - 2, MAX_COLUMNS), 10)
        self._fill_bins((*ends, columns, len(rows)), rows)
        lines = []
        for row, label in reversed(list(zip(rows, labels, strict=True))):
            line = Text(label[:margin].rjust(margin) + " ", style="dim")
            for name, run in groupby(_spread(self._bins[row])):
                count = len(list(run))
                style = STYLES.get(name)
                if style is None:
                    line.append(" " * count)
                else:
                    glyph = style.glyph if self.unicode else style.letter
                    line.append(glyph * count, style=f"{style.ink} on {style.colour}")
            lines.append(line)
        return [*lines, *self._scale(progress, ends, columns, margin)]

    def _look(self, records: Sequence[Record]) -> None:
        """Reads all records anew: an earlier one may have another verdict by now."""
        self._records, self._frame = records, None
        self._seen = [(_row(r), math.log10(r.lr), outcome(r)) for r in records]
        self._found_rows = dict.fromkeys(row for row, _, _ in self._seen)
        self._found = Counter(name for _, _, name in self._seen)

    def _ends(self) -> tuple[float, float] | None:
        # Beyond the space lie the trials of a range that was extended.
        lrs = [x for _, x, _ in self._seen]
        if self._space is not None:
            axis = self._space.axes["lr"]
            given = [v for v in (axis.low, axis.high, *axis.values) if isinstance(v, int | float)]
            lrs += [math.log10(v) for v in given]
        if not lrs:
            return None
        low, high = min(lrs), max(lrs)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def _rows(self, most: int) -> list[tuple[Value, ...]]:
        rows = list(self._found_rows)
        if len(rows) > most or not rows:
            return [()]
        try:
            return sorted(rows, key=lambda row: tuple(math.inf if v is None else v for v in row))
        except TypeError:  # names and numbers do not compare
            return sorted(rows, key=str)

    def _fill_bins(
        self, frame: tuple[float, float, int, int], rows: list[tuple[Value, ...]]
    ) -> None:
        low, high, columns, _ = frame
        if frame == self._frame:
            return
        self._frame = frame
        self._bins = {row: [Counter() for _ in range(columns)] for row in rows}
        for row, x, name in self._seen:
            place = int(min(max((x - low) / (high - low), 0.0), 1.0) * (columns - 1) + 0.5)
            self._bins[row if row in self._bins else ()][place][name] += 1

    def _scale(
        self, progress: Progress, ends: tuple[float, float], columns: int, margin: int
    ) -> list[Text]:
        def column(lr: float) -> int:
            share = (math.log10(lr) - ends[0]) / (ends[1] - ends[0])
            return round(min(max(share, 0.0), 1.0) * (columns - 1))

        ticks = [" "] * (columns + 8)
        after = 0
        for tick in log_ticks(10 ** ends[0], 10 ** ends[1], columns // 10):
            text = tick_text(tick)
            start = min(max(column(tick) - len(text) // 2, 0), columns - len(text))
            if start >= after:
                ticks[start : start + len(text)] = text
                after = start + len(text) + 1
        marks = [" "] * columns
        for lr, mark in ((progress.best_lr, self._best), (progress.edge_lr, self._edge)):
            if lr is not None:
                marks[column(lr)] = mark
        pad = " " * (margin + 1)
        return [
            Text(pad + "".join(marks).rstrip(), style="bold") if any(marks) else Text(),
            Text(pad + "".join(ticks).rstrip(), style="dim"),
        ]

    @property
    def _best(self) -> str:
        return "★" if self.unicode else "*"

    @property
    def _edge(self) -> str:
        return "┃" if self.unicode else "|"

    def _stats(self, progress: Progress) -> Text:
        text = Text()
        if progress.best_lr is not None:
            text.append(f"{self._best} best ", style="bold")
            text.append(f"{rate(progress.best_lr)} (loss {loss(progress.best_loss)})   ")
        if progress.edge_lr is not None:
            text.append(f"{self._edge} edge ", style="bold")
            text.append(rate(progress.edge_lr))
            if progress.edge_low is not None and progress.edge_high is not None:
                text.append(f" (95%: {span(progress.edge_low, progress.edge_high)})")
        elif progress.num_done and progress.counts:
            text.append("edge not met yet", style="dim")
        return text

    def _counts(self, progress: Progress, width: int) -> list[Text]:
        counts = self._found or Counter({v.label: n for v, n in progress.counts.items()})
        lines, line = [], Text()
        for name in STYLES:
            if not counts[name]:
                continue
            style = STYLES[name]
            glyph = style.glyph if self.unicode else style.letter
            entry = Text.assemble(
                (f" {glyph} ", f"{style.ink} on {style.colour}"), f" {style.label} {counts[name]}  "
            )
            if line.cell_len + entry.cell_len > width and line.plain:
                lines.append(line)
                line = Text()
            line.append_text(entry)
        return [*lines, line]

    def _bar(self, progress: Progress, width: int) -> Text:
        share = progress.share
        words = f" {progress.num_done}/{progress.num_trials}  {math.floor(share * 100)}%"
        if progress.may_stop:
            words = f" {progress.num_done} of at most {progress.num_trials}"
        if progress.trials_per_second > 0:
            words += f"  {rate(progress.trials_per_second)} {progress.noun}s/s"
        if progress.num_done < progress.num_trials and progress.eta_seconds is not None:
            most = "<" if progress.may_stop else ""
            words += f"  eta {most}{duration(progress.eta_seconds)}"
        elif not progress.num_done:
            running = progress.num_running
            words += f"  {plural(running, 'trial')} in training" if running else "  starting"
        room = max(min(width - len(words) - 1, 40), 4)
        full = int(share * room)
        on, off = ("━", "─") if self.unicode else ("=", "-")
        return Text.assemble((on * full, "cyan"), (off * (room - full), "dim"), words)


def _row(record: Record) -> tuple[Value, ...]:
    return tuple(value for name, value in record.point.items() if name != "lr")


def _spread(bins: list[Counter[str]]) -> list[str]:
    """One outcome a column, the commonest, of equals the worse; gaps take their nearest trial's."""
    names = list(STYLES)
    known = {
        n: max(found, key=lambda name, f=found: (f[name], names.index(name)))
        for n, found in enumerate(bins)
        if found
    }
    line = []
    for n in range(len(bins)):
        near = [abs(n - k) for k in (*range(n - REACH, n + REACH + 1),) if k in known]
        best = min(near, default=None)
        hit = n if best is None else (n - best if n - best in known else n + best)
        line.append(known.get(hit, ""))
    return line
