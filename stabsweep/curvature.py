"""The curvature of the loss, and the edges that linear theory draws from it.

Gradient descent on a quadratic is stable up to 2 / lambda, lambda being the largest eigenvalue of
the Hessian. Losses are no quadratics and their curvature moves while they are trained (it rises up
to the edge, Cohen et al. 2021, arXiv:2103.00065), so these edges are lines to compare a measured
edge with; they are never called safe.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call

from stabsweep.course import Sharpness
from stabsweep.engine import (
    PROBE_NOISE,
    Loop,
    Objective,
    Setup,
    Starts,
    borrowed_generators,
    seed_generators,
    trained,
    untrained,
)
from stabsweep.errors import BadInput
from stabsweep.records import Array, Trial

NUM_BATCHES = 4
"""Batches whose mean loss is measured. Ours: a single batch has a larger eigenvalue."""

TOLERANCE = 1e-2
"""Relative residual of an eigenvalue: a line on a map is not read more finely. Where the largest
lie close together it may end at a smaller one of them: 3 % too low was seen, at an MLP's start."""

NUM_VECTORS = 8
"""Lanczos vectors between two looks at the error. Ours: more of them took longer on our models."""

NUM_PRODUCTS = 300
"""Most products of Hessian and vector; some dozens suffice."""

MAX_WEIGHTS = 5_000_000
"""Weights above which nobody is made to wait for a line on a map: a product of Hessian and vector
costs about as much as two steps of training, and some dozens are needed. Ours."""


@dataclass(frozen=True)
class Curvature:
    """A largest eigenvalue, and the learning rate that linear theory allows for it.

    Attributes:
        eigenvalue: of the Hessian; of the preconditioned one for a rule that divides by moments.
        factor: learning rate times eigenvalue at the edge of the rule.
        formula: the edge as theory writes it.
    """

    eigenvalue: float
    factor: float
    formula: str

    @property
    def edge_lr(self) -> float | None:
        """The edge of linear theory; None where nothing bends upwards."""
        return self.factor / self.eigenvalue if self.eigenvalue > 0 else None


class Landscape:
    """The mean loss of some batches around the weights of a module, differentiated twice.

    Weights and buffers are copied: what becomes of the module later changes nothing here.

    Args:
        setup: what is trained, of which the task is used.
        trial: its seed gives the batches, and what the model draws.
        module: the model.
    """

    def __init__(self, setup: Setup, trial: Trial, module: nn.Module) -> None:
        objective, named = Objective(module, setup), trained(module)
        shapes, sizes = [(n, p.shape) for n, p in named], [p.numel() for _, p in named]
        held = {f"model.{name}": tensor.detach().clone() for name, tensor in untrained(module)}
        theta_P = torch.cat([p.detach().reshape(-1) for _, p in named]).requires_grad_()

        def loss_of(batch: Any) -> Tensor:
            parts = zip(shapes, theta_P.split(sizes), strict=True)
            tensors = {f"model.{name}": part.view(shape) for (name, shape), part in parts}
            # Buffers are handed over as copies: what training changes in place must not be
            # captured.
            copies = {name: tensor.clone() for name, tensor in held.items()}
            return functional_call(objective, {**tensors, **copies}, (batch,))

        order = Starts(setup).order(trial)
        # In full batches all of them are the same one.
        num_batches = 1 if order.batch_size == order.num_examples else NUM_BATCHES
        gradients = []
        with borrowed_generators(setup.device):
            for number, index_B in enumerate(order.probe(num_batches).to(setup.device)):
                seed_generators(setup.device, trial.seed, PROBE_NOISE, number)
                loss = loss_of(setup.task.batch(index_B))
                # Their graphs are kept: a product is one pass backwards, without the way there.
                gradients.append(grad(loss, theta_P, create_graph=True)[0])
        self._theta_P, self.gradients_RP = theta_P, torch.stack(gradients)

    def largest_eigenvalue(self, scale_P: Tensor | None = None) -> float:
        """The largest eigenvalue of the Hessian; NaN where the loss is not finite.

        Args:
            scale_P: (P,) what the weights are measured in: the eigenvalue is that of S H S, with
                S = diag(scale_P). None is 1.
        """
        scale = torch.ones_like(self._theta_P) if scale_P is None else scale_P
        gradient_P = self.gradients_RP.mean(0)

        def product(vector: Array) -> Array:
            v_P = torch.as_tensor(vector.reshape(-1)).to(scale) * scale
            (row_P,) = grad(gradient_P, self._theta_P, v_P, retain_graph=True)
            return (row_P * scale).double().cpu().numpy()

        return largest_eigenvalue(product, len(self._theta_P))


def find_curvature(setup: Setup, trial: Trial) -> Curvature | None:
    """The curvature where a trial starts; None for a rule without linear theory.

    Adam's moments are those of the gradients of the same batches: what its second moment tends to
    while the weights still stand near their start.

    Args:
        setup: what is trained, of which the task and the model are used.
        trial: gives seed, init and hyperparameters.
    """
    if setup.optimizer.name not in _EDGES:
        return None
    factor, formula, divisor = _edge(setup, trial)
    landscape = Landscape(setup, trial, setup.new_module(trial))
    scale_P = None
    if divisor is not None:
        second_P = landscape.gradients_RP.detach().square().mean(0)
        scale_P = (second_P.sqrt() + setup.number(trial, "eps")).rsqrt()
    return Curvature(landscape.largest_eigenvalue(scale_P), factor, formula)


def small_curvature(setup: Setup, trial: Trial) -> Curvature | None:
    """The curvature where a trial starts, where it is cheap and means something; else None.

    None as well for rates that differ between parameters, of which the formulas know nothing, and
    for a model that cannot be differentiated twice: a line for comparison is no reason to fail.
    """
    if setup.optimizer.name not in _EDGES:
        return None
    try:
        module = setup.new_module(trial)
        size = sum(parameter.numel() for _, parameter in trained(module))
        factors = setup.lr_factors(trial, module) or ()
        if size > MAX_WEIGHTS or any(factor != 1 for factor in factors):
            return None
        found = find_curvature(setup, trial)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, MemoryError):
        return None
    is_found = found is not None and math.isfinite(found.eigenvalue) and found.eigenvalue > 0
    return found if is_found else None


def line_formula(setup: Setup, trial: Trial) -> tuple[str, bool]:
    """The eigenvalue at which a trial's rate is unstable, `2 (1 + m) / lr`, and of which matrix.

    That is the Hessian, or (true) the preconditioned one.

    Raises:
        BadInput: there is no theory for its rule.
    """
    _, formula, divisor = _edge(setup, trial)
    return re.sub("lambda(_P)?", "lr", formula), divisor is not None


def follow_curvature(
    setup: Setup,
    trial: Trial,
    steps: Sequence[int],
    num_steps: int,
    tell: Callable[[int], None] = lambda num_done: None,
) -> tuple[Array, list[Sharpness]]:
    """The curves of a trial that is trained again, and its sharpness at some steps.

    The weights are those before the step; what Adam and its kin divide by is what the step divides
    by, its own gradient included, with both bias corrections (arXiv:2207.14484). Factors of the
    learning rate for some parameters count as part of it. The loss is the mean of `NUM_BATCHES`
    batches, or of all examples where a batch holds them all. Its weight decay is left out.

    Args:
        setup: what is trained.
        trial: the trial.
        steps: where to measure: ascending, below `num_steps`.
        num_steps: how far to train.
        tell: told how many of the steps are done.

    Returns:
        The curves (5, num_steps) in the order of `CURVES`, and one `Sharpness` for each step at
        which it is a finite number.

    Raises:
        BadInput: a rule without linear theory, or too large a model.
    """
    factor, _, divisor = _edge(setup, trial)
    loop = Loop(setup)
    loop.admit([trial])
    size = sum(parameter.numel() for _, parameter in trained(loop.module))
    if size > MAX_WEIGHTS:
        raise BadInput(
            f"the model has {size:,} weights: curvature is measured up to {MAX_WEIGHTS:,}; take a "
            "narrower one"
        )
    pieces, points, at = [], [], 0
    for number, step in enumerate(steps, start=1):
        pieces += loop.advance(step - at) if step > at else []
        landscape = Landscape(setup, trial, loop.module)
        (now,) = loop.advance(1)
        pieces, at = [*pieces, now], step + 1
        loss, lr = float(now.curves[0, 0]), float(now.curves[4, 0])
        eigenvalue = landscape.largest_eigenvalue(_scale(setup, trial, loop, divisor))
        if math.isfinite(eigenvalue) and math.isfinite(loss):
            points.append(Sharpness(step, lr, loss, eigenvalue, factor / lr))
        tell(number)
    pieces += loop.advance(num_steps - at) if num_steps > at else []
    return np.concatenate([piece.curves for piece in pieces], axis=1), points


def _scale(
    setup: Setup, trial: Trial, loop: Loop, divisor: Callable[[Mapping[str, Any]], Tensor] | None
) -> Tensor:
    """(P,) the square root of what the last step multiplied gradients with, the rate left out.

    NaN where there was no step yet, since a gradient scaler has left it out.
    """
    named = trained(loop.module)
    factors = setup.lr_factors(trial, loop.module) or [1.0] * len(named)
    parts = []
    for (_, parameter), factor in zip(named, factors, strict=True):
        divided = torch.ones_like(parameter)
        if divisor is not None:
            memory = loop.optimizer.state[parameter]
            divided = divisor(memory) if memory else torch.full_like(parameter, math.nan)
        parts.append((factor / divided.detach()).sqrt().reshape(-1))
    return torch.cat(parts)


def largest_eigenvalue(product: Callable[[Array], Array], size: int, seed: int = 0) -> float:
    """The algebraically largest eigenvalue of a symmetric matrix, by Lanczos' method.

    Args:
        product: the matrix times a vector (size,) of float64.
        size: number of rows.
        seed: of the first vector.

    Returns:
        The eigenvalue to a relative `TOLERANCE`; NaN when a product is not finite.
    """
    if size < 3:
        matrix = np.stack([product(row) for row in np.eye(size)])
        if not np.isfinite(matrix).all():
            return float("nan")
        return float(np.linalg.eigvalsh((matrix + matrix.T) / 2).max())
    first = np.random.default_rng(seed).standard_normal(size)
    if not np.isfinite(product(first)).all():
        return float("nan")
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)  # type: ignore[call-arg]
    try:
        found = eigsh(
            operator,
            k=1,
            which="LA",
            v0=first,
            tol=TOLERANCE,  # type: ignore[arg-type]
            ncv=min(size, NUM_VECTORS),
            maxiter=NUM_PRODUCTS // 10,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence as error:
        found = error.eigenvalues
    return float(found[0]) if len(found) else float("nan")


def _edge(setup: Setup, trial: Trial) -> _Edge:
    """The edge of a trial's rule, with its hyperparameters.

    Raises:
        BadInput: there is none.
    """
    rule = setup.optimizer
    if rule.name not in _EDGES:
        raise BadInput(
            f"optimizer={rule.name} has no line in linear theory: curvature is followed for "
            f"{', '.join(sorted(_EDGES))}"
        )
    hyper = {name: setup.number(trial, name) for name in rule.defaults}
    return _EDGES[rule.name](hyper, rule)


def _sgd(hyper: Mapping[str, float], rule: Any) -> _Edge:
    m = hyper["momentum"]
    if rule.nesterov and m:
        return 2 * (1 + m) / (1 + 2 * m), "2 (1 + m) / ((1 + 2 m) lambda)", None
    # With dampening d the steady step is (1 - d) of that without.
    factor = 2 * (1 + m) / (1 - hyper["dampening"] if m and hyper["dampening"] < 1 else 1.0)
    return factor, "2 (1 + m) / lambda" if m else "2 / lambda", None


def _adam(hyper: Mapping[str, float], rule: Any) -> _Edge:
    b = hyper["beta1"]

    def divisor(memory: Mapping[str, Any]) -> Tensor:
        t = float(memory["step"])
        second = memory["exp_avg_sq"] / (1 - hyper["beta2"] ** t)
        # The mean of the gradients is corrected as well, which makes the first steps longer.
        return (1 - b**t) * (second.sqrt() + hyper["eps"])

    return 2 * (1 + b) / (1 - b), "2 (1 + b) / ((1 - b) lambda_P)", divisor


def _rmsprop(hyper: Mapping[str, float], rule: Any) -> _Edge:
    def divisor(memory: Mapping[str, Any]) -> Tensor:
        return memory["square_avg"].sqrt() + hyper["eps"]

    return 2 * (1 + hyper["momentum"]), "2 (1 + m) / lambda_P", divisor


_Edge: TypeAlias = tuple[float, str, Callable[[Mapping[str, Any]], Tensor] | None]
"""Learning rate times eigenvalue at an edge, the same as text, and, for a rule that divides by
moments, what a parameter's memory in its optimizer makes it divide by."""

_EDGES = {"sgd": _sgd, "adam": _adam, "adamw": _adam, "gi_adam": _adam, "rmsprop": _rmsprop}
"""Rule -> its edge.

Heavy ball and Nesterov: Cohen et al. 2021, arXiv:2103.00065, appendix B; Adam with frozen moments,
and its divisor with both bias corrections: Cohen et al. 2022, arXiv:2207.14484; RMSprop's momentum
acts on preconditioned gradients alike.
"""
