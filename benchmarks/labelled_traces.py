"""The labelled traces of `verdicts.py`: how they were trained, how they are stored, their pictures.

Each setup is one row of a sweep: one seed, all fixed but the learning rate. `verdicts/labels.csv`
says which trials of which setups belong to the set and what was seen in their curves;
`verdicts/traces.npz` holds the curves; the `verdicts/sheet_*.png` are what was looked at. The set
was drawn once from all trials of all setups, some of each verdict and more of those just below an
edge. It misleads where a word is a matter of taste: there was one labeller.
"""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep import sweep
from stabsweep.executor import Local
from stabsweep.plan import Plan
from stabsweep.records import CURVES, Array, Trace, Trial

FOLDER = Path(__file__).parent / "verdicts"

STORED = tuple(name for name in CURVES if name != "lr")
"""The curves that are stored; no verdict looks at the learning rate of a step."""

COLUMNS = ("id", "setup", "lr", "steps", "label", "half", "note")


class LogOfSum(nn.Module):
    """The logarithm of a sum that is negative for some example: NaN before the first update."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).log()


class UnscaledNorm(nn.Module):
    """Divides by a standard deviation that is 0 for pixels which are always empty: 0 / 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear((x - x.mean(0)) / x.std(0))


class NormAtZero(nn.Module):
    """A norm taken at zero: the loss is finite, its gradient is 0 / 0."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.extra = nn.Parameter(torch.zeros(10))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (self.extra**2).sum().sqrt()


class Overflow(nn.Module):
    """Weights so large that the loss overflows float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 1)
        nn.init.constant_(self.linear.weight, 1e25)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def row(
    model: Any, task: Any, optimizer: Any, low: float, high: float, num: int = 12, **given: Any
) -> dict[str, Any]:
    lrs = [float(f"{lr:.3g}") for lr in np.geomspace(low, high, num)]
    return {"model": model, "task": task, "optimizer": optimizer, "lrs": lrs, **given}


def named(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, **arguments}


GRU, LSTM, RELU = (named("rnn", cell=cell) for cell in ("gru", "lstm", "relu"))
ROWS = named("sequential_digits", step="row")
ADDING, ORDER = named("adding", length=20), named("temporal_order", length=20)
POST, PRE4 = named("transformer", norm="post"), named("transformer", depth=4, width=32)
DEEP, TANH = named("mlp", depth=8, width=64), named("mlp", depth=6, activation="tanh")
SHALLOW = named("mlp", depth=2, width=512)
PLAIN = named("sgd", momentum=0.0)
SHORT = named("rmsprop", alpha=0.9)
FAST = named("adam", beta1=0.0, beta2=0.5)

SETUPS: dict[str, dict[str, Any]] = {
    "mlp_sgd": row("mlp", "digits", "sgd", 1e-4, 10),
    "mlp_sgd_clip": row("mlp", "digits", "sgd", 1e-3, 30, clip_norm=0.25),
    "mlp_sgd_warm": row("mlp", "digits", "sgd", 1e-3, 10, warmup_steps=120),
    "mlp_sgd_small_batch": row("mlp", "digits", PLAIN, 1e-2, 2, horizon=400, batch_size=4),
    "mlp_sgd_gain": row("mlp", "digits", PLAIN, 1e-4, 1, init_gain=3.0),
    "mlp_sgd_tanh": row(TANH, "digits", "sgd", 1e-3, 10, init="orthogonal"),
    "mlp_sgd_step": row("mlp", "digits", "sgd", 1e-2, 10, schedule="step"),
    "mlp_shallow": row(SHALLOW, "digits", PLAIN, 1e-2, 10),
    "mlp_adam": row("mlp", "digits", "adam", 1e-5, 3),
    "mlp_adam_cosine": row("mlp", "digits", "adam", 1e-4, 3, schedule="cosine", warmup_steps=20),
    "mlp_adam_fast": row("mlp", "digits", FAST, 1e-4, 1, horizon=400, batch_size=16),
    "mlp_adamw_deep": row(DEEP, "digits", "adamw", 1e-5, 1, warmup_steps=10),
    "mlp_rmsprop": row("mlp", "digits", "rmsprop", 1e-5, 1, horizon=400),
    "mlp_rmsprop_small": row(DEEP, "digits", "rmsprop", 1e-4, 1e-1, horizon=400, batch_size=8),
    "mlp_lion": row("mlp", "digits", "lion", 1e-6, 1),
    "mlp_nadam": row(DEEP, "digits", "nadam", 1e-4, 1),
    "mlp_radam": row("mlp", "digits", "radam", 1e-4, 10),
    "regression_sgd": row("mlp", "regression", "sgd", 1e-4, 3),
    "regression_wide": row(SHALLOW, "regression", PLAIN, 1e-3, 3),
    "regression_adam": row("mlp", "regression", "adam", 1e-5, 3),
    "regression_warm": row(DEEP, "regression", "sgd", 1e-3, 1, warmup_steps=150),
    "rnn_adam": row("rnn", "sequential_digits", "adam", 1e-5, 1, clip_norm=5.0),
    "rnn_rows_sgd": row("rnn", ROWS, "sgd", 1e-4, 10),
    "rnn_rows_sgd_clip": row("rnn", ROWS, "sgd", 1e-2, 30, clip_norm=1.0),
    "rnn_rows_rmsprop": row("rnn", ROWS, "rmsprop", 1e-5, 1),
    "relu_rows_sgd": row(RELU, ROWS, PLAIN, 1e-3, 10, horizon=400),
    "relu_adding": row(RELU, ADDING, "adam", 1e-4, 1),
    "gru_rows_adamw": row(GRU, ROWS, "adamw", 1e-4, 3),
    "gru_adding": row(GRU, ADDING, "adamw", 1e-4, 3, horizon=400),
    "gru_order": row(GRU, ORDER, "adam", 1e-4, 1, horizon=300),
    "lstm_adding": row(LSTM, ADDING, "rmsprop", 1e-4, 1),
    "tanh_order": row("rnn", ORDER, "adamw", 1e-4, 1, horizon=300),
    "pre_adamw": row("transformer", "text", "adamw", 1e-5, 1, batch_size=8, clip_norm=1.0),
    "pre_sgd": row("transformer", "text", "sgd", 1e-3, 30, batch_size=8),
    "pre_lion": row("transformer", "text", "lion", 1e-6, 3e-1, batch_size=8),
    "pre_deep_warm": row(PRE4, "text", "adam", 1e-4, 1, batch_size=8, warmup_steps=140),
    "post_adamw": row(POST, "text", "adamw", 1e-5, 1, batch_size=8),
    "post_sgd": row(POST, "text", "sgd", 1e-3, 30, batch_size=8, clip_norm=1.0),
    "uv": row(named("uv", width=512), "uv", PLAIN, 0.05, 2.2, 16, batch_size=1),
    "uv_seed": row("uv", "uv", PLAIN, 0.5, 2.2, 16, batch_size=1, seeds=[3]),
    "uv_adam": row("uv", "uv", "adam", 1e-4, 10, batch_size=1),
    "quadratic_sgd": row("vector", "quadratic", PLAIN, 1e-2, 4, 14, batch_size=1),
    "quadratic_clip": row("vector", "quadratic", PLAIN, 0.3, 30, 10, batch_size=1, clip_norm=0.1),
    "quadratic_adam": row("vector", "quadratic", "adam", 1e-4, 10, batch_size=1),
    "edge_small_batch": row("mlp", "digits", PLAIN, 0.08, 0.8, horizon=600, batch_size=8),
    "edge_momentum": row("mlp", "digits", "sgd", 0.03, 0.4, horizon=600, batch_size=8),
    "edge_adam_fast": row("mlp", "digits", FAST, 1e-3, 3e-2, horizon=600, batch_size=32),
    "edge_adam_deep": row(DEEP, "digits", FAST, 1e-3, 1e-2, horizon=400),
    "edge_rmsprop": row("mlp", "digits", SHORT, 1e-3, 1e-2, horizon=600),
    "edge_radam": row("mlp", "digits", "radam", 1e-2, 3e-1, horizon=300),
    "edge_warm": row("mlp", "digits", "sgd", 0.1, 1, horizon=300, warmup_steps=200),
    "edge_tanh_warm": row(TANH, "digits", "sgd", 0.05, 2, warmup_steps=140),
    "edge_tanh_clip": row(TANH, "digits", "sgd", 0.3, 100, clip_norm=1.0),
    "edge_lion": row(TANH, "digits", "lion", 1e-3, 1e-1),
    "edge_regression": row("mlp", "regression", SHORT, 1e-3, 1, horizon=400),
    "edge_rnn_rows": row("rnn", ROWS, "adamw", 3e-3, 1e-1, horizon=400, warmup_steps=200),
    "edge_rnn_rows_sgd": row("rnn", ROWS, "sgd", 0.05, 2, horizon=400, warmup_steps=250),
    "edge_relu_rows": row(RELU, ROWS, FAST, 1e-4, 3e-2, horizon=400, clip_norm=1.0),
    "edge_gru_rows": row(GRU, ROWS, "adamw", 1e-2, 0.5, warmup_steps=100),
    "edge_pre_warm": row(PRE4, "text", "adam", 3e-3, 0.3, batch_size=8, warmup_steps=150),
    "edge_post_warm": row(POST, "text", "adamw", 1e-3, 3e-2, batch_size=8, warmup_steps=150),
    "edge_quadratic": row("vector", "quadratic", "sgd", 1, 6, batch_size=1, clip_norm=1.0),
    "edge_quadratic_lion": row("vector", "quadratic", "lion", 1e-3, 3, batch_size=1),
    "warm_short": row("mlp", "digits", "sgd", 1e-3, 3, 8, warmup_steps=150, steps=100),
    "warm_short_rnn": row(GRU, ROWS, "adam", 1e-4, 1, 6, warmup_steps=90, steps=60),
    "broken_log": row(LogOfSum, "digits", "sgd", 1e-3, 1, 3),
    "broken_norm": row(UnscaledNorm, "digits", "adam", 1e-3, 1e-1, 3),
    "broken_root": row(NormAtZero, "digits", "sgd", 1e-3, 1, 3),
    "broken_overflow": row(Overflow, "regression", "adamw", 1e-3, 1, 3),
}
"""Name -> arguments of `stabsweep.sweep`, its learning rates, and how many `steps` are kept."""

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(sweep).parameters.items()
    if parameter.default is not parameter.empty
}


@dataclass(frozen=True)
class Labelled:
    """A trace and what was seen in it.

    Attributes:
        id: number on the sheets.
        setup: name of its row in `SETUPS`.
        lr: its peak learning rate.
        trace: its curves.
        lower, higher: what the next rates of its row that did not stall did: `learned`, `failed`,
            or `` where there is none; by `did`, not by the judge.
        label: the verdict given by looking at the curves.
        half: `tune` or `held_out`: thresholds may be changed by the first alone.
        note: why, where it was not plain.
    """

    id: int
    setup: str
    lr: float
    trace: Trace
    lower: str
    higher: str
    label: str
    half: str
    note: str


def train(name: str) -> list[Trace]:
    """The traces of a setup, one a learning rate."""
    given = dict(SETUPS[name])
    lrs, steps = given.pop("lrs"), given.pop("steps", None)
    asked = {**DEFAULTS, "seeds": [0], **given, "space": {"lr": lrs}, "num_trials": len(lrs)}
    plan = Plan.make(asked)
    executor = Local(plan.setup, [], plan.engine, len(lrs), lambda text: None)
    executor.admit([Trial(k, {"lr": lr}, plan.seeds[0]) for k, lr in enumerate(lrs)])
    traces: list[Trace | None] = [None] * len(lrs)
    for chunk in executor.advance(plan.horizon):
        if chunk.error is not None:
            raise RuntimeError(f"{name}: {chunk.error}")
        trace = Trace(
            **dict(zip(CURVES, chunk.curves, strict=True)),
            initial_loss=chunk.initial_loss,
            blind_loss=plan.task_of({}).blind_loss,
            horizon=plan.horizon,
            warmup_steps=int(plan.fixed["warmup_steps"] or 0),
            displacement=chunk.displacement,
        )
        traces[chunk.trial] = trace.truncated(steps) if steps else trace
    return [trace for trace in traces if trace is not None]


def did(trace: Trace) -> str:
    """`learned`, `failed` or `` for a stall: how a trace ended, in the plainest terms.

    Learned is a last tenth 10 % below start and blind loss; failed is not finite, or a last tenth
    10 % above both. At 5 % the noise of a plateau at the blind loss passes for learning.
    """
    loss = np.asarray(trace.loss, np.float64)
    if not (np.isfinite(loss) & np.isfinite(trace.grad_norm)).all():
        return "failed"
    final = float(loss[-max(5, len(loss) // 10) :].mean())
    if final < 0.9 * min(trace.initial_loss, trace.blind):
        return "learned"
    return "failed" if final > 1.1 * max(trace.initial_loss, trace.blind) else ""


def neighbours(traces: Sequence[Trace]) -> list[tuple[str, str]]:
    """For each trace of a row what lower and what higher rates did; learning counts more."""
    did_K = [did(trace) for trace in traces]

    def best(found: list[str]) -> str:
        return next((word for word in ("learned", "failed") if word in found), "")

    return [(best(did_K[:k]), best(did_K[k + 1 :])) for k in range(len(did_K))]


def save(labelled: Sequence[Labelled]) -> None:
    """Writes `traces.npz` and `labels.csv`; the curves lie one after the other."""
    arrays: dict[str, Array] = {
        name: np.concatenate([getattr(one.trace, name) for one in labelled]).astype(np.float32)
        for name in STORED
    }
    for name in STORED[1:]:
        arrays[name] = _coarse(arrays[name])
    traces = [one.trace for one in labelled]
    numbers = {
        "initial_loss": [trace.initial_loss for trace in traces],
        "blind_loss": [math.nan if t.blind_loss is None else t.blind_loss for t in traces],
        "displacement": [trace.displacement for trace in traces],
    }
    counts = {
        "num_steps": [trace.num_steps for trace in traces],
        "horizon": [trace.horizon for trace in traces],
        "warmup_steps": [trace.warmup_steps for trace in traces],
    }
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(
        FOLDER / "traces.npz",
        **arrays,
        **{name: np.array(values, np.float64) for name, values in numbers.items()},
        **{name: np.array(values, np.int32) for name, values in counts.items()},
        lower=np.array([one.lower for one in labelled]),
        higher=np.array([one.higher for one in labelled]),
    )
    with open(FOLDER / "labels.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for one in labelled:
            steps = one.trace.num_steps
            table.writerow([one.id, one.setup, one.lr, steps, one.label, one.half, one.note])


def load() -> list[Labelled]:
    """The labelled traces."""
    with open(FOLDER / "labels.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with np.load(FOLDER / "traces.npz", allow_pickle=False) as stored:
        kept = {name: stored[name] for name in stored.files}
    ends = kept["num_steps"].cumsum()
    found = []
    for k, line in enumerate(rows):
        span = slice(ends[k] - kept["num_steps"][k], ends[k])
        curves = {name: kept[name][span] for name in STORED}
        blind, lr = float(kept["blind_loss"][k]), float(line["lr"])
        trace = Trace(
            **curves,
            lr=np.full(len(curves["loss"]), lr, np.float32),
            initial_loss=float(kept["initial_loss"][k]),
            blind_loss=None if math.isnan(blind) else blind,
            horizon=int(kept["horizon"][k]),
            warmup_steps=int(kept["warmup_steps"][k]),
            displacement=float(kept["displacement"][k]),
        )
        context = (str(kept["lower"][k]), str(kept["higher"][k]))
        words = (line["label"], line["half"], line["note"])
        found.append(Labelled(int(line["id"]), line["setup"], lr, trace, *context, *words))
    return found


def make() -> None:
    """Trains the traces of `labels.csv` again, stores them and draws their sheets."""
    with open(FOLDER / "labels.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    trained = {}
    for name in dict.fromkeys(line["setup"] for line in rows):
        print(f"training {name}", flush=True)
        traces = train(name)
        trained[name] = list(zip(SETUPS[name]["lrs"], traces, neighbours(traces), strict=True))
    labelled = []
    for line in rows:
        lr = float(line["lr"])
        [(trace, context)] = [(t, c) for rate, t, c in trained[line["setup"]] if rate == lr]
        words = (line["label"], line["half"], line["note"])
        labelled.append(Labelled(int(line["id"]), line["setup"], lr, trace, *context, *words))
    save(labelled)
    draw(labelled)


def draw(labelled: Sequence[Labelled], columns: int = 5, num_rows: int = 5) -> None:
    """Draws the contact sheets: what is labelled, without label or verdict."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = columns * num_rows
    for first in range(0, len(labelled), size):
        figure = Figure((3.1 * columns, 2.55 * num_rows), layout="constrained")
        for place, one in enumerate(labelled[first : first + size]):
            _draw_panel(figure.add_subplot(num_rows, columns, place + 1), one)
        FigureCanvasAgg(figure)
        path = FOLDER / f"sheet_{first // size + 1:02}.png"
        figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
        _reduce(path)


def _draw_panel(axes: Any, one: Labelled) -> None:
    trace = one.trace
    loss = np.asarray(trace.loss, np.float64)
    finite = loss[np.isfinite(loss)]
    twin = axes.twinx()
    grad = np.asarray(trace.grad_norm, np.float64)
    known = np.where(np.isfinite(grad) & (grad > 0), grad, np.nan)
    twin.plot(known, color="#e0a050", lw=0.6, alpha=0.7)
    clips = np.asarray(trace.clip_coef) < 1
    if np.isfinite(known).any():
        twin.set_yscale("log")
    twin.yaxis.set_visible(False)
    axes.set_zorder(2)
    axes.patch.set_visible(False)
    axes.plot(loss, color="#1f4e9c", lw=0.8)
    for level, color in ((trace.initial_loss, "#999999"), (trace.blind, "#d62728")):
        if math.isfinite(level):
            axes.axhline(level, color=color, lw=0.7, ls="--")
    bad = np.flatnonzero(~(np.isfinite(loss) & np.isfinite(grad)))
    if len(bad):
        axes.axvline(bad[0], color="black", lw=1.2)
    top = abs(trace.initial_loss) if math.isfinite(trace.initial_loss) else 1.0
    wide = len(finite) and finite.max() > 6 * max(top, abs(trace.blind), 1e-30)
    low = len(finite) and finite.min() < 2e-2 * top and finite.min() > 0
    if wide or low:
        axes.set_yscale("log")
    ratios = np.asarray(trace.update_ratio, np.float64)[trace.num_steps // 2 :]
    ratios = ratios[np.isfinite(ratios)]
    ratio = float(np.median(ratios)) if len(ratios) else math.nan
    axes.tick_params(labelsize=6)
    warm = f" warm {trace.warmup_steps}" if trace.warmup_steps else ""
    end = float(loss[-max(5, len(loss) // 10) :].mean())
    axes.set_title(
        f"#{one.id} {one.setup} lr {one.lr:g}{warm}\nlower {one.lower or '-'}, higher "
        f"{one.higher or '-'}; |dw|/|w| {ratio:.0e}; clip {clips.mean():.0%}\n"
        f"start {trace.initial_loss:.3g}, blind {trace.blind:.3g}, end {end:.3g}",
        fontsize=6.5,
    )


def _reduce(path: Path) -> None:
    """The picture with 32 colours: a third of its bytes."""
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(32)
    small.save(path, optimize=True)


def _coarse(values: Array) -> Array:
    """Float32 cut to 12 bits of mantissa, which compress better; what is below 1 stays below."""
    return (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFF800)).view(np.float32)
