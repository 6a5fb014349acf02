"""Is the pick good? `experiment=quick` against dense oracles, a constant, and today's LR finders.

    python benchmarks/pick_quality.py [--cases S1 S2 ...] [--runs 5] [--oracle]

An oracle is the real run (three times the base steps, twice for the Transformers; a cosine from the
peak rate down to a tenth of it, no warmup) on a dense grid of rates, four a decade, with more seeds
around the best rate and the edge. It is kept in `pick_quality/oracle.csv`; `--oracle` trains what
is missing there. The runs of the tool are kept in `results/pick_quality_runs.json`, by case and
run, and what is there is not run again (delete it to begin anew). What today's LR finders suggest
is read from `results/lr_finders.json`, which `lr_finders.py` writes.

A pick is above the usable edge when it lies above the last rate of the grid, going up from the
best, at which every seed of the oracle keeps half of (blind - best). Its regret is (loss - best) /
(blind - best), at most 1, of the oracle's mean over seeds; between two rates on a line in log lr.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import math
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

import stabsweep
from stabsweep import model as models
from stabsweep import task as tasks
from stabsweep.aside import train
from stabsweep.plan import Plan
from stabsweep.proof import CONFIRM

HERE = Path(__file__).parent
ORACLE = HERE / "pick_quality" / "oracle.csv"
COLUMNS = ("case", "lr", "seed", "final_loss", "blind_loss", "verdict")

ORACLE_SEED = 1000
"""Seeds of the oracles: none of them is one that a sweep of this file trains."""

LOST, GOOD = 0.5, 0.1
"""Shares of (blind - best): more is past the usable edge, less is in the good band."""


@dataclass(frozen=True)
class Case:
    """A setup: what is trained, and how long.

    Attributes:
        title: in words.
        model, task, optimizer: as a sweep takes them; the first two made when they are needed.
        constant: the folklore rate of the optimizer.
        base_steps: horizon of the sweep.
        longer: the real run's steps over them.
        batch_size, more: other arguments of the sweep.
        quarters: the oracle's grid, 10^(n/4) for n from the first to the last of these.
        seeds: of the oracle around the best rate and the edge.
        was_frozen: whether it was chosen before any figure of it was seen, to be held out.
    """

    title: str
    model: Callable[[], Any]
    task: Callable[[], Any]
    optimizer: Any
    constant: float
    base_steps: int = 400
    longer: int = 3
    batch_size: int = 64
    more: dict[str, Any] = field(default_factory=dict)
    quarters: tuple[int, int] = (-20, 4)
    seeds: int = 3
    was_frozen: bool = False


def mlp() -> dict[str, Any]:
    return {"name": "mlp", "depth": 5, "width": 128}


@cache
def adding() -> tasks.Task:
    return tasks.build("adding")


def rnn() -> Callable[[], nn.Module]:
    """A tanh RNN whose recurrence is orthogonal and whose readout starts at the mean target."""
    task = adding()
    mean = float(task.targets_N1.mean())  # type: ignore[attr-defined]

    def build_rnn() -> nn.Module:
        module = models.build("rnn", task.signature)
        nn.init.orthogonal_(module.recurrence.weight_hh_l0)
        nn.init.constant_(module.readout.bias, mean)
        return module

    return build_rnn


@cache
def library() -> tasks.Task:
    """The first million characters of Python's standard library, windows of 64."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = "".join(
        p.read_text(encoding="utf-8", errors="ignore") for p in sorted(folder.glob("*.py"))
    )
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(c for c in text[:1_000_000] if c.isascii()))
        file.flush()
        return tasks.build("text", path=file.name, length=64)


def decoder(norm: str) -> Callable[[], dict[str, Any]]:
    return lambda: {"name": "transformer", "depth": 2, "width": 64, "heads": 4, "norm": norm}


class CNN(nn.Module):
    """Two convolutions with BatchNorm on the 8x8 pictures, then the mean over the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        )
        self.readout = nn.Linear(32, 10)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.readout(self.layers(pixels.view(-1, 1, 8, 8)).mean((2, 3)))


SGD = {"name": "sgd", "momentum": 0.9}
# Stacked it is slower than one by one on one core (throughput.py).
TEXT: dict[str, Any] = {
    "longer": 2,
    "batch_size": 16,
    "more": {"engine": "loop"},
    "quarters": (-13, -4),
    "seeds": 2,
}
CASES = {
    "S1": Case("MLP 64-128x4-10 on digits, SGD", mlp, lambda: "digits", SGD, 1e-2),
    "S2": Case("the same, AdamW", mlp, lambda: "digits", "adamw", 1e-3),
    "S3b": Case("tanh RNN on adding, SGD", rnn, adding, SGD, 1e-2, base_steps=600),
    "S4b": Case("the same, Adam", rnn, adding, "adam", 1e-3, base_steps=600),
    "S5": Case("pre-LN Transformer on text, AdamW", decoder("pre"), library, "adamw", 1e-3, **TEXT),
    "S6": Case("the same, post-LN", decoder("post"), library, "adamw", 1e-3, **TEXT),
    "H1": Case(
        "MLP 10-64-64-1 on diabetes, RMSprop",
        lambda: {"name": "mlp", "depth": 3, "width": 64, "activation": "tanh"},
        lambda: "regression",
        "rmsprop",
        1e-3,
        was_frozen=True,
    ),
    "H2": Case(
        "GRU 32 on temporal order 20, Adam, clipped at 1",
        lambda: {"name": "rnn", "cell": "gru", "hidden": 32},
        lambda: {"name": "temporal_order", "length": 20},
        "adam",
        1e-3,
        more={"clip_norm": 1.0},
        was_frozen=True,
    ),
    "H3": Case(
        "MLP 64-128x3-10 with LayerNorm, GELU, on digits, Lion",
        lambda: {"name": "mlp", "activation": "gelu", "norm": "layer"},
        lambda: "digits",
        "lion",
        1e-4,
        was_frozen=True,
    ),
    "H4": Case(
        "CNN 16-32 with BatchNorm on digits, SGD",
        lambda: CNN,
        lambda: "digits",
        SGD,
        1e-2,
        was_frozen=True,
    ),
}
"""S1 to S6 were there while `quick` was made; H1 to H3 were written down before any figure of
this file was seen, H4 later, before any figure of it was."""


def arguments(case: Case) -> dict[str, Any]:
    """What a sweep of the case is given; the schedule is that of the real run, as a user has it."""
    return {
        "model": case.model(),
        "task": case.task(),
        "optimizer": case.optimizer,
        "batch_size": case.batch_size,
        "horizon": case.base_steps,
        "schedule": "cosine_tenth",
        "device": "cpu",
        **case.more,
    }


# --------------------------------------------------------------------------------- the oracle


def train_oracle(name: str, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a case's oracle that are not known yet."""
    case = CASES[name]
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(stabsweep.sweep).parameters.items()
    }
    low, high = case.quarters
    rates = [float(f"{10 ** (n / 4):.4g}") for n in range(low, high + 1)]
    plan = Plan.make(
        {
            **defaults,
            **arguments(case),
            "space": {"lr": rates},
            "horizon": case.longer * case.base_steps,
        }
    )
    rows = [row for row in known if row["case"] == name]

    def add(wanted: Sequence[float], seed: int) -> None:
        done = {row["lr"] for row in rows if row["seed"] == seed}
        points = [{"lr": lr} for lr in wanted if lr not in done]
        for record in train(plan, points, [seed]) if points else []:
            rows.append(
                {
                    "case": name,
                    "lr": record.lr,
                    "seed": seed,
                    "final_loss": record.final_loss if record.state == "complete" else None,
                    "blind_loss": record.blind_loss,
                    "verdict": record.verdict.label,
                }
            )

    add(rates, ORACLE_SEED)
    found = Oracle(rows)
    near = [lr for lr in rates if found.best_lr / 2 < lr < 4 * found.first_bad]
    for seed in range(ORACLE_SEED + 1, ORACLE_SEED + case.seeds):
        add(near, seed)
    return rows


class Oracle:
    """What a dense grid of real runs says of every rate.

    Attributes:
        best_lr, best_loss: of the lowest mean loss; `blind_loss` of a model that ignores its input.
        last_good: highest rate, going up from the best, that every seed could use.
        first_bad: the rate above it.
        band: lowest and highest rate around the best that are within a tenth of (blind - best).
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.blind_loss = statistics.median(row["blind_loss"] for row in rows)
        self.rates = sorted({row["lr"] for row in rows})
        by_rate = {lr: [row for row in rows if row["lr"] == lr] for lr in self.rates}
        self.losses = {lr: [self._loss(row) for row in by_rate[lr]] for lr in self.rates}
        self.best_lr = min(self.rates, key=lambda lr: statistics.fmean(self.losses[lr]))
        self.best_loss = statistics.fmean(self.losses[self.best_lr])
        place = self.rates.index(self.best_lr)
        good = place
        while good + 1 < len(self.rates) and self.is_usable(self.rates[good + 1]):
            good += 1
        self.last_good = self.rates[good]
        self.first_bad = self.rates[good + 1] if good + 1 < len(self.rates) else math.inf
        low = high = place
        while low > 0 and self.regret(self.rates[low - 1]) <= GOOD:
            low -= 1
        while high + 1 < len(self.rates) and self.regret(self.rates[high + 1]) <= GOOD:
            high += 1
        self.band = self.rates[low], self.rates[high]

    def _loss(self, row: dict[str, Any]) -> float:
        """A final loss, at most the blind one: worse than that is nothing either."""
        loss = row["final_loss"]
        return self.blind_loss if loss is None else min(loss, self.blind_loss)

    def is_usable(self, lr: float) -> bool:
        """Whether every seed kept half of (blind - best)."""
        lost = max(self.losses[lr]) - self.best_loss
        return lost <= LOST * (self.blind_loss - self.best_loss)

    def regret(self, lr: float) -> float:
        """Of a rate: 0 is the best of the grid, 1 a model that ignores its input."""
        if not self.rates[0] <= lr <= self.rates[-1]:
            return 1.0
        above = next(n for n, rate in enumerate(self.rates) if rate >= lr)
        below = max(above - 1, 0)
        ends = self.rates[below], self.rates[above]
        means = [statistics.fmean(self.losses[end]) for end in ends]
        share = math.log(lr / ends[0]) / math.log(ends[1] / ends[0]) if above != below else 1.0
        loss = means[0] + share * (means[1] - means[0])
        return (loss - self.best_loss) / (self.blind_loss - self.best_loss)


def read_oracles() -> list[dict[str, Any]]:
    if not ORACLE.exists():
        return []
    with ORACLE.open(encoding="utf-8", newline="") as file:
        return [
            {
                "case": row["case"],
                "lr": float(row["lr"]),
                "seed": int(row["seed"]),
                "final_loss": float(row["final_loss"]) if row["final_loss"] else None,
                "blind_loss": float(row["blind_loss"]),
                "verdict": row["verdict"],
            }
            for row in csv.DictReader(file)
        ]


def save_oracle(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Writes a case's rows beside those of the others, which are read anew."""
    ORACLE.parent.mkdir(exist_ok=True)
    others = [row for row in read_oracles() if row["case"] != name]
    kept = sorted([*others, *rows], key=lambda row: (row["case"], row["lr"], row["seed"]))
    with ORACLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in kept:
            shown = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
            writer.writerow(shown)


# ----------------------------------------------------------------------------------- the tool

QUICK = ("bracket", "num_trials", "seeds", "confirm", "stress", "space")
"""What `conf/experiment/quick.yaml` says of the procedure; the rest is the case's."""

SEEDS_APART = 100
"""Seeds of two runs of the tool lie so far apart that none is used twice."""


def quick(name: str, number: int) -> dict[str, Any]:
    """One run of `experiment=quick`, with seeds of its own: pick and cost."""
    path = HERE.parent / "conf" / "experiment" / "quick.yaml"
    procedure = yaml.safe_load(path.read_text(encoding="utf-8"))
    given = {**arguments(CASES[name]), **{key: procedure[key] for key in QUICK}, "sampler": "grid"}
    first = 1 + number * SEEDS_APART
    given["seeds"] = list(range(first, first + procedure["seeds"]))
    began = time.perf_counter()
    result = stabsweep.sweep(**given, watcher="off")
    return {
        "lr": result.pick.lr,
        "edge_lr": result.region.rows[0].edge.lr,
        "cost": result.cost,
        "reason": result.pick.reason,
        "candidate": [result.candidate.lr, result.candidate.final_loss],
        "longer": [
            [p.record.lr, p.record.seed, p.record.final_loss]
            for p in result.proofs
            if p.test == CONFIRM
        ],
        "notes": [note for note in result.notes if not note.startswith("engine")],
        "seconds": round(time.perf_counter() - began, 1),
    }


def score(oracle: Oracle, lr: float | None) -> dict[str, Any]:
    """How good a rate is; without one there is nothing to use, and nothing that breaks."""
    if lr is None:
        return {"above": False, "low": False, "good": False, "regret": 1.0}
    # A pick is written with two digits.
    at_most = 1.02
    regret = min(max(oracle.regret(lr), 0.0), 1.0)
    return {
        "above": lr > oracle.last_good * at_most,
        "low": lr < oracle.best_lr / 10 / at_most,
        "good": regret <= GOOD,
        "regret": regret,
    }


def summed(name: str, scores: Sequence[dict[str, Any]], costs: Sequence[int]) -> dict[str, Any]:
    return {
        "what": name,
        "runs": len(scores),
        **{key: sum(row[key] for row in scores) for key in ("above", "low", "good")},
        "regret": statistics.fmean(row["regret"] for row in scores),
        "cost": statistics.fmean(costs),
    }


HEAD = f"{'':<46} {'above':>7} {'< best/10':>9} {'in band':>8} {'regret':>7} {'cost':>7}"


def line(row: dict[str, Any]) -> str:
    runs = row["runs"]
    return (
        f"{row['what'][:46]:<46} {row['above']:>4}/{runs:<2} {row['low']:>6}/{runs:<2} "
        f"{row['good']:>5}/{runs:<2} {row['regret']:>7.3f} {row['cost']:>7,.0f}"
    )


def report(
    runs: dict[str, dict[str, Any]], finders: dict[str, dict[str, dict[str, Any]]]
) -> dict[str, Any]:
    """Prints and returns the table of what was run: of the tool by case and run, of LR finders by
    case, finder and run.
    """
    by_case: dict[str, list[dict[str, Any]]] = {name: [] for name in CASES}
    for row in read_oracles():
        by_case[row["case"]].append(row)
    known = {name: Oracle(rows) for name, rows in by_case.items() if rows}
    cases: list[dict[str, Any]] = []
    groups: dict[bool, list[tuple[dict[str, Any], int, dict[str, Any]]]] = {False: [], True: []}
    others: dict[bool, dict[str, list[tuple[dict[str, Any], int]]]] = {False: {}, True: {}}
    print(HEAD)
    for name, oracle in known.items():
        case = CASES[name]
        mine = [run for _, run in sorted(runs.get(name, {}).items())]
        folklore = score(oracle, case.constant)
        scores = [score(oracle, run["lr"]) for run in mine]
        costs = [sum(run["cost"].values()) for run in mine]
        groups[case.was_frozen] += zip(scores, costs, [folklore] * len(mine), strict=True)
        for finder, theirs in finders.get(name, {}).items():
            others[case.was_frozen].setdefault(finder, []).extend(
                (score(oracle, run["lr"]), run["cost"]) for run in theirs.values()
            )
        seen = {
            "best_lr": oracle.best_lr,
            "best_loss": oracle.best_loss,
            "blind_loss": oracle.blind_loss,
            "last_good_lr": oracle.last_good,
            "first_bad_lr": oracle.first_bad,
            "band": list(oracle.band),
        }
        row = summed(f"{name} {case.title}", scores, costs) if mine else {"what": name}
        cases.append({**row, "oracle": seen, "picks": [run["lr"] for run in mine]})
        cases[-1]["constant"] = {"lr": case.constant, **folklore}
        if mine:
            print(line(row))
    table = []
    for was_frozen, group in groups.items():
        if group:
            scores, costs, folklore = (list(column) for column in zip(*group, strict=True))
            of = "held-out cases" if was_frozen else "S1 to S6"
            table.append(summed(f"experiment=quick, {of}", scores, costs))
            table.append(summed(f"a constant, {of}", folklore, [0]))
    for was_frozen, by_finder in others.items():
        of = "held-out cases" if was_frozen else "S1 to S6"
        for finder, group in by_finder.items():
            scores, costs = (list(column) for column in zip(*group, strict=True))
            table.append(summed(f"{finder}, {of}", scores, costs))
    for row in table:
        print(line(row))
    return {"cases": cases, "table": table}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--oracle", action="store_true", help="train what the oracles lack")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.oracle:
        for name in args.cases:
            save_oracle(name, train_oracle(name, read_oracles()))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "pick_quality_runs.json"
    for number in range(args.runs):
        for name in args.cases:
            runs = json.loads(path.read_text()) if path.exists() else {}
            if str(number) not in runs.setdefault(name, {}):
                runs[name][str(number)] = quick(name, number)
                path.write_text(json.dumps(runs, indent=1) + "\n")
    runs = json.loads(path.read_text()) if path.exists() else {}
    path = args.out / "lr_finders.json"
    found = report(runs, json.loads(path.read_text()) if path.exists() else {})
    (args.out / "pick_quality.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
