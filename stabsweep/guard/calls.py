"""The forward passes of a window, remembered so that a bad one can be looked at in detail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.guard.finding import BadTensor, find_all_bad, tensors_in
from stabsweep.guard.wrapping import is_compiled, is_wrapper, unwrapped

MAX_CALLS = 64
"""Forward passes that are remembered in one window; ours: more are no accumulation any more."""


@dataclass(frozen=True)
class Call:
    """One forward pass: what it was given, and what it may have drawn from.

    Only references are kept, until the window ends: an input that is changed in place afterwards
    is looked at as it is then.
    """

    name: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    generators: tuple[Tensor, ...]
    autocast: tuple[bool, torch.dtype]


@dataclass(frozen=True)
class Forward:
    """What a forward pass shows when it is repeated.

    Attributes:
        order: names of the modules in the order in which they ended.
        inputs: what of the input is not finite.
        module: the first module whose output is not finite, `""` the model itself; None when all
            are finite.
        kind: the class of that module.
        outputs: what of its output is not finite.
        largest: the largest magnitude among the finite inputs of that module.
        error: why the pass could not be repeated.
    """

    order: tuple[str, ...] = ()
    inputs: tuple[BadTensor, ...] = ()
    module: str | None = None
    kind: str = ""
    outputs: tuple[BadTensor, ...] = ()
    largest: float = 0.0
    error: str = ""


class Calls:
    """The forward passes of a model since the last `clear`.

    A loop may call the model, or its parts one after another, as a training step in a framework
    does: remembered are the outermost calls of the model and of its children.

    Args:
        model: the module that a training loop calls.
        before: told of what is called, before each pass, e.g. to look closely at it.
        after: called after it, whatever became of it.
    """

    def __init__(
        self,
        model: nn.Module,
        before: Callable[[str], None] = lambda _: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._before, self._after = before, after
        self._calls: list[Call] = []
        self._is_repeating = False
        self._inside: nn.Module | None = None
        self._device = _device_type(model)
        self._hooks: list[Any] = []
        for name, module in _called(model):
            self._hooks += [
                module.register_forward_pre_hook(_Hook(self._remembering(name)), with_kwargs=True),
                module.register_forward_hook(_Hook(self._end), always_call=True),
            ]

    def __len__(self) -> int:
        return len(self._calls)

    def clear(self) -> None:
        """Forgets them."""
        self._calls.clear()

    def close(self) -> None:
        """Takes the hooks off the model."""
        self.clear()
        for hook in self._hooks:
            hook.remove()

    def _remembering(self, name: str) -> Callable[..., None]:
        def remember(module: nn.Module, args: Any, kwargs: Any) -> None:
            # An evaluation in between trains nothing.
            if self._is_repeating or self._inside is not None or not module.training:
                return
            if _is_redirected(module):
                return
            self._inside = module
            if len(self._calls) < MAX_CALLS:
                device = self._device
                self._calls.append(
                    Call(
                        name,
                        module,
                        args,
                        dict(kwargs),
                        _generators(device),
                        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)),
                    )
                )
            self._before(name)

        return remember

    def _end(self, module: nn.Module, *_: Any) -> None:
        if not self._is_repeating and module is self._inside:
            self._inside = None
            self._after()

    def inputs(self, number: int) -> list[BadTensor]:
        """What of the input of a forward pass is not finite.

        What a part of the model is given may come from another part: it is no input of the model.
        """
        call = self._calls[number]
        tree = {**{str(i): arg for i, arg in enumerate(call.args)}, **call.kwargs}
        given = tensors_in(tree, "input")
        return find_all_bad((place, t) for place, t in given if not call.name or t.grad_fn is None)

    @torch.no_grad()
    def repeat(self, number: int) -> Forward:
        """Repeats a forward pass and says where its values stopped being finite.

        Weights must be as they were in it. Random numbers, autocast and buffers are as they were,
        and nothing is changed by it. It misleads where a module keeps a state outside its buffers.
        """
        call = self._calls[number]
        # A rank must not talk to others while it looks, and nothing need be compiled for it.
        model = unwrapped(call.module)
        order: list[str] = []
        found: list[tuple[str, str, list[BadTensor], float]] = []

        def look(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                order.append(name)
                bad = find_all_bad(tensors_in(output, "output")) if not found else []
                if bad:
                    found.append((name, type(module).__name__, bad, _largest(args)))

            return hook

        named = model.named_modules(prefix=call.name)
        hooks = [module.register_forward_hook(look(name)) for name, module in named]
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        device, error = self._device, ""
        enabled, dtype = call.autocast
        self._is_repeating = True
        try:
            with _borrowed(call.generators, device), torch.autocast(device, dtype, enabled):
                model(*call.args, **call.kwargs)
        except Exception as raised:  # whatever the model raises now, it has run before
            error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
        finally:
            self._is_repeating = False
            for hook in hooks:
                hook.remove()
            for buffer, value in buffers:
                buffer.copy_(value)
        name, kind, bad, largest = found[0] if found else (None, "", [], 0.0)
        inputs = tuple(self.inputs(number))
        return Forward(tuple(order), inputs, name, kind, tuple(bad), largest, error)


class _Hook:
    """A hook that stays with the model: a copy of it, or a pickle, gets one that does nothing."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _Hook, (_do_nothing,)


def _do_nothing(*_: Any) -> None:
    pass


def _called(model: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """What a loop may call: a model and its children; of a list, which nobody calls, its items.

    Parts without parameters are left out: a metric would count a repeated call. What lies below a
    wrapper is not called by a loop, and hooks in a compiled model would break its graph.
    """
    if is_compiled(model) and not is_wrapper(model):
        # Compiled in place: its hooks would be compiled, too.
        return
    is_list = isinstance(model, nn.ModuleList | nn.ModuleDict)
    if not is_list:
        yield name, model
    if (not name or is_list) and not is_wrapper(model):
        for child_name, child in model.named_children():
            if next(child.parameters(), None) is not None:
                path = f"{name}.{child_name}" if name else child_name
                yield from _called(child, path)


def _is_redirected(module: nn.Module) -> bool:
    """Whether the call leads to another method, as Lightning leads DDP's to `training_step`.

    It could not be repeated. A wrapper of the module's own forward says what it wraps.
    """
    forward = vars(module).get("forward")
    return isinstance(forward, FunctionType) and not hasattr(forward, "__wrapped__")


def _device_type(module: nn.Module) -> str:
    first = next(module.parameters(), None)
    return "cpu" if first is None else first.device.type


def _generators(device: str) -> tuple[Tensor, ...]:
    """The states of what a forward pass may draw from: of the host, and of the current GPU."""
    states = [torch.get_rng_state()]
    if device == "cuda":
        states.append(torch.cuda.get_rng_state())
    return tuple(states)


@contextlib.contextmanager
def _borrowed(states: tuple[Tensor, ...], device: str) -> Any:
    """A context with the generators in given states; they are put back after it."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device == "cuda" else []):
        torch.set_rng_state(states[0])
        if len(states) > 1:
            torch.cuda.set_rng_state(states[1])
        yield


def _largest(args: Any) -> float:
    largest = [float(t.abs().max()) for _, t in tensors_in(args, "") if t.numel()]
    return max(largest, default=0.0)
