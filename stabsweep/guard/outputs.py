"""How large the outputs of a model's layers become, seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.guard.close_look import layer_of
from stabsweep.guard.finding import tensors_in
from stabsweep.guard.wrapping import is_compiled


class Outputs:
    """The largest magnitude that each layer has handed on since the last `take`.

    A layer is a module that owns parameters. One whose parameters are used by its parent, without
    a call, is not seen; nor is a compiled model.

    Args:
        model: the module whose layers are told apart.
    """

    def __init__(self, model: nn.Module) -> None:
        self._largest: dict[str, Tensor] = {}
        self._hooks: list[Any] = []
        if any(is_compiled(module) for module in model.modules()):
            return
        layers = {layer_of(name) for name, _ in model.named_parameters()}
        for name, module in model.named_modules():
            if name in layers:
                self._hooks.append(module.register_forward_hook(self._seeing(name)))

    def _seeing(self, name: str) -> Callable[..., None]:
        @torch.no_grad()
        def see(module: nn.Module, args: Any, output: Any) -> None:
            tensors = [t for _, t in tensors_in(output, "") if t.is_floating_point() and t.numel()]
            if not tensors:
                return
            # Of what is not a number the norm is none either.
            norms = torch._foreach_norm(tensors, torch.inf)  # pyright: ignore[reportPrivateImportUsage]
            found = torch.stack([norm.to(norms[0]) for norm in norms]).max()
            before = self._largest.get(name)
            self._largest[name] = found if before is None else torch.maximum(before, found)

        return see

    def take(self) -> dict[str, float]:
        """Layer -> the largest magnitude, and begins anew."""
        found, self._largest = self._largest, {}
        if not found:
            return {}
        numbers = torch.stack([value.double() for value in found.values()]).tolist()
        return dict(zip(found, numbers, strict=True))

    def close(self) -> None:
        """Takes the hooks off the model."""
        for hook in self._hooks:
            hook.remove()
