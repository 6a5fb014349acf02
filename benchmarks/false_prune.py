"""How often a trial is stopped that would have come out stable, and what stopping saves.

    python benchmarks/false_prune.py [--sweeps uv mlp ...] [--keep DIR]

Runs each sweep with `pruner=none`, so that every trial is seen to its end. Then, from the stored
curves, asks `DivergencePruner` at each rung what it would have said in the sweep: the same reports
(the median loss of the rung, NaN when a loss or gradient was not finite), the same knowledge. A
stop is false when the whole trial was stable; a stall counts as its row settles it. The bar is 1 %.

The pruner and the verdict are one rule, so two things are counted that are not: stopped trials that
`ended_low`, the last tenth 10 % below start and blind loss whatever the verdict (a loss that was
not finite for a step and came back, say); and the `labelled` traces, with their label.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import labelled_traces
import numpy as np
import optuna

from stabsweep.cli import main as stabsweep
from stabsweep.plan import NUM_RUNGS
from stabsweep.pruner import DivergencePruner
from stabsweep.records import CURVES, VERDICTS, Trace
from stabsweep.result import load
from stabsweep.store import read_trace

SWEEPS = {
    "uv": ["experiment=uv_catapult", "seeds=3", "num_trials=600"],
    "uv_wide": ["experiment=uv_catapult", "model.width=4096"],
    "mlp": ["model=mlp", "sampler=grid"],
    "rnn": ["model=rnn", "sampler=grid"],
    # A third of the default 144 trials: twelve rates at four warmups, one seed.
    "transformer": ["model=transformer", "sampler=grid", "num_trials=48", "seeds=1"],
}
"""The catapult experiment, where a loss limit would stop what recovers, and the reference models:
on grids, which are as dense far from the edge."""

LABELLED = "labelled"
"""The traces that were labelled by looking at their curves."""


def stop_of(trace: Trace) -> tuple[int, str] | None:
    """The steps after which the pruner would have stopped the trial, and why; None for never."""
    rung_steps = max(math.ceil(trace.horizon / NUM_RUNGS), 1)
    known = {
        "initial_loss": trace.initial_loss,
        "horizon": trace.horizon,
        "warmup_steps": trace.warmup_steps,
        "blind_loss": trace.blind_loss,
    }
    is_finite = np.isfinite(trace.loss) & np.isfinite(trace.grad_norm)
    reports: dict[int, float] = {}
    for first in range(0, trace.num_steps, rung_steps):
        part = slice(first, min(first + rung_steps, trace.num_steps))
        median = statistics.median(trace.loss[part].tolist())
        reports[part.stop] = median if is_finite[part].all() else math.nan
        trial = optuna.trial.create_trial(
            state=optuna.trial.TrialState.RUNNING,
            user_attrs=known,
            intermediate_values=reports,
        )
        reason = DivergencePruner().reason(trial)
        # The last rung is the end of the trial: there is nothing left to stop.
        if reason is not None and part.stop < trace.num_steps:
            return part.stop, reason
    return None


def ends_low(trace: Trace) -> bool:
    """Whether the last tenth lies 10 % below start and blind loss, whatever came before."""
    tail = np.asarray(trace.loss[-max(5, trace.num_steps // 10) :], np.float64)
    return bool(tail.mean() < 0.9 * min(trace.initial_loss, trace.blind))


def read_sweep(name: str, folder: Path) -> list[tuple[Trace, str]]:
    """The traces of a sweep without pruning, each with the verdict that its row settled."""
    stabsweep(
        [*SWEEPS[name], "pruner=none", "extend=false", "progress=off", f"hydra.run.dir={folder}"]
    )
    result = load(folder)
    found = []
    for record in result.region.records:
        curves = read_trace(folder, record)
        if curves is None:
            raise RuntimeError(f"trial {record.trial} of {folder} has no trace")
        warmup = record.point.get("warmup_steps", result.config["warmup_steps"])
        trace = Trace(
            **dict(zip(CURVES, curves, strict=True)),
            initial_loss=math.nan if record.initial_loss is None else record.initial_loss,
            blind_loss=record.blind_loss,
            horizon=record.horizon,
            warmup_steps=int(warmup or 0),
        )
        found.append((trace, record.verdict.label))
    return found


def read_labelled() -> list[tuple[Trace, str]]:
    """The labelled traces, each with its label."""
    return [(one.trace, one.label) for one in labelled_traces.load()]


def measure(name: str, traces: Sequence[tuple[Trace, str]]) -> dict[str, Any]:
    """What pruning would have done to trials that were seen to their end."""
    num_pruned, num_low, saved, false = 0, 0, 0, []
    for number, (trace, verdict) in enumerate(traces):
        stop = stop_of(trace)
        if stop is None:
            continue
        num_pruned += 1
        num_low += ends_low(trace)
        saved += trace.num_steps - stop[0]
        if VERDICTS[verdict].is_stable:
            false.append({"trial": number, "verdict": verdict, "why": stop[1]})
    return {
        "sweep": name,
        "trials": len(traces),
        "stable": sum(VERDICTS[verdict].is_stable for _, verdict in traces),
        "recovered": sum(verdict == "recovered" for _, verdict in traces),
        "pruned": num_pruned,
        "false": len(false),
        "ended_low": num_low,
        "share_of_pruned": len(false) / num_pruned if num_pruned else 0.0,
        "share_of_trials": len(false) / len(traces),
        "steps_saved": saved / sum(trace.num_steps for trace, _ in traces),
        "which": false,
    }


def main() -> None:
    names = [*SWEEPS, LABELLED]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", nargs="+", choices=names, default=names)
    parser.add_argument("--keep", type=Path, default=None, help="folder to keep the sweeps in")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.sweeps:
            folder = (args.keep or Path(scratch)) / name
            traces = read_labelled() if name == LABELLED else read_sweep(name, folder)
            rows.append(measure(name, traces))
    counts = ("trials", "stable", "recovered", "pruned", "false", "ended_low")
    shares = ("share_of_pruned", "share_of_trials", "steps_saved")
    print(f"{'sweep':<12}" + "".join(f"{head:>16}" for head in (*counts, *shares)))
    for row in rows:
        numbers = [f"{row[name]:>16}" for name in counts]
        numbers += [f"{row[name]:>16.1%}" for name in shares]
        print(f"{row['sweep']:<12}" + "".join(numbers))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "false_prune.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
