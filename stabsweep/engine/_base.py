"""What an engine is: it trains trials, some at once, and hands back their curves in pieces."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.clipper import Clipper, Norm
from stabsweep.engine._lr_scales import LRScales
from stabsweep.engine._precision import PRECISIONS, Precision
from stabsweep.errors import BadInput
from stabsweep.model import initialize
from stabsweep.optimizer import Optimizer
from stabsweep.records import CURVES, Array, Trial, Value
from stabsweep.task import BatchOrder, Task

PROBE_BATCHES = 5
"""Batches whose median loss is the initial loss: one batch alone is noisy (design)."""


@dataclass(frozen=True)
class Setup:
    """All that the trials of one cohort share.

    Attributes:
        build_model: makes the model; called under the seed of a trial, on the CPU.
        task: the data and the loss, already on the device and in the type.
        optimizer: the update rule.
        horizon: steps of each trial.
        batch_size: examples a step.
        schedule: what follows the warmup, see `stabsweep.optimizer._schedule`.
        fixed: hyperparameters that a point does not give: name -> value.
        device: where to train.
        precision: formats of weights and products.
        lr_scales: factors of the learning rate for some of the parameters.
        clipper: what limits the gradients.
        order_shift: added to the seed for the batches' order: the same weights, another order.
    """

    build_model: Callable[[], nn.Module]
    task: Task
    optimizer: Optimizer
    horizon: int
    batch_size: int
    schedule: str
    fixed: Mapping[str, Value]
    device: torch.device
    precision: Precision = PRECISIONS["fp32"]
    lr_scales: LRScales = field(default_factory=LRScales)
    clipper: Clipper = field(default_factory=Norm)
    order_shift: int = 0

    @property
    def dtype(self) -> torch.dtype:
        """The format of weights and data."""
        return self.precision.dtype

    @property
    def curve_type(self) -> type[np.floating]:
        """The type that curves are kept in: as exact as the training."""
        return np.float64 if self.dtype == torch.float64 else np.float32

    def new_module(self, trial: Trial) -> nn.Module:
        """The model as a trial starts with it; the global generators stay as they were."""
        init, init_gain = str(self.value(trial, "init")), self.number(trial, "init_gain")
        module = initialize(self.build_model, trial.seed, init, init_gain)
        return module.to(device=self.device, dtype=self.dtype)

    def loss(self, module: nn.Module, batch: Any) -> Tensor:
        """The loss of a batch, in the precision of the setup."""
        with self.precision.autocast(self.device):
            return self.task.loss(module, batch)

    def lr_factors(self, trial: Trial, module: nn.Module) -> list[float] | None:
        """What a trial's rate is multiplied with for each trained parameter; None when never.

        A model may ask for factors of its own: a method `lr_scales(is_adaptive)` that returns
        pattern -> factor, as width scaling needs (`is_adaptive`: see `Optimizer`).
        """
        ask: Any = getattr(module, "lr_scales", None)
        of_model: Any = ask(self.optimizer.is_adaptive) if callable(ask) else {}
        if not of_model and not self.lr_scales.patterns:
            return None
        named = trained(module)
        powers = {name: self.optimizer.lr_scale_power(name, p.shape) for name, p in named}
        return self.lr_scales.factors(trial, [name for name, _ in named], of_model, powers)

    def value(self, trial: Trial, name: str) -> Value:
        """A hyperparameter of a trial: from its point, else the fixed one."""
        return trial.point[name] if name in trial.point else self.fixed[name]

    def number(self, trial: Trial, name: str) -> float:
        """A numeric hyperparameter of a trial; infinite when it is switched off."""
        value = self.value(trial, name)
        return math.inf if value is None else float(value)


@dataclass(frozen=True)
class Chunk:
    """A piece of one trial's curves.

    Attributes:
        trial: number of the trial.
        start_step: step of the first value; 0 also when a trial had to begin again.
        curves: (5, n) in the order of `records.CURVES`.
        initial_loss: median loss before training.
        displacement: distance of the weights now from the first, over the norm of the first.
        is_done: whether the trial has reached its horizon.
        seconds: the trial's share of the time that the piece took.
        error: what the model or the task raised, which ended the trial; None normally. Then there
            are no curves.
    """

    trial: int
    start_step: int
    curves: Array
    initial_loss: float
    displacement: float
    is_done: bool
    seconds: float = 0.0
    error: str | None = None

    @classmethod
    def failed(cls, trial: Trial, error: Exception) -> Chunk:
        """The end of a trial in an error that is not a matter of training."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        curves = np.empty((len(CURVES), 0))
        return cls(trial.number, 0, curves, math.nan, math.nan, is_done=True, error=text)

    @classmethod
    def joined(cls, pieces: Sequence[Chunk]) -> Chunk:
        """Pieces of one trial that follow each other, as one."""
        if len(pieces) == 1:
            return pieces[0]
        return replace(
            pieces[-1],
            start_step=pieces[0].start_step,
            curves=np.concatenate([piece.curves for piece in pieces], axis=1),
            seconds=sum(piece.seconds for piece in pieces),
        )


class Engine(ABC):
    """Trains trials of one setup. It knows no study and no verdict.

    Attributes:
        setup: what the trials share.
        capacity: how many it trains at once.
    """

    name: str

    def __init__(self, setup: Setup, capacity: int) -> None:
        self.setup = setup
        self.capacity = capacity

    @property
    def speed(self) -> str:
        """How it runs and how fast, in one line without a verb; empty while that is not known."""
        return ""

    @property
    @abstractmethod
    def trials(self) -> Sequence[Trial]:
        """The trials in training."""

    @abstractmethod
    def admit(self, trials: Sequence[Trial]) -> None:
        """Takes trials into training; together at most `capacity`."""

    @abstractmethod
    def advance(self, num_steps: int) -> list[Chunk]:
        """Trains every trial on, `num_steps` steps or less when one reaches its horizon.

        Trials that reach it leave the engine.
        """

    @abstractmethod
    def drop(self, number: int) -> None:
        """Ends a trial before its horizon."""


@dataclass(frozen=True)
class Start:
    """Where a trial starts.

    Attributes:
        theta_P: the weights that are trained, as one row.
        held: name -> tensor, of those that are not trained and differ from trial to trial.
        initial_loss: median loss over several batches.
    """

    theta_P: Tensor
    held: Mapping[str, Tensor]
    initial_loss: float


@dataclass
class Starts:
    """The starts of a setup, made once for each (seed, init, gain), and the batches of each seed.

    Both engines begin here, so that they begin alike and read alike.

    Attributes:
        setup: what the trials share.
        kept: names of the untrained tensors that a start holds, see `untrained`.
    """

    setup: Setup
    kept: frozenset[str] = frozenset()
    cache: dict[tuple[int, str, float], Start] = field(default_factory=dict)
    orders: dict[int, BatchOrder] = field(default_factory=dict)

    MAX_CACHED = 256

    def __getitem__(self, trial: Trial) -> Start:
        """The start of a trial."""
        init = str(self.setup.value(trial, "init"))
        key = (trial.seed, init, self.setup.number(trial, "init_gain"))
        if key not in self.cache:
            if len(self.cache) >= self.MAX_CACHED:
                self.cache.clear()
            self.cache[key] = self._make(trial)
        return self.cache[key]

    def order(self, trial: Trial) -> BatchOrder:
        """The batches of a trial: the same for every trial with its seed."""
        if trial.seed not in self.orders:
            num_examples, seed = self.setup.task.num_examples, trial.seed + self.setup.order_shift
            self.orders[trial.seed] = BatchOrder(seed, num_examples, self.setup.batch_size)
        return self.orders[trial.seed]

    @torch.no_grad()
    def _make(self, trial: Trial) -> Start:
        setup = self.setup
        module = setup.new_module(trial)
        theta_P = torch.cat([p.detach().reshape(-1) for _, p in trained(module)])
        held = {n: tensor.detach().clone() for n, tensor in untrained(module) if n in self.kept}
        losses = []
        with borrowed_generators(setup.device):
            for number, index_B in enumerate(self.order(trial).probe(PROBE_BATCHES)):
                seed_generators(setup.device, trial.seed, PROBE_NOISE, number)
                losses.append(float(setup.loss(module, setup.task.batch(index_B.to(setup.device)))))
        return Start(theta_P, held, float(np.median(losses)))


def trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, with their names; a tied one once."""
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def untrained(module: nn.Module) -> list[tuple[str, Tensor]]:
    """The buffers, and the parameters that are frozen, with their names."""
    frozen = [(name, p) for name, p in module.named_parameters() if not p.requires_grad]
    return [*frozen, *module.named_buffers()]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the device or of the host is used up."""
    said = ("can't allocate memory", "size calculation overflowed")
    is_kind = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_kind or any(words in str(error) for words in said)


def no_memory() -> BadInput:
    """The error for a single trial that does not fit."""
    return BadInput(
        "out of memory with a single trial: lower the model's size, batch_size or the task's "
        "length, or choose another device"
    )


TRAIN_NOISE, PROBE_NOISE = 2, 3
"""Streams of a seed for what the model itself draws, beside those of `task._order`."""


def borrowed_generators(device: torch.device) -> AbstractContextManager[None]:
    """A context in which torch's global generators may be seeded: they are put back after it."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def seed_generators(device: torch.device, *words: int) -> None:
    """Seeds what a forward pass may draw from (dropout), so that a step never depends on others."""
    seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
    # torch.manual_seed would reseed the generators of all other GPUs as well.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
