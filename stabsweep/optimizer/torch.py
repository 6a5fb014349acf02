"""Any optimizer of PyTorch's kind, by its target."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from stabsweep.errors import BadInput
from stabsweep.optimizer._base import Optimizer, State
from stabsweep.target import load, make
from stabsweep.target import parameters as takes


class Torch(Optimizer):
    """A class that extends `torch.optim.Optimizer`, or a function that makes one, as it is.

    It is called with the trained parameters (with pairs of name and parameter, if it takes
    `named_parameters`) and, if it takes a rate, with `lr=1.0`. The sweep sets the rate of every
    step; groups keep the ratio of theirs. It has no stacked form, so its trials run one by one.

    Args:
        target: `module:attribute`, such as `torch.optim:Adafactor`.
        args: its keyword arguments, but for the rate.

    Raises:
        BadInput: there is no target, or `args` holds a rate. What cannot be called, or wants what
            the loop cannot give, is found by `twin`, with the parameters of a model.
    """

    name = "torch"
    defaults = {}
    buffers = ()
    stacks = False

    def __init__(self, target: str | None = None, args: Mapping[str, Any] | None = None) -> None:
        if target is None:
            raise BadInput(
                "optimizer=torch needs optimizer.target=module:attribute, such as "
                "optimizer.target=torch.optim:Adafactor"
            )
        if isinstance(args, Mapping) and "lr" in args:
            raise BadInput("optimizer.args.lr is not allowed: the rate is what is swept, space.lr")
        self.target = target
        self.args = args

    def delta(
        self,
        theta_KP: Tensor,
        grad_KP: Tensor,
        state: State,
        hyper: Mapping[str, Tensor],
        lr_K1: Tensor,
        step_K1: Tensor,
    ) -> Tensor:
        """Raises, since there is no stacked form."""
        raise NotImplementedError(f"{self.target} has no stacked form")

    def twin(
        self, parameters: Mapping[str, nn.Parameter], hyper: Mapping[str, float]
    ) -> torch.optim.Optimizer:
        """The optimizer itself; the rates of its groups are their ratios to the swept one."""
        names = takes(load("optimizer.target", self.target))
        takes_names = bool(names) and names[0] == "named_parameters"
        first = list(parameters.items() if takes_names else parameters.values())
        takes_lr = "lr" in names or not names
        own = {"lr": 1.0} if takes_lr else {}
        made = make("optimizer", self.target, self.args, torch.optim.Optimizer, first, **own)
        step = inspect.signature(made.step).parameters.get("closure")
        if step is not None and step.default is inspect.Parameter.empty:
            raise BadInput(
                f"optimizer.target={self.target!r} needs a closure, which no trial can give"
            )
        if not all("lr" in group for group in made.param_groups):
            raise BadInput(
                f"optimizer.target={self.target!r} keeps no lr in its groups: there is no rate "
                "that the sweep could set"
            )
        rates = [float(group["lr"]) for group in made.param_groups]
        # One that was given our rate of 1 has its ratios already.
        base = 1.0 if takes_lr else rates[0]
        if not base > 0:
            raise BadInput(
                f"optimizer.target={self.target!r} gives its first group lr={base:g}: give it a "
                "rate above 0, since those of the others are ratios to it"
            )
        for group, rate in zip(made.param_groups, rates, strict=True):
            group["lr"] = rate / base
        return made
