"""How many trials a search needs until it knows the edge of stability to 0.05 decades.

Made-up edges whose truth is known (`_landscapes.py`; those of `_new_landscapes.py` were written
after the sampler was frozen), and real ones: verdicts of small reference models on fine grids,
which `--make` trains once (`_tables.py`). A trial is a look-up, trials come in cohorts of 32, the
error is the mean over rows, averaged over seeds; the count is where it goes below 0.05 for good,
between two cohorts by the logarithm. Grids have their best shape in hindsight. Learner2D needs
`pip install adaptive`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import _searches as searches
import _tables
import numpy as np
from _landscapes import OLD, crossing, make
from _new_landscapes import NEW

SEARCHES = {
    "boundary, edge only": (partial(searches.boundary, best_share=0.0), 288),
    "boundary": (searches.boundary, 352),
    "bisection, 8 rows": (searches.bisection, 512),
    "bisection, 16 rows": (partial(searches.bisection, num_rows=16), 512),
    "grid, best shape": (searches.grid, 2048),
    "random + SVM": (searches.random_svm, 2048),
    "Sobol + GP": (searches.sobol_gp, 512),
    "GP straddle": (searches.gp_straddle, 256),
    "adaptive Learner2D": (searches.learner2d, 512),
    "Optuna TPE": (searches.tpe, 256),
}
SLOW = ("Sobol + GP", "GP straddle", "adaptive Learner2D", "Optuna TPE")
"""Searches that get fewer seeds."""


def measure(search: str, land: str, num_seeds: int) -> dict | None:
    """Mean error (and wrong area) by trials, and the count that is wanted."""
    ask, budget = SEARCHES[search]
    runs, spent = [], []
    began = time.process_time()
    for seed in range(num_seeds):
        found = _tables.table(land, seed) if land in _tables.SWEEPS else make(land, seed)
        if search == "adaptive Learner2D" and found.num_axes > 1:
            return None
        # Three dozen rows for two axes: 6 x 6.
        given = {"num_rows": 6} if "bisection" in search and found.num_axes > 1 else {}
        run, ms = ask(found, seed, budget, **given)
        runs.append(run)
        spent.append(ms)
    length = min(len(run) for run in runs)
    counts = [point[0] for point in runs[0][:length]]
    error = np.mean([[point[1] for point in run[:length]] for run in runs], 0)
    area = np.mean([[point[2] for point in run[:length]] for run in runs], 0)
    reached = crossing(counts, error.tolist())
    return {
        "search": search,
        "landscape": land,
        "seeds": num_seeds,
        "trials": None if reached is None else round(reached),
        "most": counts[-1],
        "counts": counts,
        "error": error.round(4).tolist(),
        "wrong_area": None if np.isnan(area).any() else area.round(5).tolist(),
        "ask_ms": round(float(np.mean(spent)), 2),
        "seconds": round(time.process_time() - began, 1),
    }


def asking(num_trials: int) -> dict:
    """Milliseconds of CPU time that an ask takes on average, up to so many trials."""
    land = make(OLD[0], 0)
    return {
        "trials": num_trials,
        "ms": round(searches.boundary(land, 0, num_trials)[1], 2),
        "ms, one by one": round(searches.boundary(land, 0, min(num_trials, 512), cohort=1)[1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", action="store_true", help="train the grids of real edges first")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--slow-seeds", type=int, default=3)
    parser.add_argument("--landscapes", nargs="+", default=[*OLD, *_tables.SWEEPS, *NEW])
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    if args.make:
        _tables.compute()
    warnings.filterwarnings("ignore", module="sklearn")
    path = args.out / "boundary.json"
    kept = json.loads(path.read_text()) if path.exists() else {"rows": [], "asking": []}
    rows = {(row["search"], row["landscape"]): row for row in kept["rows"]}
    print(f"{'landscape':<28} {'search':<20} {'trials':>7} {'ask ms':>7}")
    for land in args.landscapes:
        for search in args.searches:
            num_seeds = args.slow_seeds if search in SLOW else args.seeds
            try:
                row = measure(search, land, num_seeds)
            except ImportError:
                continue
            if row is None:
                continue
            rows[search, land] = row
            trials = row["trials"] or f"> {row['most']}"
            print(f"{land:<28} {search:<20} {trials:>7} {row['ask_ms']:>7}", flush=True)
            kept["rows"] = list(rows.values())
            path.write_text(json.dumps(kept) + "\n")
    kept["asking"] = [asking(500), asking(2000)]
    print(*kept["asking"], sep="\n")
    path.write_text(json.dumps(kept) + "\n")


if __name__ == "__main__":
    main()
