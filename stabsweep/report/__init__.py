"""What a reader sees of a sweep or a run: words in the terminal, a picture, a page."""

from stabsweep.report._document import save_page
from stabsweep.report.cell import render_cell
from stabsweep.report.changes import change_table, changed, examples
from stabsweep.report.compare_page import render_compare_page
from stabsweep.report.conclusion import conclusion, picked_row
from stabsweep.report.draw_run import draw_run
from stabsweep.report.draw_shifts import draw_shifts
from stabsweep.report.drift_curves import DriftCurve, draw_drift, drift_info
from stabsweep.report.edge_shifts import shift_info, shift_sentence, shift_table
from stabsweep.report.figure import draw_report, save_figure
from stabsweep.report.page import render_page
from stabsweep.report.paper import PAPER, WIDTHS, draw_paper, save_paper
from stabsweep.report.replay_curves import replay_info
from stabsweep.report.run_conclusion import predicted_text, run_conclusion, run_remarks
from stabsweep.report.run_curves import run_info
from stabsweep.report.run_events import events_of, first_bad, skips_of
from stabsweep.report.run_layers import layer_lines
from stabsweep.report.run_page import render_run_page
from stabsweep.report.sample_traces import choose_traces, thinned
from stabsweep.report.sharpness_curve import draw_sharpness, sharpness_info
from stabsweep.report.style import outcome
from stabsweep.report.summary import WIDTH, counted, entry, summary
from stabsweep.report.watching import watcher

__all__ = [
    "PAPER",
    "WIDTH",
    "WIDTHS",
    "DriftCurve",
    "change_table",
    "changed",
    "choose_traces",
    "conclusion",
    "counted",
    "draw_drift",
    "draw_paper",
    "draw_report",
    "draw_run",
    "draw_sharpness",
    "draw_shifts",
    "drift_info",
    "entry",
    "events_of",
    "examples",
    "first_bad",
    "layer_lines",
    "outcome",
    "picked_row",
    "predicted_text",
    "render_cell",
    "render_compare_page",
    "render_page",
    "render_run_page",
    "replay_info",
    "run_conclusion",
    "run_info",
    "run_remarks",
    "save_figure",
    "save_page",
    "save_paper",
    "sharpness_info",
    "shift_info",
    "shift_sentence",
    "shift_table",
    "skips_of",
    "summary",
    "thinned",
    "watcher",
]
