"""The line on the terminal that says how a run is doing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from stabsweep.errors import unknown
from stabsweep.numerals import loss as loss_text
from stabsweep.numerals import rate, share

MODES = ("auto", "live", "plain", "events", "off")
"""`auto` is a line that renews itself on a terminal, and events alone where there is none; `events`
is for a run whose framework has a line of its own."""

LIVE_SECONDS, PLAIN_SECONDS = 0.25, 30.0
"""How often a line is renewed, or a new one printed. Ours: as fast as one can read; and few enough
that a log of a day stays short."""


class LiveLine:
    """Shows a run while it trains.

    Args:
        mode: one of `MODES`.
        total_steps: updates that the run is to make, if known.
        stream: where to write; the error stream by default.

    Raises:
        BadInput: an unknown mode.
    """

    def __init__(
        self, mode: str = "auto", total_steps: int | None = None, stream: TextIO | None = None
    ) -> None:
        if mode not in MODES:
            raise unknown("progress", mode, MODES)
        self._stream = sys.stderr if stream is None else stream
        is_terminal = self._stream.isatty()
        self._is_silent = mode == "off"
        # Somebody else's line may not have ended.
        self._begin = "\n" if mode == "events" and is_terminal else ""
        quiet = {"auto": "live" if is_terminal else "off", "events": "off"}
        self._mode = quiet.get(mode, mode)
        self._total_steps = total_steps
        self._shown = -1e9
        self._is_open = False

    @property
    def is_due(self) -> bool:
        """Whether it is time for a new one: what it shows need not be computed before."""
        if self._mode == "off":
            return False
        seconds = LIVE_SECONDS if self._mode == "live" else PLAIN_SECONDS
        return time.monotonic() - self._shown >= seconds

    def show(
        self, step: int, loss: float, lr: float, norm: float, clip_share: float, verdict: str
    ) -> None:
        """Shows the state of a run."""
        self._shown = time.monotonic()
        of = f"/{self._total_steps}" if self._total_steps else ""
        line = (
            f"step {step}{of}  loss {loss_text(loss)}  lr {rate(lr)}  "
            f"norm {rate(norm)}  clipped {share(clip_share)}  {verdict}"
        )
        if self._mode == "plain":
            print(line, file=self._stream, flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        print(f"\r\033[K{line[:width]}", end="", file=self._stream, flush=True)
        self._is_open = True

    def say(self, message: str) -> None:
        """Prints a line that stays."""
        if not self._is_silent:
            self.end()
            print(f"{self._begin}{message}", file=self._stream, flush=True)

    def end(self) -> None:
        """Leaves the line as it is, and begins another."""
        if self._is_open:
            print(file=self._stream, flush=True)
            self._is_open = False
