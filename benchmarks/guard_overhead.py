"""What a guard adds to a training step: the same loop with and without it, interleaved.

    python benchmarks/guard_overhead.py [--models transformer] [--threads 1] [--rounds 400]

The plain loop is what a user writes: `torch.optim.AdamW`, `clip_grad_norm_` at 1, the loss read
once a step. The guard does that and checks, logs a line a step to a file, and looks closely every
tenth step. Both loops train their own copy of the model on the same batches, step by step in turn,
in one process; which one is first changes every round. Two figures: the median of the differences
of neighbouring steps over the median plain step, without the tenth that are close looks, and the
same with all steps' means (cut at the 95th percentile, against other processes): the whole cost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from throughput import CASES, make_setup
from torch import nn

from stabsweep import GradientGuard
from stabsweep.engine import begin
from stabsweep.records import Trial
from stabsweep.task import BatchOrder

MODES = {
    "default": {},
    "no log": {"log": None},
    "no close looks": {"watch_every": 10**9},
    "close look each step": {"watch_every": 1},
    "check every 10": {"check_every": 10, "policy": "warn"},
}
"""What is asked of the guard beside clipping."""


class Pair:
    """A plain loop and a guarded one over the same batches."""

    def __init__(self, case: str, device: torch.device, options: dict, folder: str) -> None:
        setup = make_setup(case, device)
        trial = Trial(0, {"lr": 1e-3}, seed=0)
        self.setup = setup
        self.index = BatchOrder(0, setup.task.num_examples, setup.batch_size).index(0, 64)
        self.models, self.rules = zip(*(begin(setup, trial) for _ in range(2)), strict=True)
        for rule in self.rules:
            for group in rule.param_groups:
                group["lr"] = 1e-3
        options = {"log": folder, "tensorboard": False, "progress": "off", **options}
        self.guard = GradientGuard(self.models[1], self.rules[1], clip_norm=1.0, **options)
        self.step = 0

    def plain(self, batch: object) -> None:
        model, rule = self.models[0], self.rules[0]
        rule.zero_grad(set_to_none=True)
        loss = self.setup.loss(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rule.step()
        loss.item()

    def guarded(self, batch: object) -> None:
        self.guard.step(self.setup.loss(self.models[1], batch))

    def round(self, clock: Callable[[], float]) -> tuple[float, float]:
        """Seconds of a plain and of a guarded step on one batch."""
        batch = self.setup.task.batch(self.index[self.step % len(self.index)])
        seconds = {}
        order = (self.plain, self.guarded)
        for run in order if self.step % 2 else order[::-1]:
            began = clock()
            run(batch)
            seconds[run.__name__] = clock() - began
        self.step += 1
        return seconds["plain"], seconds["guarded"]


def measure(case: str, mode: str, rounds: int, device: torch.device) -> dict:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(case, device, MODES[mode], folder)
        for _ in range(20):
            pair.round(clock)
        times = [pair.round(clock) for _ in range(rounds)]
        same = all(map(torch.equal, *(list(m.parameters()) for m in pair.models)))
        pair.guard.close()
    plain, added = statistics.median(p for p, _ in times), [g - p for p, g in times]
    means = [_cut_mean(values) for values in zip(*times, strict=True)]
    return {
        "model": case,
        "mode": mode,
        "plain_ms": round(1e3 * plain, 3),
        "added_ms": round(1e3 * statistics.median(added), 3),
        "share": round(statistics.median(added) / plain, 4),
        "share_with_looks": round(means[1] / means[0] - 1, 4),
        "same_weights": same,
    }


def _cut_mean(values: tuple[float, ...]) -> float:
    kept = sorted(values)[: int(len(values) * 0.95)]
    return statistics.fmean(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=["transformer"], choices=CASES)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    print(
        f"{'model':18} {'mode':22} {'plain ms':>9} {'added ms':>9} {'share':>7} {'with looks':>10}"
    )
    for case in args.models:
        for mode in args.modes:
            row = measure(case, mode, args.rounds, torch.device(args.device))
            rows.append(row)
            print(
                f"{case:18} {mode:22} {row['plain_ms']:9.2f} {row['added_ms']:9.3f} "
                f"{row['share']:7.1%} {row['share_with_looks']:10.1%}"
                + ("" if row["same_weights"] else "  NOT the same weights"),
                flush=True,
            )
    if args.out:
        known = {"threads": args.threads, "torch": torch.__version__, "rows": rows}
        args.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
