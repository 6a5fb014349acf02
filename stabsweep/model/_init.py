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
    "zeros": nn.init.zeros_,
}
"""Named ways to draw a matrix, besides `default` (as constructed) and the `NUMBERED` ones.

`xavier`: uniform with variance 2 / (fan_in + fan_out) (Glorot & Bengio 2010); `kaiming`: normal
with variance 2 / fan_in (He et al. 2015, arXiv:1502.01852); `orthogonal`: a random matrix with
orthonormal rows or columns (Saxe et al. 2013, arXiv:1312.6120); `zeros`: no draw at all, the null
of every map of inits. A linear model trains from zeros; a net with hidden units learns no more
than its last bias, since no gradient passes through a matrix of zeros.
"""

NUMBERED: Mapping[str, str] = {
    "normal": "normal(0.02), with any std > 0",
    "spectral": "spectral(0.95), with any radius > 0",
}
"""Inits that take a number -> how to write them.

`normal(std)`: normal with that deviation. `spectral(rho)`: every recurrent matrix (a parameter
`weight_hh*`) normal, then scaled to the spectral radius rho (Jaeger 2001; Pascanu et al. 2013,
arXiv:1211.5063); all others as `xavier`. Through T steps of a linear recurrence the gradient
changes by about rho^T; over few steps it may grow though rho < 1, since such a matrix is not
normal. An init gain multiplies the radius.
"""

ALLOWED = ("default", *INITS, "normal(<std>)", "spectral(<rho>)")


def check_init(name: str, module: nn.Module | None = None) -> str:
    """The name itself, if it is `default`, one of `INITS`, or of `NUMBERED` with a number > 0.

    Args:
        name: of an init.
        module: a model that it must be able to draw: `spectral` needs a recurrent matrix.

    Raises:
        BadInput: it is anything else, or cannot draw the model.

    >>> check_init("normal(0.02)")
    'normal(0.02)'
    """
    kind = next((k for k in NUMBERED if isinstance(name, str) and name.startswith(k)), None)
    if kind is None and name != "default" and name not in INITS:
        raise unknown("init", name, ALLOWED)
    if kind is not None and not 0 < _number(name) < math.inf:
        raise BadInput(f"init={name!r} is malformed: write {NUMBERED[kind]}")
    if kind == "spectral" and module is not None:
        if not any(_is_recurrent(key) for key, _ in module.named_parameters()):
            raise BadInput(
                f"init={name!r} sets the spectral radius of recurrent matrices (weight_hh*), and "
                "the model has none: use model=rnn, or another init"
            )
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
        BadInput: `init` is not known, or `spectral` finds no recurrent matrix in the model.
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
    num_stacked: dict[str, int] = {}
    for prefix, part in module.named_modules():
        for name, number in getattr(part, "num_stacked", {}).items():
            num_stacked[f"{prefix}.{name}" if prefix else name] = number
    check_init(init, module)
    is_spectral = init.startswith("spectral")
    for name, parameter in module.named_parameters():
        if parameter.ndim >= 2:
            for matrix in parameter.chunk(num_stacked.get(name, 1)):
                if is_spectral and _is_recurrent(name):
                    _draw_with_radius(matrix, _number(init), name)
                elif init.startswith("normal"):
                    matrix.normal_(std=_number(init))
                else:
                    INITS["xavier" if is_spectral else init](matrix)
        elif _leaf(name).startswith("bias"):
            parameter.zero_()


def _draw_with_radius(matrix: Tensor, radius: float, name: str) -> None:
    """Draws a square matrix from N(0, 1) and scales it to a spectral radius."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise BadInput(
            f"init=spectral needs square matrices, but {name} has {tuple(matrix.shape)}: give its "
            f"module num_stacked = {{{_leaf(name)!r}: <how many it stacks>}}, or use another init"
        )
    matrix.normal_()
    matrix.mul_(radius / torch.linalg.eigvals(matrix.double()).abs().max())


def _is_recurrent(name: str) -> bool:
    """Whether a parameter's name is that of torch's hidden-to-hidden weights."""
    return _leaf(name).startswith("weight_hh")


def _leaf(name: str) -> str:
    """The last part of a parameter's name."""
    return name.rpartition(".")[2]


def _number(init: str) -> float:
    """What stands in the parentheses of an init; NaN when it is no number."""
    written = re.fullmatch(rf"(?:{'|'.join(NUMBERED)})\(\s*([^()\s]+)\s*\)", init)
    try:
        return float(written[1]) if written else math.nan
    except ValueError:
        return math.nan
