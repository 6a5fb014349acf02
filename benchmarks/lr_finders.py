"""Today's LR finders on the cases of `pick_quality.py`, which scores what they suggest.

    python benchmarks/lr_finders.py [--cases S1 S2 ...] [--runs 5]

It is run by the Python of an environment of its own, with what `pick_quality/requirements.txt`
says. Each finder has its defaults and its own suggestion, and is given the model, the batches, the
loss and the optimizer that a sweep's first trial has: the same seed, so the same weights and the
same batches. A clip norm goes to those that have one (Lightning, fastai). The rate of the optimizer
before the search is 1e-7, which is where torch-lr-finder begins; the others have a start of their
own.

What they suggest is kept in `results/lr_finders.json`, by case, finder and run, and what is there
is not run again (delete it to begin anew). `lr` is null where a finder raised, which `error` tells,
or suggested nothing; `cost` is how many batches it trained on.
"""

from __future__ import annotations

import argparse
import inspect
import io
import json
import logging
import math
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning  # type: ignore[import-not-found]
import torch
from fastai.callback import schedule  # type: ignore[import-not-found]
from fastai.callback.training import GradientClip  # type: ignore[import-not-found]
from fastai.data.core import DataLoaders  # type: ignore[import-not-found]
from fastai.learner import Learner  # type: ignore[import-not-found]
from fastai.optimizer import OptimWrapper  # type: ignore[import-not-found]
from matplotlib.figure import Figure
from pick_quality import CASES, SEEDS_APART, arguments
from pytorch_lightning.tuner import Tuner  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torch_lr_finder import LRFinder  # type: ignore[import-not-found]

import stabsweep
from stabsweep.optimizer.lion import PlainLion
from stabsweep.plan import Plan
from stabsweep.records import Trial
from stabsweep.task import BatchOrder, Supervised

HERE = Path(__file__).parent

FIRST_LR = 1e-7
"""The rate of the optimizers as they are handed over, that of torch-lr-finder's own example."""


class Batches(Dataset):
    """The batches of a seed in the order of their steps."""

    def __init__(self, task: Supervised, order: BatchOrder, num_steps: int) -> None:
        self.task = task
        self.order = order
        self.num_steps = num_steps

    def __len__(self) -> int:
        return self.num_steps

    def __getitem__(self, step: int) -> tuple[Tensor, Tensor]:
        return self.task.batch(self.order.index(step, step + 1)[0])


class Lion(PlainLion):
    """Lion that runs a closure, into which Lightning puts its training step."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        super().step()
        return loss


@dataclass
class Start:
    """What a finder is given.

    Attributes:
        module: the model with its first weights.
        optimizer: of its parameters.
        loader: the batches.
        criterion: the mean loss of outputs and targets, of the task.
        clip_norm: largest norm of a gradient, if any.
        folder: for what a finder writes.
        num_steps: batches whose loss was asked for so far.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    criterion: Callable[[Tensor, Tensor], Tensor]
    clip_norm: float | None
    folder: str
    num_steps: int = 0

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.num_steps += 1
        return self.criterion(outputs, targets)


def start(name: str, number: int, folder: str) -> Start:
    """The start of the first trial of a run of the tool."""
    case = CASES[name]
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(stabsweep.sweep).parameters.items()
    }
    plan = Plan.make({**defaults, **arguments(case), "space": {"lr": [FIRST_LR]}})
    setup = plan.setup({})
    seed = 1 + number * SEEDS_APART
    trial = Trial(0, {"lr": FIRST_LR}, seed)
    module = setup.new_module(trial)
    hyper = {key: setup.number(trial, key) for key in setup.optimizer.defaults}
    if setup.optimizer.name == "lion":
        optimizer = Lion(module.parameters(), **hyper)
    else:
        optimizer = setup.optimizer.twin(dict(module.named_parameters()), hyper)
    for group in optimizer.param_groups:
        group["lr"] = FIRST_LR
    task = setup.task
    assert isinstance(task, Supervised)
    order = BatchOrder(seed, task.num_examples, case.batch_size)
    loader = DataLoader(Batches(task, order, case.base_steps), batch_size=None)
    clip_norm = case.more.get("clip_norm")
    return Start(module, optimizer, loader, task.criterion, clip_norm, folder)


# -------------------------------------------------------------------------------- the finders


def torch_lr_finder(given: Start) -> float | None:
    finder = LRFinder(given.module, given.optimizer, given.loss)
    finder.range_test(given.loader)
    _, lr = finder.plot(ax=Figure().subplots(), suggest_lr=True)
    return lr


class Module(lightning.LightningModule):
    """A start in the words of Lightning."""

    def __init__(self, given: Start) -> None:
        super().__init__()
        self.given = given
        self.module = given.module
        self.lr = FIRST_LR

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        inputs, targets = batch
        return self.given.loss(self.module(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.given.optimizer


def lightning_tuner(given: Start) -> float | None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        gradient_clip_val=given.clip_norm,
        default_root_dir=given.folder,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    return Tuner(trainer).lr_find(Module(given), train_dataloaders=given.loader).suggestion()


def fastai_learner(suggest: Callable[..., Any], given: Start) -> float | None:
    learner = Learner(
        DataLoaders(given.loader, given.loader),
        given.module,
        loss_func=given.loss,
        opt_func=lambda parameters, lr: OptimWrapper(opt=given.optimizer),
        cbs=None if given.clip_norm is None else GradientClip(given.clip_norm),
        path=given.folder,
    )
    with learner.no_bar():
        (lr,) = learner.lr_find(show_plot=False, suggest_funcs=suggest)
    return lr


FINDERS: dict[str, Callable[[Start], float | None]] = {
    "torch-lr-finder": torch_lr_finder,
    "Lightning": lightning_tuner,
    "fastai valley": partial(fastai_learner, schedule.valley),
    "fastai slide": partial(fastai_learner, schedule.slide),
    "fastai minimum": partial(fastai_learner, schedule.minimum),
    "fastai steep": partial(fastai_learner, schedule.steep),
}


def suggestion(finder: str, name: str, number: int) -> dict[str, Any]:
    """What a finder suggests for a case, and what it cost."""
    with tempfile.TemporaryDirectory() as folder:
        given = start(name, number, folder)
        torch.manual_seed(number)
        try:
            # They draw bars and warn of graphics cards, of workers for the data and of checkpoints.
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                lr = FINDERS[finder](given)
        except Exception as error:  # Whatever a finder raises is its answer.
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return {"lr": None, "cost": given.num_steps, "error": said}
    is_rate = lr is not None and math.isfinite(lr)
    return {"lr": float(f"{lr:.4g}") if is_rate else None, "cost": given.num_steps}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "lr_finders.json"
    runs = json.loads(path.read_text()) if path.exists() else {}
    for name in args.cases:
        for finder in FINDERS:
            known = runs.setdefault(name, {}).setdefault(finder, {})
            for number in range(args.runs):
                if str(number) not in known:
                    known[str(number)] = suggestion(finder, name, number)
                    path.write_text(json.dumps(runs, indent=1) + "\n")
            print(f"{name} {finder}:", *(run["lr"] or "none" for run in known.values()))


if __name__ == "__main__":
    main()
