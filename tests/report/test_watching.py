import io
import os
import sys
import types
from collections import Counter

import pytest
from rich.console import Console

from stabsweep.errors import BadInput
from stabsweep.progress import Progress, Silence
from stabsweep.records import Verdict
from stabsweep.report import watcher
from stabsweep.report.watching import Lines, Notebook, Terminal, progress_line


class Screen(io.StringIO):
    encoding = "utf-8"

    def __init__(self, is_terminal=True):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def bare(monkeypatch):
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


@pytest.mark.parametrize(
    ("mode", "is_terminal", "variables", "kind"),
    [
        ("auto", True, {}, Terminal),
        ("auto", True, {"CI": "true"}, Lines),
        ("auto", True, {"TERM": "dumb"}, Lines),
        ("auto", False, {}, Lines),
        ("live", False, {"CI": "1"}, Terminal),
        ("plain", True, {}, Lines),
        ("off", True, {}, Silence),
    ],
)
def test_who_watches(bare, mode, is_terminal, variables, kind):
    bare.setattr(sys, "stderr", Screen(is_terminal))
    for name, value in variables.items():
        bare.setenv(name, value)
    assert type(watcher(mode)) is kind


def test_an_unknown_mode_is_named():
    with pytest.raises(BadInput, match="progress='loud' is not known: use one of auto, live"):
        watcher("loud")


def test_nobody_watches_without_stderr(bare):
    bare.setattr(sys, "stderr", None)
    assert type(watcher("auto")) is Silence


def test_a_line_for_a_log():
    counts = {Verdict.CONVERGED: 761, Verdict.TOO_SLOW: 331, Verdict.DIVERGED: 91}
    progress = Progress(
        2000, 1200, eta_seconds=42, counts=counts, edge_lr=7.2, edge_low=5.1, edge_high=9.8
    )
    assert progress_line(progress) == (
        "stabsweep 1200/2000 60% eta 42s | converged 761 too_slow 331 diverged 91 | "
        "edge 7.2 (5.1 to 9.8)"
    )


def test_a_line_of_a_sweep_that_may_stop_by_itself(capsys):
    progress = Progress(144, 28, eta_seconds=42, may_stop=True)
    assert progress_line(progress) == "stabsweep 28 of at most 144 eta <42s"
    Lines().start("AdamW", progress)
    assert capsys.readouterr().err == "stabsweep: AdamW, at most 144 trials\n"


def test_lines_at_once_at_milestones_and_at_the_end(capsys):
    lines = Lines()
    lines.start("AdamW", Progress(100))
    for done in range(0, 100, 2):
        lines.update(Progress(100, done))
    lines.note("halved [red]")
    lines.stop()
    lines.stop()
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "stabsweep: AdamW, 100 trials"
    assert [line.split()[1] for line in said[1:4]] == ["26/100", "50/100", "76/100"]
    assert said[4:] == ["stabsweep: halved [red]", "stabsweep 98/100 98%"]


def test_a_line_when_the_edge_is_met_and_every_30_seconds(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lines = Lines()
    lines.start("x", Progress(1000))
    lines.update(Progress(1000, 1))
    lines.update(Progress(1000, 2, edge_lr=0.1))
    lines.update(Progress(1000, 3, edge_lr=0.1))
    now[0] = 31.0
    lines.update(Progress(1000, 4, edge_lr=0.1))
    said = [line.split()[1] for line in capsys.readouterr().err.splitlines()[1:]]
    assert said == ["2/1000", "4/1000"]


def test_a_closed_pipe_does_not_end_the_sweep(monkeypatch):
    class Closed(Screen):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    Lines().start("x", Progress(1))


def screen_of(sweep, bare, **settings):
    region, _ = sweep
    screen = Screen()
    bare.setattr(sys, "stderr", screen)
    terminal = Terminal(region.space, Console(file=screen, width=80, height=24, **settings))
    counts = Counter(r.verdict for r in region.records)
    progress = Progress(192, 192, counts=counts, records=region.records)
    return terminal, progress, screen


def test_the_live_view_is_drawn_and_the_cursor_comes_back(sweep, bare):
    terminal, progress, screen = screen_of(sweep, bare, force_terminal=True)
    terminal.start("AdamW [b]x[/b]", Progress(192))
    terminal.note("engine=cohort [red]")
    terminal.update(progress)
    terminal.stop()
    terminal.stop()
    said = screen.getvalue()
    assert "AdamW [b]x[/b]" in said and "engine=cohort [red]" in said and "converged" in said
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")


def test_the_terminal_is_given_back_after_an_exception(sweep, bare):
    terminal, progress, screen = screen_of(sweep, bare, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        terminal.start("x", Progress(192))
        try:
            raise KeyboardInterrupt
        finally:
            terminal.stop()
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l")


def test_no_color_means_glyphs_only(sweep, bare):
    bare.setenv("NO_COLOR", "1")
    terminal, progress, screen = screen_of(sweep, bare, force_terminal=True)
    terminal.start("x", progress)
    terminal.stop()
    assert "38;2" not in screen.getvalue() and "48;2" not in screen.getvalue()
    assert "●" in screen.getvalue()


class Display:
    """Stands for IPython's own, and keeps what is shown."""

    def __init__(self, monkeypatch, shell="ZMQInteractiveShell"):
        self.shown = []
        kind = type("Shell", (type(shell, (), {}),), {})
        ipython = types.ModuleType("IPython")
        ipython.get_ipython = kind
        ipython.display = types.ModuleType("IPython.display")
        ipython.display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)

    def display(self, bundle, raw, display_id):
        assert raw and display_id
        self.shown.append(bundle)
        return self

    def update(self, bundle, raw):
        assert raw
        self.shown.append(bundle)


def test_a_notebook_has_one_output_that_is_updated(sweep, monkeypatch, capsys):
    region, _ = sweep
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    shown = Display(monkeypatch).shown
    notebook = watcher("auto", region.space)
    assert type(notebook) is Notebook
    counts = Counter(r.verdict for r in region.records)
    progress = Progress(
        192, 150, eta_seconds=7, counts=counts, records=region.records, best_lr=0.01, best_loss=1.5
    )
    notebook.note("before the start")
    notebook.start("<b>x</b>", Progress(192))
    notebook.note("<i>halved</i>")
    assert len(shown) == 2
    for _ in range(50):
        now[0] += 0.1
        notebook.update(progress)
    assert 6 <= len(shown) <= 7
    text = shown[-1]["text/plain"]
    for expected in ("before the start\n<i>halved</i>\n", "<b>x</b>", "150/192  78%", "eta 7 s"):
        assert expected in text
    assert "best 1.0e-2 (loss 1.50)" in text and "converged" in text
    notebook.stop()
    notebook.stop()
    notes, line = shown[-1]["text/plain"].rsplit("\n", 1)
    assert notes == "before the start\n<i>halved</i>"
    assert line.startswith("<b>x</b> 150/192 78% | ") and "eta" not in line
    assert line.endswith(" | best 1.0e-2 (loss 1.50)")
    notebook.note("after the end")
    assert shown[-1]["text/plain"] == f"{notes}\nafter the end\n{line}"
    for bundle in shown:
        assert "<b>" not in bundle["text/html"] and "<script" not in bundle["text/html"]
    assert "&lt;b&gt;x&lt;/b&gt; 150/192" in shown[-1]["text/html"]
    assert not any(capsys.readouterr())


def test_a_terminal_of_ipython_is_no_notebook(bare):
    Display(bare, "TerminalInteractiveShell")
    bare.setattr(sys, "stderr", Screen())
    assert type(watcher("auto")) is Terminal


def test_nobody_imports_ipython_to_look_for_a_notebook(bare):
    bare.delitem(sys.modules, "IPython", raising=False)
    bare.setitem(sys.modules, "IPython.display", None)
    bare.setattr(sys, "stderr", Screen(is_terminal=False))
    assert type(watcher("auto")) is Lines and "IPython" not in sys.modules


def test_the_environment_is_left_alone(bare):
    before = dict(os.environ)
    watcher("auto")
    assert dict(os.environ) == before
