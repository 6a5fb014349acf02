"""The gradient of stacked trials as a flat list of tensor operations."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_flatten, tree_unflatten

from stabsweep.engine._base import is_out_of_memory
from stabsweep.engine._passes import PRODUCTS, simplify

MANY = 1_000_003
"""How many trials a program is traced with. No tensor is made, so any number will do; of a prime as
large as this every multiple in the graph is a number of rows, and can be replaced by it."""

Gradient: TypeAlias = Callable[..., Any]
"""Weights (K, P), held tensors by name, batches -> gradients (K, P) and losses (K,)."""


class Program:
    """A stacked gradient, traced once for batches of given shapes and for any number of trials.

    `vmap` finds out again at every step what it has to do; on small models that costs more than
    doing it. Traced, its operations are known beforehand, and those that only move data can be left
    out (`_passes.simplify`): what is left runs as plain calls. The result is the same but for the
    order in which a few sums are taken.

    Args:
        gradient: what to trace.
        theta_KP, held_K, batch_K: arguments of it; their values do not matter.

    Attributes:
        code: what it does, a line an operation.
        num_operations: how many there are.
    """

    def __init__(
        self, gradient: Gradient, theta_KP: Tensor, held_K: Mapping[str, Tensor], batch_K: Any
    ) -> None:
        leaves, structure = tree_flatten(batch_K)
        self._names = tuple(held_K)
        self._device = theta_KP.device
        self._is_tensor = [isinstance(leaf, Tensor) for leaf in leaves]

        def flat(theta_KP: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
            given = iter(tensors)
            held = {name: next(given) for name in self._names}
            parts = [
                next(given) if is_tensor else leaf
                for is_tensor, leaf in zip(self._is_tensor, leaves, strict=True)
            ]
            return gradient(theta_KP, held, tree_unflatten(parts, structure))

        tensors = [theta_KP, *self._tensors(held_K, batch_K)]
        # Real tensors that a model keeps (a mask) become constants of the graph.
        with _without_fallback(), FakeTensorMode(allow_non_fake_inputs=True):
            rows = [
                torch.empty((MANY, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
                for tensor in tensors
            ]
            module = make_fx(flat, _allow_non_fake_inputs=True)(*rows)
        simplify(module.graph)
        products = (node.args[-2:] for node in module.graph.nodes if node.target in PRODUCTS)
        pairs = ([operand.meta["val"] for operand in pair] for pair in products)
        self._products = Counter((left.shape, right.shape, left.dtype) for left, right in pairs)
        _free_rows(module.graph)
        module.recompile()
        self.num_operations = sum(node.op == "call_function" for node in module.graph.nodes)
        self.code = module.code
        # Called as a module it would print the line of an error that is to be met higher up.
        self._run = module.forward

    def __call__(
        self, theta_KP: Tensor, held_K: Mapping[str, Tensor], batch_K: Any
    ) -> tuple[Tensor, Tensor]:
        """Gradients (K, P) and losses (K,) of any number of trials."""
        return self._run(theta_KP, *self._tensors(held_K, batch_K))

    def product_seconds(self, num_rows: int) -> float:
        """What its matrix products take alone, for so many trials: the least that it could take."""
        seconds = 0.0
        for (*shapes, dtype), count in self._products.items():
            ours, theirs = (
                torch.ones(all_rows // MANY * num_rows, *rest, dtype=dtype, device=self._device)
                for all_rows, *rest in shapes
            )
            seconds += count * min(_timed(ours, theirs) for _ in range(3))
        return seconds

    def _tensors(self, held_K: Mapping[str, Tensor], batch_K: Any) -> list[Tensor]:
        leaves = [leaf for leaf in tree_flatten(batch_K)[0] if isinstance(leaf, Tensor)]
        return [*(held_K[name] for name in self._names), *(leaf.contiguous() for leaf in leaves)]


class Programs:
    """The programs of one loss: one for each kind of batch, traced when the first one comes.

    Each is held against what it was traced from, on that batch. Where the two differ, or a step of
    the model depends on more than its arguments, it runs as it is written.

    Args:
        module: the model and its loss.
        tolerance: greatest difference, relative to the largest entry of a trial's gradient.

    Attributes:
        obstacle: why it runs as it is written; empty where it does not.
    """

    MOST = 8
    """Kinds of batches. Where each has another length, tracing would take longer than it saves."""

    def __init__(self, module: nn.Module, tolerance: float) -> None:
        self._module = module
        self._tolerance = tolerance
        self._known: dict[Hashable, Program | None] = {}
        self.obstacle = ""

    def find(
        self, gradient: Gradient, theta_KP: Tensor, held_K: Mapping[str, Tensor], batch_K: Any
    ) -> Gradient:
        """The program for a batch; the gradient itself where there is none.

        Args:
            gradient: what is traced.
            theta_KP: what it is about to be called with, as are the others.
            held_K: see `Program`.
            batch_K: see `Program`.
        """
        try:
            kind = _kind(batch_K)
        except TypeError:
            self.obstacle = "its batches hold what cannot be compared"
            return gradient
        if kind not in self._known and len(self._known) >= self.MOST:
            return gradient
        if kind not in self._known:
            self._known[kind] = self._traced(gradient, theta_KP, held_K, batch_K)
        return self._known[kind] or gradient

    def product_seconds(self, num_rows: int) -> float:
        """See `Program.product_seconds`; of the program that was traced first, 0 without one."""
        program = next(iter(self._known.values()), None)
        return program.product_seconds(num_rows) if program else 0.0

    def _traced(
        self, gradient: Gradient, theta_KP: Tensor, held_K: Mapping[str, Tensor], batch_K: Any
    ) -> Program | None:
        before = _state(self._module)
        held = [{name: tensor.clone() for name, tensor in held_K.items()} for _ in range(2)]
        expected = (*gradient(theta_KP, held[0], batch_K), *held[0].values())
        try:
            program = Program(gradient, theta_KP, held_K, batch_K)
            found = (*program(theta_KP, held[1], batch_K), *held[1].values())
        except Exception as error:  # noqa: BLE001  What is written can run, whatever the tracer says.
            if is_out_of_memory(error):
                raise
            self.obstacle = f"it cannot be traced ({type(error).__name__})"
            return None
        if _state(self._module) != before:
            self.obstacle = "it counts its steps, or draws numbers outside torch"
        elif not all(map(self._agree, found, expected)):
            self.obstacle = "what it does depends on values"
        else:
            return program
        return None

    def _agree(self, ours: Tensor, theirs: Tensor) -> bool:
        if not theirs.is_floating_point():
            return torch.equal(ours, theirs)
        ours, theirs = (values.double().reshape(len(values), -1) for values in (ours, theirs))
        is_finite = theirs.isfinite()
        if not torch.equal(ours.isfinite(), is_finite):
            return False
        ours, theirs = ours.where(is_finite, 0.0), theirs.where(is_finite, 0.0)
        size_K1 = theirs.abs().amax(1, keepdim=True)
        return bool(((ours - theirs).abs() <= self._tolerance * size_K1).all())


@contextmanager
def _without_fallback() -> Iterator[None]:
    """Makes `vmap` refuse what it has no rule for: it would go through all of `MANY` rows."""
    functorch: Any = torch._C._functorch  # type: ignore[attr-defined]
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


def _timed(left: Tensor, right: Tensor) -> float:
    began = time.perf_counter()
    # Read, so that the host waits for it.
    float(torch.bmm(left, right)[0, 0, 0])
    return time.perf_counter() - began


def _kind(batch_K: Any) -> Hashable:
    """What batches have in common that one program can read, whatever the number of trials.

    Raises:
        TypeError: something in the batch is neither a tensor nor hashable.
    """
    leaves, structure = tree_flatten(batch_K)
    kinds = tuple(
        (leaf.shape[1:], leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves
    )
    hash(kinds)
    return kinds, str(structure)


def _state(module: nn.Module) -> list[object]:
    """What steps may change beside tensors: plain attributes of modules, Python's generators."""
    plain = (bool, int, float, str)
    numbers = [
        (name, key, value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, plain)
    ]
    return [numbers, random.getstate(), np.random.get_state()[1].tolist()]  # type: ignore[index]


def _free_rows(graph: fx.Graph) -> None:
    """Replaces multiples of `MANY` in a graph by multiples of the rows that it is given.

    Raises:
        ValueError: the number of rows was used otherwise than as a multiple.
    """
    first = next(iter(graph.nodes))
    with graph.inserting_after(_last_placeholder(graph)):
        rows = graph.call_function(torch.ops.aten.sym_size.int, (first, 0))
    known: dict[int, fx.Node] = {1: rows}

    def freed(value: Any) -> Any:
        if not isinstance(value, int) or abs(value) < MANY // 2 or abs(value) > MANY**2:
            return value
        times, rest = divmod(value, MANY)
        if rest:
            raise ValueError(f"{value} is no multiple of the number of trials")
        if times not in known:
            with graph.inserting_after(rows):
                known[times] = graph.call_function(_times, (rows, times))
        return known[times]

    for node in list(graph.nodes):
        if node is rows or node.target is _times:
            continue
        node.args, node.kwargs = map_aggregate(node.args, freed), map_aggregate(node.kwargs, freed)  # type: ignore[assignment]


def _times(rows: int, times: int) -> int:
    return rows * times


def _last_placeholder(graph: fx.Graph) -> fx.Node:
    placeholders: Sequence[fx.Node] = [node for node in graph.nodes if node.op == "placeholder"]
    return placeholders[-1]
