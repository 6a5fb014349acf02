"""How far other threads, vector levels and libraries move the last digits, and what training does.

    python benchmarks/drift.py [--steps 200] [--repeats 1] [--threads 1 2]
    python benchmarks/drift.py --seeds 8      # the spread of the final loss from seed to seed
    python benchmarks/drift.py --activations  # whether it is ReLU that makes the MLP drift

Takes the fingerprint of this machine (`stabsweep env drift`) in one child process for each
combination of threads, vector level and settings of MKL and oneDNN, and compares each with the
first: one thread, everything as it comes. Prints a row an operation and a column a setting, then
the trainings. A setting that no library heeds here shows as bitwise the same.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from stabsweep import fingerprint
from stabsweep.fingerprint import trainings
from stabsweep.growth import find_growth
from stabsweep.numerals import rate
from stabsweep.records import CURVES, Trace
from stabsweep.verdict import judge

SETTINGS = {
    "as it comes": {},
    "no vectors": {"ATEN_CPU_CAPABILITY": "default"},
    "MKL compatible": {"MKL_CBWR": "COMPATIBLE"},
    "oneDNN SSE4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "all old": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}
"""Name -> environment variables of the child process."""


def take(folder: Path, name: str, variables: dict[str, str], words: list[str]) -> Path:
    """The fingerprint of a child process."""
    told = {key for setting in SETTINGS.values() for key in setting}
    env = {key: value for key, value in os.environ.items() if key not in told}
    path = folder / f"{name}.json"
    command = [sys.executable, "-m", "stabsweep", "env", "drift", "-o", str(path), *words]
    subprocess.run(command, env={**env, **variables}, check=True, stdout=subprocess.DEVNULL)
    return path


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def compare_settings(args: argparse.Namespace) -> dict:
    """Every combination beside the first."""
    words = ["device=cpu", f"steps={args.steps}"]
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        first = None
        for threads in args.threads:
            count = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
            # Threads that wait would else take the cores from whoever else works here.
            count["OMP_WAIT_POLICY"] = "PASSIVE"
            for setting, variables in SETTINGS.items():
                for repeat in range(args.repeats):
                    name = setting + (f", {threads} threads" if threads > 1 else "")
                    name += f" ({repeat + 1})" if repeat else ""
                    print(f"\r{name} ...\033[K", end="", file=sys.stderr, flush=True)
                    path = take(Path(folder), name, {**count, **variables}, words)
                    taken = fingerprint.read(path)
                    first = first or taken
                    answer = fingerprint.compare(taken, first, (name, "first")).as_dict()
                    answer["seconds"] = taken.seconds
                    found[name] = answer
    print("\r\033[K", end="", file=sys.stderr)
    return found


def show(found: dict) -> None:
    """The tables of what was found; the first column is what all are compared with."""
    columns = list(found)[1:]
    keys = [(row["name"], row["precision"]) for row in found[columns[0]]["operations"]]
    rows = []
    for key in keys:
        cells = []
        for column in columns:
            operations = found[column]["operations"]
            row = next(r for r in operations if (r["name"], r["precision"]) == key)
            size = f"{row['ulps'] or '< 1'} ulp, {row['relative']:.0e}"
            cells.append("=" if row["word"] == "bitwise" else size)
        rows.append([" ".join(key), *cells])
    print(table(["operation", *columns], rows), end="\n\n")
    keys = [(row["model"], row["precision"]) for row in found[columns[0]]["trainings"]]
    rows = []
    for key in keys:
        cells = []
        for column in columns:
            row = next(r for r in found[column]["trainings"] if (r["model"], r["precision"]) == key)
            cells.append("=" if row["word"] == "bitwise" else _course(row))
        rows.append([" ".join(key), *cells])
    print(table(["training", *columns], rows), end="\n\n")
    for name, answer in found.items():
        print(f"{name}: {answer['sentence']} ({answer['seconds']:.0f} s)")


def _course(row: dict) -> str:
    largest = "inf" if row["largest"] is None else rate(row["largest"])
    if row["doubling_steps"] is None:
        return largest
    (_, _), (step, _) = row["corners"]
    end = f", level from {step:.0f}" if row["saturated"] else ""
    return f"{largest}, doubles in {row['doubling_steps']:.2g}{end}"


def seed_spreads(num_seeds: int, steps: int) -> dict:
    """Final losses from seed to seed: what `Recipe.seed_spread` holds."""
    spreads = {}
    for recipe in trainings.RECIPES:
        finals = []
        for seed in range(num_seeds):
            course = trainings.train(recipe, "fp32", torch.device("cpu"), steps, seed)
            curves = dict(zip(CURVES, course.curves, strict=True))
            trace = Trace(
                **curves,
                initial_loss=course.initial_loss,
                blind_loss=course.blind_loss,
                horizon=steps,
            )
            finals.append(judge(trace).final_loss)
        spreads[recipe.name] = float(np.std(finals, ddof=1))
        print(f"{recipe.name}: {np.mean(finals):.4f} +- {spreads[recipe.name]:.4f}")
    return spreads


_ACTIVATION = """
import sys, numpy, torch
from dataclasses import replace
from stabsweep.fingerprint import trainings
made = trainings.Plan.make
trainings.Plan.make = staticmethod(
    lambda given: made({**given, "model": {"name": "mlp", "activation": sys.argv[1]}})
)
cpu, steps = torch.device("cpu"), int(sys.argv[3])
for precision in ("fp32", "fp64"):
    course = trainings.train(trainings.RECIPES[0], precision, cpu, steps)
    numpy.save(f"{sys.argv[2]}-{precision}.npy", course.curves[0])
"""


def activations(steps: int) -> dict:
    """The MLP with other activations, without vectors against as it comes."""
    found: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        for activation in ("relu", "gelu", "tanh"):
            for setting in ("as it comes", "no vectors", "MKL compatible"):
                path = f"{folder}/{activation}-{setting}"
                env = {**os.environ, "OMP_NUM_THREADS": "1", **SETTINGS[setting]}
                command = [sys.executable, "-c", _ACTIVATION, activation, path, str(steps)]
                subprocess.run(command, env=env, check=True)
                for precision in ("fp32", "fp64"):
                    losses = np.load(f"{path}-{precision}.npy")
                    plain = np.load(f"{folder}/{activation}-as it comes-{precision}.npy")
                    grown = find_growth(losses, plain)
                    if setting != "as it comes":
                        key = f"{activation} {precision}, {setting}"
                        found[key] = [grown.largest, grown.doubling_steps]
                        print(key, rate(grown.largest), grown.doubling_steps or "no growth")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=trainings.NUM_STEPS)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--activations", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    path = args.out / "drift.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if args.seeds:
        kept["seed_spreads"] = seed_spreads(args.seeds, args.steps)
    elif args.activations:
        kept["activations"] = activations(args.steps)
    else:
        kept["settings"] = compare_settings(args)
        show(kept["settings"])
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
