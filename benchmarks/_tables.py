"""Real edges: verdicts of a reference model on a fine grid, so that a look-up plays a trial."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from _landscapes import HIGH, LOW, Landscape

PATH = Path(__file__).parent / "results" / "boundary_tables.json"
NUM_RATES, NUM_ROWS, SPAN = 64, 16, 3.0

SWEEPS = {
    "mlp": {
        "model": {"name": "mlp", "width": 64}, "task": "digits", "optimizer": "sgd",
        "horizon": 80, "batch_size": 64, "low": 1e-2,
        "row": ("init_gain", np.geomspace(0.3, 3, NUM_ROWS)),
    },
    "rnn": {
        "model": {"name": "rnn", "hidden": 32},
        "task": {"name": "sequential_digits", "step": "row"}, "optimizer": "sgd",
        "horizon": 80, "batch_size": 32, "low": 1e-2,
        "row": ("clip_norm", np.geomspace(0.1, 10, NUM_ROWS)),
    },
    "transformer": {
        "model": {"name": "transformer", "depth": 1, "width": 32, "heads": 2},
        "task": {"name": "text", "length": 16}, "optimizer": "adamw",
        "horizon": 80, "batch_size": 8, "low": 1e-3,
        "row": ("warmup_steps", np.linspace(0, 60, NUM_ROWS).astype(int)),
    },
}  # fmt: skip


def compute() -> None:
    """Trains all grids (some minutes) and keeps their verdicts, a line of 0 and 1 a row."""
    from stabsweep import sweep

    tables = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name, given in SWEEPS.items():
        if name in tables:
            continue
        given = dict(given)
        axis, values = given.pop("row")
        low = given.pop("low")
        rates = [float(f"{v:.6g}") for v in low * np.geomspace(1, 10**SPAN, NUM_RATES)]
        rows = [float(f"{v:.4g}") if axis != "warmup_steps" else int(v) for v in values]
        began = time.perf_counter()
        found = sweep(
            **given, space={"lr": rates, axis: rows}, sampler="grid", seeds=1, watcher="off",
            device="cpu", num_trials=NUM_RATES * NUM_ROWS,
        )  # fmt: skip
        failed = {(r.point[axis], r.lr): not r.verdict.is_stable for r in found.region.records}
        tables[name] = {
            "axis": axis,
            "rows": rows,
            "low": low,
            "seconds": round(time.perf_counter() - began),
            "failed": ["".join(str(int(failed[row, lr])) for lr in rates) for row in rows],
        }
        PATH.write_text(json.dumps(tables, indent=1) + "\n")
        print(name, tables[name]["seconds"], "s", flush=True)


def table(name: str, seed: int) -> Landscape:
    """A grid as a landscape: beyond its rates nothing fails below and all fails above.

    Each seed shifts it along the rates, so that no lattice is lucky.
    """
    found = json.loads(PATH.read_text())[name]
    failed = np.array([[int(v) for v in row] for row in found["failed"]])
    rng = np.random.default_rng(seed)
    start = -3.5 + rng.uniform(-0.3, 0.3)
    step = SPAN / (NUM_RATES - 1)
    # The edge of a row: where the fewest verdicts of it and its two neighbours contradict it. Of
    # one row alone it would jump in the rough zone, and nobody could know it to 0.05 decades.
    held = np.cumsum(np.pad(failed, ((0, 0), (1, 0))), 1)
    contradicted = held + np.cumsum(np.pad(1 - failed, ((0, 0), (0, 1)))[:, ::-1], 1)[:, ::-1]
    beside = np.pad(contradicted, ((1, 1), (0, 0)), mode="edge")
    contradicted = beside[:-2] + beside[1:-1] + beside[2:]
    least = contradicted == contradicted.min(1, keepdims=True)
    middle = (least * np.arange(least.shape[1])).sum(1) / least.sum(1)
    edges = start + (middle - 0.5) * step

    def edge(z, c):
        return np.interp(z[:, 0] * (NUM_ROWS - 1), np.arange(NUM_ROWS), edges)

    def fails(x, z, c):
        place = np.round((x - start) / step).astype(int)
        row = np.round(z[:, 0] * (NUM_ROWS - 1)).astype(int)
        inside = failed[row, place.clip(0, NUM_RATES - 1)] == 1
        return np.where(place < 0, False, np.where(place >= NUM_RATES, True, inside))

    assert LOW < start and start + SPAN < HIGH
    return Landscape(name, edge, fails, rng)
