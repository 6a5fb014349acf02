"""Trial-steps a second: our stacked engine, our loop, and a training loop as a user writes it.

    python benchmarks/throughput.py [--models mlp rnn transformer] [--threads 1] [--repeats 5]

All three train the same model on the same task with AdamW and clipping at norm 1, in one process,
interleaved; medians over the repeats. The user's loop is plain PyTorch: `torch.optim.AdamW` with
`foreach`, `torch.nn.utils.clip_grad_norm_`, batches by index, the loss read once a step. Our
engines do more on every step: they keep loss, gradient norm, clip coefficient and update ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from stabsweep import model as models
from stabsweep import optimizer as optimizers
from stabsweep import task as tasks
from stabsweep.engine import Cohort, Loop, Setup
from stabsweep.plan import COHORT_SIZE, find_device
from stabsweep.records import Trial
from stabsweep.task import BatchOrder

CASES = {
    "mlp": ("mlp", {}, "digits", {}, 64),
    "rnn": ("rnn", {}, "sequential_digits", {}, 64),
    "rnn by row": ("rnn", {}, "sequential_digits", {"step": "row"}, 64),
    "transformer": ("transformer", {}, "text", {}, 8),
    "transformer 64x16": ("transformer", {}, "text", {"length": 64}, 16),
}
"""Reference models with their default task and batch size, and one larger Transformer."""


def make_setup(case: str, device: torch.device) -> Setup:
    name, args, task_name, task_args, batch_size = CASES[case]
    task = tasks.build(task_name, **task_args).to(device)
    rule, hyper = optimizers.build("adamw")
    fixed = {**hyper, "warmup_steps": 0, "clip_norm": 1.0, "init": "default", "init_gain": 1.0}
    return Setup(
        build_model=lambda: models.build(name, task.signature, **args),
        task=task,
        optimizer=rule,
        horizon=10**6,
        batch_size=batch_size,
        schedule="constant",
        fixed=fixed,
        device=device,
    )


class Plain:
    """The loop that a user would write, for one trial."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.module = setup.build_model().to(setup.device)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3, foreach=True)
        self.order = BatchOrder(0, setup.task.num_examples, setup.batch_size)
        self.step = 0

    def train(self, num_steps: int) -> None:
        setup = self.setup
        for index in self.order.index(self.step, self.step + num_steps):
            loss = setup.task.loss(self.module, setup.task.batch(index.to(setup.device)))
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
            self.optimizer.step()
            loss.item()
        self.step += num_steps


def timed(work, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measure(case: str, device: torch.device, num_trials: int, repeats: int) -> dict:
    """Median milliseconds a trial-step of the three."""
    setup = make_setup(case, device)
    cohort, loop, plain = Cohort(setup, num_trials), Loop(setup), Plain(setup)
    cohort.admit([Trial(k, {"lr": 1e-3}, k) for k in range(num_trials)])
    loop.admit([Trial(0, {"lr": 1e-3}, 0)])
    work = {
        "cohort": (lambda: cohort.advance(10), 10 * num_trials),
        "loop": (lambda: loop.advance(20), 20),
        "plain": (lambda: plain.train(20), 20),
    }
    for step, _ in work.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, (step, count) in work.items():
            times[name].append(timed(step, device) / count * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, torch.get_num_threads()])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--trials", type=int, default=None, help="trials stacked at once")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    device = find_device(args.device)
    num_trials = args.trials or COHORT_SIZE[device.type]
    rows = []
    print(f"{device}, {num_trials} trials stacked; milliseconds a trial-step")
    print(f"{'model':<18} {'threads':>7} {'cohort':>8} {'loop':>8} {'plain':>8} {'speedup':>9}")
    for threads in dict.fromkeys(args.threads):
        torch.set_num_threads(threads)
        for case in args.models:
            ms = measure(case, device, num_trials, args.repeats)
            speedup = ms["plain"] / ms["cohort"]
            rows.append({"model": case, "threads": threads, **ms, "speedup": speedup})
            print(
                f"{case:<18} {threads:>7} {ms['cohort']:>8.3f} {ms['loop']:>8.3f} "
                f"{ms['plain']:>8.3f} {speedup:>8.2f}x",
                flush=True,
            )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"throughput_{device.type}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
