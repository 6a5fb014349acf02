"""The trainability fractal, end to end: stabsweep against the same trainings in JAX.

    python benchmarks/fractal_jax.py [--side 64] [--steps 500] [--cores 2] [--repeats 1]

`experiment=fractal` at side x side rates of its two layers. Ours is the whole command: trainings,
verdicts, records, traces, map, page. JAX is what one writes for such a map: jit of a vmap over
trials of a scan over steps, full batch, plain gradient descent with two rates, the losses of every
step brought back; no verdicts and no map. Both start from the same weights and data. How many
trials JAX stacks in one program, in how many threads these run, and whether points are rows or
columns of the products is tried out first and not counted.

Each side runs in a process of its own, on the same cores, one after the other; each maps twice. The
first time counts from the start of the process: imports, compiling, all. The second is without. The
labels come from one judge that is shown the losses of both.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

LOW, HIGH = 1e-3, 1e6
CHUNKS = (16, 32, 64, 128, 256, 512)
"""Trials in one program of JAX's that are tried."""

LAYOUTS = ("columns", "rows")
"""Whether points are the columns of what is multiplied, or, as one would write it, its rows."""

TRIED_SHARE = 0.1
"""Part of the steps that trying out takes, of as many trials as the largest chunk has."""


def rates(side: int) -> list[float]:
    """The rates of either layer, as `experiment=fractal` has them."""
    return [float(f"{value:.3e}") for value in np.geomspace(LOW, HIGH, side)]


def arguments(side: int, steps: int, device: str) -> dict:
    """What `stabsweep.sweep` is given: the experiment with as many rates."""
    from stabsweep import config

    listed = ",".join(f"{value:.3e}" for value in rates(side))
    words = [
        "experiment=fractal", f"horizon={steps}", f"num_trials={side * side}",
        f"space.lr=[{listed}]", f"space.output_lr.values=[{listed}]", f"device={device}",
    ]  # fmt: skip
    return config.read_arguments(config.compose(words))


def label(loss: np.ndarray, initial_loss: float, blind_loss: float, steps: int):
    """The verdict on a run of which nothing but its losses is known."""
    from stabsweep.records import Trace
    from stabsweep.verdict import judge

    with np.errstate(over="ignore"):
        loss = np.asarray(loss, np.float32)
    norm = np.where(np.isfinite(loss), 1.0, np.nan)
    one, unknown = np.ones(len(loss)), np.full(len(loss), np.nan)
    return judge(Trace(loss, norm, one, unknown, one, initial_loss, blind_loss, steps)).verdict


# ------------------------------------------------------------------------------ each side


def run_ours(args: argparse.Namespace) -> dict:
    """Two maps by stabsweep; the losses of the second."""
    import stabsweep
    from stabsweep.store import read_trace

    times = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            given = arguments(args.side, args.steps, args.device)
            began = time.perf_counter()
            found = stabsweep.sweep(**given, folder=Path(folder) / "map", watcher="off")
            times.append((began, time.perf_counter()))
            losses = {
                (r.point["lr"], r.point["output_lr"]): read_trace(Path(folder) / "map", r)[0]  # type: ignore[index]
                for r in found.region.records
            }
    return report(args, times, losses, {"trial_steps": sum(map(len, losses.values()))})


def run_jax(args: argparse.Namespace) -> dict:
    """Two maps by JAX; the losses of the second."""
    import jax
    import jax.numpy as jnp

    theta_P, inputs_BD, targets_B1, _, _ = start(args)
    width = inputs_BD.shape[1]
    first = (
        jnp.asarray(theta_P[: width * width].reshape(width, width)),
        jnp.asarray(theta_P[width * width :].reshape(1, width)),
    )
    inputs_BD, targets_B1 = jnp.asarray(inputs_BD), jnp.asarray(targets_B1)
    inputs_DB, targets_1B = inputs_BD.T, targets_B1.T

    def rowwise(weights):
        hidden_BD = jnp.tanh(inputs_BD @ weights[0].T * np.sqrt(2 / width))
        return jnp.mean((hidden_BD @ weights[1].T / width - targets_B1) ** 2)

    def columnwise(weights):
        hidden_DB = jnp.tanh(weights[0] @ inputs_DB * np.sqrt(2 / width))
        return jnp.mean((weights[1] @ hidden_DB / width - targets_1B) ** 2)

    losses_of = {"rows": rowwise, "columns": columnwise}

    def train(lr, output_lr, steps, layout):
        def step(weights, _):
            value, slope = jax.value_and_grad(losses_of[layout])(weights)
            return (weights[0] - lr * slope[0], weights[1] - output_lr * slope[1]), value

        return jax.lax.scan(step, first, None, length=steps)[1]

    compiled = {}

    def map_of(points, steps, chunk, workers, layout):
        """The losses of all points, (len(points), steps)."""
        if (steps, layout) not in compiled:
            one = partial(train, steps=steps, layout=layout)
            compiled[steps, layout] = jax.jit(jax.vmap(lambda lr, output_lr: one(lr, output_lr)))
        program = compiled[steps, layout]
        # The last part is filled up, so that one program fits all.
        padded = np.concatenate([points, np.repeat(points[-1:], -len(points) % chunk, axis=0)])
        parts = [padded[at : at + chunk] for at in range(0, len(padded), chunk)]

        def work(part):
            return np.asarray(program(jnp.asarray(part[:, 0]), jnp.asarray(part[:, 1])))

        with ThreadPoolExecutor(workers) as pool:
            return np.concatenate(list(pool.map(work, parts)))[: len(points)]

    values = rates(args.side)
    points = np.array([(lr, out) for out in values for lr in values], np.float32)
    if not args.chunk:
        return {"settings": tried_out(args, map_of, points)}
    times = []
    for _ in range(2):
        began = time.perf_counter()
        losses = map_of(points, args.steps, args.chunk, args.workers, args.layout)
        times.append((began, time.perf_counter()))
    named = [(lr, out) for out in values for lr in values]
    return report(args, times, dict(zip(named, losses, strict=True)), {"trial_steps": losses.size})


def tried_out(args: argparse.Namespace, map_of, points: np.ndarray) -> dict:
    """The fastest number of trials a program, of threads that run programs, and layout."""
    steps = max(int(args.steps * TRIED_SHARE), 5)
    most = max(min(max(CHUNKS), len(points)), 1)
    few = points[np.random.default_rng(0).permutation(len(points))[:most]]
    found = {}
    chunks = [size for size in CHUNKS if size <= most] or [most]
    workers = sorted({1, len(os.sched_getaffinity(0))})
    for way in itertools.product(chunks, workers, LAYOUTS):
        map_of(few, steps, *way)  # Compiles.
        began = time.perf_counter()
        map_of(few, steps, *way)
        found[time.perf_counter() - began] = dict(
            zip(("chunk", "workers", "layout"), way, strict=True)
        )
    return found[min(found)]


def start(args: argparse.Namespace):
    """Weights, inputs, targets, initial and blind loss, from our own setup."""
    from stabsweep.api import DEFAULTS
    from stabsweep.engine._base import Starts
    from stabsweep.plan import Plan
    from stabsweep.records import Trial

    given = {**DEFAULTS, **arguments(args.side, args.steps, "cpu")}
    setup = Plan.make(given).setup({})
    task = setup.task
    point = {"lr": 1.0, "output_lr": 1.0}
    begun = Starts(setup)[Trial(0, point, 0)]
    data = [task.inputs_ND.numpy(), task.targets_N1.numpy()]  # type: ignore[attr-defined]
    return begun.theta_P.numpy(), *data, begun.initial_loss, task.blind_loss


def report(args: argparse.Namespace, times, losses: dict, more: dict) -> dict:
    """What a child tells of its two maps; losses go through a file."""
    names = list(losses)
    whole = np.full((len(names), args.steps), np.nan, np.float32)
    for row, name in enumerate(names):
        whole[row, : len(losses[name])] = losses[name]
    lengths = [len(losses[name]) for name in names]
    np.savez(args.child, names=np.array(names), losses=whole, lengths=lengths)
    (_, first), (began, ended) = times
    # perf_counter may begin anywhere; what it says now is `time.time()`.
    shift = time.time() - time.perf_counter()
    return {"first": first + shift - args.began, "again": ended - began, **more}


# ------------------------------------------------------------------------------ both


def child(args: argparse.Namespace, side: str, path: Path, **more) -> dict:
    """What one side tells, run by itself on the cores that are to be used."""
    given = {
        "side": args.side, "steps": args.steps, "device": args.device, "only": side,
        "child": path, "began": time.time(), **more,
    }  # fmt: skip
    words = [str(word) for key, value in given.items() for word in (f"--{key}", value)]
    cores = sorted(os.sched_getaffinity(0))[: args.cores]
    done = subprocess.run(
        [sys.executable, __file__, *words],
        env={**os.environ, "OMP_NUM_THREADS": str(len(cores))},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def agreement(args: argparse.Namespace, folder: Path) -> dict:
    """Share of the trials to which the losses of both sides give the same verdict."""
    _, _, _, initial_loss, blind_loss = start(args)
    verdicts = []
    for side in ("ours", "jax"):
        with np.load(folder / f"{side}.npz") as kept:
            rows = zip(kept["names"], kept["losses"], kept["lengths"], strict=True)
            verdicts.append(
                {
                    tuple(np.float32(name).tolist()): label(
                        loss[:length], initial_loss, blind_loss, args.steps
                    )
                    for name, loss, length in rows
                }
            )
    ours, theirs = verdicts
    assert ours.keys() == theirs.keys()
    same = np.mean([ours[name] is theirs[name] for name in ours])
    stable = np.mean([ours[name].is_stable == theirs[name].is_stable for name in ours])
    lost = np.mean([(ours[n].label == "diverged") == (theirs[n].label == "diverged") for n in ours])
    trained = np.mean([ours[name].is_stable for name in ours])
    return {"same_verdict": same, "same_stable": stable, "same_diverged": lost, "stable": trained}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", type=int, default=64, help="rates of either layer")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="that both sides get")
    parser.add_argument("--repeats", type=int, default=1, help="of both sides, in turn; medians")
    parser.add_argument(
        "--device", default="cpu", help="cpu or cuda; JAX needs one of its own there"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    for hidden, kind in (("only", str), ("child", Path), ("began", float)):
        parser.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--chunk", type=int, default=0, help="trials a program of JAX's; 0 tries")
    parser.add_argument("--workers", type=int, default=1, help="threads of JAX's programs")
    parser.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of JAX's products")
    parser.add_argument("--alone", action="store_true", help="ours only, without JAX")
    args = parser.parse_args()
    if not args.alone and importlib.util.find_spec("jax") is None:
        cuda = "[cuda12]" if args.device != "cpu" else ""
        sys.exit(f"JAX is missing: pip install 'jax{cuda}' (it is no dependency of stabsweep)")
    if args.only:
        os.environ.setdefault("JAX_PLATFORMS", "cpu" if args.device == "cpu" else "cuda")
        print(json.dumps({"ours": run_ours, "jax": run_jax}[args.only](args)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = {"chunk": args.chunk, "workers": args.workers, "layout": args.layout}
        if not args.chunk and not args.alone:
            settings = child(args, "jax", folder / "tried.npz")["settings"]
        runs: dict[str, list[dict]] = {"ours": [], "jax": []}
        for _ in range(args.repeats):
            runs["ours"].append(child(args, "ours", folder / "ours.npz"))
            if not args.alone:
                runs["jax"].append(child(args, "jax", folder / "jax.npz", **settings))
        agreed = {} if args.alone else agreement(args, folder)
    number = args.side**2
    rows = {
        side: {key: statistics.median(run[key] for run in told) for key in told[0]}
        for side, told in runs.items()
        if told
    }
    print(
        f"{args.side} x {args.side} trials of {args.steps} steps, {args.device}, {args.cores} cores"
    )
    print(f"{'':<10} {'first':>8} {'again':>8} {'ms a trial':>11} {'trial-steps':>12}")
    for side, row in rows.items():
        print(
            f"{side:<10} {row['first']:>7.1f}s {row['again']:>7.1f}s "
            f"{row['again'] / number * 1e3:>11.2f} {row['trial_steps']:>12.0f}"
        )
    ratios = {}
    if not args.alone:
        ratios = {key: rows["jax"][key] / rows["ours"][key] for key in ("first", "again")}
        first, again = ratios.values()
        print(f"JAX / ours {first:>7.2f}x {again:>7.2f}x   (JAX: {settings})")
        print(
            f"same verdict {agreed['same_verdict']:.2%}, of stable {agreed['same_stable']:.2%}, of "
            f"diverged {agreed['same_diverged']:.2%} ({agreed['stable']:.0%} are stable)"
        )
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {
        "side": args.side, "steps": args.steps, "cores": args.cores, "device": args.device,
        "jax": settings, "rows": rows, "ratios": ratios, "agreement": agreed,
    }  # fmt: skip
    (args.out / f"fractal_jax_{args.device}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
