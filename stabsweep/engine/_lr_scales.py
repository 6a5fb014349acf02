"""Learning rates that differ between the parameters of one model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from stabsweep.records import Trial


@dataclass(frozen=True)
class LRScales:
    """Factors of the trial's learning rate, by patterns of parameter names (`readout.*`).

    A sweep moves the one rate `lr`; every ratio between parameters stays as it is. Where several
    patterns match a name their factors multiply.

    Attributes:
        fixed: pattern -> factor, for every trial.
        scale_axes: axis -> pattern: the axis is a factor.
        rate_axes: axis -> pattern: the axis is the peak rate itself, in the place of `lr`.
    """

    fixed: Mapping[str, float] = field(default_factory=dict)
    scale_axes: Mapping[str, str] = field(default_factory=dict)
    rate_axes: Mapping[str, str] = field(default_factory=dict)

    @property
    def patterns(self) -> list[str]:
        """Every pattern, each of which should match a parameter."""
        return [*self.fixed, *self.scale_axes.values(), *self.rate_axes.values()]

    def factors(
        self,
        trial: Trial,
        names: Sequence[str],
        of_model: Mapping[str, float],
        powers: Mapping[str, float],
    ) -> list[float]:
        """What the trial's rate is multiplied with, one factor a parameter.

        Args:
            trial: gives the values of the axes.
            names: of the parameters.
            of_model: pattern -> factor, which the model itself asks for.
            powers: name -> power in which those of the model apply, see `Optimizer`.
        """
        rules = list(self.fixed.items())
        rules += [(pattern, _number(trial, axis)) for axis, pattern in self.scale_axes.items()]
        rules += [
            (pattern, _number(trial, axis) / _number(trial, "lr"))
            for axis, pattern in self.rate_axes.items()
        ]
        return [_matching(rules, n) * _matching(of_model.items(), n) ** powers[n] for n in names]


def _matching(rules: Iterable[tuple[str, float]], name: str) -> float:
    """The product of all factors whose pattern matches a name."""
    return math.prod((factor for pattern, factor in rules if fnmatchcase(name, pattern)), start=1.0)


def _number(trial: Trial, axis: str) -> float:
    return float(trial.point[axis])  # type: ignore[arg-type]
