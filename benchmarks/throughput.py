"""Trial-steps a second: our stacked engine, our loop, and a training loop as a user writes it.

    python benchmarks/throughput.py [--models mlp rnn transformer] [--threads 1] [--repeats 5]

All train the same model on the same task with Adam and clipping at norm 1, in one process,
interleaved; medians over the repeats, of CPU time with one thread and of wall time otherwise. The
user's loop is plain PyTorch in the fastest form that we found: `torch.optim.Adam` with `foreach` or
`fused`, `torch.nn.utils.clip_grad_norm_`, our RNN or torch's, our attention or torch's fused one,
batches by index, the loss read once a step; the fastest of them is the peer. Our engines do more on
every step: they keep loss, gradient norm, clip coefficient and update ratio. `in products`: the
share of our time that the step's matrix products take alone, so many trials side by side.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep import model as models
from stabsweep import optimizer as optimizers
from stabsweep import task as tasks
from stabsweep.engine import Cohort, Loop, Setup
from stabsweep.plan import COHORT_SIZE, find_device
from stabsweep.records import Trial
from stabsweep.task import BatchOrder

CASES = {
    "mlp": ("mlp", {"depth": 5}, "digits", {}, 64),
    "rnn": ("rnn", {}, "adding", {"length": 50}, 64),
    "rnn by row": ("rnn", {}, "sequential_digits", {"step": "row"}, 64),
    "transformer": ("transformer", {}, "text", {"length": 64}, 16),
    "transformer 32x8": ("transformer", {}, "text", {}, 8),
    "fractal": ("fractal", {}, "fractal", {}, 272),
}
"""MLP 64-128x4-10, RNN of 64 over 50 steps, Transformer of 2 layers, width 64 over 64 tokens, and
smaller ones: arguments of model and task, and batch size."""


def make_setup(case: str, device: torch.device) -> Setup:
    name, args, task_name, task_args, batch_size = CASES[case]
    task = tasks.build(task_name, **task_args).to(device)
    rule, hyper = optimizers.build("adam")
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

    def __init__(self, setup: Setup, module: nn.Module, **how: bool) -> None:
        self.setup = setup
        self.module = module.to(setup.device)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3, **how)
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


class TorchRNN(nn.Module):
    """What a user takes: torch's own recurrence, with a readout from its last step."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(num_inputs, 64, batch_first=True)
        self.readout = nn.Linear(64, num_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.readout(self.rnn(inputs)[0][:, -1])


class Fused(nn.Module):
    """Our attention with torch's fused kernel in the place of the formula."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = plain.heads, plain.qkv, plain.out

    def forward(self, x_BLD: Tensor) -> Tensor:
        qkv = self.qkv(x_BLD).unflatten(-1, (3, self.heads, x_BLD.shape[-1] // self.heads))
        q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def peers(case: str, setup: Setup) -> dict[str, Plain]:
    """The forms of the user's loop, by name."""
    found = {
        "foreach": Plain(setup, setup.build_model(), foreach=True),
        "fused": Plain(setup, setup.build_model(), fused=True),
    }
    signature = setup.task.signature
    if case.startswith("rnn"):
        module = TorchRNN(signature.num_inputs, signature.num_outputs)
        found["fused, nn.RNN"] = Plain(setup, module, fused=True)
    if case.startswith("transformer"):
        module = setup.build_model()
        for block in module.blocks:  # type: ignore[union-attr]
            block.attention = Fused(block.attention)
        found["fused, sdpa"] = Plain(setup, module, fused=True)
    return found


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds: of CPU time where one thread does all, so that others on the machine count less."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if is_alone else time.perf_counter
    began = clock()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - began


def measure(case: str, device: torch.device, num_trials: int, repeats: int) -> dict:
    """Median milliseconds a trial-step of all of them, and how the cohort ran."""
    setup = make_setup(case, device)
    cohort, loop = Cohort(setup, num_trials), Loop(setup)
    cohort.admit([Trial(k, {"lr": 1e-3}, k) for k in range(num_trials)])
    loop.admit([Trial(0, {"lr": 1e-3}, 0)])
    began = time.perf_counter()
    cohort.advance(1)
    first = time.perf_counter() - began
    while cohort.tiles.size is None:
        cohort.advance(5)
    work = {"cohort": (lambda: cohort.advance(5), 5 * num_trials)}
    work["loop"] = (lambda: loop.advance(20), 20)
    for name, plain in peers(case, setup).items():
        work[name] = (partial(plain.train, 20), 20)
    for step, _ in work.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(repeats):
        for name, (step, count) in work.items():
            times[name].append(timed(step, device) / count * 1e3)
    found = {name: statistics.median(values) for name, values in times.items()}
    cohort_ms, loop_ms = found.pop("cohort"), found.pop("loop")
    best = min(found, key=lambda name: found[name])
    size = cohort.tiles.size
    assert cohort.programs is not None
    products = cohort.programs.product_seconds(size) / size * 1e3
    return {
        "cohort": cohort_ms,
        "loop": loop_ms,
        "plain": found[best],
        "peers": found,
        "peer": best,
        "side_by_side": size,
        "in_products": products / cohort_ms,
        "first_step_seconds": first,
    }


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
    columns = ("threads", "cohort", "loop", "plain", "speedup", "products", "tile", "1st step")
    print(f"{'model':<18}" + "".join(f"{name:>9}" for name in columns) + "  peer")
    for threads in dict.fromkeys(args.threads):
        torch.set_num_threads(threads)
        for case in args.models:
            ms = measure(case, device, num_trials, args.repeats)
            speedup = ms["plain"] / ms["cohort"]
            rows.append({"model": case, "threads": threads, **ms, "speedup": speedup})
            print(
                f"{case:<18}{threads:>9}{ms['cohort']:>9.3f}{ms['loop']:>9.3f}{ms['plain']:>9.3f}"
                f"{speedup:>8.2f}x{ms['in_products']:>9.0%}{ms['side_by_side']:>9}"
                f"{ms['first_step_seconds']:>7.1f} s  {ms['peer']}",
                flush=True,
            )
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"throughput_{device.type}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
