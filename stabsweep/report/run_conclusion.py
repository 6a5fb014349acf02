"""What a guarded run says, in sentences: the headline, and what to know before trusting it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from stabsweep.numerals import loss, plural, share
from stabsweep.pick import CLIP_SHARE
from stabsweep.records import Verdict
from stabsweep.report.run_events import event_style, kinds_of, places, warnings_of
from stabsweep.report.style import clean
from stabsweep.runlog import Run
from stabsweep.verdict import Judgement

_PHRASES: Mapping[Verdict, str] = {
    Verdict.CONVERGED: "converged at {}",
    Verdict.RECOVERED: "recovered, converged at {}",
    Verdict.SPIKY: "learned with spikes, ended at {}",
    Verdict.TOO_SLOW: "learned nothing, still at {}",
    Verdict.DEGRADED: "learned and lost part of it, ended at {}",
    Verdict.OSCILLATING: "oscillating around {}",
    Verdict.COLLAPSED: "collapsed to {}",
    Verdict.DIVERGED: "diverged",
    Verdict.INVALID: "not finite from the first step on",
    Verdict.CUT_SHORT: "cut short at {}",
    Verdict.PEAK_NOT_REACHED: "inside the warmup or just after it, at {}",
}


def run_subject(about: Mapping[str, Any]) -> str:
    """What was trained, for a headline: `adamw on transformer`; empty where that is not known."""
    if about.get("subject"):
        return clean(about["subject"], 60)
    names = [_name(about.get(key)) for key in ("optimizer", "model")]
    return clean(" on ".join(name for name in names if name), 60)


def _name(given: Any) -> str:
    if isinstance(given, Mapping):
        given = given.get("name") or given.get("target") or ""
    return "" if given is None else str(given).rpartition(":")[2].rpartition(".")[2]


def run_conclusion(run: Run, judged: Judgement | None) -> str:
    """The run's outcome in one sentence: the headline of its picture and page.

    Args:
        run: its folder.
        judged: the verdict; None where no step was made.
    """
    parts = [_outcome(run, judged), *_troubles(run, judged)]
    text = "; ".join(part for part in parts if part)
    subject = run_subject(run.about)
    return f"{subject}: {text}" if subject else text[:1].upper() + text[1:]


def _outcome(run: Run, judged: Judgement | None) -> str:
    num = len(run.columns)
    if not num:
        return "nothing known, no attempt was made"
    if judged is None:
        what = "nothing was trained: " + ("the only attempt" if num == 1 else f"all {num} attempts")
        return what + (" was skipped" if num == 1 else " were skipped")
    end = judged.final_loss
    words = _PHRASES[judged.verdict].format(loss(end)) if math.isfinite(end) else ""
    if not words:
        words = _PHRASES[judged.verdict].partition(",")[0].replace(" {}", "")
    if judged.verdict is Verdict.DIVERGED and judged.bad_step is not None:
        words += f" at step {judged.bad_step}"
    if run.failed:
        return f"stopped at attempt {int(run.columns['attempt'][-1])}, {words}"
    return words if run.summary else f"{words} so far"


def _troubles(run: Run, judged: Judgement | None) -> list[str]:
    found = []
    kinds = kinds_of(run.columns)
    for outcome, kind in (
        ("skipped_not_finite", "not_finite"),
        ("skipped_overflow", "overflow"),
        ("skipped_outlier", "outlier"),
    ):
        num = run.columns.outcomes.count(outcome)
        if num and judged is not None:
            where = f"{event_style(kind).label}, {places(kinds[kind])}"
            what = plural(num, "batch") if num == 1 else f"{num:,} batches"
            found.append(f"{what} skipped ({where})")
    if "rollback" in kinds:
        times = {1: "once", 2: "twice"}.get(len(kinds["rollback"]), f"{len(kinds['rollback'])} x")
        found.append(f"rolled back {times} ({places(kinds['rollback'])})")
    clipped = judged.clip_share if judged else 0
    if clipped:
        found.append(f"clipped {share(clipped)} of the steps")
    early = [a for kind, where in kinds.items() if event_style(kind).is_early for a in where]
    if early and not run.failed:
        found.append(plural(len(early), "early warning"))
    return found


def run_remarks(run: Run, judged: Judgement | None) -> list[str]:
    """What a reader should know before trusting the headline, a sentence each."""
    found = []
    if run.columns.outcomes and not run.summary and not run.failed:
        found.append("There is no summary: the run was killed, or is still going on.")
    if run.summary.get("stopped"):
        found.append(f"Stopped: {clean(run.summary['stopped'])}")
    elif run.failed:
        said = [text for _, kind, text in run.columns.events if kind == "stopped"]
        found.append(f"Stopped: {clean(said[-1]) if said else 'the guard did not say why.'}")
    skipped = _last_skipped(run)
    if skipped > 2 and judged is not None and not run.failed:
        found.append(f"The last {skipped} attempts were all skipped: the run is stuck there.")
    if judged is not None and judged.clip_share > CLIP_SHARE:
        found.append(
            f"{share(judged.clip_share)} of the steps were clipped: clip_norm, not the rate, set "
            "their length."
        )
    warned = warnings_of(run.columns)
    if warned:
        found.append(f"Early warnings: {'; '.join(warned)}.")
    return found


def _last_skipped(run: Run) -> int:
    """How many attempts were skipped at the end, without a step since."""
    names = run.columns.outcomes
    last = max((n for n, name in enumerate(names) if not name.startswith("skipped")), default=-1)
    return len(names) - 1 - last


def predicted_text(run: Run) -> str:
    """What a map had said of the run's rate; empty without one."""
    predicted = run.summary.get("predicted")
    if not isinstance(predicted, Mapping) or not predicted.get("text"):
        return ""
    folder = f" ({clean(predicted['folder'])})" if predicted.get("folder") else ""
    return f"{clean(predicted['text'])}{folder}"
