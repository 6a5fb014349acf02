"""The real run: a model trained under a guard, with schedule, checkpoints and log."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from stabsweep import report
from stabsweep.api import DEFAULTS
from stabsweep.engine import (
    INITIAL_SCALE,
    TRAIN_NOISE,
    Setup,
    Starts,
    begin,
    borrowed_generators,
    seed_generators,
)
from stabsweep.guard import GradientGuard, Outcome
from stabsweep.limits import check_count, check_value
from stabsweep.numerals import duration, loss, plural, rate, share
from stabsweep.optimizer import learning_rates
from stabsweep.plan import Plan
from stabsweep.prediction import Prediction
from stabsweep.records import Trial, Verdict, finite
from stabsweep.verdict import Judgement

NUM_CHECKPOINTS = 10
"""Checkpoints in a run, by default: what a kill can cost is a tenth of it. Ours."""

OF_SEARCH = {
    "sampler": "grid",
    "bracket": False,
    "extend": False,
    "confirm": False,
    "stress": False,
    "curvature": False,
}
"""What a sweep is told of its search, where there is none."""


@dataclass(frozen=True)
class Training:
    """What became of a run.

    Attributes:
        subject: `adamw on mlp`.
        lr: the peak rate.
        judgement: the verdict of the sweeps' judge; None before a first step.
        summary_values: what `summary.yaml` holds, see `stabsweep.guard.journal`.
        prediction: what a map expected; None without one.
        folder: where the run is.
        interrupted: whether Ctrl-C ended it.
    """

    subject: str
    lr: float
    judgement: Judgement | None
    summary_values: Mapping[str, Any]
    prediction: Prediction | None
    folder: Path
    interrupted: bool = False

    @property
    def is_ok(self) -> bool:
        """Whether the run was stable, and was not stopped."""
        verdict = self.judgement.verdict if self.judgement else None
        return bool(verdict and verdict.is_stable) and not self.summary_values["stopped"]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for YAML and JSON."""
        return {
            "subject": self.subject,
            "lr": self.lr,
            **self.summary_values,
            "interrupted": self.interrupted,
            "folder": str(self.folder),
        }

    def summary(self) -> str:
        """The answer as text, as the command line prints it."""
        values, found = self.summary_values, self.judgement
        word = found.verdict.label if found else "no step"
        words = [("Why", values["stopped"] or values["reason"])]
        if self.prediction is not None and found is not None:
            words.append(("Map", self.prediction.compared(found.verdict, values["steps"])))
        skipped = {k: n for k, n in values["outcomes"].items() if k != Outcome.STEPPED.label}
        counts = [plural(values["steps"], "step")]
        counts += [f"{number} {name.replace('_', ' ')}" for name, number in skipped.items()]
        words.append(("Steps", ", ".join(counts)))
        if values["final_loss"] is not None:
            best = loss(values["best_loss"])
            words.append(("Loss", f"{loss(values['final_loss'])}, best {best}"))
        words.append(("Clipped", f"{share(values['clip_share'])} of the steps"))
        if values["events"]:
            said = ", ".join(f"{number} {kind}" for kind, number in values["events"].items())
            words.append(("Events", f"{said}: stabsweep report {self.folder}"))
        words.append(("Took", duration(values["seconds"])))
        words.append(("Files", f"{self.folder}/ steps.jsonl summary.yaml checkpoints/"))
        head = f"{self.subject} at lr={rate(self.lr, digits=4)}: {word}"
        return "\n".join([report.entry("", head).strip(), "", *(report.entry(*w) for w in words)])


class _Position:
    """How many batches were taken: the data's place in a checkpoint."""

    def __init__(self) -> None:
        self.num_batches = 0

    def state_dict(self) -> dict[str, int]:
        return {"num_batches": self.num_batches}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.num_batches = int(state["num_batches"])


def train(
    given: Mapping[str, Any],
    lr: float,
    folder: str | Path,
    *,
    axes: Mapping[str, Any] = MappingProxyType({}),
    seed: int = 0,
    subject: str = "",
    policy: str = "skip",
    accumulate: int = 1,
    checkpoint_every: int | None = None,
    watch_every: int = 10,
    prediction: Prediction | None = None,
    resume: bool = False,
    progress: str = "auto",
) -> Training:
    """Trains a model for `horizon` steps under a guard.

    Without incidents it is the trial that a sweep would have run with this point and seed, step by
    step; the log has its curves, and the same judge its verdict.

    Args:
        given: the arguments of `stabsweep.sweep` that describe model, task, optimizer and training;
            those of the search have no effect.
        lr: peak learning rate.
        folder: of the run, see `stabsweep.runlog`.
        axes: the other axes of a sweep, each with its one value, `{"width": {"values": [64], "to":
            "model"}}`.
        seed: of weights and batches.
        subject: what is trained, for the headline.
        policy: what is done about what is not finite, see `stabsweep.GradientGuard`.
        accumulate: batches of one step.
        checkpoint_every: steps between two checkpoints; None: ten in the run.
        watch_every: attempts between two close looks.
        prediction: what a map expects.
        resume: go on with the run in the folder.
        progress: as the guard takes it.

    Raises:
        BadInput: an argument cannot be used.
    """
    check_count("seed", seed, low=0)
    lr = float(check_value("lr", lr))  # type: ignore[arg-type]
    own = {"space": {**axes, "lr": [lr]}, "seeds": [seed], "num_trials": 1, **OF_SEARCH}
    plan = Plan.make({**DEFAULTS, **given, **own})
    point = {axis.name: axis.values[0] for axis in plan.space}
    trial = Trial(0, point, seed)
    setup = plan.setup({axis.name: point[axis.name] for axis in plan.space.splitting})
    starts = Starts(setup)
    module, optimizer = begin(setup, trial)
    for group in optimizer.param_groups:
        group["lr"] *= lr
    warmup_steps, horizon = int(setup.number(trial, "warmup_steps")), setup.horizon
    position = _Position()

    def factor(step: int) -> float:
        # One more is asked for after the last step.
        step = min(step, horizon - 1)
        return float(learning_rates(step, 1.0, warmup_steps, horizon, setup.schedule))  # type: ignore[arg-type]

    guard = GradientGuard(
        module,
        optimizer,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, factor),
        scaler=torch.amp.GradScaler(
            setup.device.type, init_scale=INITIAL_SCALE, enabled=setup.precision.scales
        ),
        clipper=_clipper(plan.clipper, setup, trial),
        policy=policy,
        accumulate=accumulate,
        log=folder,
        resume=resume,
        total_steps=horizon,
        initial_loss=starts[trial].initial_loss,
        blind_loss=setup.task.blind_loss,
        warmup_steps=warmup_steps,
        checkpoint_every=checkpoint_every or max(horizon // NUM_CHECKPOINTS, 1),
        watch_every=watch_every,
        objects={"data": position},
        progress=progress,
        about={
            "subject": subject,
            "lr": lr,
            "seed": seed,
            "axes": dict(axes),
            "checkpoint_every": checkpoint_every,
            "watch_every": watch_every,
            "given": dict(given),
            "predicted": prediction.as_dict() if prediction else None,
        },
    )
    order = starts.order(trial)
    with _asked_to_stop() as is_asked:
        while guard.num_steps < horizon and not guard.is_stopped and not is_asked():
            number = position.num_batches
            position.num_batches += 1
            index_B = order.index(number, number + 1)[0].to(setup.device)
            with borrowed_generators(setup.device):
                seed_generators(setup.device, seed, TRAIN_NOISE, number)
                batch = setup.task.batch(index_B)
                guard.step(setup.loss(module, batch), batch)
        interrupted = is_asked()
    if interrupted:
        guard.save()
    found = guard.verdict()
    more = {}
    if prediction is not None:
        compared = prediction.compared(found.verdict if found else Verdict.INVALID, guard.num_steps)
        more["predicted"] = {**prediction.as_dict(), "compared": compared}
    values = guard.close(**more)
    return Training(subject, lr, found, values, prediction, Path(folder), interrupted)


@contextlib.contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """A context in which Ctrl-C lets the step end; it gives what tells whether there was one.

    So a checkpoint is of a whole step. The second Ctrl-C interrupts at once.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    # Where it is ignored, as in a job of a shell, it stays so.
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)


def _clipper(asked: Mapping[str, Any], setup: Setup, trial: Trial) -> dict[str, Any]:
    """The clipper of a trial as a guard takes it; None for a limit that is off."""
    limits = {name: setup.number(trial, name) for name in setup.clipper.defaults}
    own = {key: value for key, value in asked.items() if asked["name"] == setup.clipper.name}
    return {**own, "name": setup.clipper.name, **{key: finite(x) for key, x in limits.items()}}
