"""What a reader sees of a sweep: in the terminal while it runs, then a picture and a page."""

from stabsweep.report.conclusion import conclusion
from stabsweep.report.figure import draw_report, save_figure
from stabsweep.report.page import render_page, save_page
from stabsweep.report.summary import summary
from stabsweep.report.watching import watcher

__all__ = [
    "conclusion",
    "draw_report",
    "render_page",
    "save_figure",
    "save_page",
    "summary",
    "watcher",
]
