"""Attention logits, seen from outside: the largest one of each layer in a forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stabsweep.guard.wrapping import is_compiled

SAMPLES = 4
"""Examples of a batch whose logits are looked at. Ours: how large they get is a matter of the
layer's weights, and few keep a close look cheap."""

LOOKS = 3
"""Looks at all modules, after which those alone are looked at that have shown logits. Ours:
attention is in every pass or in none. Measured on the RNN, which has none: a close look costs 1.1
instead of 2.2 ms."""

_SOFTMAX = (torch.softmax, F.softmax, Tensor.softmax, torch.Tensor.softmax)


class Logits:
    """The largest attention logit of every layer, in the passes between `begin` and `end`.

    Seen are `torch.nn.MultiheadAttention`, every call of
    `torch.nn.functional.scaled_dot_product_attention`, and every `softmax` over three dimensions or
    more in a module with `attention` or `attn` in its path: so our models, those of `torch.nn` and
    those of Hugging Face. Compiled models and kernels of others, such as flash-attn's own, are not.

    Args:
        model: the module whose layers are told apart.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._is_on = not any(is_compiled(module) for module in model.modules())
        self._found: dict[str, Tensor] = {}
        self._path: list[str] = []
        self._hooks: list[Any] = []
        self._mode: _Watch | None = None
        self._layers: set[str] = set()
        self._num_looks = 0

    def begin(self, called: str = "") -> None:
        """Looks at what follows.

        Args:
            called: name of the module that is just being called.
        """
        if self._mode is not None or not self._is_on:
            return
        self._path.append(called)
        self._num_looks += 1
        is_known = self._num_looks > LOOKS
        for name, module in self._model.named_modules():
            if is_known and name not in self._layers:
                continue
            # Not on what is called itself, whose hooks are at work when these are taken off again.
            if name != called:
                self._hooks += [
                    module.register_forward_pre_hook(self._enter(name)),
                    module.register_forward_hook(self._leave, always_call=True),
                ]
            if isinstance(module, nn.MultiheadAttention):
                # Its own calls lie below torch's functions, where no mode sees them.
                hook = module.register_forward_pre_hook(self._project, with_kwargs=True)
                self._hooks.append(hook)
        self._mode = _Watch(self._see)
        self._mode.__enter__()

    def end(self) -> None:
        """Looks no more."""
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
        self._path.clear()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def take(self) -> dict[str, Tensor]:
        """Layer -> largest logit as a scalar on its device, since the last call."""
        found, self._found = self._found, {}
        self._layers.update(found)
        if self._num_looks >= LOOKS and not self._layers:
            self._is_on = False
        return found

    def _enter(self, name: str) -> Callable[..., None]:
        return lambda *_: self._path.append(name)

    def _leave(self, *_: Any) -> None:
        if self._path:
            self._path.pop()

    def _project(self, module: nn.MultiheadAttention, args: Any, kwargs: Any) -> None:
        query, key = (*args, *(kwargs[n] for n in ("query", "key") if n in kwargs))[:2]
        self._see(_projected(module, query, key), True)

    def _see(self, largest: Tensor, is_sure: bool) -> None:
        name = self._path[-1] if self._path else ""
        if not is_sure and not any(word in name.lower() for word in ("attention", "attn")):
            return
        known = self._found.get(name)
        self._found[name] = largest if known is None else torch.maximum(known, largest)


class _Watch(TorchFunctionMode):
    def __init__(self, see: Callable[[Tensor, bool], None]) -> None:
        super().__init__()
        self._see = see

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self._see(_fused(*args[:2], **kwargs), True)
        elif func in _SOFTMAX and args and isinstance(args[0], Tensor) and args[0].dim() >= 3:
            self._see(_largest(args[0]), False)
        return func(*args, **kwargs)


@torch.no_grad()
def _fused(query: Tensor, key: Tensor, *_: Any, scale: float | None = None, **__: Any) -> Tensor:
    q, k = (t.detach()[:SAMPLES].float() for t in (query, key))
    if q.dim() == k.dim() >= 4 and q.shape[-3] != k.shape[-3]:
        # Grouped queries share keys.
        k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    return _largest(q @ k.transpose(-2, -1) * scale)


@torch.no_grad()
def _projected(module: nn.MultiheadAttention, query: Tensor, key: Tensor) -> Tensor:
    """The largest logit of a module's heads, whose input is (B, L, E), (L, B, E) or (L, E)."""
    if query.dim() == 2:
        query, key = query[None], key[None]
    elif not module.batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    weights, bias = (module.q_proj_weight, module.k_proj_weight), module.in_proj_bias
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)[:2]
    biases = (None, None) if bias is None else bias.chunk(3)[:2]
    q, k = (
        F.linear(x.detach()[:SAMPLES], w, b).unflatten(-1, (module.num_heads, -1)).transpose(-3, -2)
        for x, w, b in zip((query, key), weights, biases, strict=True)
    )
    return _largest((q.float() @ k.float().transpose(-2, -1)) / math.sqrt(q.shape[-1]))


@torch.no_grad()
def _largest(scores: Tensor) -> Tensor:
    """The largest score: what is masked is far below it."""
    return scores.detach()[:SAMPLES].max().float()
