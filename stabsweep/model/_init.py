"""The first weights of a model, from a seed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput, unknown

INITS: Mapping[str, Callable[[Tensor], object]] = {
    "kaiming": lambda w: nn.init.kaiming_normal_(w, mode="fan_in", nonlinearity="relu"),
    "orthogonal": nn.init.orthogonal_,
    "xavier": nn.init.xavier_uniform_,
}
"""Named ways to draw a matrix, besides `default` (as constructed) and `normal(std)`.

`xavier`: uniform with variance 2 / (fan_in + fan_out) (Glorot & Bengio 2010); `kaiming`: normal
with variance 2 / fan_in (He et al. 2015, arXiv:1502.01852); `orthogonal`: a random matrix with
orthonormal rows or columns (Saxe et al. 2013, arXiv:1312.6120).
"""

ALLOWED = ("default", *INITS, "normal(<std>)")


def check_init(name: str) -> str:
    """The name itself, if it is `default`, one of `INITS`, or `normal(std)` with a number > 0.

    Raises:
        BadInput: it is anything else.

    >>> check_init("normal(0.02)")
    'normal(0.02)'
    """
    if isinstance(name, str) and name.startswith("normal"):
        std = _std(name)
        if std is None or not 0 < std < math.inf:
            raise BadInput(f"init={name!r} is malformed: write normal(0.02), with any std > 0")
    elif name != "default" and name not in INITS:
        raise unknown("init", name, ALLOWED)
    return name


def initialize(
    build: Callable[[], nn.Module], seed: int, init: str = "default", init_gain: float = 1.0
) -> nn.Module:
    """A new module whose weights depend on nothing but the arguments.

    The draws are the same for every gain, and the global generators are left as they were. The
    module must be built on the CPU, since a seed gives other numbers on other devices.

    With `default` the module stays as it was constructed. Any other init draws every parameter
    of two or more dimensions anew and sets biases to 0; norm scales and other vectors stay. An
    embedding is drawn as the readout it would be if it were tied, fan_in = width. Matrices that
    share one parameter (the gates of a cell; queries, keys and values) are drawn one by one, if
    their module says how many there are: `num_stacked = {"weight_hh_l0": 4}`. A tied parameter
    is drawn, and multiplied, once.

    Args:
        build: constructs the module, drawing from torch's global generator.
        seed: at least 0.
        init: see `check_init`.
        init_gain: factor on every parameter of two or more dimensions, whatever the init.

    Raises:
        BadInput: `init` is not known.
    """
    check_init(init)
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the generators of all GPUs as well.
        torch.default_generator.manual_seed(seed)
        module = build()
        with torch.no_grad():
            if init != "default":
                _draw(module, init)
            for parameter in module.parameters():
                if parameter.ndim >= 2:
                    parameter.mul_(init_gain)
    return module


def _draw(module: nn.Module, init: str) -> None:
    std = _std(init)
    num_stacked: dict[str, int] = {}
    for prefix, part in module.named_modules():
        for name, number in getattr(part, "num_stacked", {}).items():
            num_stacked[f"{prefix}.{name}" if prefix else name] = number
    for name, parameter in module.named_parameters():
        if parameter.ndim >= 2:
            for matrix in parameter.chunk(num_stacked.get(name, 1)):
                if std is None:
                    INITS[init](matrix)
                else:
                    matrix.normal_(std=std)
        elif name.rpartition(".")[2].startswith("bias"):
            parameter.zero_()


def _std(init: str) -> float | None:
    written = re.fullmatch(r"normal\(\s*([^()\s]+)\s*\)", init)
    if not written:
        return None
    try:
        return float(written[1])
    except ValueError:
        return None
