"""What a clipper of gradients is: stacked over trials, and plain for one module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput

State: TypeAlias = dict[str, Tensor]
"""What a clipper remembers of K trials: name -> one row a trial."""


class Clipper(ABC):
    """A limit on the gradients of K trials at once, each with its own hyperparameters.

    Attributes:
        name: the choice on the command line.
        defaults: hyperparameter -> value, unless configured or swept otherwise; None is "off".
    """

    name: ClassVar[str]
    defaults: ClassVar[Mapping[str, float | None]]

    def laid_out(self, shapes: Sequence[tuple[str, torch.Size]]) -> Clipper:
        """The clipper for parameters of given names and shapes, in their order in a row.

        Itself, for one that looks at whole gradients, or at every entry alike.
        """
        return self

    def new_state(self, theta_KP: Tensor) -> State:
        """A fresh memory for rows of weights; whatever is kept has one row a trial."""
        return {}

    @abstractmethod
    def clip(
        self,
        grad_KP: Tensor,
        theta_KP: Tensor,
        norm_K1: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        step_K1: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The clipped gradients, and the norm after clipping over that before, (K, 1).

        The latter is 1 where nothing was clipped. Advances the memory in place; a norm that is not
        finite is never remembered. It is not mended either: such a trial diverges as it would.

        Args:
            grad_KP: gradients; overwritten.
            theta_KP: weights before the update.
            norm_K1: global norm of each gradient, as `l2_norm` gives it.
            state: the memory of these rows.
            hyper: every name of `defaults` -> (K, 1) in float64; infinite for "off".
            step_K1: updates done before this one, in float64: 0 at the first.
        """

    @abstractmethod
    def twin(self, hyper: Mapping[str, float]) -> Twin:
        """The same clipper for the parameters of one module: what a plain loop runs.

        Args:
            hyper: every name of `defaults` -> value, as `build` gives them.
        """


class Twin(ABC):
    """A clipper of one module, written tensor by tensor.

    The host never waits for the device: all that depends on gradients is a tensor.

    Attributes:
        keys: names of what it remembers.
        memory: name -> tensor; empty until the first gradient.
    """

    keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.memory: State = {}

    @abstractmethod
    def clip_(self, named: Mapping[str, nn.Parameter], total: Tensor) -> Tensor:
        """Clips the gradients in place; the norm after that over the norm before, a scalar.

        It is finite and at most 1 for a finite `total`, and 1 where nothing was clipped. Sparse
        gradients are summed up (coalesced), and their entries clipped.

        Args:
            named: the parameters by name; those without a gradient are passed over.
            total: the global norm of the gradients, a scalar.
        """

    def state_dict(self) -> State:
        """What it remembers, for a checkpoint: plain tensors."""
        return {name: value.clone() for name, value in self.memory.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what `state_dict` gave.

        Raises:
            BadInput: it is the memory of another clipper.
        """
        if set(state) - set(self.keys) or (state and set(self.keys) - set(state)):
            kept, own = (", ".join(sorted(names)) or "nothing" for names in (state, self.keys))
            raise BadInput(
                f"the clipper's state holds {kept}, but this clipper remembers {own}: go on with "
                "the clipper that it was saved from"
            )
        self.memory = {name: value.detach().clone() for name, value in state.items()}


def l2_norm(
    values: Tensor, dim: int | tuple[int, ...] | None = None, keepdim: bool = False
) -> Tensor:
    """The L2 norm, in float32 of half precision: a sum of squares there overflows or stalls."""
    wide = torch.float32 if values.dtype in (torch.bfloat16, torch.float16) else None
    return torch.linalg.vector_norm(values, dim=dim, keepdim=keepdim, dtype=wide)


def kept_share(after: Tensor, before: Tensor) -> Tensor:
    """What clipping has left of norms: 1 of one that is as it was, NaN where one is NaN."""
    return torch.where(after == before, 1.0, (after / before).clamp(max=1.0))


def share_within(norm: Tensor, limit: Tensor) -> Tensor:
    """What to multiply a gradient with, so that its norm does not exceed a limit.

    Exactly 1 at the limit and below. Without the 1e-6 of `torch.nn.utils.clip_grad_norm_`: a limit
    that was measured on the gradients is as small as they are.
    """
    return torch.where(norm <= limit, 1.0, limit / norm)


def exact(values: Tensor) -> Tensor:
    """Values in float64; in float32 on a device that has none."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def gradients(named: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, nn.Parameter, Tensor]]:
    """Name, parameter and the entries of its gradient, to be changed in place.

    Those of a sparse gradient are its values, summed up where an index came twice.
    """
    for name, parameter in named.items():
        if parameter.grad is None:
            continue
        if parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()
            yield name, parameter, parameter.grad._values()
        else:
            yield name, parameter, parameter.grad


def scale_(named: Mapping[str, nn.Parameter], coefficient: Tensor) -> None:
    """Multiplies all gradients, on whatever device each lies."""
    # On a CPU there is nothing to wait for, and most steps of a good run are not clipped.
    if coefficient.device.type == "cpu" and coefficient == 1:
        return
    for _, _, entries in gradients(named):
        entries.mul_(coefficient.to(entries.device))
