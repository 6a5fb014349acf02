"""The rows of `gpu.sh`: the tests on the device, trial-steps a second, the fractal; one table.

Trial-steps a second are those of `throughput.py` at several cohort sizes, beside the loop that a
user writes, on the same device; the fractal is that of `fractal_jax.py`, against JAX where JAX has
the device. Nothing is fetched. What is missing, fails, or has no time left is a line of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
MODELS = ("mlp", "rnn", "transformer")
COHORTS = {"cuda": (64, 256, 1024), "cpu": (8, 24)}
SMALL = {"cohorts": (4, 8), "side": 8, "steps": 50, "repeats": 1}
FULL = {"side": 64, "steps": 500, "repeats": 3}


class Clock:
    """Runs commands until the time is up; what went wrong is kept as a line."""

    def __init__(self, seconds: float) -> None:
        self.ends = time.monotonic() + seconds
        self.lines: list[str] = []

    def run(self, name: str, words: list[str], env: dict[str, str] | None = None) -> bool:
        """Whether a command ended well, in the time that is left."""
        left = self.ends - time.monotonic()
        if left < 5:
            self.lines.append(f"{name}: no time left")
            return False
        print(f"{name} ({left:.0f} s left)", file=sys.stderr, flush=True)
        try:
            done = subprocess.run(
                [sys.executable, *words],
                env={**os.environ, **(env or {})},
                timeout=left,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            self.lines.append(f"{name}: not done when the time was up")
            return False
        said = (done.stdout.strip() or done.stderr.strip()).splitlines() or ["nothing said"]
        if name == "tests":
            self.lines.append(f"pytest -m gpu: {said[-1].strip('= ')}")
        elif done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing said"]
            self.lines.append(f"{name}: failed, {said[-1]}")
        return not done.returncode


def throughput(clock: Clock, device: str, cohorts, repeats: int, folder: Path) -> list[tuple]:
    """Rows of each model: cohort size, trial-steps a second of ours, of the user's loop."""
    rows = []
    for size in cohorts:
        for model in MODELS:
            out = folder / f"{model}{size}"
            words = [HERE / "throughput.py", "--models", model, "--threads", 1]
            words += ["--repeats", repeats, "--trials", size, "--device", device, "--out", out]
            if clock.run(f"{model}, {size} trials", [str(word) for word in words]):
                (path,) = out.glob("throughput_*.json")
                (row,) = json.loads(path.read_text())
                rows.append((model, size, 1e3 / row["cohort"], 1e3 / row["plain"]))
    return rows


def fractal(clock: Clock, device: str, side: int, steps: int, folder: Path) -> list[tuple]:
    """Rows of the fractal map: trial-steps a second of ours, of JAX, with all that ours does."""
    words = [HERE / "fractal_jax.py", "--side", side, "--steps", steps, "--device", device]
    words += ["--out", folder]
    if not has_jax(device):
        extra = "" if device == "cpu" else "[cuda12]"
        clock.lines.append(f"fractal: JAX has no {device} here: pip install 'jax{extra}'")
        words.append("--alone")
    if not clock.run("fractal", [str(word) for word in words]):
        return []
    (path,) = folder.glob("fractal_jax_*.json")
    found = json.loads(path.read_text())
    number, each = side * side * steps, found["rows"]
    if found["agreement"]:
        same = found["agreement"]["same_verdict"]
        clock.lines.append(f"fractal: {same:.2%} of the verdicts on JAX's losses are the same")
    return [
        (
            f"fractal {side} x {side}, {name}",
            "",
            *(number / each[who][key] if who in each else None for who in ("ours", "jax")),
        )
        for name, key in (("with start-up", "first"), ("again", "again"))
    ]


def has_jax(device: str) -> bool:
    """Whether JAX is there and finds the device."""
    if importlib.util.find_spec("jax") is None:
        return False
    asked = f"import jax; jax.devices({'cpu' if device == 'cpu' else 'gpu'!r})"
    return not subprocess.run([sys.executable, "-c", asked], capture_output=True).returncode


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--cohorts", type=int, nargs="+", help="trials stacked at once")
    parser.add_argument("--small", action="store_true", help="sizes that only show that it works")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device is found: try sh benchmarks/gpu.sh --device cpu --small")
    sizes = {**FULL, "cohorts": COHORTS[args.device], **(SMALL if args.small else {})}
    sizes |= {"cohorts": args.cohorts} if args.cohorts else {}
    clock = Clock(60 * args.minutes)
    if importlib.util.find_spec("pytest") is None:
        clock.lines.append("pytest -m gpu: pytest is missing: pip install '.[test]'")
    else:
        clock.run("tests", ["-m", "pytest", "-q", "-m", "gpu", "-n", "0", "tests"])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        args_of = (clock, args.device)
        rows = fractal(*args_of, sizes["side"], sizes["steps"], folder)
        rows = throughput(*args_of, sizes["cohorts"], sizes["repeats"], folder) + rows
    kind = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    print(f"\n{kind}, torch {torch.__version__}; trial-steps a second")
    print(f"{'':<30} {'trials':>7} {'ours':>12} {'peer':>12} {'ratio':>8}")
    for name, size, ours, theirs in rows:
        peer = f"{theirs:>12,.0f} {ours / theirs:>7.1f}x" if theirs else ""
        print(f"{name:<30} {size:>7} {ours:>12,.0f} {peer}")
    print(*clock.lines, sep="\n")
    print("peer: the fastest form of a user's loop (throughput.py), for the fractal JAX")
    args.out.mkdir(parents=True, exist_ok=True)
    kept = {"device": kind, "torch": torch.__version__, "rows": rows, "said": clock.lines}
    (args.out / f"gpu_{args.device}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
