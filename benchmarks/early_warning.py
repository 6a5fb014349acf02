"""What the guard's early warnings are worth: how often false, how much earlier.

    python benchmarks/early_warning.py [--keep DIR] [--halves tune]

Trains six setups (`_guarded_runs.py`) under a guard that looks closely at each step. Healthy are
runs at 1/30 to 1/3 of the edge that end well; a rate of 1 to 10 edges, or one that jumps up tenfold
in the middle, makes most others fail. What the guard was told is read again by `Trends`, with close
looks at every step and at every tenth, so that a change of a rule needs no training: `--keep` keeps
the runs (twenty-five minutes on one core).

An alarm is `growth`, `update_ratio`, `dead` or `stuck`; `clip` and `logits` describe a state and
are counted apart. It is early if it comes before the loss moves: before the median of five losses
lies 50 % above the start, or stays 20 % of the gain above its best, whichever is first. A trivial
alarm stands beside it: a loss above twice its running median.

Which runs are held out goes by seed. No threshold was chosen by them, and none may be.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import statistics
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _guarded_runs import FAILING, HEALTHY, SEEDS, SETUPS, Run, read_or_find_edge, read_or_train

from stabsweep.evidence import DEFAULTS
from stabsweep.guard.trends import LEAST, WINDOW, Trends
from stabsweep.records import Array

ALARMS = ("growth", "update_ratio", "dead", "stuck")
STATES = ("clip", "logits")
WELL = ("converged", "recovered", "too_slow")
TRIVIAL, TIMES = "loss x2", 2.0
ENDS = ("moved", "lost", "not finite", "guard: lost")
"""What an alarm is to come before: the loss lies above its start or is lost, whichever is first; a
part of the gain is lost for good; loss or gradient is not finite; the guard gives up the loss."""

MOVED = 0.2
"""Part of the gain by which the loss stays above its best when that is lost."""

GROUPS = {
    "2 to 10 edges": lambda run: run.schedule == "constant" and run.part >= 2,
    "1 to 1.4 edges": lambda run: run.jump is None and 1 <= run.part < 2,
    "warmup to 3 edges": lambda run: run.schedule == "ramp",
    "jumps to 1 or 3.3 edges": lambda run: run.jump is not None,
}

Alarm = tuple[int, str]


@functools.cache
def warnings_of(run: Run, every: int) -> list[Alarm]:
    """The step and the kind of each warning, the trivial one among them."""
    trends = Trends()
    found = [(k, w.kind) for k, look in enumerate(run.looks(every)) for w in trends.read(look)]
    past: deque[float] = deque(maxlen=WINDOW)
    was = False
    for step, loss in enumerate(np.asarray(run.trace.loss, np.float64).tolist()):
        now = len(past) >= LEAST and not loss <= TIMES * statistics.median(past)
        found += [(step, TRIVIAL)] if now and not was else []
        past.append(loss)
        was = now
    return sorted(found)


def moved_at(run: Run) -> int | None:
    """The first step, after a jump if there is one, whose loss is well above the start, or None."""
    level, start = _level(run), run.trace.initial_loss
    scale = max(abs(start), abs(run.trace.blind))
    above = np.flatnonzero(level > start + DEFAULTS.disturbed * scale)
    return min(above[above >= run.start].tolist(), default=None)


def lost_at(run: Run) -> int | None:
    """The step from which a part of what was gained is lost for good; None: never, or no gain."""
    level, start = _level(run), run.trace.initial_loss
    best = np.minimum.accumulate(np.minimum(level, start))
    calm = np.flatnonzero(level <= best + MOVED * (start - best))
    step = max(int(calm[-1]) + 1 if len(calm) else 0, run.start)
    return step if step < len(level) else None


def _level(run: Run) -> Array:
    """The median of five losses, centred: what rises is not dated late, in favour of alarms."""
    loss = np.asarray(run.trace.loss, np.float64)
    loss = np.pad(np.where(np.isfinite(loss), loss, np.inf), 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(loss, 5), axis=1)


def not_finite_at(run: Run) -> int | None:
    bad = ~(np.isfinite(run.trace.loss) & np.isfinite(run.trace.grad_norm))
    return int(np.flatnonzero(bad)[0]) if bad.any() else None


def is_low(run: Run) -> bool:
    return run.jump is None and run.part < 1


def is_well(run: Run) -> bool:
    return is_low(run) and run.verdict in WELL


def has_failed(run: Run) -> bool:
    """Beyond the edge a stall is a failure: lower rates of its row have learned."""
    good = {"converged", "recovered", "spiky"} | ({"too_slow"} if is_low(run) else set())
    return run.verdict not in good


def false_alarms(runs: Sequence[Run], every: int) -> dict[str, Any]:
    """Warnings in runs that ended well, a kind, and the steps of these runs."""
    counts = Counter(kind for run in runs for _, kind in warnings_of(run, every))
    steps = sum(run.trace.num_steps for run in runs)
    alarms = sum(counts[kind] for kind in ALARMS)
    kinds = {kind: counts[kind] for kind in (*ALARMS, *STATES, TRIVIAL)}
    return {"runs": len(runs), "steps": steps, "alarms": alarms, **kinds}


def leads(runs: Sequence[Run], every: int, kinds: Iterable[str]) -> dict[str, Any]:
    """How many failures were announced, and how many steps before."""
    found: dict[str, Any] = {"runs": len(runs), "said": 0}
    before: dict[str, list[int]] = {name: [] for name in ENDS}
    had: Counter[str] = Counter()
    for run in runs:
        steps = [s for s, kind in warnings_of(run, every) if kind in kinds and s >= run.start]
        found["said"] += bool(steps)
        for name, end in ends_of(run).items():
            had[name] += end is not None
            if steps and end is not None and steps[0] < end:
                before[name].append(end - steps[0])
    for name, values in before.items():
        lead = statistics.median(values) if values else None
        found[name] = {"had": had[name], "early": len(values), "lead": lead}
    return found


def ends_of(run: Run) -> dict[str, int | None]:
    """The steps that an alarm is to come before; None for what did not happen."""
    moved, lost = moved_at(run), lost_at(run)
    first = min((step for step in (moved, lost) if step is not None), default=None)
    return dict(zip(ENDS, (first, lost, not_finite_at(run), run.lost), strict=True))


def measure(runs: Sequence[Run]) -> dict[str, Any]:
    """All tables of one half."""
    planned = [run for run in runs if is_low(run)]
    failing = [run for run in runs if has_failed(run)]
    held = [run for run in runs if not is_well(run) and not has_failed(run)]
    setups = dict.fromkeys(run.setup for run in runs)
    tables: dict[str, Any] = {"planned_healthy": len(planned), "false": [], "early": []}
    for every in (1, 10):
        groups = {name: [r for r in runs if is_well(r) and r.setup == name] for name in setups}
        groups |= {"all": [r for r in runs if is_well(r)], "held beyond the edge": held}
        for name, group in groups.items():
            tables["false"].append({"every": every, "of": name, **false_alarms(group, every)})
    groups = {name: [r for r in failing if holds(r)] for name, holds in GROUPS.items()}
    groups["healthy rates that failed"] = [r for r in failing if is_low(r)]
    groups["all"] = failing
    for name, group in groups.items():
        for every in (1, 10):
            for kinds in (ALARMS, ("growth",), ("update_ratio",), (TRIVIAL,)):
                word = "alarm" if kinds is ALARMS else kinds[0]
                row = {"of": name, "every": every, "alarm": word, **leads(group, every, kinds)}
                # The trivial alarm knows no close looks.
                if kinds != (TRIVIAL,) or every == 1:
                    tables["early"].append(row)
    firsts = [ends_of(run)["moved"] for run in failing if run.jump is None]
    tables["moved_before_a_trend"] = sum(step is not None and step < LEAST for step in firsts)
    tables["never_moved"] = sum(ends_of(run)["moved"] is None for run in failing)
    tables["verdicts"] = dict(Counter(run.verdict for run in failing))
    return tables


def show(half: str, tables: dict[str, Any]) -> None:
    print(f"\n{half}: warnings in runs that ended well, a count a kind (per 10,000 steps: alarms)")
    kinds = (*ALARMS, *STATES, TRIVIAL)
    print(f"{'':<24}{'looks':>6}{'runs':>6}{'steps':>8}" + "".join(f"{k:>13}" for k in kinds))
    for row in tables["false"]:
        rate = 1e4 * row["alarms"] / row["steps"] if row["steps"] else math.nan
        print(
            f"{row['of']:<24}{row['every']:>6}{row['runs']:>6}{row['steps']:>8}"
            + "".join(f"{row[k]:>13}" for k in kinds)
            + f"{rate:>9.2f}"
        )
    print(f"\n{half}: announced, of the failures that had the event; median lead in steps")
    print(f"{'':<26}{'looks':>6}{'alarm':>14}{'said':>9}" + "".join(f"{e:>18}" for e in ENDS))
    for row in tables["early"]:
        cells = ["{early} of {had}, {lead}".format(**row[end]) for end in ENDS]
        said = f"{row['said']}/{row['runs']}"
        print(
            f"{row['of']:<26}{row['every']:>6}{row['alarm']:>14}{said:>9}"
            + "".join(f"{cell:>18}" for cell in cells)
        )
    print(
        f"verdicts {tables['verdicts']}; moved before step {LEAST}: "
        f"{tables['moved_before_a_trend']}; loss never moved: {tables['never_moved']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, default=None, help="folder to keep the runs in")
    parser.add_argument("--halves", nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        found: dict[str, Any] = {"edges": {s: read_or_find_edge(folder, s) for s in SETUPS}}
        for half in args.halves:
            runs = read_or_train(folder, half)
            found[half] = measure(runs)
            show(half, found[half])
    found["runs_a_seed"] = {"healthy": len(HEALTHY), "failing": len(FAILING)}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "early_warning.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
