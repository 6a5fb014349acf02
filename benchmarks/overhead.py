"""What a trial costs beside its training, and a whole command beside all of its training.

    python benchmarks/overhead.py [--trials 1000 20000] [--horizon 200] [--samplers grid random]
                                  [--models mlp rnn transformer]

First the real sweep over an executor that trains nothing: it hands back curves that were made
beforehand (falling, stalled, catapults, diverging), in cohorts of 64 and rungs of a tenth of the
horizon. *ms a trial* is ask, reports with pruning, verdict, record and trace file; *end* is what
follows the last trial: region, pick, table, pictures, page. CPU time. *KB a trial* is by how much
the process has grown at its highest, to the last trial and to the end. Beside it what bare Optuna
takes for ask, ten reports and tell of as many trials in memory. Each row is a process of its own.

Then the default sweeps, `stabsweep model=NAME`, tests of the pick included, each a process of its
own: wall time from its start to its end, and the part of it in which trials are trained (the
executor's `advance`: an engine's, or the wait for those of other processes). All else stands beside
it: start-up (imports, configuration, plan), engines that are built, trials that begin, curvature,
and the end.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SPACE = {"lr": {"low": 1e-4, "high": 10.0}, "warmup_steps": [0, 10, 30, 90]}
COHORT = 64
MODELS = ("mlp", "rnn", "transformer")


class NoTraining:
    """An executor whose trials have their curves already."""

    def __init__(self, horizon: int) -> None:
        steps = np.arange(horizon)
        noise = np.random.default_rng(0).normal(0, 0.05, (4, horizon))
        losses = np.stack(
            [
                2.3 * np.exp(-steps / 40),
                np.full(horizon, 2.3),
                2.3 * np.exp(-steps / 60) + 20 * np.exp(-(((steps - 10) / 5) ** 2)),
                2.3 + np.exp(np.minimum(steps / 3, 80)),
            ]
        )
        losses[3, 250:] = np.nan
        self.curves = np.ones((4, 5, horizon), np.float32)
        self.curves[:, 0] = losses + noise
        self.horizon = horizon
        self.running: dict[int, tuple[int, int]] = {}

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_free(self) -> int:
        return COHORT - len(self.running)

    def admit(self, trials) -> None:
        for trial in trials:
            self.running[trial.number] = (trial.number % 4, 0)

    def advance(self, num_steps: int) -> list:
        from stabsweep.engine import Chunk

        chunks = []
        for number, (kind, start) in list(self.running.items()):
            stop = min(start + num_steps, self.horizon)
            done = stop == self.horizon
            chunks.append(Chunk(number, start, self.curves[kind, :, start:stop], 2.3, 1.0, done))
            self.running[number] = (kind, stop)
            if done:
                del self.running[number]
        return chunks

    def drop(self, number: int) -> None:
        self.running.pop(number, None)


def without_training(sampler: str, num_trials: int, horizon: int) -> dict:
    """Milliseconds of CPU time a trial of a whole sweep without training, and kilobytes."""
    from stabsweep import sampler as samplers
    from stabsweep.progress import Silence
    from stabsweep.pruner import DivergencePruner
    from stabsweep.result import NEUTRAL, Result
    from stabsweep.roster import make_study
    from stabsweep.run import Run
    from stabsweep.space import Space
    from stabsweep.store import Store

    space = Space.parse(SPACE)
    config = {"optimizer": "sgd", "model": "mlp", "margin_decades": 0.2, **NEUTRAL}
    with tempfile.TemporaryDirectory() as name:
        executor, before = NoTraining(horizon), peak_kb()
        began = time.process_time()
        rule = samplers.build(sampler, space, num_trials, (0, 1))
        planned = samplers.num_planned(rule, num_trials)
        folder = Path(name) / "run"
        store = Store(folder, {}, {})
        run = Run(
            space,
            make_study(space, rule, DivergencePruner(), (0, 1), planned),
            executor,  # type: ignore[arg-type]
            store,
            Silence(),
            horizon,
            max(horizon // 10, 1),
            {"warmup_steps": 0},
            lambda point: 2.3,
        )
        run.run()
        ended, grown = time.process_time(), peak_kb() - before
        store.close()
        known = {"region": run.region, "folder": folder, "seconds": 1.0}
        result = Result.find(space, run.records, {**config, "num_planned": planned}, **known)
        result.save_report()
        return {
            "ms": (ended - began) / planned * 1e3,
            "end_seconds": time.process_time() - ended,
            "kb": grown / planned,
            "kb_at_end": (peak_kb() - before) / planned,
        }


def bare_optuna(num_trials: int) -> dict:
    """Milliseconds of CPU time a trial of ask, ten reports and tell in memory."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    before = peak_kb()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 10, log=True),
        "warmup_steps": optuna.distributions.CategoricalDistribution([0, 10, 30, 90]),
    }
    began = time.process_time()
    for first in range(0, num_trials, COHORT):
        for trial in [study.ask(space) for _ in range(min(COHORT, num_trials - first))]:
            for step in range(10):
                trial.report(1.0, step)
            study.tell(trial, 1.0)
    ended = time.process_time()
    grown = (peak_kb() - before) / num_trials
    return {"ms": (ended - began) / num_trials * 1e3, "kb": grown}


def peak_kb() -> float:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class Watched:
    """An executor that notes how long it trains, and how long it admits."""

    def __init__(self, executor: Any, spent: dict[str, float]) -> None:
        self._executor = executor
        self.advance = noting(executor.advance, "training", spent)
        self.admit = noting(executor.admit, "admitting", spent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def noting(work: Callable, name: str, spent: dict[str, float]) -> Callable:
    """A function that adds its wall time to what was spent."""

    def noted(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return work(*given, **named)
        finally:
            spent[name] += time.perf_counter() - began

    return noted


def default_sweep(model: str, began: float) -> dict:
    """Where the wall time of a default sweep goes, in seconds, from the start of the process."""
    from stabsweep import api
    from stabsweep.cli import main as command
    from stabsweep.result import Result
    from stabsweep.run import Run

    spent: dict[str, float] = defaultdict(float)
    run = Run.run

    def watched(self: Run) -> None:
        spent.setdefault("start-up", time.time() - began)
        if not isinstance(self.executor, Watched):
            self.executor = Watched(self.executor, spent)  # type: ignore[assignment]
        run(self)

    Run.run = watched
    api._theory = noting(api._theory, "curvature", spent)
    Result.save_report = noting(Result.save_report, "end", spent)
    with tempfile.TemporaryDirectory() as folder:
        command([f"model={model}", f"hydra.run.dir={folder}/run", "progress=off", "format=json"])
    whole = time.time() - began
    return {**spent, "other": whole - sum(spent.values()), "whole": whole}


def child(*words: Any) -> dict:
    """What a process of this file tells that is given some words."""
    command = [sys.executable, __file__, "--only", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def only(kind: str, *given: str) -> dict:
    """What a child is to do."""
    if kind == "bare":
        return bare_optuna(int(given[0]))
    if kind == "sweep":
        return default_sweep(given[0], float(given[1]))
    return without_training(given[0], int(given[1]), int(given[2]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="*", default=[1000, 20000])
    parser.add_argument("--horizon", type=int, default=200)
    parser.add_argument("--samplers", nargs="+", default=["grid", "random", "sobol"])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(only(*args.only)))
        return
    rows, sweeps = [], []
    if args.trials:
        print(
            f"{'sampler':<15} {'trials':>7} {'ms a trial':>11} {'x bare':>7} {'end':>7} "
            f"{'KB a trial':>11} {'at end':>7}"
        )
    for num_trials in args.trials:
        bare = child("bare", num_trials)
        for name in ["(bare Optuna)", *args.samplers]:
            row = bare if name[0] == "(" else child("trials", name, num_trials, args.horizon)
            row = {"sampler": name, "trials": num_trials, **row}
            rows.append({**row, "times_optuna": row["ms"] / bare["ms"]})
            end = f"{row['end_seconds']:>6.1f}s" if "end_seconds" in row else ""
            last = f"{row['kb_at_end']:>7.1f}" if "kb_at_end" in row else ""
            print(
                f"{name:<15} {num_trials:>7} {row['ms']:>11.2f} {row['ms'] / bare['ms']:>7.1f} "
                f"{end:>7} {row['kb']:>11.1f} {last:>7}",
                flush=True,
            )
    parts = ("start-up", "admitting", "curvature", "end", "other")
    if args.models:
        print(f"\n{'sweep':<12} {'whole':>8} {'training':>9} {'else':>6}   " + ", ".join(parts))
    for model in args.models:
        found = child("sweep", model, time.time())
        share = 1 - found["training"] / found["whole"]
        sweeps.append({"model": model, **found, "share_else": share})
        print(
            f"{model:<12} {found['whole']:>7.1f}s {found['training']:>8.1f}s {share:>6.1%}   "
            + ", ".join(f"{found.get(part, 0):.1f}" for part in parts),
            flush=True,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {"trials": rows, "sweeps": sweeps}
    (args.out / "overhead.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
