"""Short trainings of the reference models, on weights, data and batches that are fixed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stabsweep.api import DEFAULTS
from stabsweep.engine import Loop, Setup
from stabsweep.fingerprint.bits import as_array, digest, digest_text
from stabsweep.fingerprint.inputs import integers, order, signed
from stabsweep.plan import Plan
from stabsweep.records import Array, Trial
from stabsweep.task import BatchOrder, Digits, Task, Text

NUM_STEPS = 200
"""Steps of a training: those of a trial of a sweep, by default."""

MARKS = (1, 3, 10, 30, 100, 300, 1000)
"""Numbers of steps after which the weights are looked at, and after the last."""

_VOCABULARY = 64
"""Words of the text that is made up."""


@dataclass(frozen=True)
class Recipe:
    """What is trained: one of the reference models at a rate well inside its stable region.

    Attributes:
        name: of the model, on the command line.
        given: what differs from the defaults of a sweep.
        lr: near what a default sweep picks.
        seed_spread: standard deviation of the final loss over eight seeds, in float32 and
            `NUM_STEPS`; measured with `benchmarks/drift.py --seeds 8`.
    """

    name: str
    given: Mapping[str, Any]
    lr: float
    seed_spread: float


RECIPES: Sequence[Recipe] = (
    Recipe("mlp", {"task": "digits", "optimizer": "sgd"}, 0.05, 0.019),
    Recipe(
        "rnn",
        {
            "task": {"name": "sequential_digits", "step": "row"},
            "optimizer": "adam",
            "clip_norm": 5.0,
        },
        0.003,
        0.012,
    ),
    Recipe(
        "transformer",
        {"task": "text", "optimizer": "adamw", "batch_size": 8, "clip_norm": 1.0},
        0.005,
        0.012,
    ),
)


@dataclass(frozen=True)
class Course:
    """What a training did.

    Attributes:
        curves: (5, T) in the order of `CURVES`, exactly.
        initial_loss, blind_loss: see `stabsweep.records.Trace`.
        displacement: likewise.
        data: SHA-256 of the first weights, the data and the batches' order: what went in.
        weights: steps done -> SHA-256 of the weights, and their L2 norm in float64.
    """

    curves: Array
    initial_loss: float
    blind_loss: float | None
    displacement: float
    data: str
    weights: Mapping[int, tuple[str, float]]


class _FixedOrder(BatchOrder):
    """The batches of a seed, shuffled by integers instead of torch's generator."""

    def _epoch(self, stream: int, epoch: int) -> Tensor:
        shuffled = order(f"batches {self.seed} {stream} {epoch}", self.num_examples)
        used = self.epoch_steps * self.batch_size
        return shuffled[:used].view(self.epoch_steps, self.batch_size)


class _FixedLoop(Loop):
    """The plain loop, with these batches."""

    def __init__(self, setup: Setup, seed: int) -> None:
        super().__init__(setup)
        fixed = _FixedOrder(seed, setup.task.num_examples, setup.batch_size)
        self._starts.orders[seed] = fixed


def train(
    recipe: Recipe,
    precision: str,
    device: torch.device,
    num_steps: int = NUM_STEPS,
    seed: int = 0,
    num_run: int | None = None,
) -> Course:
    """Trains a recipe.

    Args:
        recipe: what.
        precision: `fp32` or `fp64`.
        device: where.
        num_steps: its horizon.
        seed: of weights and batches.
        num_run: steps to be run, all of them by default.
    """
    setup = _setup(recipe, precision, device, num_steps, seed)
    loop = _FixedLoop(setup, seed)
    loop.admit([Trial(0, {"lr": recipe.lr}, seed)])
    parameters = list(loop.module.parameters())
    data = _data(setup, parameters, loop._starts.orders[seed], num_steps)
    stop = min(num_run or num_steps, num_steps)
    ends = sorted({*(mark for mark in MARKS if mark < stop), stop})
    chunks, weights = [], {}
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        chunks += loop.advance(end - start)
        flat = np.concatenate([as_array(parameter) for parameter in parameters])
        # Summed exactly: a norm that depends on the machine's own BLAS would tell of that alone.
        weights[end] = digest(flat), math.sqrt(math.fsum(flat.astype(np.float64) ** 2))
    curves = np.concatenate([chunk.curves for chunk in chunks], axis=1)
    last = chunks[-1]
    return Course(
        curves, last.initial_loss, setup.task.blind_loss, last.displacement, data, weights
    )


def _setup(
    recipe: Recipe, precision: str, device: torch.device, num_steps: int, seed: int
) -> Setup:
    """The setup of a sweep with that one rate, its weights and data put in the place of drawn."""
    given = {
        **DEFAULTS,
        **recipe.given,
        "model": recipe.name,
        "task": _fixed_task(recipe.given["task"]),
        "space": {"lr": [recipe.lr]},
        "horizon": num_steps,
        "precision": precision,
        "device": str(device),
        "curvature": False,
        "stress": False,
    }
    setup = Plan.make(given).setup({})
    return replace(setup, build_model=_filled(setup.build_model, f"{recipe.name} {seed}"))


def _filled(build: Callable[[], nn.Module], name: str) -> Callable[[], nn.Module]:
    """A model whose matrices are even in +-1/sqrt(fan_in), rounded to a power of two, without bias.

    That is about how torch draws them; a product with a power of two rounds nothing.
    """

    def filled() -> nn.Module:
        module = build()
        with torch.no_grad():
            for key, parameter in module.named_parameters():
                if parameter.ndim >= 2:
                    power = round(math.log2(parameter.shape[-1]) / 2)
                    parameter.copy_(signed(f"{name} {key}", *parameter.shape) / 2**power)
                elif "bias" in key.rpartition(".")[2]:
                    parameter.zero_()
        return module

    return filled


def _fixed_task(given: Any) -> Task:
    """The task, from integers alone."""
    from stabsweep import task as tasks

    if given == "text":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.txt"
            path.write_text(" ".join(_words(4000)), encoding="utf-8")
            return Text(str(path))
    choice = {"name": given} if isinstance(given, str) else dict(given)
    task = tasks.build(**choice)
    assert isinstance(task, Digits)
    # Standardised pixels are sums of all pixels, in whatever order; their ranks are the 17 greys.
    greys = torch.unique(task.inputs, return_inverse=True)[1]
    task.inputs = (greys.float() - 5) / 8
    return task


def _words(count: int) -> Iterator[str]:
    """Words of two to six letters, the first of the vocabulary far more often than the last."""
    sizes = 2 + integers("word lengths", _VOCABULARY, 2) % 5
    letters = integers("letters", int(sizes.sum()), 20) % 26
    ends = np.cumsum(sizes)
    alphabet = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    known = ["".join(alphabet[part]) for part in np.split(letters, ends[:-1])]
    # The product of two even draws crowds at small numbers.
    first, second = (integers(f"words {n}", count, 3) for n in range(2))
    yield from (known[int(a * b) % _VOCABULARY] for a, b in zip(first, second, strict=True))


def _data(setup: Setup, parameters: Sequence[Tensor], batches: BatchOrder, num_steps: int) -> str:
    """SHA-256 of all that goes in, as float64 where it is floating."""
    index = batches.index(0, num_steps)
    parts = [index, *parameters]
    for leaf in setup.task.batch(index.reshape(-1).to(setup.device)):
        parts.append(leaf)
    digests = [digest(as_array(x.double() if x.is_floating_point() else x)) for x in parts]
    return digest_text("".join(digests))
