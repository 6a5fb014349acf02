"""What a reader sees of a sweep: in the terminal while it runs, then a picture and a page."""

from stabsweep.report.cell import render_cell
from stabsweep.report.changes import change_table, changed, examples
from stabsweep.report.conclusion import conclusion
from stabsweep.report.draw_shifts import draw_shifts
from stabsweep.report.edge_shifts import shift_info, shift_sentence, shift_table
from stabsweep.report.figure import draw_report, save_figure
from stabsweep.report.page import render_page, save_page
from stabsweep.report.sharpness_curve import draw_sharpness, sharpness_info
from stabsweep.report.summary import WIDTH, counted, entry, summary
from stabsweep.report.watching import watcher

__all__ = [
    "WIDTH",
    "change_table",
    "changed",
    "conclusion",
    "counted",
    "draw_report",
    "draw_sharpness",
    "draw_shifts",
    "entry",
    "examples",
    "render_cell",
    "render_page",
    "save_figure",
    "save_page",
    "sharpness_info",
    "shift_info",
    "shift_sentence",
    "shift_table",
    "summary",
    "watcher",
]
