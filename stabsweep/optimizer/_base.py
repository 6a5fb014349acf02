"""What an optimizer of stacked trials is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn

State: TypeAlias = dict[str, Tensor]
"""The optimizer's memory: buffer name -> (K, P), or (K, 1) for one number a trial."""


class Optimizer(ABC):
    """An update rule for K trials at once, each with its own hyperparameters.

    All parameters of a trial are one row of a (K, P) tensor, so an update is elementwise and a
    hyperparameter is a (K, 1) column beside it: rows never touch each other.

    Attributes:
        name: the choice on the command line.
        defaults: hyperparameter -> value, unless configured or swept otherwise.
        buffers: names of the (K, P) tensors that it remembers; all start at zero.
        is_adaptive: whether it divides the gradient by its own size, so that a step is as long as
            the rate whatever the loss is multiplied with.
        stacks: whether it has a stacked form; else its trials run one by one.
        moves_rows: whether it has `move_row` too.
    """

    name: ClassVar[str]
    defaults: ClassVar[Mapping[str, float]]
    buffers: ClassVar[tuple[str, ...]]
    is_adaptive: ClassVar[bool] = True
    stacks: ClassVar[bool] = True
    moves_rows: ClassVar[bool] = False

    def laid_out(self, shapes: Sequence[tuple[str, torch.Size]]) -> Optimizer:
        """The rule for parameters of given names and shapes, in their order in a row.

        Itself, for a rule that treats every weight alike.
        """
        return self

    def lr_scale_power(self, name: str, shape: torch.Size) -> float:
        """The power in which a rate factor that the model asks for applies to a parameter.

        A model asks in the terms of SGD or of Adam (`is_adaptive`). A rule whose step grows
        otherwise with the size of a matrix says here how.
        """
        return 1.0

    def new_state(self, theta_KP: Tensor) -> State:
        """Fresh buffers for rows of weights; whatever is kept has one row a trial."""
        return {name: torch.zeros_like(theta_KP) for name in self.buffers}

    def check(self, hyper: Mapping[str, float]) -> None:  # noqa: B027  Most rules take all.
        """Nothing, if the hyperparameters go together.

        Raises:
            BadInput: they do not; each is in its range.
        """

    @abstractmethod
    def delta(
        self,
        theta_KP: Tensor,
        grad_KP: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        lr_K1: Tensor,
        step_K1: Tensor,
    ) -> Tensor:
        """The update to be added to the weights; advances the buffers in place.

        Args:
            theta_KP: weights before the update.
            grad_KP: gradient, clipping applied; may be overwritten.
            state: the buffers of these rows.
            hyper: every name of `defaults` -> (K, 1) in float64: 1 - 0.999^t has lost half of its
                digits in float32, so cast to the weights' type only what multiplies them.
            lr_K1: learning rate of this step in float64, warmup and schedule applied.
            step_K1: updates done before this one, in float64: 0 at the first.
        """

    def move_row(
        self, theta_P: Tensor, grad_P: Tensor, state: State, hyper: Mapping[str, float], step: int
    ) -> None:
        """Moves the weights of one trial on a CPU in a single pass over memory, as `delta` would.

        With the kernels that `torch.optim` calls when it is told `fused=True`.

        Args:
            theta_P: weights of the trial; changed in place.
            grad_P: gradient, clipping applied.
            state: the buffers of this row, (P,) each; advanced in place.
            hyper: every name of `defaults`, and `lr`: the rate of this step.
            step: updates done before this one.
        """
        raise NotImplementedError(f"torch has no such kernel for {self.name}: see moves_rows")

    @abstractmethod
    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """The same rule from `torch.optim`, for one trial: what the plain loop runs.

        Where torch has none, one written from the paper with a loop over the parameters.

        Args:
            parameters: the trained parameters of a module, by name.
            hyper: every name of `defaults` -> value.
        """
