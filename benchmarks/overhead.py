"""What a trial costs beside its training: ask, reports, pruning, verdict, record, trace file.

    python benchmarks/overhead.py [--trials 1000 10000] [--horizon 200] [--samplers grid random]

Runs the real sweep over an executor that trains nothing: it hands back curves that were made
beforehand (falling, stalled, catapults, diverging), in cohorts of 64 and rungs of a tenth of the
horizon. Beside it, in the same run, what bare Optuna takes for ask, ten reports and tell of the
same trials in memory. CPU time; milliseconds a trial.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import optuna

from stabsweep import sampler as samplers
from stabsweep.engine import Chunk
from stabsweep.progress import Silence
from stabsweep.pruner import DivergencePruner
from stabsweep.roster import make_study
from stabsweep.run import Run
from stabsweep.space import Space
from stabsweep.store import Store

SPACE = {"lr": {"low": 1e-4, "high": 10.0}, "warmup_steps": [0, 10, 30, 90]}
COHORT = 64


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

    def advance(self, num_steps: int) -> list[Chunk]:
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


def our_share(sampler: str, num_trials: int, horizon: int) -> float:
    """Milliseconds of CPU time a trial of a whole sweep without training."""
    space = Space.parse(SPACE)
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        rule = samplers.build(sampler, space, num_trials, (0, 1))
        planned = samplers.num_planned(rule, num_trials)
        store = Store(Path(folder) / "run", {}, {})
        run = Run(
            space,
            make_study(space, rule, DivergencePruner(), (0, 1), planned),
            NoTraining(horizon),  # type: ignore[arg-type]
            store,
            Silence(),
            horizon,
            max(horizon // 10, 1),
            {"warmup_steps": 0},
            lambda point: 2.3,
        )
        run.run()
        store.close()
        return (time.process_time() - began) / planned * 1e3


def bare_optuna(num_trials: int) -> float:
    """Milliseconds of CPU time a trial of ask, ten reports and tell in memory."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
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
    return (time.process_time() - began) / num_trials * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--horizon", type=int, default=200)
    parser.add_argument("--samplers", nargs="+", default=["grid", "random", "sobol"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    rows = []
    print(f"{'sampler':<16} {'trials':>7} {'ms a trial':>11} {'trials/s':>9} {'x bare Optuna':>14}")
    for num_trials in args.trials:
        bare = bare_optuna(num_trials)
        for name in ["(bare Optuna)", *args.samplers]:
            ms = bare if name.startswith("(") else our_share(name, num_trials, args.horizon)
            row = {"sampler": name, "trials": num_trials, "ms": ms, "times_optuna": ms / bare}
            rows.append(row)
            print(f"{name:<16} {num_trials:>7} {ms:>11.2f} {1e3 / ms:>9.0f} {ms / bare:>14.1f}")
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "overhead.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
