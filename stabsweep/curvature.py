"""The curvature of the loss, and the edges that linear theory draws from it.

Gradient descent on a quadratic is stable up to 2 / lambda, lambda being the largest eigenvalue of
the Hessian. Losses are no quadratics and their curvature moves while they are trained (it rises up
to the edge, Cohen et al. 2021, arXiv:2103.00065), so these edges are lines to compare a measured
edge with; they are never called safe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor
from torch.autograd import grad
from torch.func import functional_call

from stabsweep.engine import Objective, Setup, Starts, trained, untrained
from stabsweep.records import Array, Trial

NUM_BATCHES = 4
"""Batches whose mean loss is measured. Ours: a single batch has a larger eigenvalue."""

TOLERANCE = 1e-2
"""Relative error of an eigenvalue: a line on a map is not read more finely."""

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
        formula: the factor as theory writes it.
    """

    eigenvalue: float
    factor: float
    formula: str

    @property
    def edge_lr(self) -> float | None:
        """The edge of linear theory; None where nothing bends upwards."""
        return self.factor / self.eigenvalue if self.eigenvalue > 0 else None


def find_curvature(setup: Setup, trial: Trial) -> Curvature | None:
    """The curvature where a trial starts; None for a rule without linear theory.

    Adam's moments are those of the gradients of the same batches: what its second moment tends to
    while the weights still stand near their start.

    Args:
        setup: what is trained, of which the task and the model are used.
        trial: gives seed, init and hyperparameters.
    """
    hyper = {name: setup.number(trial, name) for name in setup.optimizer.defaults}
    theory = _EDGES.get(setup.optimizer.name)
    if theory is None:
        return None
    factor, formula, is_preconditioned = theory(hyper, setup.optimizer)
    loss_of, theta_P, batches = _at_start(setup, trial)
    theta_P.requires_grad_()
    # Their graphs are kept: a product is then one pass backwards, without the way there.
    gradients = [grad(loss_of(theta_P, batch), theta_P, create_graph=True)[0] for batch in batches]
    gradients_RP = torch.stack(gradients)
    scale_P = torch.ones_like(theta_P)
    if is_preconditioned:
        second_P = gradients_RP.detach().square().mean(0)
        scale_P = (second_P.sqrt() + hyper["eps"]).rsqrt()
    gradient_P = gradients_RP.mean(0)

    def product(vector: Array) -> Array:
        v_P = torch.as_tensor(vector.reshape(-1)).to(scale_P) * scale_P
        (row_P,) = grad(gradient_P, theta_P, v_P, retain_graph=True)
        return (row_P * scale_P).double().cpu().numpy()

    return Curvature(largest_eigenvalue(product, len(theta_P)), factor, formula)


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


def _at_start(setup: Setup, trial: Trial) -> tuple[Callable[..., Tensor], Tensor, list[Any]]:
    """The loss as a function of (P,) weights and a batch, the first weights, and batches."""
    module = setup.new_module(trial)
    objective = Objective(module, setup)
    named = trained(module)
    shapes, sizes = [(n, p.shape) for n, p in named], [p.numel() for _, p in named]
    held = {f"model.{name}": tensor.detach() for name, tensor in untrained(module)}

    def loss_of(theta_P: Tensor, batch: Any) -> Tensor:
        parts = zip(shapes, theta_P.split(sizes), strict=True)
        tensors = {f"model.{name}": part.view(shape) for (name, shape), part in parts}
        # Buffers are handed over as copies: what training changes in place must not be captured.
        copies = {name: tensor.clone() for name, tensor in held.items()}
        return functional_call(objective, {**tensors, **copies}, (batch,))

    index_RB = Starts(setup).order(trial).probe(NUM_BATCHES).to(setup.device)
    batches = [setup.task.batch(index_B) for index_B in index_RB]
    return loss_of, torch.cat([p.detach().reshape(-1) for _, p in named]), batches


def _sgd(hyper: Mapping[str, float], rule: Any) -> tuple[float, str, bool]:
    m = hyper["momentum"]
    if rule.nesterov and m:
        return 2 * (1 + m) / (1 + 2 * m), "2 (1 + m) / ((1 + 2 m) lambda)", False
    # With dampening d the steady step is (1 - d) of that without.
    factor = 2 * (1 + m) / (1 - hyper["dampening"] if m and hyper["dampening"] < 1 else 1.0)
    return factor, "2 (1 + m) / lambda" if m else "2 / lambda", False


def _adam(hyper: Mapping[str, float], rule: Any) -> tuple[float, str, bool]:
    b = hyper["beta1"]
    return 2 * (1 + b) / (1 - b), "2 (1 + b) / ((1 - b) lambda_P)", True


def _rmsprop(hyper: Mapping[str, float], rule: Any) -> tuple[float, str, bool]:
    return 2 * (1 + hyper["momentum"]), "2 (1 + m) / lambda_P", True


_EDGES = {"sgd": _sgd, "adam": _adam, "adamw": _adam, "gi_adam": _adam, "rmsprop": _rmsprop}
"""Rule -> learning rate times eigenvalue at its edge, as text, and whether moments precondition.

Heavy ball and Nesterov: Cohen et al. 2021, arXiv:2103.00065, appendix B; Adam with frozen moments:
Cohen et al. 2022, arXiv:2207.14484; RMSprop's momentum acts on preconditioned gradients alike.
"""
