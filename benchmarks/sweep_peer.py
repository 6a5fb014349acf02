"""A whole sweep: stabsweep against one trial at a time by Optuna over a plain loop.

    python benchmarks/sweep_peer.py [--models mlp rnn transformer] [--share 1] [--repeats 1]

Ours is the command `stabsweep model=NAME sampler=grid confirm=false stress=false curvature=false
extend=false`, pictures and page included. The peer is what a user has without it: `study.optimize`
with `GridSampler` and `MedianPruner` over the loop of `_user_loop.py` (foreach or fused optimizer,
`clip_grad_norm_`, `scaled_dot_product_attention`, `nn.RNN` or our cells: whichever is fastest here,
tried out without the clock), which keeps loss and gradient norm of every step, stops what is not
finite, and is judged by our verdicts. Same points, seeds, weights, batches, horizon and rungs; each
in a process of its own with torch's default threads, in turn; wall time of the whole process.

`MedianPruner` stops every trial that is worse than half of the others: it saves most of the steps,
and leaves no map, for what it cut while it went well has no verdict. Such trials are counted apart;
`--pruner none` leaves the peer's trials whole, as ours are unless they have diverged.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MODELS = ("mlp", "rnn", "transformer")
OFF = ("sampler=grid", "confirm=false", "stress=false", "curvature=false", "extend=false")


def words(model: str, args: argparse.Namespace) -> list[str]:
    """The command line of a sweep of the default grid, or of a share of its rates."""
    from stabsweep import config

    whole = config.read_arguments(config.compose([f"model={model}"]))["num_trials"]
    number = math.ceil(whole * args.share)
    return [f"model={model}", *OFF, f"num_trials={number}", f"device={args.device}"]


def run_ours(model: str, args: argparse.Namespace, folder: Path) -> dict:
    """Seconds of the command, and its records."""
    from stabsweep.store import read_records

    command = [sys.executable, "-m", "stabsweep", *words(model, args), f"hydra.run.dir={folder}"]
    began = time.perf_counter()
    done = subprocess.run([*command, "progress=off"], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return {"seconds": seconds, "records": read_records(folder)}


def run_peer(model: str, args: argparse.Namespace, folder: Path) -> dict:
    """Seconds of a process that does the same with Optuna, and its records."""
    from stabsweep.records import Record

    path = folder.with_suffix(".json")
    given = ["--peer", model, "--share", args.share, "--device", args.device, "--to", path]
    given += ["--pruner", args.pruner]
    began = time.perf_counter()
    subprocess.run([sys.executable, __file__, *map(str, given)], check=True)
    seconds = time.perf_counter() - began
    told = json.loads(path.read_text())
    records = [Record.from_dict(plain) for plain in told["records"]]
    # Trying out which loop is fastest is ours, not the user's.
    return {"seconds": seconds - told["trying"], "records": records, "way": told["way"]}


def peer(model: str, args: argparse.Namespace) -> dict:
    """The study of the peer."""
    import optuna
    from _user_loop import UserLoop, fastest

    from stabsweep import config
    from stabsweep.api import DEFAULTS
    from stabsweep.engine._base import Starts
    from stabsweep.plan import Plan
    from stabsweep.records import Record, Trace, Trial, Verdict
    from stabsweep.sampler import Grid
    from stabsweep.verdict import judge

    plan = Plan.make({**DEFAULTS, **config.read_arguments(config.compose(words(model, args)))})
    setup = plan.setup({})
    starts = Starts(setup)
    grid, known = Grid(plan.space, plan.num_trials, plan.seeds), {}
    while entry := grid.draw(None):
        number, point, seed = entry
        known[(*point.values(), seed)] = Trial(number, point, seed)
    axes = {axis.name: {t.point[axis.name] for t in known.values()} for axis in plan.space}
    began = time.perf_counter()
    way = fastest(setup, next(iter(known.values())))
    trying = time.perf_counter() - began
    records = []

    def objective(asked: optuna.Trial) -> float:
        point = {name: asked.suggest_categorical(name, sorted(axes[name])) for name in axes}
        seed = asked.suggest_categorical("seed", list(plan.seeds))
        trial = known[(*point.values(), seed)]
        initial_loss = starts[trial].initial_loss
        loop = UserLoop(setup, trial, **way)
        losses, norms, state = [], [], "complete"
        while loop.step < setup.horizon:
            loss, norm = loop.advance(plan.rung_steps)
            losses.append(loss)
            norms.append(norm)
            if not np.isfinite(loss).all():
                state = "pruned"
                break
            asked.report(float(np.median(loss)), loop.step)
            if loop.step < setup.horizon and asked.should_prune():
                state = "pruned"
                break
        loss, norm = np.concatenate(losses), np.concatenate(norms)
        with np.errstate(invalid="ignore"):
            coefficient = np.minimum(loop.clip_norm / (norm + 1e-6), 1.0)
        trace = Trace(
            loss, norm, np.where(np.isfinite(coefficient), coefficient, 1.0),
            np.full(len(loss), np.nan), loop.lr_T[: len(loss)], initial_loss,
            setup.task.blind_loss, setup.horizon, int(setup.number(trial, "warmup_steps")),
        )  # fmt: skip
        found = judge(trace)
        fields = found.as_fields()
        if state == "pruned" and found.verdict not in (Verdict.DIVERGED, Verdict.INVALID):
            fields |= {"verdict": Verdict.CUT_SHORT, "provisional": False}
        records.append(
            Record(
                trial.number, trial.point, seed, **fields, state=state, steps=len(loss),
                horizon=setup.horizon, initial_loss=initial_loss, blind_loss=setup.task.blind_loss,
            ).as_dict()
        )  # fmt: skip
        if state == "pruned":
            raise optuna.TrialPruned
        return float(found.final_loss) if math.isfinite(found.final_loss) else math.inf

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {**{name: sorted(values) for name, values in axes.items()}, "seed": list(plan.seeds)}
    study = optuna.create_study(
        sampler=optuna.samplers.GridSampler(space, seed=0),
        pruner={"median": optuna.pruners.MedianPruner, "none": optuna.pruners.NopPruner}[
            args.pruner
        ](),
    )
    study.optimize(objective, n_trials=len(known))
    return {"way": way, "trying": trying, "records": records}


def compared(model: str, args: argparse.Namespace, ours: list, theirs: list) -> dict:
    """How far the verdicts of both agree, stalls settled by their rows as the map does it."""
    from stabsweep import config
    from stabsweep.region import find_region
    from stabsweep.space import Space

    space = Space.parse(config.read_arguments(config.compose(words(model, args)))["space"])
    read = [
        {record.trial: record for record in find_region(space, records).records}
        for records in (ours, theirs)
    ]
    both = [(read[0][n], read[1][n]) for n in read[0] if n in read[1]]
    judged = [(a, b) for a, b in both if a.verdict.is_judged and b.verdict.is_judged]
    return {
        "trials": len(both),
        "cut": sum(b.verdict.label == "cut_short" for _, b in both),
        "judged": len(judged),
        "same_verdict": float(np.mean([a.verdict is b.verdict for a, b in judged])),
        "same_stable": float(
            np.mean([a.verdict.is_stable == b.verdict.is_stable for a, b in judged])
        ),
        "ours_steps": sum(record.steps for record in ours),
        "peer_steps": sum(record.steps for record in theirs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--share", type=float, default=1 / 3, help="of the default grid's rates")
    parser.add_argument("--repeats", type=int, default=1, help="of both, in turn; medians")
    parser.add_argument("--pruner", choices=("median", "none"), default="median", help="the peer's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--peer", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        args.to.write_text(json.dumps(peer(args.peer, args)))
        return
    rows = []
    print(
        f"{'model':<12} {'trials':>6} {'ours':>8} {'peer':>8} {'ratio':>7} {'steps':>13} {'cut':>5}"
        f" {'verdict':>8} {'stable':>8}"
    )
    for model in args.models:
        runs: dict[str, list[dict]] = {"ours": [], "peer": []}
        with tempfile.TemporaryDirectory() as name:
            for turn in range(args.repeats):
                runs["ours"].append(run_ours(model, args, Path(name) / f"ours{turn}"))
                runs["peer"].append(run_peer(model, args, Path(name) / f"peer{turn}"))
        ours, theirs = (statistics.median(run["seconds"] for run in told) for told in runs.values())
        found = compared(model, args, runs["ours"][-1]["records"], runs["peer"][-1]["records"])
        row = {"model": model, "ours": ours, "peer": theirs, "ratio": theirs / ours, **found}
        rows.append({**row, "way": runs["peer"][-1]["way"], "share": args.share})
        steps = f"{found['ours_steps']}/{found['peer_steps']}"
        print(
            f"{model:<12} {found['trials']:>6} {ours:>7.1f}s {theirs:>7.1f}s {row['ratio']:>6.2f}x"
            f" {steps:>13} {found['cut']:>5} {found['same_verdict']:>8.1%}"
            f" {found['same_stable']:>8.1%}",
            flush=True,
        )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"sweep_peer_{args.device}.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
