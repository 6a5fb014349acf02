"""Two cores against one: trial-steps a second through the executors, and a whole sweep.

    python benchmarks/cores.py [--models mlp rnn transformer] [--cores 2] [--repeats 7]

Each reference model trains 24 trials through `executor=process` with one process, through the same
with one a core, and through `executor=local` with as many threads: interleaved, rung by rung; the
ratios are medians over the rounds, each of its own round. Then the default sweep of an MLP, with
one process and with one a core: seconds from call to answer, without the tests of the pick. Nothing
else may run meanwhile: threads wait for the slowest of them, so that a busy core costs them most.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from throughput import CASES, make_setup

import stabsweep
from stabsweep.executor import Executor, Local, Process
from stabsweep.plan import COHORT_SIZE
from stabsweep.records import Trial

RUNG_SECONDS = 0.4
"""About what a rung takes on one core: long beside the messages, short beside a busy neighbour."""

SWEEP = {
    "model": "mlp", "task": "digits", "space": {"lr": {"low": 1e-5, "high": 10.0}},
    "num_trials": 72, "sampler": "grid", "confirm": False, "stress": False, "curvature": False,
    "extend": False, "device": "cpu", "watcher": "off",
}  # fmt: skip


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(case: str, cores: int, repeats: int) -> dict:
    """Trial-steps a second of the three, and the ratios to one core."""
    num_trials = COHORT_SIZE["cpu"]
    setup = make_setup(case, torch.device("cpu"))
    given = (lambda split: setup, (), "cohort", num_trials, lambda note: None)
    torch.set_num_threads(cores)
    executors: dict[str, Executor] = {
        "one": Process(*given, num_workers=1),
        "processes": Process(*given, num_workers=cores),
        "threads": Local(*given),
    }
    try:
        for executor in executors.values():
            executor.admit([Trial(k, {"lr": 1e-3}, k) for k in range(num_trials)])
            executor.advance(2)
        steps = max(round(2 * RUNG_SECONDS / timed(lambda: executors["one"].advance(2))), 1)
        seconds: dict[str, list[float]] = {name: [] for name in executors}
        for _ in range(repeats):
            for name, executor in executors.items():
                seconds[name].append(timed(lambda run=executor: run.advance(steps)))
    finally:
        for executor in executors.values():
            executor.close()
    rates = {n: steps * num_trials / statistics.median(times) for n, times in seconds.items()}
    ratios = {
        f"{name}_to_one": statistics.median(
            one / many for one, many in zip(seconds["one"], seconds[name], strict=True)
        )
        for name in ("processes", "threads")
    }
    return {"model": case, "cores": cores, "steps": steps, **rates, **ratios}


def measure_sweep(cores: int, repeats: int) -> dict:
    """Seconds of a whole sweep on one core and on all, and their ratio."""
    seconds: dict[int, list[float]] = {1: [], cores: []}
    for _ in range(repeats):
        for count, times in seconds.items():
            run = {**SWEEP, "executor": "process", "workers": count}
            times.append(timed(lambda run=run: stabsweep.sweep(**run)))
    ratio = statistics.median(a / b for a, b in zip(seconds[1], seconds[cores], strict=True))
    medians = {count: statistics.median(times) for count, times in seconds.items()}
    return {
        "sweep": "mlp",
        "cores": cores,
        "seconds_one": medians[1],
        "seconds_processes": medians[cores],
        "processes_to_one": ratio,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", choices=CASES, default=["mlp", "rnn", "transformer"])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sweeps", type=int, default=2, help="repeats of the whole sweep")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    rows = []
    print(f"{args.cores} cores; trial-steps a second, and times those of one core")
    print(f"{'model':<14} {'one core':>10} {'processes':>10} {'threads':>10}", flush=True)
    for case in args.models:
        row = measure(case, args.cores, args.repeats)
        rows.append(row)
        print(
            f"{case:<14} {row['one']:>10.0f} {row['processes']:>10.0f} {row['threads']:>10.0f}"
            f"   processes {row['processes_to_one']:.2f}x, threads {row['threads_to_one']:.2f}x",
            flush=True,
        )
    if args.sweeps:
        row = measure_sweep(args.cores, args.sweeps)
        rows.append(row)
        print(
            f"a whole sweep: {row['seconds_one']:.1f} s on one core, "
            f"{row['seconds_processes']:.1f} s on {args.cores}: {row['processes_to_one']:.2f}x"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cores.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
