"""What a model may be wrapped in: DDP, a compiler."""

from __future__ import annotations

from torch import nn

WRAPPERS = ("DataParallel", "DistributedDataParallel", "OptimizedModule")
"""Classes of modules that hand every call on to one below them."""


def unwrapped(model: nn.Module) -> nn.Module:
    """The module below all wrappers: its names are those that a reader knows."""
    for name in ("module", "_orig_mod"):
        inner = getattr(model, name, None)
        if isinstance(inner, nn.Module) and is_wrapper(model):
            return unwrapped(inner)
    return model


def is_wrapper(module: nn.Module) -> bool:
    """Whether a module only hands its calls on."""
    return type(module).__name__ in WRAPPERS


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of a module itself are compiled, `torch.compile(module)` or `module.compile()`.

    A hook that comes and goes would have it compiled again and again.
    """
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or type(module).__name__ == "OptimizedModule"
