"""The square of one number."""

from __future__ import annotations

from stabsweep.task.quadratic import Quadratic


class UV(Quadratic):
    """The loss f^2 / 2 of the one output f of a model: a regression on 0 with no data.

    It is the quadratic of one output. With `model=uv`, for which it is made, the output is no
    parameter but a product of parameters, and the edge lies at twice the linear one.

    There is no blind loss, since there is no input to ignore.
    """

    name = "uv"

    def __init__(self) -> None:
        super().__init__([1.0])
