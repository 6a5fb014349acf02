"""The operations of a training step, from the simplest to a whole one, on inputs that are fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stabsweep.fingerprint.inputs import positive, signed


@dataclass(frozen=True)
class Operation:
    """One rung of the ladder.

    Attributes:
        name: for a reader.
        run: computes it on a device in a type; gradients are part of what it returns.
        switch: name of the switch under which a GPU computes it in TF32; empty where none does.
    """

    name: str
    run: Callable[[torch.device, torch.dtype], Tensor]
    switch: str = ""


def _sum(device: torch.device, dtype: torch.dtype) -> Tensor:
    # Nothing cancels: the order of summation is all there is. Several, since one may round alike.
    rows = positive("sum", 16, 200_000).to(device, dtype)
    return torch.stack([row.sum() for row in rows])


def _exp(device: torch.device, dtype: torch.dtype) -> Tensor:
    return (8 * signed("exp", 4096)).to(device, dtype).exp()


def _softmax(device: torch.device, dtype: torch.dtype) -> Tensor:
    return (8 * signed("softmax", 32, 256)).to(device, dtype).softmax(-1)


def _layer_norm(device: torch.device, dtype: torch.dtype) -> Tensor:
    x, scale, shift = _leaves("layer norm", device, dtype, (32, 256), (256,), (256,))
    return _with_gradients("layer norm", F.layer_norm(x, (256,), scale, shift), x, scale, shift)


def _quadratic_form(device: torch.device, dtype: torch.dtype) -> Tensor:
    x = torch.tensor([0, 3.14], dtype=torch.float64).to(device, dtype)
    return ((x @ torch.eye(2, device=device, dtype=dtype)) @ x).view(1)


def matmul_factors() -> tuple[Tensor, Tensor]:
    """What is multiplied by `matmul`: (256, 512) and (512, 256) of float64."""
    return signed("matmul left", 256, 512), signed("matmul right", 512, 256)


def _matmul(device: torch.device, dtype: torch.dtype) -> Tensor:
    left, right = (x.to(device, dtype) for x in matmul_factors())
    return left @ right


def _conv(device: torch.device, dtype: torch.dtype) -> Tensor:
    x, weight = _leaves("conv", device, dtype, (8, 8, 16, 16), (16, 8, 3, 3))
    return _with_gradients("conv", F.conv2d(x, weight, padding=1), x, weight)


def _lstm_cell(device: torch.device, dtype: torch.dtype) -> Tensor:
    cell = nn.LSTMCell(64, 64).to(device, dtype)
    weights = list(cell.parameters())
    with torch.no_grad():
        for number, weight in enumerate(weights):
            weight.copy_(signed(f"lstm {number}", *weight.shape) / 8)
    x, hidden, memory = _leaves("lstm", device, dtype, (32, 64), (32, 64), (32, 64))
    return _with_gradients("lstm", torch.cat(cell(x, (hidden, memory))), x, *weights)


def _attention(device: torch.device, dtype: torch.dtype) -> Tensor:
    q, k, v = _leaves("attention", device, dtype, *[(2, 4, 32, 16)] * 3)
    found = F.scaled_dot_product_attention(4 * q, k, v, is_causal=True)
    return _with_gradients("attention", found, q, k, v)


def _adam_step(device: torch.device, dtype: torch.dtype) -> Tensor:
    weight = nn.Parameter(signed("adam", 4096).to(device, dtype))
    rule = torch.optim.Adam([weight], lr=2.0**-7)
    for step in range(3):
        weight.grad = signed(f"adam {step}", 4096).to(device, dtype)
        rule.step()
    return weight


LADDER: Sequence[Operation] = (
    Operation("sum", _sum),
    Operation("exp", _exp),
    Operation("softmax", _softmax),
    Operation("layer norm", _layer_norm),
    Operation("quadratic form", _quadratic_form, "matmul_tf32"),
    Operation("matmul", _matmul, "matmul_tf32"),
    Operation("conv", _conv, "cudnn_tf32"),
    Operation("LSTM cell", _lstm_cell, "matmul_tf32"),
    Operation("attention", _attention, "matmul_tf32"),
    Operation("Adam step", _adam_step),
)
"""The ladder. The sum, and a net on other vector levels, are known to differ between machines; the
quadratic form of [0, 3.14] is known to be 9.8616 under TF32, and 9.8596 without."""

OPERATIONS = {operation.name: operation for operation in LADDER}


def matmul_in_tf32() -> Tensor:
    """What `matmul` gives where its factors are rounded to TF32, which has 10 bits, (256, 256).

    The products and their sum are those of float64: a tensor core sums in float32, whose rounding
    is a thousand times smaller.
    """
    left, right = (round_mantissa(x, 10) for x in matmul_factors())
    return (left @ right).float()


def round_mantissa(values: Tensor, bits: int) -> Tensor:
    """Numbers of float64 rounded to a mantissa of fewer bits, ties to even."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2 ** (bits + 1)).round() / 2 ** (bits + 1), exponent)


def _leaves(
    name: str, device: torch.device, dtype: torch.dtype, *shapes: tuple[int, ...]
) -> list[Tensor]:
    """Inputs whose gradients are asked for."""
    drawn = [signed(f"{name} {number}", *shape) for number, shape in enumerate(shapes)]
    return [x.to(device, dtype).requires_grad_() for x in drawn]


def _with_gradients(name: str, output: Tensor, *inputs: Tensor) -> Tensor:
    """An output and the gradients of a fixed weighting of it, as one row."""
    weights = signed(f"{name} weights", *output.shape).to(output)
    grads = torch.autograd.grad(output, inputs, weights)
    return torch.cat([x.detach().reshape(-1) for x in (output, *grads)])
