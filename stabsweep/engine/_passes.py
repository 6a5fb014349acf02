"""What can be left out of a graph of tensor operations, and what can be done in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

aten = torch.ops.aten

SHAPED = frozenset({aten._unsafe_view.default, aten.view.default})
VIEWS = SHAPED | {
    aten.expand.default,
    aten.permute.default,
    aten.squeeze.dim,
    aten.transpose.int,
    aten.unsqueeze.default,
}
"""Operations that may do nothing, and that are the same when they are done twice."""

IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.neg.default: aten.neg_.default,
    aten.relu.default: aten.relu_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.tanh.default: aten.tanh_.default,
}
"""Operation -> the same, in the place of its first operand."""

INTO = {
    aten.add.Tensor: (aten.add.out, "out"),
    aten.bmm.default: (aten.bmm.out, "out"),
    aten.gelu_backward.default: (aten.gelu_backward.grad_input, "grad_input"),
    aten.mul.Tensor: (aten.mul.out, "out"),
    aten.sigmoid_backward.default: (aten.sigmoid_backward.grad_input, "grad_input"),
    aten.tanh.default: (aten.tanh.out, "out"),
    aten.tanh_backward.default: (aten.tanh_backward.grad_input, "grad_input"),
    aten.threshold_backward.default: (aten.threshold_backward.grad_input, "grad_input"),
}
"""Operation -> the same into a given tensor, and the name of that argument."""

PRODUCTS = (aten.bmm.default, aten.bmm.out, aten.baddbmm_.default)
"""Operations that multiply the matrices that are their last two arguments."""

BACKWARD = tuple(rule for rule, (_, name) in INTO.items() if name == "grad_input")
"""Operations that may write over their first operand, the incoming gradient."""

NARROW, TALL = 4, 8
"""A matrix product with at most NARROW columns, and TALL times as many rows, is faster turned:
measured with MKL, 0.4 ms instead of 3.0 for the gradient of a recurrent network's input weight."""

SMALL = 1 << 13
"""Entries below which many products are faster made side by side and then copied to where they are
gathered: apart from each other they are made one by one, 1.6 us a product (measured with MKL)."""

ALIGNED = 16
"""Numbers of the widest register, and of a line of the cache."""


def simplify(graph: fx.Graph) -> None:
    """Makes a graph do the same with fewer operations and less memory, each row by itself.

    In this order, since each opens the way for the next:

    - A view that changes nothing, and a product with the number 1, are left out; equal views are
      made once.
    - A product of columns with rows, as a layer's with one output needs, is no matrix product.
    - A matrix product with very few columns is computed as that of the transposed matrices.
    - A matrix product that is only added to a sum of matrix products goes right into it: the
      gradient of a recurrent weight is one such sum, as long as the sequence.
    - What is gathered in one tensor, such as the gradient of all parameters, is made there.
    - What is computed into new memory from a tensor that nobody reads again goes into its place.

    Args:
        graph: of `make_fx`, whose nodes carry what they give in `meta["val"]`; changed in place.
    """
    _leave_out(graph)
    _merge_views(graph)
    _leave_out(graph)
    _spread(graph)
    _turn(graph)
    _accumulate(graph)
    _gather(graph)
    _reuse(graph)


def _leave_out(graph: fx.Graph) -> None:
    for node in _nodes(graph):
        source: Any = node.args[0] if node.args else None
        if node.target in VIEWS and _same_layout(node, source):
            _replace(graph, node, source)
        elif node.target is aten.mul.Scalar and node.args[1] == 1 and _same_type(node, source):
            _replace(graph, node, source)
        elif node.target is aten.transpose.int and source.target is aten.transpose.int:
            if {*source.args[1:]} == {*node.args[1:]}:
                _replace(graph, node, source.args[0])
        elif node.target in SHAPED and source.target in SHAPED:
            # A view of a view is a view, where it is one of what lies in one piece.
            if _value(source.args[0]).is_contiguous():
                node.args = (source.args[0], *node.args[1:])
                if _same_layout(node, node.args[0]):
                    _replace(graph, node, node.args[0])
    graph.eliminate_dead_code()


def _merge_views(graph: fx.Graph) -> None:
    seen: dict[tuple[Any, ...], Any] = {}
    for node in _nodes(graph):
        if node.target in VIEWS and not node.kwargs:
            key = (node.target, node.args[0], str(node.args[1:]))
            if key in seen:
                _replace(graph, node, seen[key])
            else:
                seen[key] = node


def _spread(graph: fx.Graph) -> None:
    """Computes a product whose sums have one term each, (K, n, 1) @ (K, 1, m), by broadcasting."""
    for node in _nodes(graph):
        if node.target is aten.bmm.default and _value(node.args[0]).shape[2] == 1:
            node.target = aten.mul.Tensor


def _turn(graph: fx.Graph) -> None:
    """Computes a product of a few columns, a @ b, as (b^T @ a^T)^T."""
    for node in _nodes(graph):
        if node.target is not aten.bmm.default:
            continue
        (_, rows, inner), columns = _value(node.args[0]).shape, _value(node).shape[2]
        if columns > NARROW or min(rows, inner) < TALL * columns:
            continue
        with graph.inserting_before(node):
            left, right = (_call(graph, aten.transpose.int, arg, 1, 2) for arg in node.args)
            product = _call(graph, aten.bmm.default, right, left)
            turned = _call(graph, aten.transpose.int, product, 1, 2)
            result = graph.call_function(
                aten.clone.default, (turned,), {"memory_format": torch.contiguous_format}
            )
        result.meta["val"] = _value(node)
        _replace(graph, node, result)


def _accumulate(graph: fx.Graph) -> None:
    """Adds a product to a in place, in a + b @ c, where nobody else reads a or the product."""
    for node in _nodes(graph):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        for total, product in (node.args, node.args[::-1]):
            if (
                _is_a(product, aten.bmm.default)
                and _is_a(total, aten.bmm.default, aten.baddbmm_.default)
                and total is not product
                and len(product.users) == len(total.users) == 1
                and _same_layout(total, product)
            ):
                node.target = aten.baddbmm_.default
                node.args = (total, *product.args)
                graph.erase_node(product)
                break


def _gather(graph: fx.Graph) -> None:
    """Has what cat or stack would gather computed into its part of one tensor."""
    for node in _nodes(graph):
        if not _is_a(node, aten.cat.default, aten.stack.default):
            continue
        pieces, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        makers = {piece: _maker(piece, node) for piece in pieces}
        is_whole = len(makers) == len(pieces) and _value(node).is_contiguous()
        # The first dimension is that of the trials, whose number is not known.
        if dim == 0 or not is_whole or not any(makers.values()):
            continue
        whole = _whole(graph, node)
        start = 0
        for index, piece in enumerate(pieces):
            with graph.inserting_after(whole):
                if node.target is aten.stack.default:
                    part = graph.call_function(aten.select.int, (whole, dim, index))
                else:
                    stop = start + _value(piece).shape[dim]
                    part = graph.call_function(aten.slice.Tensor, (whole, dim, start, stop))
                    start = stop
            maker = makers[piece]
            if maker is None:
                with graph.inserting_before(node):
                    graph.call_function(aten.copy_.default, (part, piece))
                continue
            if _value(maker).shape != _value(piece).shape:
                with graph.inserting_after(part):
                    shape = list(_value(maker).shape)
                    part = graph.call_function(aten.view.default, (part, shape))
            maker.target, name = INTO[maker.target]
            maker.kwargs = {**maker.kwargs, name: part}
            maker.meta["is_part"] = True
        _replace(graph, node, whole)


def _whole(graph: fx.Graph, node: Any) -> Any:
    """Memory for what a node gathers, made before anything else is.

    Rows of the gradient begin at a multiple of `ALIGNED` numbers: how a matrix product rounds may
    depend on where its result lies, and no trial may depend on which row it is.
    """
    shape = list(_value(node).shape)
    is_gradient = any(user.op == "output" for user in node.users)
    if is_gradient:
        shape[-1] += -shape[-1] % ALIGNED
    with graph.inserting_before(_first_operation(graph)):
        whole = graph.call_function(
            aten.new_empty.default,
            (next(iter(graph.nodes)), shape),
            {"dtype": _value(node).dtype},
        )
        if is_gradient:
            end = _value(node).shape[-1]
            whole = graph.call_function(aten.slice.Tensor, (whole, len(shape) - 1, 0, end))
    whole.meta["val"] = _value(node)
    return whole


def _maker(piece: Any, gathered: Any) -> Any:
    """The operation that a piece is the result of, if it can write elsewhere; else None."""
    maker = piece
    while maker.target in SHAPED and len(maker.users) == 1:
        maker = maker.args[0]
    if maker.target not in INTO or not _value(maker).is_contiguous():
        return None
    if maker.target is aten.bmm.default:
        is_gradient = any(user.op == "output" for user in gathered.users)
        if not is_gradient or _value(maker)[0].numel() < SMALL:
            return None
    # A view of a part of a larger tensor is no longer one of all that lies in one piece.
    is_read_as_view = any(user.target in SHAPED and user is not piece for user in maker.users)
    return None if is_read_as_view else maker


def _reuse(graph: fx.Graph) -> None:
    for node in _nodes(graph):
        if _is_a(node, aten.add.Tensor, aten.mul.Tensor) and not node.kwargs:
            first, second = node.args
            if not _is_free(first, node) and _is_free(second, node):
                node.args = (second, first)
        if not node.args or not _is_free(node.args[0], node):
            continue
        if node.target in IN_PLACE:
            node.target = IN_PLACE[node.target]
        elif node.target in BACKWARD:
            node.target, name = INTO[node.target]
            node.kwargs = {**node.kwargs, name: node.args[0]}
    for node in _nodes(graph):
        if _is_a(node, aten.tanh_.default, aten.tanh.out) and _is_numpys(_value(node)):
            node.target = tanh_into
            node.args, node.kwargs = (node.args[0], node.kwargs.get("out", node.args[0])), {}


def tanh_into(values: Tensor, out: Tensor) -> Tensor:
    """The hyperbolic tangent, computed by NumPy into a tensor of the same shape."""
    np.tanh(values.numpy(), out=out.numpy())
    return out


def _is_numpys(values: Tensor) -> bool:
    """Whether a tangent is to be computed by NumPy."""
    return values.device.type == "cpu" and values.dtype == torch.float32 and _numpy_is_faster()


@cache
def _numpy_is_faster() -> bool:
    """Whether NumPy's tangent takes less than half of the time of torch's here.

    torch asks the library that it was built with; on an AMD EPYC this took 6.5 times as long. By a
    clear margin, so that noise does not choose: the two round differently.
    """
    values = torch.linspace(-3, 3, 1 << 14)

    def seconds(work: Callable[[], object]) -> float:
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            taken.append(time.perf_counter() - began)
        return min(taken)

    ours = seconds(lambda: tanh_into(values, torch.empty_like(values)))
    return 2 * ours < seconds(values.tanh)


def _is_free(node: Any, user: Any) -> bool:
    """Whether a node's memory is its own, read by one user only and as large as what that gives.

    A view is never free, nor is what someone has a view of.
    """
    if not isinstance(node, fx.Node) or node.op != "call_function" or len(node.users) != 1:
        return False
    if "is_part" in node.meta:
        return False
    return (_is_new(node) or node.target in _CHANGED) and _same_layout(node, user)


_CHANGED = {*IN_PLACE.values(), *(INTO[rule][0] for rule in BACKWARD), aten.baddbmm_.default}
"""Operations that give what they were given, changed: as free as that was."""


def _is_new(node: Any) -> bool:
    """Whether an operation gives memory that it has just made."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1 or schema.is_mutable:
        return False
    return schema.returns[0].alias_info is None and node.target not in VIEWS


def _same_layout(one: Any, other: Any) -> bool:
    ours, theirs = _value(one), _value(other)
    return (
        isinstance(ours, Tensor)
        and isinstance(theirs, Tensor)
        and (ours.shape, ours.stride(), ours.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
    )


def _same_type(one: Any, other: Any) -> bool:
    return _value(one).dtype == _value(other).dtype


def _is_a(node: Any, *targets: Any) -> bool:
    return isinstance(node, fx.Node) and node.target in targets


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, fx.Node) else None


def _call(graph: fx.Graph, target: Any, *args: Any) -> Any:
    """A new node, with what it gives."""
    node = graph.call_function(target, args)
    node.meta["val"] = target(*(_value(arg) if isinstance(arg, fx.Node) else arg for arg in args))
    return node


def _replace(graph: fx.Graph, node: Any, by: Any) -> None:
    node.replace_all_uses_with(by)
    graph.erase_node(node)


def _first_operation(graph: fx.Graph) -> Any:
    return next(node for node in graph.nodes if node.op != "placeholder")


def _nodes(graph: fx.Graph) -> list[Any]:
    """The nodes as they are now; what a node takes has no type that helps here."""
    return list(graph.nodes)
