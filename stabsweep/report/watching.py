"""Who watches a running sweep: a live terminal, plain lines for a log, a notebook, or nobody."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stabsweep.errors import unknown
from stabsweep.numerals import duration, loss, plural, rate, span
from stabsweep.progress import Progress, Silence, Watcher
from stabsweep.report.live_view import LiveView
from stabsweep.report.style import clean
from stabsweep.space import Space

MODES = ("auto", "live", "plain", "off")

SECONDS_PER_LINE = 30.0
"""Plain lines: enough to see that it lives, few enough to read the log later."""

MILESTONES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the trials after which a plain line is written whatever the time."""

FRAMES_PER_SECOND = 4

SECONDS_PER_UPDATE = 1.0
"""Notebooks: each frame travels to the browser, and through whatever lies between."""

CELL = '<pre style="line-height:1.15;font-family:monospace;white-space:pre-wrap">{code}</pre>'


def watcher(mode: str = "auto", space: Space | None = None) -> Watcher:
    """Whoever should show a sweep's progress here.

    Args:
        mode: `live`, `plain`, `off`, or `auto`: live on a terminal unless `CI` is set, else plain
            lines. All of it goes to stderr. In a notebook `live` and `auto` are one output of the
            cell that is updated.
        space: what is swept: fixes the ends of the live map before the first trial.

    Raises:
        BadInput: no such mode.
    """
    if mode not in MODES:
        raise unknown("progress", mode, MODES)
    if mode == "off" or sys.stderr is None:
        return Silence()
    if mode == "plain":
        return Lines()
    if _in_notebook():
        return Notebook(space)
    if mode == "live":
        return Terminal(space)
    quiet = os.environ.get("CI") or os.environ.get("TERM") in ("dumb", "unknown")
    return Lines() if quiet or not sys.stderr.isatty() else Terminal(space)


class Lines:
    """One line at once, then one every 30 seconds, at milestones, and when the edge is met."""

    def __init__(self) -> None:
        self._said_at = 0.0
        self._said: str = ""
        self._milestone = 0
        self._edge_said = False
        self._last: Progress | None = None

    def start(self, title: str, progress: Progress) -> None:
        """Writes the title."""
        most = "at most " if progress.may_stop else ""
        count = plural(progress.num_trials, progress.noun)
        self._write(f"stabsweep: {clean(title)}, {most}{count}")
        self._milestone = self._passed(progress)
        self._said_at = time.monotonic()

    def note(self, message: str) -> None:
        """Writes the message."""
        self._write(f"stabsweep: {clean(message)}")

    def update(self, progress: Progress) -> None:
        """Writes a line when there is a reason to."""
        self._last = progress
        passed = self._passed(progress)
        met = progress.edge_lr is not None and not self._edge_said
        late = time.monotonic() - self._said_at >= SECONDS_PER_LINE
        if passed > self._milestone or met or late:
            self._milestone = passed
            self._edge_said = progress.edge_lr is not None
            self._say(progress)

    def stop(self) -> None:
        """Writes the last state, unless it has been said."""
        if self._last is not None:
            self._say(self._last)

    def _say(self, progress: Progress) -> None:
        self._said_at = time.monotonic()
        line = progress_line(progress)
        if line != self._said:
            self._said = line
            self._write(line)

    @staticmethod
    def _passed(progress: Progress) -> int:
        return sum(progress.num_done >= m * max(progress.num_trials, 1) for m in MILESTONES)

    @staticmethod
    def _write(line: str) -> None:
        encoding = getattr(sys.stderr, "encoding", None) or "ascii"
        line = line.encode(encoding, "replace").decode(encoding)
        # Nobody listening any more is no reason to end a sweep.
        with contextlib.suppress(OSError, ValueError):
            print(line, file=sys.stderr, flush=True)


def progress_line(progress: Progress, name: str = "stabsweep") -> str:
    """The state of a sweep in one line of plain text, for logs and for `grep`."""
    done, total = progress.num_done, progress.num_trials
    head = f"{clean(name)} {done}/{total} {100 * done // max(total, 1)}%"
    most = ""
    if progress.may_stop:
        head, most = f"{clean(name)} {done} of at most {total}", "<"
    if done < total and progress.eta_seconds is not None:
        head += f" eta {most}{duration(progress.eta_seconds).replace(' ', '')}"
    parts = [head]
    counts = [f"{v.label} {n}" for v, n in progress.counts.items() if n]
    if counts:
        parts.append(" ".join(counts))
    if progress.edge_lr is not None:
        interval = ""
        if progress.edge_low is not None and progress.edge_high is not None:
            interval = f" ({span(progress.edge_low, progress.edge_high)})"
        parts.append(f"edge {rate(progress.edge_lr)}{interval}")
    if progress.best_lr is not None:
        parts.append(f"best {rate(progress.best_lr)} (loss {loss(progress.best_loss)})")
    return " | ".join(parts)


class Terminal:
    """A live view on stderr, drawn by its own thread so that it moves while a rung computes.

    Args:
        space: what is swept, see `LiveView`.
        console: where to draw; stderr unless given.
    """

    def __init__(self, space: Space | None = None, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        unicode = (self._console.encoding or "").lower().replace("-", "") == "utf8"
        self._view = LiveView(space, unicode)
        self._live: Live | None = None
        self._title, self._progress = "", Progress(0)
        self._began = 0.0
        self._done = False

    def start(self, title: str, progress: Progress) -> None:
        """Starts drawing."""
        self._title, self._progress, self._began = title, progress, time.monotonic()
        self._live = Live(
            get_renderable=self._render,
            console=self._console,
            refresh_per_second=FRAMES_PER_SECOND,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def note(self, message: str) -> None:
        """Writes one line above the view."""
        self._console.print(Text(clean(message), style="dim"))

    def update(self, progress: Progress) -> None:
        """Keeps the state for the next frame, which costs nothing here."""
        self._progress = progress

    def stop(self) -> None:
        """Draws the last state once more and gives the terminal back; may be called twice."""
        live, self._live, self._done = self._live, None, True
        try:
            if live is not None:
                live.stop()
                self._console.print()
        finally:
            self._console.show_cursor(True)

    def _render(self) -> Text:
        text = self._view.render(
            self._title,
            self._progress,
            self._console.width,
            time.monotonic() - self._began,
            self._done,
            self._console.height,
        )
        text.no_wrap = True
        text.overflow = "crop"
        return text


class Notebook:
    """The live view as one output of a notebook cell, updated once a second; at the end one line.

    The output is HTML without a script, so it needs no widgets and stays as it is in an export.
    rich's own notebook support wants ipywidgets and writes a new output for each frame without.

    Args:
        space: what is swept, see `LiveView`.
    """

    def __init__(self, space: Space | None = None) -> None:
        self._view = LiveView(space)
        self._handle: Any = None
        self._title, self._progress = "", Progress(0)
        self._began = self._drawn_at = 0.0
        self._notes: list[str] = []
        self._has_ended = False

    def start(self, title: str, progress: Progress) -> None:
        """Opens the output."""
        from IPython.display import display  # type: ignore[import-not-found]

        self._title, self._progress = title, progress
        self._began = self._drawn_at = time.monotonic()
        self._handle = display(self._bundle(self._frame()), raw=True, display_id=True)

    def note(self, message: str) -> None:
        """Keeps the message as a line above the view."""
        self._notes.append(clean(message))
        self._draw(self._frame())

    def update(self, progress: Progress) -> None:
        """Redraws when a second has passed."""
        self._progress = progress
        if time.monotonic() - self._drawn_at >= SECONDS_PER_UPDATE:
            self._draw(self._frame())

    def stop(self) -> None:
        """Leaves the notes and one line; may be called twice."""
        self._has_ended = True
        self._draw(self._frame())

    def _frame(self) -> Text:
        if self._has_ended:
            return Text(progress_line(replace(self._progress, eta_seconds=None), self._title))
        return self._view.render(self._title, self._progress, 80, time.monotonic() - self._began)

    def _draw(self, text: Text) -> None:
        self._drawn_at = time.monotonic()
        if self._handle is not None:
            self._handle.update(self._bundle(text), raw=True)

    def _bundle(self, text: Text) -> dict[str, str]:
        text = Text("\n").join([*(Text(note, style="dim") for note in self._notes), text])
        # Left to find out that this is a notebook, rich would add an output for each frame.
        console = Console(file=io.StringIO(), record=True, force_jupyter=False)
        console.print(text, soft_wrap=True)
        page = console.export_html(inline_styles=True, code_format=CELL)
        return {"text/plain": text.plain, "text/html": page}


def _in_notebook() -> bool:
    """Whether a Jupyter kernel runs this, Colab's and the like included; imports nothing."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    kinds = type(find_shell()).__mro__ if find_shell else ()
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in kinds)
